package process_test

import (
	"bufio"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/toolcrib/toolcrib/internal/process"
)

// A process is seen to have ended also before its parent has waited for it, and after another process got its number.
// One on another machine is not looked at.
func TestEnded(t *testing.T) {
	self := process.Self()
	if self.Machine == "" {
		t.Skip("processes are not looked at on " + runtime.GOOS)
	}
	if self.PID != os.Getpid() || self.Started == 0 || self != process.Self() || self.EndedFor(self) {
		t.Errorf("this process is %+v", self)
	}
	reused := self
	reused.Started--
	if !reused.EndedFor(self) {
		t.Error("another process with the same number was taken for it")
	}
	reused.Started = 0
	if reused.EndedFor(self) {
		t.Error("a process whose start is unknown was taken for ended")
	}
	child := exec.Command(os.Args[0], "-test.run=^$", "-test.v")
	out, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	id := self
	id.PID, id.Started = child.Process.Pid, 0
	for in := bufio.NewScanner(out); in.Scan(); { // to the end of the process
	}
	for !id.EndedFor(self) { // it is a zombie within a moment
		runtime.Gosched()
	}
	for _, other := range []process.ID{{}, {Machine: self.Machine}, {Machine: "other", PID: id.PID}} {
		if other.EndedFor(self) {
			t.Errorf("%+v was looked at", other)
		}
	}
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
	if !id.EndedFor(self) {
		t.Error("it is still seen")
	}
}
