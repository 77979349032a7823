package main

import (
	"bytes"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// One goroutine waits for all processes, since the first process inherits every orphan: whoever starts one here is told of
// its end.

var processes = struct {
	sync.Mutex
	ends map[int]chan syscall.WaitStatus
}{ends: map[int]chan syscall.WaitStatus{}}

func reap() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	for range ended {
		for {
			var status syscall.WaitStatus
			pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
			if err != nil || pid <= 0 {
				break
			}
			processes.Lock()
			if end, ours := processes.ends[pid]; ours {
				end <- status
				delete(processes.ends, pid)
			}
			processes.Unlock()
		}
	}
}

// begin starts a program. The lock is held meanwhile: it may end before it is known here.
func begin(path string, argv []string, attr *syscall.ProcAttr) (int, <-chan syscall.WaitStatus, error) {
	processes.Lock()
	defer processes.Unlock()
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		return 0, nil, err
	}
	end := make(chan syscall.WaitStatus, 1)
	processes.ends[pid] = end
	return pid, end, nil
}

// waits tells whether a process and all that it started wait for something other than a disk.
func waits(pid int) bool {
	of := "/proc/" + strconv.Itoa(pid)
	text, err := os.ReadFile(of + "/stat")
	if err != nil {
		return false
	}
	// The state follows the program's name, which may hold anything.
	_, after, _ := strings.Cut(string(text[bytes.LastIndexByte(text, ')')+1:]), " ")
	if state, _, _ := strings.Cut(after, " "); state != "S" {
		return false
	}
	children, _ := os.ReadFile(of + "/task/" + strconv.Itoa(pid) + "/children")
	for _, child := range strings.Fields(string(children)) {
		if number, err := strconv.Atoi(child); err == nil && !waits(number) {
			return false
		}
	}
	return true
}

// exitCode is as a shell has it.
func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// lookPath finds a program as a shell would, in the environment of the command.
func lookPath(name string, env []string, folder string) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(folder, name)
		}
		return name, nil
	}
	path := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	for _, one := range env {
		if value, found := strings.CutPrefix(one, "PATH="); found {
			path = value
		}
	}
	for _, folder := range filepath.SplitList(path) {
		file := filepath.Join(folder, name)
		if info, err := os.Stat(file); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", &fault{Code: "not_started", Message: name + ": not found"}
}

// credential is the user of an image: `user`, `user:group`, by name or number.
func credential(user string) (*syscall.Credential, string, error) {
	if user == "" {
		user = "0"
	}
	name, group, hasGroup := strings.Cut(user, ":")
	who := &syscall.Credential{}
	home := "/"
	number, err := strconv.ParseUint(name, 10, 32)
	known := false
	for _, fields := range accounts("/etc/passwd", 7) {
		if fields[0] == name || (err == nil && fields[2] == name) {
			uid, _ := strconv.ParseUint(fields[2], 10, 32)
			gid, _ := strconv.ParseUint(fields[3], 10, 32)
			who.Uid, who.Gid, home, known = uint32(uid), uint32(gid), fields[5], true
			name = fields[0]
			break
		}
	}
	if !known {
		if err != nil {
			return nil, "", &fault{Code: "not_started", Message: "the image has no user " + name}
		}
		who.Uid = uint32(number)
		if number == 0 {
			home = "/root"
		}
	}
	for _, fields := range accounts("/etc/group", 4) {
		gid, _ := strconv.ParseUint(fields[2], 10, 32)
		if hasGroup && (fields[0] == group || fields[2] == group) {
			who.Gid, hasGroup = uint32(gid), false
		}
		for _, member := range strings.Split(fields[3], ",") {
			if known && member == name {
				who.Groups = append(who.Groups, uint32(gid))
			}
		}
	}
	if hasGroup {
		gid, err := strconv.ParseUint(group, 10, 32)
		if err != nil {
			return nil, "", &fault{Code: "not_started", Message: "the image has no group " + group}
		}
		who.Gid = uint32(gid)
	}
	return who, home, nil
}

func accounts(file string, fields int) [][]string {
	text, _ := os.ReadFile(file)
	var found [][]string
	for _, line := range strings.Split(string(text), "\n") {
		if parts := strings.Split(line, ":"); len(parts) >= fields {
			found = append(found, parts)
		}
	}
	return found
}
