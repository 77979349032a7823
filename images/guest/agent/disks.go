package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// A disk is found by its serial, which is its id.
type disk struct {
	Serial   string `json:"serial"`
	Path     string `json:"path"`
	ReadOnly bool   `json:"read_only"`
}

const diskShownWithin = 15 * time.Second

// device is where the kernel has the disk. The page of its serial begins with four bytes of its own.
func (d disk) device() string {
	var device string
	waitFor(diskShownWithin, func() bool {
		file := firstMatch("/sys/block/sd*/device/vpd_pg80", func(page string) bool { return strings.HasSuffix(page, d.Serial) })
		if file == "" {
			return false
		}
		device = "/dev/" + filepath.Base(filepath.Dir(filepath.Dir(file)))
		_, err := os.Stat(device)
		return err == nil
	})
	return device
}

func (d disk) mount() error {
	loadModules("disks")
	if d.mounted() {
		return nil
	}
	device := d.device()
	if device == "" {
		return &fault{Code: "failed", Message: "the machine does not see the disk"}
	}
	if err := os.MkdirAll(d.Path, 0o755); err != nil {
		return err
	}
	flags := uintptr(syscall.MS_NOSUID | syscall.MS_NODEV | syscall.MS_NOATIME)
	if d.ReadOnly {
		flags |= syscall.MS_RDONLY
	}
	return syscall.Mount(device, d.Path, "xfs", flags, "nouuid")
}

func (d disk) mounted() bool {
	table, _ := os.ReadFile("/proc/self/mounts")
	for _, line := range strings.Split(string(table), "\n") {
		if fields := strings.Fields(line); len(fields) > 2 && unescaped(fields[1]) == d.Path && fields[2] == "xfs" {
			return true
		}
	}
	return false
}

func (d disk) unmount() error {
	for d.mounted() {
		if err := syscall.Unmount(d.Path, 0); err == syscall.EBUSY {
			return &fault{Code: "busy", Message: "a process uses files below " + d.Path}
		} else if err != nil {
			return err
		}
	}
	return nil
}

// grow lets the file system take all that the disk offers by now.
func (d disk) grow() error {
	device := d.device()
	disk, err := os.Open(device)
	if err != nil {
		return err
	}
	defer disk.Close()
	folder, err := os.Open(d.Path)
	if err != nil {
		return err
	}
	defer folder.Close()
	var bytes uint64
	const blkGetSize64 = 0x80081272
	if err := ioctl(disk.Fd(), blkGetSize64, unsafe.Pointer(&bytes)); err != nil {
		return err
	}
	var fs syscall.Statfs_t
	if err := syscall.Fstatfs(int(folder.Fd()), &fs); err != nil {
		return err
	}
	// struct xfs_growfs_data: blocks of the data section, and the share of inodes in percent.
	growth := struct {
		blocks uint64
		inodes uint32
		_      uint32
	}{bytes / uint64(fs.Bsize), 25, 0}
	const xfsGrowFsData = 0x4010586e
	return ioctl(folder.Fd(), xfsGrowFsData, unsafe.Pointer(&growth))
}

const frozenAtMost = 10 * time.Second

func frozenPaths() []string {
	paths := []string{}
	table, _ := os.ReadFile("/proc/self/mounts")
	for _, line := range strings.Split(string(table), "\n") {
		if fields := strings.Fields(line); len(fields) > 2 && (fields[2] == "xfs" || fields[2] == "ext4") {
			paths = append(paths, unescaped(fields[1]))
		}
	}
	return paths
}

const fiFreeze, fiThaw = 0xc0045877, 0xc0045878

func (a *agent) freeze() error {
	paths := frozenPaths()
	for i := len(paths) - 1; i >= 0; i-- {
		if err := onFolder(paths[i], fiFreeze); err != nil && err != syscall.EBUSY {
			a.thaw()
			return err
		}
	}
	a.state.Lock()
	defer a.state.Unlock()
	a.thawing = time.AfterFunc(frozenAtMost, func() { a.thaw() })
	return nil
}

func (a *agent) thaw() error {
	a.state.Lock()
	if a.thawing != nil {
		a.thawing.Stop()
		a.thawing = nil
	}
	a.state.Unlock()
	for _, path := range frozenPaths() {
		for onFolder(path, fiThaw) == nil {
		}
	}
	return nil
}

func onFolder(path string, request uintptr) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	defer folder.Close()
	return ioctl(folder.Fd(), request, nil)
}
