package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
)

// Programs that guests may break are started here. Each has a user of its own without capabilities, sees only its own
// files, and has a network without devices. What it needs besides, it gets as open files: taps, sockets, memory.

// confinement is what drivers/system/confinement.ts writes on the standard input.
type confinement struct {
	Program   string   `json:"program"`
	Arguments []string `json:"arguments"`
	User      int      `json:"user"`
	// The group of what the program creates.
	Group int `json:"group"`
	// Files and folders that the program sees, under their own names. The user's rights still count.
	Writable []string `json:"writable"`
	Readable []string `json:"readable"`
	Devices  []string `json:"devices"`
	// An empty folder, on which its view of the files is mounted.
	Root string `json:"root"`
	// Files through which a process enters control groups.
	ControlGroups []string `json:"control_groups"`
	// Opened before it starts: its file descriptors 3, 4, ….
	Handles []handle `json:"handles"`
	// One of the sockets of its handles. With it, the program goes on when it answers there; else confine waits for its end.
	Monitor string `json:"monitor"`
	// Gets the program's pid when it goes on.
	PidFile string `json:"pid_file"`
}

// handle is one of its fields.
type handle struct {
	Tap *struct {
		Namespace string `json:"namespace"`
		Device    string `json:"device"`
	} `json:"tap"`
	Listen string `json:"listen"`
	Read   string `json:"read"`
}

func (one handle) open() (*os.File, error) {
	switch {
	case one.Tap != nil:
		return openTap(one.Tap.Namespace, one.Tap.Device)
	case one.Read != "":
		return os.Open(one.Read)
	}
	if err := os.Remove(one.Listen); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: one.Listen, Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	socket.SetUnlinkOnClose(false)
	return socket.File()
}

// readOrder also returns the order as it was written, for the process that becomes the program.
func readOrder() (asked confinement, text []byte, err error) {
	text, err = io.ReadAll(os.Stdin)
	if err == nil {
		err = json.Unmarshal(text, &asked)
	}
	return asked, text, err
}

// confine starts the program, and returns when it has ended or goes on by itself. `label` is for finding it in the list of
// processes.
func confine(label string) error {
	// The program that is followed ends with the thread that started it.
	runtime.LockOSThread()
	asked, text, err := readOrder()
	if err != nil {
		return err
	}
	child := exec.Command("/proc/self/exe", "begin", label)
	child.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC,
	}
	for _, one := range asked.Handles {
		file, err := one.open()
		if err != nil {
			return err
		}
		child.ExtraFiles = append(child.ExtraFiles, file)
	}
	if asked.Monitor == "" {
		return follow(child, text)
	}
	return release(child, text, asked)
}

// follow waits for the program's end, and ends as it does.
func follow(child *exec.Cmd, text []byte) error {
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	if err := give(child, text); err != nil {
		return err
	}
	err := child.Wait()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) && failed.Exited() {
		os.Exit(failed.ExitCode())
	}
	return err
}

// release waits until the program takes commands.
func release(child *exec.Cmd, text []byte, asked confinement) error {
	said, its, err := os.Pipe()
	if err != nil {
		return err
	}
	child.Stdout, child.Stderr = its, its
	if err := give(child, text); err != nil {
		return err
	}
	its.Close()
	// Only the program holds its sockets from here on, so that its end ends the connection.
	for _, file := range child.ExtraFiles {
		file.Close()
	}
	words := make(chan string, 1)
	go func() {
		head, _ := io.ReadAll(io.LimitReader(said, 16*1024))
		words <- string(head)
		io.Copy(io.Discard, said)
	}()
	monitor, err := openMonitor(asked.Monitor)
	if err != nil {
		child.Process.Kill()
		ended := child.Wait()
		return fmt.Errorf("%s (%w, %w)", <-words, ended, err)
	}
	monitor.socket.Close()
	new := asked.PidFile + ".new"
	if err := os.WriteFile(new, fmt.Appendln(nil, child.Process.Pid), 0o600); err != nil {
		return err
	}
	return os.Rename(new, asked.PidFile)
}

// give starts the child and writes its order.
func give(child *exec.Cmd, text []byte) error {
	order, err := child.StdinPipe()
	if err != nil {
		return err
	}
	if err := child.Start(); err != nil {
		return err
	}
	if _, err := order.Write(text); err != nil {
		return err
	}
	return order.Close()
}

// begin becomes the program.
func begin() error {
	// Rights are a thread's, and the one that executes the program keeps its own.
	runtime.LockOSThread()
	asked, _, err := readOrder()
	if err != nil {
		return err
	}
	for _, group := range asked.ControlGroups {
		if err := os.WriteFile(group, []byte("0"), 0); err != nil {
			return err
		}
	}
	program, err := exec.LookPath(asked.Program)
	if err != nil {
		return err
	}
	groups, err := groupsOf(asked.Devices)
	if err != nil {
		return err
	}
	if err := asked.lookOnlyAtItsFiles(); err != nil {
		return err
	}
	nothing, err := syscall.Open("/dev/null", syscall.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := syscall.Dup3(nothing, 0, 0); err != nil {
		return err
	}
	if err := asked.dropRights(groups); err != nil {
		return err
	}
	syscall.Umask(0o007)
	// Whatever else this process was started with.
	const sysCloseRange, onExec = 436, 4
	if _, _, errno := syscall.Syscall(sysCloseRange, uintptr(3+len(asked.Handles)), uintptr(^uint32(0)), onExec); errno != 0 {
		return errno
	}
	arguments := append([]string{program}, asked.Arguments...)
	return syscall.Exec(program, arguments, []string{"PATH=" + filepath.Dir(program), "LC_ALL=C"})
}

// groupsOf returns the groups that may use the devices.
func groupsOf(devices []string) (groups []int, err error) {
	for _, path := range devices {
		var its syscall.Stat_t
		if err := syscall.Stat(path, &its); err != nil {
			return nil, err
		}
		groups = append(groups, int(its.Gid))
	}
	return groups, nil
}
