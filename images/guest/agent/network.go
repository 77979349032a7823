package main

import (
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// Addresses are set as the host says them, and not asked for by DHCP: they are there before the command is, and no lease can
// run out while the machine is suspended.

type nic struct {
	Mac string `json:"mac"`
	// The address by which it is found, where that is another: a forked machine has the other's.
	Was          string `json:"was"`
	Address      string `json:"address"`
	Prefix       int    `json:"prefix"`
	Gateway      string `json:"gateway"`
	DefaultRoute bool   `json:"default_route"`
	Mtu          int    `json:"mtu"`
}

type resolver struct {
	Server string `json:"server"`
	Domain string `json:"domain"`
}

const nicShownWithin = 10 * time.Second

func (n nic) apply() error {
	found := n.Mac
	if n.Was != "" {
		found = n.Was
	}
	var device string
	waitFor(nicShownWithin, func() bool {
		file := firstMatch("/sys/class/net/*/address", func(text string) bool { return strings.EqualFold(text, found) })
		device = filepath.Base(filepath.Dir(file))
		return file != ""
	})
	if device == "." || device == "" {
		return &fault{Code: "failed", Message: "the machine does not see its NIC"}
	}
	control, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(control)
	if n.Was != "" && !strings.EqualFold(n.Was, n.Mac) {
		setFlags(control, device, 0)
		if err := setHardware(control, device, n.Mac); err != nil {
			return err
		}
	}
	if n.Mtu > 0 {
		number := named(device)
		binary.NativeEndian.PutUint32(number[16:], uint32(n.Mtu))
		if err := ioctl(uintptr(control), syscall.SIOCSIFMTU, unsafe.Pointer(&number)); err != nil {
			return err
		}
	}
	mask := net.CIDRMask(n.Prefix, 32)
	for _, set := range []struct {
		request uintptr
		value   net.IP
	}{{syscall.SIOCSIFADDR, net.ParseIP(n.Address)}, {syscall.SIOCSIFNETMASK, net.IP(mask)}} {
		what := named(device)
		copy(what[16:], socketAddress(set.value))
		if err := ioctl(uintptr(control), set.request, unsafe.Pointer(&what)); err != nil {
			return err
		}
	}
	if err := setFlags(control, device, syscall.IFF_UP); err != nil {
		return err
	}
	if n.DefaultRoute {
		return addDefaultRoute(control, device, n.Gateway)
	}
	return nil
}

func linkUp(device string) {
	if control, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0); err == nil {
		setFlags(control, device, syscall.IFF_UP)
		syscall.Close(control)
	}
}

func named(device string) [40]byte {
	var what [40]byte
	copy(what[:15], device)
	return what
}

func socketAddress(address net.IP) []byte {
	bytes := make([]byte, 16)
	binary.NativeEndian.PutUint16(bytes, syscall.AF_INET)
	copy(bytes[4:], address.To4())
	return bytes
}

// setFlags leaves all flags but that of being up.
func setFlags(control int, device string, up uint16) error {
	what := named(device)
	if err := ioctl(uintptr(control), syscall.SIOCGIFFLAGS, unsafe.Pointer(&what)); err != nil {
		return err
	}
	flags := binary.NativeEndian.Uint16(what[16:])
	binary.NativeEndian.PutUint16(what[16:], flags&^syscall.IFF_UP|up)
	return ioctl(uintptr(control), syscall.SIOCSIFFLAGS, unsafe.Pointer(&what))
}

func setHardware(control int, device, mac string) error {
	address, err := net.ParseMAC(mac)
	if err != nil {
		return err
	}
	what := named(device)
	binary.NativeEndian.PutUint16(what[16:], syscall.ARPHRD_ETHER)
	copy(what[18:], address)
	return ioctl(uintptr(control), syscall.SIOCSIFHWADDR, unsafe.Pointer(&what))
}

func addDefaultRoute(control int, device, gateway string) error {
	name := append([]byte(device), 0)
	// struct rtentry: destination and mask are all zeros.
	var route [120]byte
	copy(route[8:], socketAddress(net.IPv4zero))
	copy(route[24:], socketAddress(net.ParseIP(gateway)))
	copy(route[40:], socketAddress(net.IPv4zero))
	binary.NativeEndian.PutUint16(route[56:], syscall.RTF_UP|syscall.RTF_GATEWAY)
	*(*uintptr)(unsafe.Pointer(&route[88])) = uintptr(unsafe.Pointer(&name[0]))
	err := ioctl(uintptr(control), syscall.SIOCADDRT, unsafe.Pointer(&route))
	if err == syscall.EEXIST {
		return nil
	}
	return err
}

func setName(name string, resolver *resolver) {
	if name == "" {
		return
	}
	syscall.Sethostname([]byte(name))
	os.MkdirAll("/etc", 0o755)
	replace("/etc/hostname", name+"\n")
	replace("/etc/hosts", "127.0.0.1\tlocalhost\n127.0.1.1\t"+name+"\n")
	if resolver != nil {
		text := "nameserver " + resolver.Server + "\n"
		if resolver.Domain != "" {
			text = "search " + resolver.Domain + "\n" + text
		}
		replace("/etc/resolv.conf", text)
	}
}

// replace writes a file anew: an image may have a link there that leads nowhere.
func replace(path, text string) {
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSymlink != 0 {
		os.Remove(path)
	}
	os.WriteFile(path, []byte(text), 0o644)
	os.Chmod(path, 0o644)
}
