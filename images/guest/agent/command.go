package main

import (
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// order is all that the host says of the machine, once, when it starts.
type order struct {
	Hostname string    `json:"hostname"`
	Argv     []string  `json:"argv"`
	Env      []string  `json:"env"`
	Folder   string    `json:"folder"`
	User     string    `json:"user"`
	Signal   int       `json:"signal"`
	Restart  string    `json:"restart"`
	Nics     []nic     `json:"nics"`
	Disks    []disk    `json:"disks"`
	Resolver *resolver `json:"resolver"`
	// What is to be added to the clock, and how long the answer may wait for the command to settle.
	ClockDeltaNs int64 `json:"clock_delta_ns"`
	SettleMs     int64 `json:"settle_ms"`
}

// status is what became of the command: `waiting` for an order, `running`, `restarting`, or `ended` for good.
type status struct {
	Phase     string `json:"phase"`
	ExitCode  int    `json:"exit_code"`
	OomKilled bool   `json:"oom_killed"`
	Restarts  int    `json:"restarts"`
	StartedNs int64  `json:"started_ns"`
}

// watched is what a watch of the command has seen. It has settled if it will not end at once any more, see settle.
type watched struct {
	status
	Settled bool `json:"settled"`
}

type command struct {
	sync.Mutex
	order  order
	now    status
	pid    int
	ending bool
	ended  chan struct{}
	wake   chan struct{}
}

func (c *command) status() status {
	c.Lock()
	defer c.Unlock()
	if c.now.Phase == "" {
		c.now.Phase = "waiting"
	}
	return c.now
}

func (c *command) setPolicy(policy string) {
	c.Lock()
	defer c.Unlock()
	c.order.Restart = policy
}

// start carries out the order, once, and watches the command. What goes wrong before the command runs is the error.
func (a *agent) start(order order) (watched, error) {
	if err := a.carryOut(order); err != nil {
		return watched{}, err
	}
	return a.watch(order.SettleMs), nil
}

// watch returns what has become of the command when it has settled, or after so many milliseconds.
func (a *agent) watch(atMostMs int64) watched {
	settled := a.settle(time.Duration(atMostMs) * time.Millisecond)
	return watched{status: a.command.status(), Settled: settled}
}

func (a *agent) carryOut(order order) error {
	c := &a.command
	c.Lock()
	defer c.Unlock()
	if c.ended != nil {
		return nil
	}
	if err := shiftClock(order.ClockDeltaNs); err != nil {
		return err
	}
	setName(order.Hostname, order.Resolver)
	for _, nic := range order.Nics {
		if err := nic.apply(); err != nil {
			return err
		}
	}
	for _, disk := range order.Disks {
		if err := disk.mount(); err != nil {
			return err
		}
	}
	c.order = order
	if !a.first {
		return nil
	}
	c.wake = make(chan struct{}, 1)
	end, err := a.runCommand()
	if err != nil {
		return err
	}
	c.ended = make(chan struct{})
	go a.keepRunning(end)
	return nil
}

// settle waits until the command has ended, or it and all that it started wait for something: whoever ends at once has no
// such moment, and who is seen so twice has begun its work. At most for the given time; then it returns false.
func (a *agent) settle(atMost time.Duration) bool {
	c := &a.command
	calm := 0
	return waitFor(atMost, func() bool {
		c.Lock()
		pid, now := c.pid, c.now
		c.Unlock()
		if pid == 0 || now.Phase != "running" || now.Restarts > 0 {
			return true
		}
		if calm++; !waits(pid) {
			calm = 0
		}
		return calm == 2
	})
}

// runCommand expects the lock.
func (a *agent) runCommand() (<-chan syscall.WaitStatus, error) {
	c := &a.command
	order := c.order
	who, home, err := credential(order.User)
	if err != nil {
		return nil, err
	}
	env := withDefault(order.Env, "HOME="+home, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOSTNAME="+order.Hostname)
	folder := order.Folder
	if folder == "" {
		folder = "/"
	}
	os.MkdirAll(folder, 0o755)
	path, err := lookPath(order.Argv[0], env, folder)
	if err != nil {
		return nil, err
	}
	nothing, err := os.Open("/dev/null")
	if err != nil {
		return nil, err
	}
	defer nothing.Close()
	stdout, err := a.logs.pipe(1)
	if err != nil {
		return nil, err
	}
	defer stdout.Close()
	stderr, err := a.logs.pipe(2)
	if err != nil {
		return nil, err
	}
	defer stderr.Close()
	pid, end, err := begin(path, order.Argv, &syscall.ProcAttr{
		Dir:   folder,
		Env:   env,
		Files: []uintptr{nothing.Fd(), stdout.Fd(), stderr.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true, Credential: who},
	})
	if err != nil {
		return nil, &fault{Code: "not_started", Message: order.Argv[0] + ": " + err.Error()}
	}
	c.pid = pid
	c.now.Phase, c.now.StartedNs = "running", time.Now().UnixNano()
	return end, nil
}

const longestPause = time.Minute

// keepRunning runs the command again as its policy has it, after a pause that doubles as long as it ends soon.
func (a *agent) keepRunning(end <-chan syscall.WaitStatus) {
	c := &a.command
	pause := 100 * time.Millisecond
	for {
		kills := oomKills()
		begun := time.Now()
		how := <-end
		c.Lock()
		c.pid = 0
		c.now.ExitCode = exitCode(how)
		c.now.OomKilled = how.Signaled() && how.Signal() == syscall.SIGKILL && oomKills() > kills
		again := !c.ending && (c.order.Restart == "always" || (c.order.Restart == "on_failure" && c.now.ExitCode != 0))
		if !again {
			c.now.Phase = "ended"
			c.Unlock()
			break
		}
		c.now.Phase = "restarting"
		c.Unlock()
		a.tellStatus()
		if time.Since(begun) > 10*time.Second {
			pause = 100 * time.Millisecond
		}
		select {
		case <-time.After(pause):
		case <-c.wake:
		}
		pause = min(2*pause, longestPause)
		c.Lock()
		next, err := (<-chan syscall.WaitStatus)(nil), error(nil)
		if !c.ending {
			next, err = a.runCommand()
		}
		if next == nil {
			c.now.Phase = "ended"
			if err != nil {
				c.now.ExitCode = 127
			}
			c.Unlock()
			break
		}
		c.now.Restarts++
		c.Unlock()
		end = next
		a.tellStatus()
	}
	// Nothing outlives the command, as in a container.
	syscall.Kill(-1, syscall.SIGKILL)
	a.logs.drain()
	close(c.ended)
	a.tellStatus()
}

// end has the command end, by force after the grace, and then the machine. It does not return.
func (a *agent) end(grace time.Duration) error {
	if !a.first {
		syscall.Sync()
		powerOff()
	}
	c := &a.command
	c.Lock()
	c.ending = true
	if c.pid != 0 {
		by := syscall.Signal(c.order.Signal)
		if by == 0 {
			by = syscall.SIGTERM
		}
		syscall.Kill(c.pid, by)
	}
	ended := c.ended
	if c.wake != nil {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
	c.Unlock()
	if ended != nil {
		select {
		case <-ended:
		case <-time.After(grace):
			c.Lock()
			if c.pid != 0 {
				syscall.Kill(c.pid, syscall.SIGKILL)
			}
			c.Unlock()
			<-ended
		}
	}
	a.logs.awaitHost(10 * time.Second)
	syscall.Kill(-1, syscall.SIGKILL)
	a.thaw()
	unmountAll()
	powerOff()
	return nil
}

// withDefault adds what is not set yet.
func withDefault(env []string, defaults ...string) []string {
	result := append([]string{}, env...)
	for _, one := range defaults {
		name, _, _ := strings.Cut(one, "=")
		present := false
		for _, given := range env {
			present = present || strings.HasPrefix(given, name+"=")
		}
		if !present {
			result = append(result, one)
		}
	}
	return result
}

func oomKills() string {
	text, _ := os.ReadFile("/proc/vmstat")
	for _, line := range strings.Split(string(text), "\n") {
		if count, found := strings.CutPrefix(line, "oom_kill "); found {
			return strings.Repeat("0", max(0, 20-len(count))) + count
		}
	}
	return ""
}
