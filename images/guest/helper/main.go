// What the host needs of the machine and cannot do in its own language.
package main

import (
	"fmt"
	"os"
)

func main() {
	if err := do(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "helper:", err)
		os.Exit(1)
	}
}

func do(arguments []string) error {
	switch {
	case len(arguments) == 1 && arguments[0] == "tsc":
		fmt.Println(tscKhz())
		return nil
	case len(arguments) == 2 && arguments[0] == "publish":
		return publish(arguments[1])
	case len(arguments) > 2 && arguments[0] == "carry":
		return carry(arguments[1], arguments[2:])
	case len(arguments) == 2 && arguments[0] == "confine":
		return confine(arguments[1])
	case len(arguments) == 2 && arguments[0] == "begin":
		return begin()
	case len(arguments) == 5 && arguments[0] == "plug":
		return plug(arguments[1], arguments[2], arguments[3], arguments[4])
	}
	return fmt.Errorf("unknown command %q", arguments)
}
