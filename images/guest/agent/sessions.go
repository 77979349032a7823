package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// Commands with terminals of their own. Neither side sends more than a window's bytes that the other has not dealt with: a slow
// reader holds up its own command, and nobody else.

const window = 128 * 1024

type terminal struct {
	Argv []string `json:"argv"`
	Cols uint16   `json:"cols"`
	Rows uint16   `json:"rows"`
}

type session struct {
	id     string
	pid    int
	master *os.File
	// The master's number: asked of the file, it would be made blocking.
	number uintptr
	input  chan []byte
	gone   chan struct{}

	lock sync.Mutex
	room *sync.Cond
	free int
	shut bool
}

type sessions struct {
	sync.Mutex
	open map[string]*session
}

func (all *sessions) find(id string) *session {
	all.Lock()
	defer all.Unlock()
	return all.open[id]
}

func (all *sessions) hangUpAll() {
	all.Lock()
	defer all.Unlock()
	for id, one := range all.open {
		delete(all.open, id)
		go one.hangUp()
	}
}

func (all *sessions) take(asked request) {
	one := all.find(asked.Session)
	if one == nil {
		return
	}
	switch asked.Verb {
	case "in":
		var data []byte
		if json.Unmarshal(asked.Args, &data) == nil {
			select {
			case one.input <- data:
			default: // beyond the window: a host that does not keep to it
			}
		}
	case "ack":
		var bytes int
		if json.Unmarshal(asked.Args, &bytes) == nil {
			one.lock.Lock()
			one.free += bytes
			one.lock.Unlock()
			one.room.Broadcast()
		}
	case "size":
		var size terminal
		if json.Unmarshal(asked.Args, &size) == nil {
			one.resize(size)
		}
	case "hangup":
		go one.hangUp()
	}
}

func (one *session) resize(size terminal) {
	cells := [4]uint16{size.Rows, size.Cols}
	ioctl(one.number, syscall.TIOCSWINSZ, unsafe.Pointer(&cells))
}

// exec begins a command in a terminal; its end is told as `exit`, after all that it wrote.
func (a *agent) exec(id string, args terminal) error {
	order := a.command.ordered()
	who, home, err := credential(order.User)
	if err != nil {
		return err
	}
	env := withDefault(order.Env, "HOME="+home, "TERM=xterm-256color",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOSTNAME="+order.Hostname)
	folder := order.Folder
	if folder == "" {
		folder = home
	}
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		folder = "/"
	}
	master, number, slave, err := openTerminal()
	if err != nil {
		return err
	}
	defer slave.Close()
	slave.Chown(int(who.Uid), int(who.Gid))
	one := &session{id: id, master: master, number: number, input: make(chan []byte, 4096), gone: make(chan struct{}), free: window}
	one.room = sync.NewCond(&one.lock)
	one.resize(args)

	path, err := lookPath(args.Argv[0], env, folder)
	var end <-chan syscall.WaitStatus
	if err == nil {
		one.pid, end, err = begin(path, args.Argv, &syscall.ProcAttr{
			Dir:   folder,
			Env:   env,
			Files: []uintptr{slave.Fd(), slave.Fd(), slave.Fd()},
			Sys:   &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0, Credential: who},
		})
	}
	if err != nil {
		master.Close()
		code := 127
		if err == syscall.EACCES {
			code = 126
		}
		// As a shell does: the command's own end, not the call's.
		go func() {
			a.send(reply{Verb: "out", Session: id, Body: []byte(args.Argv[0] + ": " + err.Error() + "\r\n")})
			a.send(reply{Verb: "exit", Session: id, Body: code})
		}()
		return nil
	}
	a.sessions.Lock()
	a.sessions.open[id] = one
	a.sessions.Unlock()
	go one.write(a)
	go one.read(a, end)
	return nil
}

func (one *session) write(a *agent) {
	for {
		select {
		case data := <-one.input:
			one.master.Write(data)
			a.send(reply{Verb: "ack", Session: one.id, Body: len(data)})
		case <-one.gone:
			return
		}
	}
}

// read passes on what the command writes, until it has ended and nothing is left of it.
func (one *session) read(a *agent, end <-chan syscall.WaitStatus) {
	peer := a.connection()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		buffer := make([]byte, 16*1024)
		for {
			count, err := one.master.Read(buffer)
			if count > 0 {
				one.lock.Lock()
				for one.free <= 0 && !one.shut {
					one.room.Wait()
				}
				one.free -= count
				one.lock.Unlock()
				a.sendTo(peer, reply{Verb: "out", Session: one.id, Body: buffer[:count]})
			}
			if err != nil {
				return // all ends of the terminal are closed
			}
		}
	}()
	how := <-end
	select {
	case <-drained:
	case <-time.After(200 * time.Millisecond): // what the command left running in the background holds the terminal
		for waiting := true; waiting; {
			one.lock.Lock()
			waiting = one.free <= 0 && !one.shut
			one.lock.Unlock()
			if waiting {
				time.Sleep(20 * time.Millisecond)
			}
		}
	}
	close(one.gone)
	one.master.Close()
	<-drained
	a.sessions.Lock()
	delete(a.sessions.open, one.id)
	a.sessions.Unlock()
	a.sendTo(peer, reply{Verb: "exit", Session: one.id, Body: exitCode(how)})
}

// hangUp ends all of the terminal's session, as a line that breaks does, and after a second by force.
func (one *session) hangUp() {
	one.lock.Lock()
	one.shut = true
	one.lock.Unlock()
	one.room.Broadcast()
	one.signalAll(syscall.SIGHUP)
	time.Sleep(time.Second)
	one.signalAll(syscall.SIGKILL)
}

func (one *session) signalAll(by syscall.Signal) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, stat := range stats {
		text, err := os.ReadFile(stat)
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')'):]), " ")
		fields := strings.Fields(rest)
		if len(fields) > 3 && fields[3] == strconv.Itoa(one.pid) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
			syscall.Kill(pid, by)
		}
	}
}

func openTerminal() (master *os.File, descriptor uintptr, slave *os.File, err error) {
	opened, err := syscall.Open("/dev/ptmx", syscall.O_RDWR|syscall.O_CLOEXEC|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, nil, err
	}
	descriptor = uintptr(opened)
	master = os.NewFile(descriptor, "/dev/ptmx")
	var number, unlocked uint32
	err = ioctl(descriptor, syscall.TIOCSPTLCK, unsafe.Pointer(&unlocked))
	if err == nil {
		err = ioctl(descriptor, syscall.TIOCGPTN, unsafe.Pointer(&number))
	}
	if err == nil {
		slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(int(number)), os.O_RDWR|syscall.O_NOCTTY, 0)
	}
	if err != nil {
		master.Close()
		return nil, 0, nil, err
	}
	return master, descriptor, slave, nil
}

func (c *command) ordered() order {
	c.Lock()
	defer c.Unlock()
	return c.order
}
