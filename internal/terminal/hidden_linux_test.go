package terminal_test

import (
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toolcrib/toolcrib/internal/terminal"
	"github.com/toolcrib/toolcrib/internal/waittest"
)

// Echo is off before a question for a secret is shown: an answer that is typed at once is not. The terminal is stopped
// with ctrl-s, so that the question cannot be shown yet.
func TestHidden_EchoIsOffBeforeTheQuestion(t *testing.T) {
	t.Setenv("TERM", "xterm")
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("SKIP: there is no pseudo terminal: %v", err)
	}
	defer control.Close()
	fd := int(control.Fd())
	n, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	screen, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer screen.Close()
	fmt.Fprint(control, "\x13")
	in, err := terminal.Open(screen, screen)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	answers := make(chan string, 1)
	go func() {
		answer, err := in.Hidden("Key: ")
		answers <- fmt.Sprint(answer, " ", err)
	}()
	waittest.Until(t, "echo to be off", func() bool {
		mode, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		return err == nil && mode.Lflag&unix.ECHO == 0
	})
	fmt.Fprint(control, "\x11")
	const question = "Key: \x1b[?2004h" // with the mark that the line is read
	shown := make([]byte, len(question))
	if _, err := io.ReadFull(control, shown); err != nil || string(shown) != question {
		t.Fatalf("%q, %v", shown, err)
	}
	fmt.Fprint(control, "typed\n")
	if answer := <-answers; answer != "typed <nil>" {
		t.Errorf("%q", answer)
	}
}
