package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// What comes to a machine's published ports goes to the machine, from its gateway's address.

// Of one machine at once, so that strangers do not take all of the memory that there is for it.
const connectionsAtMost = 500

const (
	answersWithin = 10 * time.Second
	// A UDP flow ends by silence alone.
	silentFor = 90 * time.Second
	nobody    = 65534
)

// carry goes on where publish ended, for ever: it takes the same file, and what that opened, in the same order.
func carry(path string, opened []string) error {
	asked, err := readPublished(path)
	if err != nil {
		return err
	}
	// From here on it only carries bytes, some of them a stranger's.
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody)); err != nil {
		return err
	}
	places := make(chan struct{}, connectionsAtMost)
	for index, one := range asked.Ports {
		number, err := strconv.Atoi(opened[index])
		if err != nil {
			return err
		}
		file := os.NewFile(uintptr(number), "port")
		target := net.JoinHostPort(asked.Target, strconv.Itoa(one.To))
		if one.Protocol == "udp" {
			socket, err := net.FilePacketConn(file)
			if err != nil {
				return err
			}
			go carryDatagrams(socket.(*net.UDPConn), target, places)
		} else {
			socket, err := net.FileListener(file)
			if err != nil {
				return err
			}
			go carryConnections(socket.(*net.TCPListener), target, places)
		}
		file.Close()
	}
	fmt.Println("ready")
	os.Stdout.Close()
	select {}
}

func carryConnections(listener *net.TCPListener, target string, places chan struct{}) {
	for {
		places <- struct{}{}
		from, err := listener.AcceptTCP()
		if err != nil {
			<-places
			time.Sleep(100 * time.Millisecond) // it has gone away meanwhile, or there are too many
			continue
		}
		go func() {
			join(from, target)
			<-places
		}()
	}
}

func join(from *net.TCPConn, target string) {
	defer from.Close()
	dialed, err := net.DialTimeout("tcp4", target, answersWithin)
	if err != nil {
		from.SetLinger(0) // refused, as by the machine itself
		return
	}
	to := dialed.(*net.TCPConn)
	defer to.Close()
	sent := make(chan struct{})
	go func() {
		io.Copy(to, from)
		to.CloseWrite()
		close(sent)
	}()
	io.Copy(from, to)
	from.CloseWrite()
	<-sent
}

func carryDatagrams(socket *net.UDPConn, target string, places chan struct{}) {
	var lock sync.Mutex
	flows := map[netip.AddrPort]net.Conn{}
	flowOf := func(from netip.AddrPort) net.Conn {
		lock.Lock()
		defer lock.Unlock()
		if there := flows[from]; there != nil {
			return there
		}
		select {
		case places <- struct{}{}:
		default:
			return nil
		}
		flow, err := net.Dial("udp4", target)
		if err != nil {
			<-places
			return nil
		}
		flows[from] = flow
		go func() {
			answer(socket, from, flow)
			lock.Lock()
			delete(flows, from)
			lock.Unlock()
			flow.Close()
			<-places
		}()
		return flow
	}
	buffer := make([]byte, 64*1024)
	for {
		length, from, err := socket.ReadFromUDPAddrPort(buffer)
		if err != nil {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if flow := flowOf(from); flow != nil {
			flow.SetReadDeadline(time.Now().Add(silentFor))
			flow.Write(buffer[:length])
		}
	}
}

func answer(socket *net.UDPConn, to netip.AddrPort, flow net.Conn) {
	buffer := make([]byte, 64*1024)
	for {
		length, err := flow.Read(buffer)
		if errors.Is(err, syscall.ECONNREFUSED) {
			continue // nobody listens there yet
		}
		if err != nil {
			return
		}
		flow.SetReadDeadline(time.Now().Add(silentFor))
		socket.WriteToUDPAddrPort(buffer[:length], to)
	}
}
