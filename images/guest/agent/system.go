package main

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

// shiftClock sets the wall clock by a difference, which holds however long the message took.
func shiftClock(deltaNs int64) error {
	const clockRealtime = 0
	var now syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockRealtime, uintptr(unsafe.Pointer(&now)), 0); errno != 0 {
		return errno
	}
	then := syscall.NsecToTimespec(now.Nano() + deltaNs)
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_SETTIME, clockRealtime, uintptr(unsafe.Pointer(&then)), 0); errno != 0 {
		return errno
	}
	return nil
}

// renewal makes a machine another one that began as the same memory.
type renewal struct {
	Seed     []byte    `json:"seed"`
	Hostname string    `json:"hostname"`
	Env      []string  `json:"env"`
	Nics     []nic     `json:"nics"`
	Resolver *resolver `json:"resolver"`
}

func (a *agent) renew(to renewal) error {
	if err := reseed(to.Seed); err != nil {
		return err
	}
	setName(to.Hostname, to.Resolver)
	a.command.Lock()
	a.command.order.Hostname = to.Hostname
	a.command.order.Env = to.Env
	a.command.Unlock()
	for _, nic := range to.Nics {
		if err := nic.apply(); err != nil {
			return err
		}
	}
	return nil
}

// reseed has the kernel's random numbers differ from now on from those of whoever has the same memory.
func reseed(seed []byte) error {
	random, err := os.OpenFile("/dev/urandom", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer random.Close()
	// struct rand_pool_info: bits of entropy, bytes, the bytes.
	pool := struct {
		bits, size int32
		bytes      [64]byte
	}{512, 64, [64]byte{}}
	copy(pool.bytes[:], seed)
	const rndAddEntropy, rndReseedCrng = 0x40085203, 0x5207
	if err := ioctl(random.Fd(), rndAddEntropy, unsafe.Pointer(&pool)); err != nil {
		return err
	}
	return ioctl(random.Fd(), rndReseedCrng, nil)
}

// memoryUsage is what is in use and could not be had by dropping caches, in bytes.
func memoryUsage() (any, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return nil, err
	}
	values := map[string]int64{}
	for _, line := range strings.Split(string(text), "\n") {
		if fields := strings.Fields(line); len(fields) >= 2 {
			values[strings.TrimSuffix(fields[0], ":")], _ = strconv.ParseInt(fields[1], 10, 64)
		}
	}
	return map[string]int64{"memory_bytes": (values["MemTotal"] - values["MemAvailable"]) * 1024}, nil
}
