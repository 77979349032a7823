package main

import (
	"syscall"
	"unsafe"
)

// Calls of the kernel that no confined program makes, and through which kernels were broken. QEMU filters more by itself; the
// storage daemon and qemu-img do not. Numbers of amd64, for which guests are built.
var refusedCalls = []uint32{
	101, // ptrace
	155, // pivot_root
	165, // mount
	166, // umount2
	175, // init_module
	246, // kexec_load
	248, // add_key
	249, // request_key
	250, // keyctl
	272, // unshare
	298, // perf_event_open
	304, // open_by_handle_at
	308, // setns
	310, // process_vm_readv
	311, // process_vm_writev
	313, // finit_module
	320, // kexec_file_load
	321, // bpf
	323, // userfaultfd
	425, // io_uring_setup
	428, // open_tree
	429, // move_mount
	430, // fsopen
	442, // mount_setattr
}

const (
	archAmd64 = 0xC000003E
	callClone = 56
	// Its flags are in memory, which a filter cannot read. Programs then use clone.
	callClone3 = 435
	// The first number of the calls of another ABI (x32).
	otherABI = 0x40000000

	// linux/bpf_common.h, linux/seccomp.h
	load, jumpEqual, jumpAtLeast, jumpBits, answer32 = 0x20, 0x15, 0x35, 0x45, 0x06
	allowed, killed, refusedWith                     = 0x7FFF0000, 0x80000000, 0x00050000
	atNumber, atArch, atFirstArgument                = 0, 4, 16
	prctlFilter, filterMode                          = 22, 2
)

type instruction struct {
	code     uint16
	yes, no  uint8
	argument uint32
}

// filter refuses the calls, new namespaces by clone, and calls of other ABIs.
func filter() []instruction {
	program := []instruction{
		{load, 0, 0, atArch},
		{jumpEqual, 1, 0, archAmd64},
		{answer32, 0, 0, killed},
		{load, 0, 0, atNumber},
		{jumpAtLeast, 0, 1, otherABI},
		{answer32, 0, 0, refusedWith | uint32(syscall.ENOSYS)},
		{jumpEqual, 0, 1, callClone3},
		{answer32, 0, 0, refusedWith | uint32(syscall.ENOSYS)},
	}
	for _, call := range refusedCalls {
		program = append(program, instruction{jumpEqual, 0, 1, call},
			instruction{answer32, 0, 0, refusedWith | uint32(syscall.EPERM)})
	}
	const namespaces = syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUSER |
		syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | 0x02000000 // of control groups
	return append(program,
		instruction{jumpEqual, 0, 3, callClone},
		instruction{load, 0, 0, atFirstArgument},
		instruction{jumpBits, 0, 1, namespaces},
		instruction{answer32, 0, 0, refusedWith | uint32(syscall.EPERM)},
		instruction{answer32, 0, 0, allowed})
}

// refuseCalls filters the calls of this thread and of what it executes. Needs that it gets no new rights.
func refuseCalls() error {
	program := filter()
	its := struct {
		length uint16
		first  *instruction
	}{uint16(len(program)), &program[0]}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prctlFilter, filterMode, uintptr(unsafe.Pointer(&its))); errno != 0 {
		return errno
	}
	return nil
}
