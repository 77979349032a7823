package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// What every program sees: itself, its libraries and its firmware.
var (
	programs = []string{"/usr", "/lib", "/lib64", "/etc/ld.so.cache"}
	devices  = []string{"/dev/null", "/dev/urandom"}
)

// The view itself holds folders and empty files alone.
const viewOptions = "mode=0755,size=1m,nr_inodes=4k"

// lookOnlyAtItsFiles replaces all files of the host by the program's own. The process must have a mount namespace of its own.
func (asked *confinement) lookOnlyAtItsFiles() error {
	// What the host unmounts meanwhile goes here too, and nothing that is mounted here is seen there.
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SLAVE, ""); err != nil {
		return err
	}
	root := asked.Root
	if err := os.MkdirAll(root, 0o700); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", root, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, viewOptions); err != nil {
		return err
	}
	const plain = syscall.MS_NOSUID | syscall.MS_NODEV
	for _, path := range programs {
		if err := show(root, path, plain|syscall.MS_RDONLY, true); err != nil {
			return err
		}
	}
	for _, path := range append(devices, asked.Devices...) {
		if err := show(root, path, syscall.MS_NOSUID|syscall.MS_NOEXEC, false); err != nil {
			return err
		}
	}
	for _, path := range asked.Readable {
		if err := show(root, path, plain|syscall.MS_NOEXEC|syscall.MS_RDONLY, false); err != nil {
			return err
		}
	}
	for _, path := range asked.Writable {
		if err := show(root, path, plain|syscall.MS_NOEXEC, false); err != nil {
			return err
		}
	}
	// What the host mounts later below one of the folders is not seen.
	if err := syscall.Mount("", root, "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	return moveInto(root, plain|syscall.MS_NOEXEC|syscall.MS_RDONLY)
}

func moveInto(root string, flags uintptr) error {
	const former = "/former"
	if err := os.Mkdir(root+former, 0o700); err != nil {
		return err
	}
	if err := syscall.PivotRoot(root, root+former); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := syscall.Unmount(former, syscall.MNT_DETACH); err != nil {
		return err
	}
	if err := os.Remove(former); err != nil {
		return err
	}
	return syscall.Mount("", "/", "", syscall.MS_REMOUNT|syscall.MS_BIND|flags, "")
}

// show mounts a file or a folder, without what is mounted below it, at its own name in the view.
func show(root, path string, flags uintptr, isOptional bool) error {
	place := root + path
	its, err := os.Lstat(path)
	if isOptional && errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if its.Mode()&os.ModeSymlink != 0 && isOptional {
		to, err := os.Readlink(path)
		if err != nil {
			return err
		}
		return os.Symlink(to, place)
	}
	if err := makePlace(place, its.IsDir()); err != nil {
		return err
	}
	if err := syscall.Mount(path, place, "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", path, err)
	}
	if err := syscall.Mount("", place, "", syscall.MS_BIND|syscall.MS_REMOUNT|flags, ""); err != nil {
		return fmt.Errorf("remount %s: %w", path, err)
	}
	return nil
}

// makePlace makes what a file or a folder is mounted over, unless it is there.
func makePlace(place string, isFolder bool) error {
	if _, err := os.Lstat(place); err == nil {
		return nil
	}
	if isFolder {
		return os.MkdirAll(place, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
		return err
	}
	return os.WriteFile(place, nil, 0o644)
}

const (
	prctlDeathSignal = 1
	prctlDropBound   = 24
	prctlNoNewRights = 38
)

// dropRights makes this thread the program's user, without capabilities.
func (asked *confinement) dropRights(groups []int) error {
	for capability := uintptr(0); ; capability++ {
		if err := prctl(prctlDropBound, capability); errors.Is(err, syscall.EINVAL) {
			break // there are no more
		} else if err != nil {
			return err
		}
	}
	// A core would hold a guest's memory.
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}); err != nil {
		return err
	}
	if err := errors.Join(syscall.Setgroups(groups), syscall.Setresgid(asked.Group, asked.Group, asked.Group),
		syscall.Setresuid(asked.User, asked.User, asked.User)); err != nil {
		return err
	}
	if asked.Monitor == "" {
		if err := prctl(prctlDeathSignal, uintptr(syscall.SIGKILL)); err != nil {
			return err
		}
	}
	if err := prctl(prctlNoNewRights, 1); err != nil {
		return err
	}
	return refuseCalls()
}

func prctl(option, value uintptr) error {
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, option, value, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
