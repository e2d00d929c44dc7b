package cli_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// openPTY opens a new pseudo terminal.
func openPTY() (control, terminal *os.File, err error) {
	control, err = os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	if err := unix.IoctlSetPointerInt(int(control.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, err
	}
	n, err := unix.IoctlGetUint32(int(control.Fd()), unix.TIOCGPTN)
	if err != nil {
		return nil, nil, err
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	return control, terminal, err
}

// cmdPTY runs a program on a terminal, types a file into it, and wants an exit
// code: pty FILE CODE toolcrib ARGS. What the terminal shows is standard output.
// A file named - types nothing but the end of the input. ROWS sets the height of
// the terminal.
func cmdPTY(ts *testscript.TestScript, _ bool, args []string) {
	typed := ""
	if args[0] != "-" {
		typed = ts.ReadFile(args[0])
	}
	want, err := strconv.Atoi(args[1])
	ts.Check(err)
	control, terminal, err := openPTY()
	ts.Check(err)
	if rows, err := strconv.ParseUint(ts.Getenv("ROWS"), 10, 16); err == nil {
		ts.Check(unix.IoctlSetWinsize(int(control.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(rows), Col: 80}))
	}
	cmd := exec.Command(lookPath(ts, args[2]), args[3:]...)
	cmd.Dir, cmd.Env = ts.MkAbs("."), environment(ts)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	ts.Check(cmd.Start())
	ts.Check(terminal.Close())
	_, err = io.WriteString(control, typed+"\x04")
	ts.Check(err)
	var shown strings.Builder
	_, _ = io.Copy(&shown, control) // ends with an error when the terminal is gone
	err = cmd.Wait()
	_ = control.Close()
	fmt.Fprint(ts.Stdout(), strings.ReplaceAll(shown.String(), "\r\n", "\n"))
	if got := exitCode(err); got != want {
		ts.Fatalf("exit code %d, want %d; the terminal shows:\n%s", got, want, shown.String())
	}
}
