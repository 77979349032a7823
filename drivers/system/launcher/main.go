// Launcher starts programs for a host worker. A large process takes tens of milliseconds to fork, this one less than one.
//
// It reads requests from stdin and writes answers to stdout, one JSON object per line. It ends with its stdin; programs
// that still run then go on.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
)

// Request starts a program, or kills the one with this id.
type request struct {
	ID      int      `json:"id"`
	Kill    bool     `json:"kill"`
	Program string   `json:"program"`
	Args    []string `json:"args"`
	Input   string   `json:"input"`
	// Stream asks for the output as it comes, in answers that are not ended.
	Stream bool `json:"stream"`
}

type answer struct {
	ID     int    `json:"id"`
	Ended  bool   `json:"ended"`
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	// Code is the exit code, Signal the number of the signal that ended it.
	Code   int `json:"code"`
	Signal int `json:"signal"`
	// Errno names why it did not start, as ENOENT.
	Errno string `json:"errno"`
}

type launcher struct {
	answers sync.Mutex
	encoder *json.Encoder
	table   sync.Mutex
	running map[int]*os.Process
}

func main() {
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	l := &launcher{encoder: encoder, running: map[int]*os.Process{}}
	requests := json.NewDecoder(bufio.NewReader(os.Stdin))
	for {
		var asked request
		if requests.Decode(&asked) != nil {
			return
		}
		if asked.Kill {
			l.kill(asked.ID)
			continue
		}
		command, output, stderr := l.prepare(asked)
		// Started here, so that a request to kill it comes after it.
		if err := command.Start(); err != nil {
			l.say(answer{ID: asked.ID, Ended: true, Errno: errnoOf(err)})
			continue
		}
		l.keep(asked.ID, command.Process)
		go func() {
			err := command.Wait()
			l.forget(asked.ID)
			ended := answer{ID: asked.ID, Ended: true, Stdout: output.String(), Stderr: stderr.String()}
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				status := exit.Sys().(syscall.WaitStatus)
				ended.Code = status.ExitStatus()
				if status.Signaled() {
					ended.Signal = int(status.Signal())
				}
			} else if err != nil {
				ended.Errno = errnoOf(err)
			}
			l.say(ended)
		}()
	}
}

func (l *launcher) prepare(asked request) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
	command := exec.Command(asked.Program, asked.Args...)
	var output, stderr bytes.Buffer
	command.Stdin = strings.NewReader(asked.Input)
	command.Stdout = &output
	command.Stderr = &stderr
	if asked.Stream {
		command.Stdout = stream{l, asked.ID}
	}
	return command, &output, &stderr
}

// Stream says each part of a program's output when it comes.
type stream struct {
	l  *launcher
	id int
}

func (s stream) Write(part []byte) (int, error) {
	s.l.say(answer{ID: s.id, Stdout: string(part)})
	return len(part), nil
}

func (l *launcher) say(said answer) {
	l.answers.Lock()
	defer l.answers.Unlock()
	_ = l.encoder.Encode(said)
}

func (l *launcher) keep(id int, process *os.Process) {
	l.table.Lock()
	defer l.table.Unlock()
	l.running[id] = process
}

func (l *launcher) forget(id int) {
	l.table.Lock()
	defer l.table.Unlock()
	delete(l.running, id)
}

func (l *launcher) kill(id int) {
	l.table.Lock()
	defer l.table.Unlock()
	if process := l.running[id]; process != nil {
		_ = process.Kill()
	}
}

func errnoOf(err error) string {
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, syscall.ENOENT):
		return "ENOENT"
	case errors.Is(err, syscall.EACCES):
		return "EACCES"
	case errors.Is(err, syscall.EAGAIN):
		return "EAGAIN"
	}
	return err.Error()
}
