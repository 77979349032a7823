package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The host speaks with the agent over one serial port, a JSON object a line; drivers/qemu/agent.ts is the other side. What the host
// asks carries a number, and is answered with it.

const portName = "keelson.agent"

type request struct {
	Verb    string          `json:"verb"`
	ID      int64           `json:"id"`
	Session string          `json:"session"`
	Args    json.RawMessage `json:"args"`
}

type reply struct {
	Verb    string `json:"verb"`
	ID      int64  `json:"id,omitempty"`
	Session string `json:"session,omitempty"`
	Fault   *fault `json:"fault,omitempty"`
	Body    any    `json:"body,omitempty"`
}

// fault is what the host should know of what could not be done. Code is `busy`, `not_started` or `failed`.
type fault struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (f *fault) Error() string { return f.Message }

type agent struct {
	// Whether it is the first process, and so runs a command.
	first bool
	port  int

	writing sync.Mutex
	// Under `state`: which of the host's connections this is, by the name that it gave itself; empty before the first.
	state sync.Mutex
	peer  string

	command  command
	logs     *logRing
	sessions sessions
	thawing  *time.Timer
}

func serve(a *agent) {
	a.logs = newLogRing(a)
	a.sessions = sessions{open: map[string]*session{}}
	go reap()
	a.port = openPort()
	input := bufio.NewReaderSize(portReader(a.port), 64*1024)
	for {
		line, err := input.ReadBytes('\n')
		if err != nil {
			continue
		}
		var asked request
		if json.Unmarshal(line, &asked) != nil {
			continue // the rest of a line that a connection's end has cut
		}
		a.take(asked)
	}
}

// take must not wait for anything: what may take long has a goroutine of its own.
func (a *agent) take(asked request) {
	switch asked.Verb {
	case "hello":
		a.greet(asked)
	case "logged":
		var args struct{ Seq uint64 }
		json.Unmarshal(asked.Args, &args)
		a.logs.forget(args.Seq)
	case "resend":
		var args struct{ Seq uint64 }
		json.Unmarshal(asked.Args, &args)
		a.logs.resendAfter(args.Seq)
	case "in", "ack", "eof", "size", "hangup":
		a.sessions.take(asked)
	default:
		go func() {
			body, err := a.do(asked)
			answer := reply{Verb: "answer", ID: asked.ID, Body: body}
			if err != nil {
				answer.Fault = asFault(err)
			}
			a.send(answer)
		}()
	}
}

func (a *agent) do(asked request) (any, error) {
	read := func(into any) error { return json.Unmarshal(asked.Args, into) }
	switch asked.Verb {
	case "start":
		var order order
		if err := read(&order); err != nil {
			return nil, err
		}
		return a.start(order)
	case "watch":
		var args struct {
			AtMostMs int64 `json:"at_most_ms"`
		}
		if err := read(&args); err != nil {
			return nil, err
		}
		return a.watch(args.AtMostMs), nil
	case "exec":
		var args terminal
		if err := read(&args); err != nil {
			return nil, err
		}
		return nil, a.exec(asked.Session, args)
	case "restart_policy":
		var policy string
		if err := read(&policy); err != nil {
			return nil, err
		}
		a.command.setPolicy(policy)
		return nil, nil
	case "clock":
		var deltaNs int64
		if err := read(&deltaNs); err != nil {
			return nil, err
		}
		return nil, shiftClock(deltaNs)
	case "renew":
		var args renewal
		if err := read(&args); err != nil {
			return nil, err
		}
		return nil, a.renew(args)
	case "nic":
		var nic nic
		if err := read(&nic); err != nil {
			return nil, err
		}
		return nil, nic.apply()
	case "mount":
		var disk disk
		if err := read(&disk); err != nil {
			return nil, err
		}
		return nil, disk.mount()
	case "unmount":
		var disk disk
		if err := read(&disk); err != nil {
			return nil, err
		}
		return nil, disk.unmount()
	case "grow":
		var disk disk
		if err := read(&disk); err != nil {
			return nil, err
		}
		return nil, disk.grow()
	case "freeze":
		return nil, a.freeze()
	case "thaw":
		return nil, a.thaw()
	case "usage":
		return memoryUsage()
	case "poweroff":
		var args struct {
			GraceMs int64 `json:"grace_ms"`
		}
		if err := read(&args); err != nil {
			return nil, err
		}
		return nil, a.end(time.Duration(args.GraceMs) * time.Millisecond)
	}
	return nil, errors.New("the agent has no " + asked.Verb)
}

func asFault(err error) *fault {
	var known *fault
	if errors.As(err, &known) {
		return known
	}
	return &fault{Code: "failed", Message: err.Error()}
}

// greet answers the host's greeting, which it repeats until it has heard answers. A name that was not heard before is a new
// connection: its terminals are new, and it says which lines it has.
func (a *agent) greet(asked request) {
	var args struct {
		Peer   string `json:"peer"`
		Seq    uint64 `json:"seq"`
		SentNs int64  `json:"sent_ns"`
	}
	if json.Unmarshal(asked.Args, &args) != nil {
		return
	}
	a.state.Lock()
	isNew := a.peer != args.Peer
	a.peer = args.Peer
	a.state.Unlock()
	if isNew {
		a.sessions.hangUpAll()
	}
	// Before any line, since the host takes nothing until it has been greeted.
	a.sendTo(args.Peer, reply{Verb: "hello", Body: map[string]any{
		"peer":    args.Peer,
		"sent_ns": args.SentNs,
		"now_ns":  time.Now().UnixNano(),
		"boot":    bootID(),
		"status":  a.command.status(),
	}})
	if isNew {
		a.logs.resendAfter(args.Seq)
	}
}

func (a *agent) connection() string {
	a.state.Lock()
	defer a.state.Unlock()
	return a.peer
}

// send waits while no host is connected. What was meant for an earlier connection is dropped.
func (a *agent) send(message reply) { a.sendTo(a.connection(), message) }

func (a *agent) sendTo(peer string, message reply) bool {
	line, err := json.Marshal(message)
	if err != nil || peer == "" {
		return false
	}
	// What an earlier connection's end has cut is not to become a part of this line.
	line = append(append([]byte{'\n'}, line...), '\n')
	a.writing.Lock()
	defer a.writing.Unlock()
	if a.connection() != peer {
		return false
	}
	for len(line) > 0 {
		written, err := syscall.Write(a.port, line)
		if err == syscall.EINTR || err == syscall.EAGAIN {
			continue
		}
		if err != nil {
			time.Sleep(50 * time.Millisecond)
			return false
		}
		line = line[written:]
	}
	return true
}

// tellStatus says at once what has become of the command.
func (a *agent) tellStatus() { a.send(reply{Verb: "status", Body: a.command.status()}) }

func openPort() int {
	loadModules("agent")
	for {
		name := firstMatch("/sys/class/virtio-ports/*/name", func(text string) bool { return text == portName })
		if name != "" {
			path := "/dev/" + filepath.Base(filepath.Dir(name))
			if port, err := syscall.Open(path, syscall.O_RDWR|syscall.O_CLOEXEC, 0); err == nil {
				return port
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// portReader reads the port in plain blocking calls: a read returns nothing, at once, while no host is connected.
type portReader int

func (port portReader) Read(into []byte) (int, error) {
	for {
		count, err := syscall.Read(int(port), into)
		if count > 0 {
			return count, nil
		}
		if err == syscall.EINTR {
			continue
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func bootID() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text))
}
