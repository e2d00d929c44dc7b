package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// pane is a program on a real terminal, by tmux.
type pane struct {
	t      *testing.T
	socket string
	dir    string
}

// paneTime is how long the screen may take to show what is waited for.
const paneTime = 3 * time.Minute

// lab is a folder to talk in, and the environment of its terminals.
type lab struct {
	t   *testing.T
	dir string
}

func newLab(t *testing.T, script string) *lab {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("SKIP: tmux is not installed: the conversation on a real terminal is not tested")
	}
	l := &lab{t: t, dir: t.TempDir()}
	for name, text := range map[string]string{
		"c.yaml": "providers: {demo: {type: script, file: demo.script}}\nmodels: {second: {provider: demo, model: other}}\nagents: {default: {model: demo/x}}\n", "demo.script": script,
	} {
		if err := os.WriteFile(filepath.Join(l.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// chat starts a conversation on a terminal of its own. env is added to the
// environment, args to the command line.
func (l *lab) chat(width, height int, env []string, args ...string) *pane {
	l.t.Helper()
	return l.start(width, height, env, append([]string{"--config", "c.yaml", "chat"}, args...)...)
}

// start runs toolcrib with arguments on a terminal of its own.
func (l *lab) start(width, height int, env []string, args ...string) *pane {
	l.t.Helper()
	folder, err := os.MkdirTemp("", "tmux") // the path of a socket must be short
	if err != nil {
		l.t.Fatal(err)
	}
	p := &pane{t: l.t, socket: filepath.Join(folder, "s"), dir: l.dir}
	conf := filepath.Join(folder, "conf")
	if err := os.WriteFile(conf, []byte("set -g remain-on-exit on\nset -g history-limit 5000\nset -s escape-time 0\n"), 0o600); err != nil {
		l.t.Fatal(err)
	}
	program, err := exec.LookPath("toolcrib")
	if err != nil {
		l.t.Fatal(err)
	}
	line := []string{"-u", "-S", p.socket, "-f", conf, "new-session", "-d", "-s", "chat", "-x", strconv.Itoa(width), "-y", strconv.Itoa(height), "-c", l.dir, "env", "-i"}
	line = append(line, "HOME="+l.dir, "PATH="+os.Getenv("PATH"), "GORACE="+os.Getenv("GORACE"), "TERM=screen-256color", "LANG=C.UTF-8")
	// The shell tells the exit status: tmux sometimes loses it.
	line = append(append(line, env...), "sh", "-c", `sh -c 'echo $$ >pid; exec "$@"' sh "$@"; echo "exit status $?"`, "sh", program)
	if out, err := exec.Command("tmux", append(line, args...)...).CombinedOutput(); err != nil {
		l.t.Fatalf("tmux: %v: %s", err, out)
	}
	l.t.Cleanup(func() {
		_ = exec.Command("tmux", "-S", p.socket, "kill-server").Run() // it may have ended
		_ = os.RemoveAll(folder)
	})
	return p
}

func (p *pane) tmux(args ...string) string {
	p.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-u", "-S", p.socket}, args...)...).CombinedOutput()
	if err != nil {
		p.t.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return string(out)
}

// text is all that the terminal has shown and shows now, without what has left it.
func (p *pane) text(flags ...string) string {
	p.t.Helper()
	return strings.TrimRight(p.tmux(append([]string{"capture-pane", "-p", "-S", "-", "-t", "chat"}, flags...)...), "\n")
}

// wait waits until the terminal shows something; * in it stands for anything on a
// line.
func (p *pane) wait(what string) string {
	p.t.Helper()
	return p.waitAfter("", what)
}

// waitAfter waits until something is shown after the last place of something else.
func (p *pane) waitAfter(after, what string) string {
	p.t.Helper()
	pattern := regexp.MustCompile(strings.ReplaceAll(regexp.QuoteMeta(what), `\*`, `.*`))
	return p.poll(func() (string, bool) {
		text := p.text()
		i := 0
		if after != "" {
			i = strings.LastIndex(text, after)
		}
		return text, i >= 0 && pattern.MatchString(text[i+len(after):])
	}, fmt.Sprintf("%q after %q", what, after))
}

// poll looks until it finds something, or for paneTime.
func (p *pane) poll(look func() (string, bool), what string) string {
	p.t.Helper()
	deadline := time.NewTimer(paneTime)
	defer deadline.Stop()
	tick := time.NewTicker(30 * time.Millisecond)
	defer tick.Stop()
	for {
		got, found := look()
		if found {
			return got
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			p.t.Fatalf("there is not %s; the terminal shows:\n%s", what, p.text())
		}
	}
}

// answer presses keys until it shows: what is typed before a question takes answers is dropped, and on a busy
// machine that may be some time after it is shown.
func (p *pane) answer(keys, shows string) {
	p.t.Helper()
	var pressed time.Time
	p.poll(func() (string, bool) {
		text := p.text()
		if strings.Contains(text, shows) {
			return text, true
		}
		if time.Since(pressed) > 20*time.Second {
			p.keys(strings.Fields(keys)...)
			pressed = time.Now()
		}
		return "", false
	}, fmt.Sprintf("%q after %s", shows, keys))
}

// keys presses keys by tmux's names of them; typed types a text.
func (p *pane) keys(names ...string) {
	p.tmux(append([]string{"send-keys", "-t", "chat"}, names...)...)
}

func (p *pane) typed(text string) { p.tmux("send-keys", "-t", "chat", "-l", text) }

// send sends a message, when the one before it was dealt with.
func (p *pane) send(text string) {
	p.typed(text)
	p.keys("Enter")
}

// exits waits for the end of the program and wants its exit code.
func (p *pane) exits(want int) {
	p.t.Helper()
	text := p.wait("exit status *")
	if !strings.Contains(text, fmt.Sprintf("exit status %d\n", want)) &&
		!strings.HasSuffix(text, fmt.Sprintf("exit status %d", want)) {
		p.t.Fatalf("the program does not end with %d:\n%s", want, text)
	}
}

func (l *lab) file(name string) string {
	data, err := os.ReadFile(filepath.Join(l.dir, name))
	if err != nil {
		return "(" + filepath.Base(name) + " cannot be read)"
	}
	return string(data)
}

func (l *lab) write(name, text string) {
	l.t.Helper()
	if err := os.WriteFile(filepath.Join(l.dir, name), []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

const chatScript = `
- {thinking: "I should greet them.", text: "# Greeting\n\nHello **you**, and welcome.\n\n` + "```sh\\necho hi\\n```" + `\n"}
- {text: "I look.", tool_calls: [{name: read_file, arguments: {path: notes.txt}}]}
- {text: "I have read it."}
- {tool_calls: [{name: write_file, arguments: {path: notes.txt, content: "new\n"}}]}
- {text: "That was written."}
- {tool_calls: [{name: write_file, arguments: {path: notes.txt, content: "never\n"}}]}
- {text: "That was denied."}
- {tool_calls: [{name: write_file, arguments: {path: edited.txt, content: "model\n"}}]}
- {text: "That was edited."}
- {text: "This is slow.", delay: 100s}
`

// quickScript is chatScript without its slow reply.
func quickScript() string {
	return strings.Replace(chatScript, `{text: "This is slow.", delay: 100s}`, `{text: "It goes on. \e[31mred \u202eevil &#27;[2J"}`, 1)
}

// TestChatOnATerminal goes through a conversation as a person would have
// it. Its scenes are of one conversation: each begins where the one before it ended.
func TestChatOnATerminal(t *testing.T) {
	t.Parallel()
	l := newLab(t, chatScript)
	l.write("notes.txt", "old\n")
	p := l.chat(80, 30, nil, "--session", "trip")
	p.wait("/help lists the commands")
	p.wait("demo/x * trip")
	l.answers(p)
	l.approves(p)
	l.denies(p)
	l.edits(p)
	l.stops(p)
	l.commands(p)
	l.undoes(p)
	p.keys("C-d")
	p.exits(0)

	l.again()
}

// answers: thoughts, Markdown, a call that reads, and what was folded of it.
func (l *lab) answers(p *pane) {
	l.t.Helper()
	p.send("hello there")
	p.wait("∴ I should greet them.")
	p.wait("Hello you, and welcome.")
	p.wait("  echo hi")
	p.waitAfter("echo hi", "tokens")

	p.send("what is in my notes?")
	p.wait("● read_file notes.txt")
	p.wait("└ old · /show 2")
	p.wait("I have read it.")
	p.send("/show 2")
	p.waitAfter("❯ /show 2", "└ old")
}

// approves: nothing is written before the person says yes.
func (l *lab) approves(p *pane) {
	l.t.Helper()
	p.send("write it")
	p.wait("This call needs your approval")
	p.wait("  │ -old")
	p.wait("  │ +new")
	p.wait("y yes · n no")
	l.holds("notes.txt", "old\n")
	p.keys("y")
	p.wait("That was written.")
	l.holds("notes.txt", "new\n")
}

// denies: no, and why.
func (l *lab) denies(p *pane) {
	l.t.Helper()
	p.send("write it again")
	p.waitAfter("❯ write it again", "y yes")
	p.answer("d", "why? The model reads it")
	p.send("not today")
	p.wait("That was denied.")
	p.waitAfter("❯ write it again", "refused (approval_denied)")
	l.holds("notes.txt", "new\n")
}

// edits: the call runs with the person's arguments.
func (l *lab) edits(p *pane) {
	l.t.Helper()
	p.send("write another")
	p.waitAfter("❯ write another", "y yes")
	p.answer("e", "other arguments, as JSON")
	p.keys("C-u", "BSpace", "C-u", "BSpace", "C-u", "BSpace", "C-u")
	p.send(`{"path":"edited.txt","content":"person\n"}`)
	p.wait("That was edited.")
	l.holds("edited.txt", "person\n")
}

// stops: ctrl-c ends the turn, and the conversation continues.
func (l *lab) stops(p *pane) {
	l.t.Helper()
	p.send("be slow")
	p.waitAfter("❯ be slow", "waiting for the model")
	p.keys("C-c")
	p.waitAfter("❯ be slow", "stopped")
	l.write("demo.script", quickScript())
}

// commands: what begins with a slash, completed by tab; text that would command the
// terminal is written out.
func (l *lab) commands(p *pane) {
	l.t.Helper()
	for command, want := range map[string]string{
		"/help": "/undo * put back", "/tools": "write_file * writes", "/cost": "6 turns of this session", "/sessions": "> 1 * trip", "/model": "configured: second",
	} {
		p.send(command)
		p.waitAfter("❯ "+command, want)
	}
	p.typed("/model")
	p.keys("Tab")
	p.typed("sec")
	p.keys("Tab", "Enter")
	p.waitAfter("❯ /model second", "from now on second answers")
	l.write(".gitignore", "x*.log\n")
	l.write("xa.go", "")
	l.write("xb.log", "")
	for typed, want := range map[string]string{"see @x": "❯ see @xa.go", "see @xb": "❯ see @xb.log"} { // if no other begins so
		p.typed(typed)
		p.keys("Tab")
		p.wait(want)
		p.keys("C-u")
	}
	p.send("are you there?")
	p.wait("It goes on. [31mred [U+202E]evil [U+001B][2J")
}

// undoes: turn by turn, each file by a call that is asked about.
func (l *lab) undoes(p *pane) {
	l.t.Helper()
	p.send("/undo")
	p.waitAfter("❯ /undo", "edited.txt")
	p.wait("y yes")
	p.keys("y")
	p.wait("edited.txt did not exist before; it is removed")
	if _, err := os.Lstat(filepath.Join(l.dir, "edited.txt")); !os.IsNotExist(err) {
		l.t.Fatalf("after /undo there is a file that was not there before (%v)", err)
	}
	p.send("/undo ")
	p.waitAfter("edited.txt did not exist before", "+old")
	p.waitAfter("edited.txt did not exist before", "y yes")
	p.keys("y")
	p.wait("notes.txt is as it was (4 bytes)")
	l.holds("notes.txt", "old\n")
	if text := p.text(); strings.Contains(text, "\x1b") || strings.Contains(text, "\u202e") {
		l.t.Fatalf("the terminal was commanded:\n%q", text)
	}
}

// holds wants a file to hold this.
func (l *lab) holds(name, want string) {
	l.t.Helper()
	if got := l.file(name); got != want {
		l.t.Fatalf("%s is %q, want %q", name, got, want)
	}
}

// again continues the conversation after a restart.
func (l *lab) again() {
	p := l.chat(80, 30, nil, "--session", "last")
	text := p.wait("It goes on.")
	for _, want := range []string{"❯ hello there", "Hello you, and welcome.", "● write_file notes.txt", "❯ are you there?"} {
		if !strings.Contains(text, want) {
			l.t.Errorf("after a restart %q is not shown:\n%s", want, text)
		}
	}
	p.wait("demo/x * trip")
	p.keys("Up", "Up")
	p.wait("❯ are you there?\n  ask · demo/x")
	p.keys("C-c")
	p.send(`two\`)
	p.send("lines")
	p.waitAfter("two\n  lines", "provider_failed")
	p.keys("C-c")
	p.wait("ctrl-c once more leaves")
	p.keys("C-c")
	p.exits(0)
}

// TestChatNarrow: forty columns, no colours.
func TestChatNarrow(t *testing.T) {
	t.Parallel()
	l := newLab(t, quickScript())
	l.write("notes.txt", "old\n")
	p := l.chat(40, 20, []string{"NO_COLOR=1"})
	p.wait("/help lists")
	p.send("hello there")
	p.wait("Hello **you**, and welcome.")
	p.waitAfter("echo hi", "tokens")
	p.send("what is in my notes?")
	p.wait("● read_file notes.txt")
	p.wait("└ old · /show")
	p.wait("I have read it.")
	p.send("write it")
	p.wait("l later")
	p.tmux("resize-window", "-t", "chat", "-x", "60", "-y", "20")
	p.keys("y")
	p.wait("That was written.")
	if coloured := regexp.MustCompile(`\x1b\[(?:[0-9]+;)*(?:3[0-7]|9[0-7]|4[1-7])m`).FindString(p.text("-e")); coloured != "" {
		t.Errorf("there are colours: %q", coloured)
	}
	p.keys("C-d")
	p.exits(0)
}

// A terminal that takes no UTF-8 is shown ASCII.
func TestChat_ASCII(t *testing.T) {
	t.Parallel()
	l := newLab(t, quickScript())
	p := l.chat(60, 20, []string{"LC_ALL=C"})
	p.wait("/help lists")
	p.send("hello there")
	p.wait("| Hello you, and welcome.")
	p.waitAfter("echo hi", "tokens")
	if sign := regexp.MustCompile(`[^\x00-\x7F]`).FindString(p.text()); sign != "" {
		t.Errorf("it shows %q:\n%s", sign, p.text())
	}
	p.keys("C-d")
	p.exits(0)
}

// TestChatDumb: a terminal that cannot draw.
func TestChatDumb(t *testing.T) {
	t.Parallel()
	l := newLab(t, quickScript())
	l.write("notes.txt", "old\n")
	p := l.chat(80, 40, []string{"TERM=dumb"})
	p.wait("/help lists the commands")
	p.waitAfter("leaves", ">")
	p.send("hello there")
	p.wait("Hello **you**, and welcome.")
	p.waitAfter("echo hi", "tokens")
	p.send("what is in my notes?")
	p.wait("I have read it.")
	p.send("write it")
	p.wait("l later?")
	p.answer("y Enter", "That was written.")
	p.waitAfter("That was written.", "tokens")
	p.send("/undo")
	p.waitAfter("/undo", "later?")
	p.answer("y Enter", "notes.txt is as it was")
	if got := l.file("notes.txt"); got != "old\n" {
		t.Errorf("after /undo the file is %q", got)
	}
	p.keys("C-d")
	p.exits(0)
}

// TestChatParked: what a conversation left waiting is decided in the next
// one; a signal leaves it waiting too.
func TestChatParked(t *testing.T) {
	t.Parallel()
	l := newLab(t, `
- {tool_calls: [{name: write_file, arguments: {path: a.txt, content: "one\n"}}]}
- {tool_calls: [{name: ask_user, arguments: {question: "Which colour?", schema: {enum: [red, blue]}}}]}
- {text: "Blue it is."}
`)
	p := l.chat(80, 30, nil, "--session", "work")
	p.wait("/help lists")
	p.send("write it")
	p.wait("l later")
	p.keys("l")
	p.wait("/decide continues it")
	p.send("hello?")
	p.wait("has not ended")
	p.keys("C-d")
	p.exits(3)
	p.wait("Waits: write_file a.txt content=one (apr_*)")
	if text := p.text("-J"); !regexp.MustCompile(`To continue: toolcrib --config \S+ chat --session work`).MatchString(text) ||
		!regexp.MustCompile(`See: toolcrib --config \S+ approvals list`).MatchString(text) {
		t.Errorf("it does not say how to continue:\n%s", text)
	}

	p = l.chat(80, 30, nil, "--session", "work")
	p.wait("y yes")
	pid := strings.TrimSpace(l.file("pid"))
	if out, err := exec.Command("kill", "-TERM", pid).CombinedOutput(); err != nil {
		t.Fatalf("kill: %v: %s", err, out)
	}
	p.exits(143)

	p = l.chat(80, 30, nil, "--session", "work")
	p.wait("y yes")
	p.keys("y")
	p.wait("Which colour?")
	p.wait("enter answers")
	p.send("green")
	p.wait("the answer must be one of: red, blue")
	p.send("blue")
	p.wait("Blue it is.")
	if got := l.file("a.txt"); got != "one\n" {
		t.Errorf("the file is %q", got)
	}
	p.send("/quit")
	p.exits(0)
}

// What a run has started in the background outlasts a question that is answered in the same conversation; it ends when
// the question is left open.
func TestChat_BackgroundDuringAQuestion(t *testing.T) {
	t.Parallel()
	const calls = `
- {tool_calls: [{name: exec_shell, id: bg1, arguments: {command: "sleep 600", background: true}}]}
- {tool_calls: [{name: write_file, arguments: {path: a.txt, content: "one\n"}}]}
- {tool_calls: [{name: stop_process, id: ended, arguments: {id: proc_bg1}}]}
`
	l := newLab(t, calls+`- {text: "First done."}`+strings.ReplaceAll(calls, "bg1", "bg2")+`- {text: "Second done."}`)
	l.write("c.yaml", l.file("c.yaml")+"tools: {shell: {mode: any}, confirm: never}\n"+
		"rules: [{name: asks, tools: [write_file], when: 'true', then: ask}]\n")
	p := l.chat(100, 40, nil, "--session", "work")
	p.wait("/help lists")
	p.send("start it")
	p.wait("y yes")
	p.keys("y")
	p.wait("stopped by stop_process")
	p.wait("First done.")
	p.send("again")
	p.waitAfter("again", "y yes")
	p.keys("l")
	p.wait("/decide continues it")
	p.send("/decide")
	p.waitAfter("/decide continues it", "y yes")
	p.keys("y")
	p.wait("There is no such process.")
	p.wait("Second done.")
	p.send("/quit")
	p.exits(0)
}

// A conversation on a terminal asks about what its folder brings before it begins, and again for /trust; what is trusted
// is used from the next message on, and what was declined is not asked about again until it changes.
func TestChat_Trust(t *testing.T) {
	t.Parallel()
	l := newLab(t, `
- {text: "One."}
- {text: "Two."}
- {tool_calls: [{name: read_skill, arguments: {name: kit}}]}
- {text: "Three."}
`)
	home := filepath.Join(t.TempDir(), "home")
	env := []string{"HOME=" + home, "XDG_STATE_HOME=" + home}
	if err := os.MkdirAll(filepath.Join(l.dir, ".claude", "skills", "kit"), 0o700); err != nil {
		t.Fatal(err)
	}
	l.write("AGENTS.md", "Use tabs.\n")
	l.write(".claude/skills/kit/SKILL.md", "---\nname: kit\ndescription: A kit.\n---\nUse the kit.\n")

	// These are not used: with --config the configuration of the folder, and what only counts in the current folder.
	repository := filepath.Dir(l.dir)
	for _, name := range []string{filepath.Join(l.dir, "toolcrib.yaml"), filepath.Join(repository, "toolcrib.yaml"), filepath.Join(repository, ".mcp.json")} {
		if err := os.WriteFile(name, []byte("{}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(repository, ".git"), 0o700); err != nil {
		t.Fatal(err)
	}

	p := l.chat(100, 40, env)
	p.wait("+Use tabs.")
	p.answer("l Enter", "not used yet; /trust asks again")
	if text := p.text("-S", "-"); strings.Contains(text, "toolcrib.yaml") || strings.Contains(text, ".mcp.json") || strings.Count(text, "Trust what") != 1 {
		t.Errorf("asked about what is not used:\n%s", text)
	}
	p.wait("/help lists")
	p.send("/quit")
	p.exits(0)

	p = l.chat(100, 40, env)
	p.answer("n Enter", "not used; /trust asks again")
	p.wait("/help lists")
	p.send("first")
	p.wait("AGENTS.md: not read")
	p.waitAfter("One.", "tokens")
	p.send("/quit")
	p.exits(0)

	p = l.chat(100, 40, env) // declined: nothing is asked
	p.wait("/help lists")
	if text := p.text("-S", "-"); strings.Contains(text, "Trust what this folder brings") {
		t.Errorf("asked again:\n%s", text)
	}
	p.send("/trust")
	p.wait("Trust what this folder brings")
	p.answer("y Enter", "trusted, and used from the next message on")
	p.send("second")
	p.wait("One.")
	p.send("third")
	p.wait("Two.")
	p.send("fourth")
	p.wait("Three.")
	if text := p.text("-S", "-"); strings.Contains(text, "not read") || !strings.Contains(text, "Use the kit.") {
		t.Errorf("it is not used:\n%s", text)
	}
	p.send("/trust")
	p.wait("this folder brings nothing that is not trusted")
	if err := os.WriteFile(filepath.Join(home, "toolcrib", "trust.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.send("/trust")
	p.wait("trust.json is damaged")
	p.send("/quit")
	p.exits(0)
}

// A mode is changed by one key and shown; it approves edits that are asked about as writes
// only, and the line at the bottom shows how full the context is.
func TestChatModes(t *testing.T) {
	t.Parallel()
	l := newLab(t, `
- {tool_calls: [{name: write_file, arguments: {path: a.txt, content: "one\n"}}]}
- {text: "It is written."}
- {tool_calls: [{name: write_file, arguments: {path: b.txt, content: "two\n"}}]}
- {text: "It is not."}
- {tool_calls: [{name: write_file, arguments: {path: c.txt, content: "three\n"}}]}
- {text: "You were asked."}
`)
	l.write("c.yaml", "providers: {demo: {type: script, file: demo.script}}\nmodels: {wide: {provider: demo, model: x, context: 50000}}\n"+
		"agents: {default: {model: wide}}\n")
	p := l.chat(100, 30, nil)
	p.wait("/help lists")
	p.keys("BTab")
	p.wait("accept-edits")
	p.send("write it")
	p.wait("It is written.")
	l.holds("a.txt", "one\n")
	p.wait("accept-edits · wide · context ")
	p.keys("BTab")
	p.wait("read-only · wide")
	p.send("and another")
	p.wait("It is not.")
	if _, err := os.Lstat(filepath.Join(l.dir, "b.txt")); !os.IsNotExist(err) {
		t.Fatalf("a file was written in read-only mode (%v)", err)
	}
	p.keys("BTab", "BTab")
	p.send("once more")
	p.wait("y yes")
	p.keys("n")
	p.wait("You were asked.")
	if strings.Contains(p.text(), "(mode accept-edits)") {
		t.Error("a question was answered by a mode that is over")
	}
	p.send("/quit")
	p.exits(0)
}

// The day of a conversation at three widths, with and without colours: a command whose output is
// seen, a plan, a choice by its number, a command of the user's own, the session condensed and
// found again by its number, at a terminal that changes its size.
func TestChatDay(t *testing.T) {
	t.Parallel()
	for width, env := range map[int][]string{60: nil, 80: {"NO_COLOR=1"}, 200: nil} {
		t.Run(strconv.Itoa(width), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, `
- {text: "I look and run it.", tool_calls: [{name: update_plan, arguments: {steps: [{step: look, status: done}, {step: run it, status: in_progress}]}}]}
- {tool_calls: [{name: exec_shell, arguments: {command: "touch made; echo two; false", write: true}}]}
- {tool_calls: [{name: ask_user, arguments: {question: "Which colour?", schema: {enum: [red, blue]}}}]}
- {text: "`+strings.Repeat("It is done. ", 120)+`"}
- {text: "short"}
`)
			l.write("c.yaml", "providers: {demo: {type: script, file: demo.script}}\nagents: {default: {model: demo/x}}\n")
			own := filepath.Join(l.dir, ".claude", "commands")
			if err := os.MkdirAll(own, 0o700); err != nil {
				t.Fatal(err)
			}
			l.write(filepath.Join(".claude", "commands", "work.md"), "Work on $1 now.\n")
			p := l.chat(width, 24, env)
			p.wait("/help lists")
			p.typed("/wo")
			p.keys("Tab")
			p.typed("this")
			p.keys("Enter")
			p.wait("● update_plan")
			p.wait("run it")
			p.wait("· a: ")
			p.wait("y yes")
			p.keys("y")
			p.wait("└ exit status 1")
			p.waitAfter("└ exit status 1", "two")
			p.waitAfter("2  blue", "your answer, or its number")
			p.tmux("resize-window", "-t", "chat", "-x", strconv.Itoa(width-7), "-y", "20")
			p.send("2")
			p.wait("It is done. It is done.")
			p.waitAfter("It is done.", "tokens")
			p.send("/compact")
			p.wait("as you asked")
			p.waitAfter("as you asked", "tokens")
			p.send("!echo by hand")
			p.waitAfter("❯ !echo by hand", "└ by hand")
			p.send("/clear")
			p.wait("a new session begins")
			p.send("/resume")
			p.waitAfter("❯ /resume", "1 * completed")
			p.send("/resume 1")
			p.waitAfter("❯ /resume 1", "Work on this now.")
			if text := p.text("-e"); (env != nil) == regexp.MustCompile(`\x1b\[(?:[0-9]+;)*3[0-7]m`).MatchString(text) {
				t.Errorf("colours where none are wanted, or the other way round:\n%s", text)
			}
			p.keys("C-d")
			p.waitAfter("❯ /resume 1", "exit status 0")
		})
	}
}
