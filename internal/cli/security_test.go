package cli_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// The columns of the table of SECURITY.md.
const (
	withBubblewrap = "B"
	withLandlock   = "L"
	withNeither    = "–"
)

// aLine is a line of a block of SECURITY.md: a command, the guarantee that it shows, and what it prints.
type aLine struct{ command, guarantee, system, prints string }

var lineEnd = regexp.MustCompile(`\s+# (?:(\d+)(?: (\S+))?|(\S)): (.*)$`)

// securityPage returns the blocks of SECURITY.md and, for each guarantee, what the table says of each system.
func securityPage(t *testing.T) (blocks [][]aLine, holds map[string]map[string]string) {
	t.Helper()
	page, err := os.ReadFile("../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	holds = map[string]map[string]string{}
	var head []string
	inBlock := false
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSuffix(line, "\n")
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case strings.HasPrefix(line, "```"):
			if inBlock = !inBlock; inBlock {
				blocks = append(blocks, nil)
			}
		case inBlock:
			one := aLine{command: line}
			if m := lineEnd.FindStringSubmatchIndex(line); m != nil {
				part := lineEnd.FindStringSubmatch(line)
				one = aLine{line[:m[0]], part[1], part[2] + part[3], part[4]}
			}
			blocks[len(blocks)-1] = append(blocks[len(blocks)-1], one)
		case strings.HasPrefix(line, "| | guarantee"):
			head = cells
		case strings.HasPrefix(line, "| ") && len(cells) == len(head):
			holds[cells[0]] = map[string]string{}
			for i := 3; i < len(cells); i++ {
				holds[cells[0]][head[i]] = cells[i]
			}
		}
	}
	return blocks, holds
}

// TestSecurityPage runs the lines of SECURITY.md as they stand: on this machine, and on Linux also without bubblewrap and
// without Landlock, if bubblewrap can take them away.
func TestSecurityPage(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("the page's lines are of a Unix shell")
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	blocks, holds := securityPage(t)
	shown := map[string]bool{}
	for _, block := range blocks {
		for _, line := range block {
			shown[line.guarantee] = true
		}
	}
	for guarantee := range holds {
		if !shown[guarantee] {
			t.Errorf("no line shows guarantee %s", guarantee)
		}
	}
	if runtime.GOOS != "linux" {
		showSecurity(t, blocks, holds, "macOS", nil, nil)
		return
	}
	hidden := []string{"bwrap", "--dev-bind", "/", "/", "--die-with-parent"}
	for _, path := range []string{"/usr/bin/bwrap", "/usr/local/bin/bwrap"} {
		if _, err := os.Stat(path); err == nil {
			hidden = append(hidden, "--bind", "/dev/null", path)
		}
	}
	if exec.Command(hidden[0], append(hidden[1:], "true")...).Run() != nil {
		t.Skip("bubblewrap is not installed, or may not be used")
	}
	for _, system := range []struct {
		name   string
		prefix []string
		filter []byte
	}{
		{withBubblewrap, nil, nil},
		{withLandlock, hidden, nil},
		{withNeither, append(slices.Clip(hidden), "--seccomp", "3"), noLandlock()},
	} {
		t.Run(system.name, func(t *testing.T) {
			t.Parallel()
			showSecurity(t, blocks, holds, system.name, system.prefix, system.filter)
		})
	}
}

// noLandlock is a filter of system calls in which the kernel has no Landlock.
func noLandlock() []byte {
	var b bytes.Buffer
	for _, step := range []struct {
		Code        uint16
		True, False uint8
		Value       uint32
	}{
		{0x20, 0, 0, 0},               // load the number of the call
		{0x15, 0, 1, 444},             // landlock_create_ruleset, on every architecture
		{0x06, 0, 0, 0x00050000 | 38}, // ENOSYS
		{0x06, 0, 0, 0x7fff0000},      // allow
	} {
		_ = binary.Write(&b, binary.NativeEndian, step) // a buffer takes it
	}
	return b.Bytes()
}

// showSecurity runs the lines on a system, under which prefix and filter put them.
func showSecurity(
	t *testing.T, blocks [][]aLine, holds map[string]map[string]string, system string, prefix []string, filter []byte,
) {
	box := t.TempDir()
	home := filepath.Join(box, "home")
	env := []string{"HOME=" + home, "PATH=" + shippedPath(t), "LANG=C.UTF-8", "TMPDIR=" + box}
	port := "8420"
	begin := func(ctx context.Context, dir string, args ...string) *exec.Cmd {
		args = append(slices.Clone(prefix), args...)
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Dir, cmd.Env = dir, env
		if filter != nil {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(filter); err != nil {
				t.Fatal(err)
			}
			_ = w.Close() // it is read to its end
			t.Cleanup(func() { _ = r.Close() })
			cmd.ExtraFiles = []*os.File{r}
		}
		return cmd
	}
	for i, block := range blocks {
		dir := filepath.Join(box, "folder"+string(rune('1'+i)))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			port = securityServer(t, begin, dir)
		}
		for _, line := range block {
			if line.system != "" && line.system != system {
				continue
			}
			holding := holds[line.guarantee][system]
			if line.system == "" && line.guarantee != "" && holding != "✓" {
				continue
			}
			command := strings.ReplaceAll(line.command, "8420", port)
			out, err := begin(t.Context(), dir, "sh", "-c", command).CombinedOutput()
			switch {
			case line.prints == "" && err != nil:
				t.Errorf("%s\n%v\n%s", command, err, out)
			case !strings.Contains(string(out), line.prints):
				t.Errorf("%s\nguarantee %s, want %q:\n%s", command, line.guarantee, line.prints, out)
			}
		}
	}
}

// securityServer starts toolcrib serve, and returns its port.
func securityServer(t *testing.T, begin func(context.Context, string, ...string) *exec.Cmd, dir string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd, log := begin(ctx, dir, "toolcrib", "serve", "--listen", "127.0.0.1:0"), &serveLog{port: make(chan string, 1)}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
	})
	select {
	case port := <-log.port:
		return port
	case <-time.After(2 * time.Minute):
		t.Fatal("serve does not listen")
		return ""
	}
}

// serveLog sends the port on which a server says that it listens.
type serveLog struct {
	text []byte
	told bool
	port chan string
}

var listening = regexp.MustCompile(`listens on http://[^\s"]*:(\d+)\b`)

func (l *serveLog) Write(p []byte) (int, error) {
	if l.told {
		return len(p), nil
	}
	l.text = append(l.text, p...)
	if found := listening.FindSubmatch(l.text); found != nil {
		l.port <- string(found[1])
		l.told = true
	}
	return len(p), nil
}
