package main

import "time"

func rdtsc() uint64

// tscKhz measures how fast the processor's counter runs: a microVM cannot find that out on a busy host, and stops without it.
func tscKhz() uint64 {
	const long = 200 * time.Millisecond
	begun, from := time.Now(), rdtsc()
	time.Sleep(long)
	ticks := rdtsc() - from
	return ticks * uint64(time.Millisecond) / uint64(time.Since(begun))
}
