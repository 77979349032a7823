package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"syscall"
)

// Ports of the host that are a machine's. Its addresses mean something in its VPC's namespace only, and the ports in the host's: so
// they are opened there, and the program begins anew in the VPC's with what it has opened.

type published struct {
	// Empty: the namespace that it is started in.
	HostNamespace string `json:"host_namespace"`
	Address       string `json:"address"`
	Namespace     string `json:"namespace"`
	Target        string `json:"target"`
	Ports         []port `json:"ports"`
}

type port struct {
	Protocol string `json:"protocol"`
	HostPort int    `json:"host_port"`
	To       int    `json:"container_port"`
}

func readPublished(path string) (asked published, err error) {
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &asked)
	}
	return asked, err
}

// publish takes the file that says what is to be published. It says `ready`, or which port it could not have.
func publish(path string) error {
	// A namespace is a thread's, and the one that begins anew keeps its own.
	runtime.LockOSThread()
	asked, err := readPublished(path)
	if err != nil {
		return err
	}
	if asked.HostNamespace != "" {
		if err := enter(asked.HostNamespace); err != nil {
			return err
		}
	}
	arguments := []string{"helper", "carry", path}
	var opened []*os.File
	for _, one := range asked.Ports {
		file, err := one.open(net.ParseIP(asked.Address))
		if errors.Is(err, syscall.EADDRINUSE) {
			fmt.Printf("in use %d/%s\n", one.HostPort, one.Protocol)
			return err
		}
		if err != nil {
			return err
		}
		opened = append(opened, file)
		if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, file.Fd(), syscall.F_SETFD, 0); errno != 0 {
			return errno
		}
		arguments = append(arguments, strconv.Itoa(int(file.Fd())))
	}
	if err := enter(asked.Namespace); err != nil {
		return err
	}
	err = syscall.Exec("/proc/self/exe", arguments, nil)
	runtime.KeepAlive(opened)
	return err
}

func (one port) open(address net.IP) (*os.File, error) {
	if one.Protocol == "udp" {
		socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: address, Port: one.HostPort})
		if err != nil {
			return nil, err
		}
		defer socket.Close()
		return socket.File()
	}
	socket, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: address, Port: one.HostPort})
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	return socket.File()
}

// enter has this thread be in a network namespace below /run/netns.
func enter(namespace string) error {
	there, err := syscall.Open("/run/netns/"+namespace, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(there)
	const sysSetns = 308
	if _, _, errno := syscall.Syscall(sysSetns, uintptr(there), syscall.CLONE_NEWNET, 0); errno != 0 {
		return errno
	}
	return nil
}
