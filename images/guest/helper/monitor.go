package main

import (
	"encoding/json"
	"fmt"
	"net"
	"syscall"
)

// monitor is a connection to a monitor of QEMU or of a storage daemon (QMP).
type monitor struct {
	socket  *net.UnixConn
	replies *json.Decoder
}

type reply struct {
	Greeting json.RawMessage `json:"QMP"`
	Return   json.RawMessage `json:"return"`
	Error    *struct {
		Class       string `json:"class"`
		Description string `json:"desc"`
	} `json:"error"`
}

// openMonitor returns when the program takes commands.
func openMonitor(path string) (*monitor, error) {
	socket, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	its := &monitor{socket, json.NewDecoder(socket)}
	var greeting reply
	if err := its.replies.Decode(&greeting); err != nil {
		socket.Close()
		return nil, err
	}
	if err := its.execute("qmp_capabilities", map[string]any{}); err != nil {
		socket.Close()
		return nil, err
	}
	return its, nil
}

// execute sends a command, and with it open files. Events are passed over.
func (its *monitor) execute(command string, arguments map[string]any, files ...int) error {
	text, err := json.Marshal(map[string]any{"execute": command, "arguments": arguments})
	if err != nil {
		return err
	}
	var rights []byte
	if len(files) > 0 {
		rights = syscall.UnixRights(files...)
	}
	if _, _, err := its.socket.WriteMsgUnix(append(text, '\n'), rights, nil); err != nil {
		return err
	}
	for {
		var said reply
		if err := its.replies.Decode(&said); err != nil {
			return err
		}
		if said.Error != nil {
			return fmt.Errorf("%s: %s", command, said.Error.Description)
		}
		if said.Return != nil {
			return nil
		}
	}
}

// plug gives a running QEMU a tap as a backend for a NIC.
func plug(path, namespace, device, backend string) error {
	tap, err := openTap(namespace, device)
	if err != nil {
		return err
	}
	defer tap.Close()
	its, err := openMonitor(path)
	if err != nil {
		return err
	}
	defer its.socket.Close()
	if err := its.execute("getfd", map[string]any{"fdname": backend}, int(tap.Fd())); err != nil {
		return err
	}
	return its.execute("netdev_add", map[string]any{"type": "tap", "id": backend, "fd": backend})
}
