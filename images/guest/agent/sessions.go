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

// Commands with terminals of their own, or with pipes. Neither side sends more than a window's bytes that the other has not
// dealt with: a slow reader holds up its own command, and nobody else.

const window = 128 * 1024

type terminal struct {
	Argv []string `json:"argv"`
	Cols uint16   `json:"cols"`
	Rows uint16   `json:"rows"`
	// Pipes in the place of a terminal: the host can end the command's input, and hears its errors apart.
	Pipe bool `json:"pipe"`
}

// output is what a command writes, with the verb by which the host is told.
type output struct {
	verb string
	from *os.File
}

type session struct {
	id  string
	pid int
	// What the command reads and writes. Of a terminal, both are its master.
	to      *os.File
	outputs []output
	// The master's number: asked of the file, it would be made blocking. Zero of pipes.
	number uintptr
	input  chan []byte
	gone   chan struct{}
	// Closed when the host wants no more of it.
	hung       chan struct{}
	hangUpOnce sync.Once

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
	case "eof":
		select {
		case one.input <- nil:
		default:
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

func (one *session) isPipe() bool { return one.number == 0 }

func (one *session) resize(size terminal) {
	if one.isPipe() {
		return
	}
	cells := [4]uint16{size.Rows, size.Cols}
	ioctl(one.number, syscall.TIOCSWINSZ, unsafe.Pointer(&cells))
}

// exec begins a command; its end is told as `exit`, after all that it wrote.
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
	one := &session{id: id, input: make(chan []byte, 4096), gone: make(chan struct{}), hung: make(chan struct{}), free: window}
	one.room = sync.NewCond(&one.lock)
	sys := &syscall.SysProcAttr{Setsid: true, Credential: who}
	var its [3]*os.File
	if args.Pipe {
		its, err = one.openPipes()
	} else {
		sys.Setctty = true
		its, err = one.openTerminal(who)
	}
	if err != nil {
		return err
	}
	defer closeAll(its[:])
	one.resize(args)

	path, err := lookPath(args.Argv[0], env, folder)
	var end <-chan syscall.WaitStatus
	if err == nil {
		one.pid, end, err = begin(path, args.Argv, &syscall.ProcAttr{
			Dir:   folder,
			Env:   env,
			Files: []uintptr{its[0].Fd(), its[1].Fd(), its[2].Fd()},
			Sys:   sys,
		})
	}
	if err != nil {
		one.close()
		code := 127
		if err == syscall.EACCES {
			code = 126
		}
		last := one.outputs[len(one.outputs)-1]
		// As a shell does: the command's own end, not the call's.
		go func() {
			a.send(reply{Verb: last.verb, Session: id, Body: []byte(args.Argv[0] + ": " + err.Error() + "\r\n")})
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
			if data == nil {
				one.to.Close()
				continue
			}
			one.to.Write(data)
			a.send(reply{Verb: "ack", Session: one.id, Body: len(data)})
		case <-one.gone:
			return
		}
	}
}

// read passes on what the command writes, until it has ended and nothing is left of it.
func (one *session) read(a *agent, end <-chan syscall.WaitStatus) {
	peer := a.connection()
	var reading sync.WaitGroup
	for _, each := range one.outputs {
		reading.Go(func() { one.pass(a, peer, each) })
	}
	drained := make(chan struct{})
	go func() {
		reading.Wait()
		close(drained)
	}()
	how := <-end
	if one.isPipe() {
		// What it has left running in the background may write on, for as long as the host listens.
		select {
		case <-drained:
		case <-one.hung:
		}
	} else {
		one.awaitLast(drained)
	}
	close(one.gone)
	one.close()
	<-drained
	a.sessions.Lock()
	delete(a.sessions.open, one.id)
	a.sessions.Unlock()
	a.sendTo(peer, reply{Verb: "exit", Session: one.id, Body: exitCode(how)})
}

// awaitLast waits for the last that a command has written, but not for what it left running in the background, which holds the
// terminal.
func (one *session) awaitLast(drained <-chan struct{}) {
	select {
	case <-drained:
	case <-time.After(200 * time.Millisecond):
		for waiting := true; waiting; {
			one.lock.Lock()
			waiting = one.free <= 0 && !one.shut
			one.lock.Unlock()
			if waiting {
				time.Sleep(20 * time.Millisecond)
			}
		}
	}
}

// pass tells the host what comes from one output, until all that write there have closed it.
func (one *session) pass(a *agent, peer string, from output) {
	buffer := make([]byte, 16*1024)
	for {
		count, err := from.from.Read(buffer)
		if count > 0 {
			one.lock.Lock()
			for one.free <= 0 && !one.shut {
				one.room.Wait()
			}
			one.free -= count
			isLost := one.shut && one.isPipe()
			one.lock.Unlock()
			if !isLost {
				a.sendTo(peer, reply{Verb: from.verb, Session: one.id, Body: buffer[:count]})
			}
		}
		if err != nil {
			return
		}
	}
}

// hangUp ends all of the terminal's session, as a line that breaks does, and after a second by force. A command with pipes
// has its input end, and nobody hears it any more.
func (one *session) hangUp() {
	one.lock.Lock()
	one.shut = true
	one.lock.Unlock()
	one.room.Broadcast()
	one.hangUpOnce.Do(func() { close(one.hung) })
	if one.isPipe() {
		one.to.Close()
		return
	}
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

// openTerminal and openPipes return the command's own files, which are to be closed once it has begun.
func (one *session) openTerminal(who *syscall.Credential) ([3]*os.File, error) {
	master, number, slave, err := openTerminal()
	if err != nil {
		return [3]*os.File{}, err
	}
	slave.Chown(int(who.Uid), int(who.Gid))
	one.to, one.number = master, number
	one.outputs = []output{{"out", master}}
	return [3]*os.File{slave, slave, slave}, nil
}

func (one *session) openPipes() ([3]*os.File, error) {
	var its, ours [3]*os.File
	for i := range its {
		from, to, err := os.Pipe()
		if err != nil {
			closeAll(its[:i])
			closeAll(ours[:i])
			return its, err
		}
		if its[i], ours[i] = to, from; i == 0 {
			its[i], ours[i] = from, to
		}
	}
	one.to = ours[0]
	one.outputs = []output{{"out", ours[1]}, {"err", ours[2]}}
	return its, nil
}

func (one *session) close() {
	one.to.Close()
	for _, each := range one.outputs {
		each.from.Close()
	}
}

func closeAll(files []*os.File) {
	for _, file := range files {
		file.Close()
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
