// Keelson's agent in a machine. In a microVM it is the first process, from the kernel's first instruction in user space to
// the end; in a VM it brings the image's own init on its way, and is a service there.
//
// It is one static program without packages of others, since all of it stays in the memory of each microVM.
package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
)

func main() {
	// A small heap matters more here than the collector's time.
	debug.SetGCPercent(25)
	runtime.GOMAXPROCS(min(2, runtime.NumCPU()))
	if os.Getpid() != 1 {
		serve(asService())
		return
	}
	defer func() {
		// The kernel panics, and so restarts the machine, when its first process ends: say why first.
		if fault := recover(); fault != nil {
			say("agent: %v", fault)
		}
	}()
	mountKernel()
	switch bootParameter("keelson") {
	case "probe":
		say("keelson-probe-ok")
		powerOff()
	case "vm":
		loadModules("boot")
		enterRoot()
		becomeInit()
	default:
		loadModules("boot")
		enterRoot()
		serve(asFirst())
	}
}

// say writes to the machine's console.
func say(format string, args ...any) {
	if console, err := os.OpenFile("/dev/console", os.O_WRONLY, 0); err == nil {
		fmt.Fprintf(console, format+"\n", args...)
		console.Close()
	}
}

func must(what string, err error) {
	if err != nil {
		panic(fmt.Sprintf("%s: %v", what, err))
	}
}

func bootParameter(name string) string {
	line, _ := os.ReadFile("/proc/cmdline")
	for _, word := range strings.Fields(string(line)) {
		if value, found := strings.CutPrefix(word, name+"="); found {
			return value
		}
	}
	return ""
}
