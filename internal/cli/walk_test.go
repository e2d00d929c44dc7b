package cli_test

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

// A task is something that a person does on the first day, at a shell.
type task struct {
	name   string
	script string // replies of the model; "" = it is not asked
	line   string // what is typed at the shell
	does   []press
	want   []string // patterns of what is shown at the end, as flat makes it
	exit   int
	after  string // a shell command that must succeed afterwards, outside of toolcrib
	table  bool   // every line of the output fits the terminal
	builds bool   // needs what go builds first: only at 80 columns, with colour
}

// A press is what the person does when the screen shows something.
type press struct {
	when string // pattern, as in want
	keys string // typed as it is; <Enter> and other names in angle brackets are keys of tmux
}

// TestWalk is the first day of a person with toolcrib: from an empty home to a fixed bug,
// and everything around it. The tasks are done in order, in one home and one project, at a
// shell on a real terminal. Model replies are scripted; git, go, node and the sandbox are real.
// With -artifacts every screen is kept.
func TestWalk(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"tmux", "git", "go", "node"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("SKIP: %s is not installed: the walk through the first day is not tested", program)
		}
	}
	for _, width := range []int{60, 80, 200} {
		for _, colour := range []bool{true, false} {
			name := fmt.Sprintf("%d", width)
			if !colour {
				name += "plain"
			}
			if testing.Short() && name != "80" {
				continue // scripts/sweep walks at every width
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := newWalker(t, width, colour)
				if name == "80" {
					w.warm = w.build()
				}
				for i, one := range walkTasks {
					if !one.builds {
						w.do(i+1, one)
					} else if name == "80" {
						w.warm()
						w.do(i+1, one)
					}
				}
			})
		}
	}
}

// walker is the person: a shell in a project folder, below an empty home.
type walker struct {
	*pane
	home    string
	width   int
	colour  bool
	screens string
	cache   string // of go, for what is tried outside of toolcrib
	warm    func() // waits for build
}

func newWalker(t *testing.T, width int, colour bool) *walker {
	t.Helper()
	w := &walker{home: t.TempDir(), width: width, colour: colour, screens: t.ArtifactDir()}
	for name, text := range walkFiles {
		path := filepath.Join(w.home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var env []string
	if !colour {
		env = append(env, "NO_COLOR=1")
	}
	w.pane = shellOn(t, w.home, filepath.Join(w.home, "shop"), width, 40, env...)
	cache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	w.cache = strings.TrimSpace(string(cache))
	w.outside("git init -q . && git add . && git commit -q -m 'A shop'")
	return w
}

// shellOn opens a terminal with a shell in a folder. env is added to its environment, which has
// nothing of this process but the PATH.
func shellOn(t *testing.T, home, dir string, width, height int, env ...string) *pane {
	t.Helper()
	folder, err := os.MkdirTemp("", "tmux") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	p := &pane{t: t, socket: filepath.Join(folder, "s"), dir: dir}
	line := []string{
		"-u", "-S", p.socket, "-f", "/dev/null", "new-session", "-d", "-s", "chat",
		"-x", strconv.Itoa(width), "-y", strconv.Itoa(height), "-c", dir, "env", "-i", "HOME=" + home, "PATH=" + shippedPath(t),
		"GORACE=" + os.Getenv("GORACE"), "TERM=screen-256color", "LANG=C.UTF-8", "PS1=[$?]> ",
	}
	if out, err := exec.Command("tmux", append(append(line, env...), "sh")...).CombinedOutput(); err != nil {
		t.Fatalf("tmux: %v: %s", err, out)
	}
	t.Cleanup(func() {
		_ = exec.Command("tmux", "-S", p.socket, "kill-server").Run() // it may have ended
		_ = os.RemoveAll(folder)
	})
	return p
}

// The first command of the README, at 80 by 24 with an empty home: when it has ended, one screen
// shows the command itself, a question with the difference, the tools, the answer and how to
// look back.
func TestFirstMinute(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("SKIP: tmux is not installed: the first minute on a real terminal is not tested")
	}
	dir := t.TempDir()
	for i := range 48 { // as many as in a clone of this repository
		name := fmt.Sprintf("folder%02d/x", i)
		if i%2 == 0 {
			name = fmt.Sprintf("file%02d.go", i)
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "README.md"), []byte(strings.Repeat("line\n", 120)), 0o600); err != nil {
		t.Fatal(err)
	}
	p := shellOn(t, t.TempDir(), dir, 80, 24)
	p.wait("]>")
	p.send(`toolcrib run "show me around and leave a note"`)
	p.wait("l later?")
	p.answer("y Enter", "approved by local:")
	p.waitAfter("runs show run_", "[0]>")
	screen := strings.TrimRight(p.tmux("capture-pane", "-p", "-t", "chat"), "\n")
	rest := screen
	for _, want := range []string{
		`[0]> toolcrib run "show me around`, "no model is configured", "list_directory .", "README.md", "more",
		"exec_shell wc -l README.md", "This call needs your approval", "write_file toolcrib-note.md",
		"you decide about writes", "new file toolcrib-note.md", "+Look 1 of the offline model: 24 folders, 25 files",
		"a always in this folder", "later? y", "approved by local:", "Successfully wrote", "Here I found 24 folders and 25 files",
		"what happened: toolcrib runs show last", "why writing asks", "a few rules, not a language model",
		"offline/offline", "toolcrib runs show run_", "[0]>",
	} {
		_, after, ok := strings.Cut(rest, want)
		if !ok {
			t.Fatalf("the screen does not show %q, or not there:\n%s", want, screen)
		}
		rest = after
	}
}

// outside runs a shell command in the project, without toolcrib.
func (w *walker) outside(command string) {
	w.t.Helper()
	cmd := exec.Command("sh", "-c", command)
	cmd.Dir, cmd.Env = w.dir, append(os.Environ(), "HOME="+w.home, "GOCACHE="+w.cache)
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Errorf("%s: %v: %s", command, err, out)
	}
}

// build begins to fill the build cache that toolcrib keeps for the project, by the tool itself and into
// a data folder of its own: on a busy machine, Go's first build takes longer than a call may. What it
// returns waits for it, and puts the cache where the person's toolcrib will look.
func (w *walker) build() func() {
	w.t.Helper()
	const line = `toolcrib --data-dir "$HOME/warm" --config "$HOME/warm.yaml" tools call exec_shell --approve all --args '{"command":"go test ./...","timeout":300}'`
	built, path := make(chan error, 1), shippedPath(w.t)
	go func() {
		cmd := exec.Command("sh", "-c", "echo 'tools: {shell: {allow: [go]}}' > ~/warm.yaml; "+
			"for i in 1 2 3 4; do "+line+" 2>&1 | tee -a ~/warm.log | grep 'FAIL: TestTotal' && exit; done; cat ~/warm.log; exit 1")
		cmd.Dir, cmd.Env = w.dir, []string{"HOME=" + w.home, "PATH=" + path, "GORACE=" + os.Getenv("GORACE")}
		if out, err := cmd.CombinedOutput(); err != nil {
			built <- fmt.Errorf("%w\n%s", err, out)
		}
		close(built)
	}()
	wait := sync.OnceValue(func() error { return <-built })
	w.t.Cleanup(func() { _ = wait() })
	return sync.OnceFunc(func() {
		if err := wait(); err != nil {
			w.t.Fatalf("the first build: %v", err)
		}
		w.outside(`rm ~/warm.* && mkdir -p "$HOME/.local/share/toolcrib/caches" && mv "$HOME"/warm/caches/* "$HOME/.local/share/toolcrib/caches/"`)
	})
}

// prompted is the shell's question for the next line, with the status of the last.
var prompted = regexp.MustCompile(`(?:^|\n)\[(\d+)\]> *$`)

func (w *walker) do(number int, one task) {
	w.t.Helper()
	if one.script != "" {
		path := filepath.Join(w.home, ".config", "toolcrib", "demo.script")
		if err := os.WriteFile(path, []byte(one.script), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	w.tmux("send-keys", "-R", "-t", "chat")
	w.tmux("clear-history", "-t", "chat")
	w.send(one.line)
	for _, p := range one.does {
		if !w.sees(one, p.when) {
			return
		}
		w.press(p.keys)
	}
	if !w.sees(one, "") {
		return
	}
	screen := w.text("-J")
	colours := w.text("-e")
	path := filepath.Join(w.screens, fmt.Sprintf("%02d-%s.txt", number, strings.ReplaceAll(one.name, " ", "-")))
	if err := os.WriteFile(path, []byte(colours), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.judge(one, screen, colours)
}

// judge looks at the screen after a task.
func (w *walker) judge(one task, screen, colours string) {
	w.t.Helper()
	for _, want := range one.want {
		if !regexp.MustCompile(want).MatchString(flat(screen)) {
			w.t.Errorf("%s: not shown: %s; the terminal shows:\n%s", one.name, want, screen)
		}
	}
	if got := prompted.FindStringSubmatch(screen)[1]; got != strconv.Itoa(one.exit) {
		w.t.Errorf("%s: exit status %s, want %d; the terminal shows:\n%s", one.name, got, one.exit, screen)
	}
	if one.after != "" {
		w.outside(one.after)
	}
	if !w.colour && colouring.MatchString(colours) {
		w.t.Errorf("%s: NO_COLOR is set, and there is colour:\n%q", one.name, colours)
	}
	lines := strings.Split(screen, "\n")
	for _, line := range lines[1:] { // the first is what was typed
		line = strings.TrimRight(line, " ")
		if one.table && utf8.RuneCountInString(line) > w.width {
			w.t.Errorf("%s: wider than %d columns: %s", one.name, w.width, line)
		}
	}
}

var (
	colouring = regexp.MustCompile(`\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])[;m]`)
	spaces    = regexp.MustCompile(`[\s│]+`)
)

// flat is a text in one line, however wide the terminal is that shows it.
func flat(text string) string { return spaces.ReplaceAllString(text, " ") }

// sees waits until the screen shows something, or, with no pattern, until the shell asks for
// the next line. If it does not, the task is given up, and the next one begins.
func (w *walker) sees(one task, pattern string) bool {
	w.t.Helper()
	looked := regexp.MustCompile(pattern)
	text, ended := "", false
	for begun := time.Now(); time.Since(begun) < 5*time.Minute; time.Sleep(50 * time.Millisecond) {
		text = w.text("-J")
		ended = prompted.MatchString(text)
		if looked.MatchString(flat(text)) && (ended || pattern != "") {
			return true
		}
		if ended {
			break
		}
	}
	w.t.Errorf("%s: not shown: %s; the terminal shows:\n%s", one.name, cmp.Or(pattern, "the shell"), text)
	for range 40 {
		if ended {
			return false
		}
		w.keys("C-c")
		time.Sleep(250 * time.Millisecond)
		ended = prompted.MatchString(w.text("-J"))
	}
	w.t.Fatal("the program does not end")
	return false
}

var keyNames = regexp.MustCompile(`<[A-Za-z-]+>`)

// press types a text in which keys are named.
func (w *walker) press(keys string) {
	for keys != "" {
		at := keyNames.FindStringIndex(keys)
		switch {
		case at == nil:
			w.typed(keys)
			return
		case at[0] > 0:
			w.typed(keys[:at[0]])
			keys = keys[at[0]:]
		default:
			w.keys(strings.Trim(keys[:at[1]], "<>"))
			keys = keys[at[1]:]
		}
	}
}
