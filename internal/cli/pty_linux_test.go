package cli_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
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

// cmdPTY runs a program on a terminal and wants an exit code: pty FILE CODE toolcrib
// ARGS. Each line of a file is typed when the program asks for it, and the end of the
// input when it asks for more; - is no line. What the terminal shows is standard
// output. ROWS and COLUMNS set the size of the terminal.
func cmdPTY(ts *testscript.TestScript, _ bool, args []string) {
	var lines []string
	if args[0] != "-" {
		lines = strings.SplitAfter(strings.TrimSuffix(ts.ReadFile(args[0]), "\n"), "\n")
		lines[len(lines)-1] += "\n"
	}
	onTerminal(ts, args[1], args[2:], func(p *typist) {
		for p.asked() {
			next := "\x04"
			if len(lines) > 0 {
				next, lines = lines[0], lines[1:]
			}
			p.typed(next)
		}
	})
}

// cmdPTYAhead types a file at once, before the program asks for anything, and again as
// soon as it asks: ptyahead FILE CODE toolcrib ARGS.
func cmdPTYAhead(ts *testscript.TestScript, _ bool, args []string) {
	onTerminal(ts, args[1], args[2:], func(p *typist) {
		p.typed(ts.ReadFile(args[0]))
		for p.asked() {
			p.typed("\x04")
		}
	})
}

// answerPTY runs a program on a terminal as [cmdPTY] does; what is typed depends on what the
// terminal shows, and how often something was typed.
func answerPTY(ts *testscript.TestScript, code string, args []string, answer func(screen string, n int) string) {
	onTerminal(ts, code, args, func(p *typist) {
		for n := 0; p.asked(); n++ {
			p.mu.Lock()
			screen := p.shown.String()
			p.mu.Unlock()
			p.typed(answer(screen, n) + "\n")
		}
	})
}

// typist is a person at a terminal.
type typist struct {
	control *os.File
	mu      sync.Mutex
	shown   strings.Builder
	seen    int // bytes of what was shown when the last line was typed
	ended   bool
	news    chan struct{} // has an element when there is something new
}

// asks finds a question that waits: the mark that a line is read now, or the end of a
// question for a secret.
var asks = regexp.MustCompile(`\x1b\[\?2004h|shown\): $`)

// asked waits until the program asks for something; false = it has ended.
func (p *typist) asked() bool {
	for {
		p.mu.Lock()
		asked, ended := asks.MatchString(p.shown.String()[p.seen:]), p.ended
		p.mu.Unlock()
		if asked || ended {
			return !ended
		}
		<-p.news
	}
}

// typed types a text; what the terminal shows of it is no question.
func (p *typist) typed(text string) {
	p.mu.Lock()
	p.seen = p.shown.Len()
	p.mu.Unlock()
	_, _ = io.WriteString(p.control, text) // who has gone reads nothing
}

// read takes what the program shows, until it ends.
func (p *typist) read() {
	buf := make([]byte, 4096)
	for {
		n, err := p.control.Read(buf)
		p.mu.Lock()
		p.shown.Write(buf[:n])
		p.ended = err != nil // the terminal is gone
		p.mu.Unlock()
		select {
		case p.news <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

func onTerminal(ts *testscript.TestScript, code string, args []string, do func(p *typist)) {
	want, err := strconv.Atoi(code)
	ts.Check(err)
	control, terminal, err := openPTY()
	ts.Check(err)
	ts.Check(unix.IoctlSetWinsize(int(control.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: number(ts, "ROWS", 24), Col: number(ts, "COLUMNS", 80)}))
	cmd := exec.Command(lookPath(ts, args[0]), args[1:]...)
	cmd.Dir, cmd.Env = ts.MkAbs("."), environment(ts)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	ts.Check(cmd.Start())
	ts.Check(terminal.Close())
	p := &typist{control: control, news: make(chan struct{}, 1)}
	var reading sync.WaitGroup
	reading.Go(p.read)
	do(p)
	reading.Wait()
	err = cmd.Wait()
	_ = control.Close()
	fmt.Fprint(ts.Stdout(), strings.ReplaceAll(p.shown.String(), "\r\n", "\n"))
	if got := exitCode(err); got != want {
		ts.Fatalf("exit code %d, want %d; the terminal shows:\n%s", got, want, p.shown.String())
	}
}

func number(ts *testscript.TestScript, name string, otherwise uint16) uint16 {
	if n, err := strconv.ParseUint(ts.Getenv(name), 10, 16); err == nil {
		return uint16(n)
	}
	return otherwise
}
