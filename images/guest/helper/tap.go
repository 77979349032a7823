package main

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// openTap opens a tap in the network namespace of a VPC, as QEMU would: QEMU gets the open device, and has no right to
// enter the namespace itself. One machine may have NICs of several VPCs.
func openTap(namespace, device string) (*os.File, error) {
	type result struct {
		file *os.File
		err  error
	}
	opened := make(chan result)
	go func() {
		// A namespace is a thread's. The thread ends with this function, because it is never unlocked.
		runtime.LockOSThread()
		file, err := openTapHere(namespace, device)
		opened <- result{file, err}
	}()
	its := <-opened
	if its.err != nil {
		return nil, fmt.Errorf("tap %s in %s: %w", device, namespace, its.err)
	}
	return its.file, nil
}

func openTapHere(namespace, device string) (*os.File, error) {
	if err := enter(namespace); err != nil {
		return nil, err
	}
	tap, err := syscall.Open("/dev/net/tun", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	// struct ifreq: the name, and flags: a tap, no packet information, headers of virtio.
	var request [40]byte
	copy(request[:15], device)
	*(*uint16)(unsafe.Pointer(&request[16])) = syscall.IFF_TAP | syscall.IFF_NO_PI | syscall.IFF_VNET_HDR
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(tap), syscall.TUNSETIFF, uintptr(unsafe.Pointer(&request))); errno != 0 {
		syscall.Close(tap)
		return nil, errno
	}
	return os.NewFile(uintptr(tap), device), nil
}
