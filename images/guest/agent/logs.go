package main

import (
	"bufio"
	"io"
	"os"
	"sync"
	"time"
)

// What the command writes waits here, numbered, until the host says that it has it: so nothing is lost or there twice when
// the host's worker is killed, or the machine is suspended. While too much waits, the command waits with its next line.

const (
	longestPart  = 16 * 1024 // longer lines come in parts
	mostWaiting  = 256 * 1024
	partsAtOnce  = 64
	bytesAtOnce  = 64 * 1024
	readersLimit = 2 * time.Second
)

type logLine struct {
	Seq    uint64 `json:"seq"`
	Stream int    `json:"stream"`
	Text   []byte `json:"text"`
	// More of the line follows.
	Partial bool `json:"partial,omitempty"`
}

type logRing struct {
	sync.Mutex
	changed *sync.Cond
	lines   []logLine
	bytes   int
	last    uint64
	// The host has been sent all up to here on its present connection.
	sent    uint64
	peer    string
	readers sync.WaitGroup
}

func newLogRing(a *agent) *logRing {
	ring := &logRing{}
	ring.changed = sync.NewCond(ring)
	go ring.keepSending(a)
	return ring
}

// pipe is what a command writes one of its streams to.
func (ring *logRing) pipe(stream int) (*os.File, error) {
	reading, writing, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	ring.readers.Add(1)
	go func() {
		defer ring.readers.Done()
		defer reading.Close()
		input := bufio.NewReaderSize(reading, longestPart)
		for {
			text, err := input.ReadSlice('\n')
			if len(text) > 0 {
				whole := text[len(text)-1] == '\n'
				if whole {
					text = text[:len(text)-1]
				}
				ring.add(stream, append([]byte{}, text...), !whole && err != io.EOF)
			}
			if err != nil && err != bufio.ErrBufferFull {
				return
			}
		}
	}()
	return writing, nil
}

func (ring *logRing) add(stream int, text []byte, partial bool) {
	ring.Lock()
	defer ring.Unlock()
	for ring.bytes > mostWaiting {
		ring.changed.Wait()
	}
	ring.last++
	ring.lines = append(ring.lines, logLine{ring.last, stream, text, partial})
	ring.bytes += cost(text)
	ring.changed.Broadcast()
}

func cost(text []byte) int { return len(text) + 64 }

// forget lets go of all lines up to this, which the host has.
func (ring *logRing) forget(seq uint64) {
	ring.Lock()
	defer ring.Unlock()
	for len(ring.lines) > 0 && ring.lines[0].Seq <= seq {
		ring.bytes -= cost(ring.lines[0].Text)
		ring.lines = ring.lines[1:]
	}
	if len(ring.lines) == 0 {
		ring.lines = nil
	}
	ring.changed.Broadcast()
}

func (ring *logRing) resendAfter(seq uint64) {
	ring.forget(seq)
	ring.Lock()
	defer ring.Unlock()
	// A machine that is started anew goes on with the host's numbers.
	ring.last = max(ring.last, seq)
	ring.sent = seq
	ring.changed.Broadcast()
}

func (ring *logRing) keepSending(a *agent) {
	for {
		ring.Lock()
		var next []logLine
		for {
			next = ring.unsent()
			if len(next) > 0 && a.connection() != "" {
				break
			}
			ring.changed.Wait()
		}
		peer := a.connection()
		ring.sent = next[len(next)-1].Seq
		ring.Unlock()
		a.sendTo(peer, reply{Verb: "log", Body: next})
	}
}

func (ring *logRing) unsent() []logLine {
	var next []logLine
	size := 0
	for _, line := range ring.lines {
		if line.Seq <= ring.sent {
			continue
		}
		if len(next) == partsAtOnce || size > bytesAtOnce {
			break
		}
		next = append(next, line)
		size += cost(line.Text)
	}
	return next
}

// drain waits until all that ended commands have written is here.
func (ring *logRing) drain() {
	done := make(chan struct{})
	go func() { ring.readers.Wait(); close(done) }()
	<-done
}

// awaitHost waits until the host has all, if it comes to that in time.
func (ring *logRing) awaitHost(limit time.Duration) {
	waitFor(limit, func() bool {
		ring.Lock()
		defer ring.Unlock()
		return len(ring.lines) == 0
	})
}
