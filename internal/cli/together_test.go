package cli_test

import (
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdTogether starts two processes at the same moment and waits for both; their
// output and exit codes are standard output: together A ARGS -- B ARGS, where B is
// A if it is left out.
func cmdTogether(ts *testscript.TestScript, _ bool, args []string) {
	first, second := args, args
	if i := slices.Index(args, "--"); i >= 0 {
		first, second = args[:i], args[i+1:]
	}
	var said [2]strings.Builder
	var ended sync.WaitGroup
	start := make(chan struct{})
	for i, line := range [][]string{first, second} {
		cmd := program(ts, line)
		cmd.Stdout, cmd.Stderr = &said[i], &said[i]
		ended.Go(func() {
			<-start
			err := cmd.Run()
			fmt.Fprintf(&said[i], "exit %d\n", exitCode(err))
		})
	}
	close(start)
	ended.Wait()
	fmt.Fprint(ts.Stdout(), said[0].String(), said[1].String())
}

func program(ts *testscript.TestScript, line []string) *exec.Cmd {
	cmd := exec.Command(lookPath(ts, line[0]), line[1:]...)
	cmd.Dir, cmd.Env = ts.MkAbs("."), environment(ts)
	return cmd
}

// processes are those of a script that go on in the background.
type processes struct {
	mu    sync.Mutex
	named map[string]*background
}

type background struct {
	cmd  *exec.Cmd
	said strings.Builder
}

// start starts a process, and waits until something writes to a named pipe:
// background NAME PIPE|- toolcrib ARGS.
func (p *processes) start(ts *testscript.TestScript, _ bool, args []string) {
	b := &background{cmd: program(ts, args[2:])}
	b.cmd.Stdout, b.cmd.Stderr = &b.said, &b.said
	written := make(chan bool, 1)
	if args[1] != "-" {
		go waitForPipe(makePipe(ts, args[1]), written)
	}
	ts.Check(b.cmd.Start())
	ts.Defer(func() { _ = b.cmd.Process.Kill() })
	p.mu.Lock()
	p.named[ts.Name()+args[0]] = b
	p.mu.Unlock()
	if args[1] != "-" && !<-written {
		ts.Fatalf("%s did not get so far", args[0])
	}
}

// end waits for a process to end with an exit code; what it said is standard
// output: ended NAME CODE.
func (p *processes) end(ts *testscript.TestScript, _ bool, args []string) {
	p.mu.Lock()
	b := p.named[ts.Name()+args[0]]
	p.mu.Unlock()
	if b == nil {
		ts.Fatalf("no process %s", args[0])
	}
	want, err := strconv.Atoi(args[1])
	ts.Check(err)
	err = b.cmd.Wait()
	fmt.Fprint(ts.Stdout(), b.said.String())
	if got := exitCode(err); got != want {
		ts.Fatalf("%s: exit code %d, want %d; it said:\n%s", args[0], got, want, b.said.String())
	}
}
