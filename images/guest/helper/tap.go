package main

import (
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

// openTap opens a tap for QEMU, as its bridge helper would: QEMU gives a socket, and gets the open device over it. The tap is in
// the network namespace of a VPC, where QEMU itself has no business; so one machine may have NICs of several.
//
// It takes `--fd=SOCKET` and `--br=NAMESPACE/TAP`.
func openTap(arguments []string) error {
	// A namespace is a thread's.
	runtime.LockOSThread()
	var socket int
	var namespace, device string
	for _, argument := range arguments {
		if value, found := strings.CutPrefix(argument, "--fd="); found {
			socket, _ = strconv.Atoi(value)
		}
		if value, found := strings.CutPrefix(argument, "--br="); found {
			namespace, device, _ = strings.Cut(value, "/")
		}
	}
	if err := enter(namespace); err != nil {
		return err
	}
	tap, err := syscall.Open("/dev/net/tun", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	// struct ifreq: the name, and flags: a tap, no packet information, headers of virtio.
	var request [40]byte
	copy(request[:15], device)
	*(*uint16)(unsafe.Pointer(&request[16])) = syscall.IFF_TAP | syscall.IFF_NO_PI | syscall.IFF_VNET_HDR
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(tap), syscall.TUNSETIFF, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return errno
	}
	return syscall.Sendmsg(socket, []byte{0}, syscall.UnixRights(tap), nil, 0)
}
