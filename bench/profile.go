package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
)

// memoryProfile writes a profile of all allocations so far.
func memoryProfile(file string) error {
	m, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup("allocs").WriteTo(m, 0), m.Close())
}

// profileOf writes a CPU profile of one kind of run; with MEM set in the
// environment also one of its allocations, which costs time of its own.
func profileOf(file string, which int, stream bool, runs int) error {
	url, stop, err := startMock()
	if err != nil {
		return err
	}
	defer stop()
	dir, err := os.MkdirTemp("", "toolcrib-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	kinds, closeAll, err := kindsOf(url, dir, stream)
	if err != nil {
		return err
	}
	defer closeAll()
	if which < 0 || which >= len(kinds) {
		return fmt.Errorf("-kind: 0 to %d", len(kinds)-1)
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	if os.Getenv("MEM") != "" {
		runtime.MemProfileRate = 512
	}
	got, err := measure(kinds[which], "rounds-5", 5, 1, runs)
	if err == nil {
		if os.Getenv("MEM") != "" {
			err = memoryProfile(file + ".mem")
		}
		fmt.Printf("%s: CPU %s, wall %s, %d allocations, %d bytes a run\n", kinds[which].name, got.cpu, got.wall, got.allocs,
			got.bytes)
	}
	return err
}
