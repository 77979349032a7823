package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// modules is the folder of the kernel's modules, each compressed, and of the lists that say which belong together. It stays
// open after the root has changed, so that what few machines need is loaded by those alone.
var modules = -1

func mountKernel() {
	os.Mkdir("/dev", 0o755)
	syscall.Mount("devtmpfs", "/dev", "devtmpfs", 0, "")
	os.Mkdir("/proc", 0o555)
	os.Mkdir("/sys", 0o555)
	must("proc", syscall.Mount("proc", "/proc", "proc", 0, ""))
	must("sys", syscall.Mount("sysfs", "/sys", "sysfs", 0, ""))
	folder, err := syscall.Open("/modules", syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err == nil {
		modules = folder
	}
}

func readModuleFile(name string) ([]byte, error) {
	descriptor, err := syscall.Openat(modules, name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(descriptor), name)
	defer file.Close()
	return io.ReadAll(file)
}

// loadModules loads a list's modules in its order; those that are there already are left.
func loadModules(list string) {
	names, err := readModuleFile(list)
	if err != nil {
		return // a VM has its own
	}
	for _, name := range strings.Fields(string(names)) {
		packed, err := readModuleFile(name)
		must(name, err)
		reader, err := gzip.NewReader(bytes.NewReader(packed))
		must(name, err)
		module, err := io.ReadAll(reader)
		must(name, err)
		parameters := []byte{0}
		_, _, errno := syscall.Syscall(syscall.SYS_INIT_MODULE, uintptr(unsafe.Pointer(&module[0])),
			uintptr(len(module)), uintptr(unsafe.Pointer(&parameters[0])))
		if errno != 0 && errno != syscall.EEXIST {
			say("module %s: %v", name, errno)
		}
	}
}

const rootDevice = "/dev/vda"

// enterRoot makes the root disk the root, and gives back the memory of what the kernel brought.
func enterRoot() {
	os.Mkdir("/new", 0o755)
	waitFor(30*time.Second, func() bool { _, err := os.Stat(rootDevice); return err == nil })
	must("root disk", syscall.Mount(rootDevice, "/new", "ext4", syscall.MS_NOATIME, ""))
	for _, name := range []string{"dev", "proc", "sys", "run"} {
		os.MkdirAll("/new/"+name, 0o755)
	}
	for _, name := range []string{"dev", "proc", "sys"} {
		must(name, syscall.Mount("/"+name, "/new/"+name, "", syscall.MS_MOVE, ""))
	}
	os.Remove("/init")
	if bootParameter("keelson") == "vm" {
		os.RemoveAll("/modules")
	}
	must("root", os.Chdir("/new"))
	must("root", syscall.Mount(".", "/", "", syscall.MS_MOVE, ""))
	must("root", syscall.Chroot("."))
	must("root", os.Chdir("/"))
}

// becomeInit hands a VM over to its image's own init.
func becomeInit() {
	must("/sbin/init", syscall.Exec("/sbin/init", []string{"/sbin/init"}, []string{"TERM=linux"}))
}

// asFirst does what an init would have done for a microVM's command.
func asFirst() *agent {
	mounts := []struct {
		kind, path, options string
		flags               uintptr
	}{
		{"devpts", "/dev/pts", "ptmxmode=0666,mode=0620,gid=5", syscall.MS_NOSUID | syscall.MS_NOEXEC},
		{"tmpfs", "/dev/shm", "mode=1777", syscall.MS_NOSUID | syscall.MS_NODEV},
		{"tmpfs", "/run", "mode=755", syscall.MS_NOSUID | syscall.MS_NODEV},
	}
	for _, one := range mounts {
		os.MkdirAll(one.path, 0o755)
		must(one.path, syscall.Mount(one.kind, one.path, one.kind, one.flags, one.options))
	}
	if _, err := os.Lstat("/tmp"); err != nil {
		os.MkdirAll("/tmp", 0o777)
		os.Chmod("/tmp", 0o1777)
	}
	for link, target := range map[string]string{"fd": "self/fd", "stdin": "self/fd/0", "stdout": "self/fd/1", "stderr": "self/fd/2"} {
		os.Symlink("/proc/"+target, "/dev/"+link)
	}
	syscall.Umask(0o022)
	// Who hears a moved machine's new place at once need not wait for the old one to be forgotten.
	os.WriteFile("/proc/sys/net/ipv4/conf/all/arp_notify", []byte("1"), 0)
	linkUp("lo")
	growRoot()
	return &agent{first: true}
}

func asService() *agent { return &agent{} }

// growRoot lets the root's file system take all that its disk offers.
func growRoot() {
	disk, err := os.Open(rootDevice)
	if err != nil {
		return
	}
	defer disk.Close()
	root, err := os.Open("/")
	if err != nil {
		return
	}
	defer root.Close()
	var bytes uint64
	const blkGetSize64, ext4ResizeFs = 0x80081272, 0x40086610
	if ioctl(disk.Fd(), blkGetSize64, unsafe.Pointer(&bytes)) != nil {
		return
	}
	var fs syscall.Statfs_t
	if syscall.Statfs("/", &fs) != nil {
		return
	}
	blocks := bytes / uint64(fs.Bsize)
	ioctl(root.Fd(), ext4ResizeFs, unsafe.Pointer(&blocks))
}

// powerOff ends the machine. What is written and not synced is lost.
func powerOff() {
	syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
	select {}
}

// unmountAll puts the file systems in order, once no process uses them any more.
func unmountAll() {
	syscall.Sync()
	table, _ := os.ReadFile("/proc/self/mounts")
	lines := strings.Split(strings.TrimSpace(string(table)), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if fields := strings.Fields(lines[i]); len(fields) > 2 && fields[2] == "xfs" {
			syscall.Unmount(unescaped(fields[1]), 0)
		}
	}
	syscall.Mount("", "/", "", syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
	syscall.Sync()
}

// unescaped reads a path as /proc writes it.
func unescaped(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}

func waitFor(limit time.Duration, check func() bool) bool {
	for end := time.Now().Add(limit); !check(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

func ioctl(descriptor uintptr, request uintptr, argument unsafe.Pointer) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, descriptor, request, uintptr(argument)); errno != 0 {
		return errno
	}
	return nil
}

// firstMatch is the first of the files whose trimmed text passes.
func firstMatch(pattern string, passes func(text string) bool) string {
	files, _ := filepath.Glob(pattern)
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && passes(strings.TrimSpace(string(text))) {
			return file
		}
	}
	return ""
}
