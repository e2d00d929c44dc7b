package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

// notReached are the reasons that no case meets, and why.
func notReached() map[toolcrib.Reason]string {
	return map[toolcrib.Reason]string{
		toolcrib.ReasonCostCapExceeded:    "workers of confer and coordinate (X17)",
		toolcrib.ReasonHopBudgetExhausted: "workers of confer and coordinate (X6)",
		toolcrib.ReasonAlreadyRan:         "forks, which the table has not: testdata/script/fork.txtar",
	}
}

// TestGateTable holds the command line against the table of what the gate decides.
// Each case has a home and a data folder of its own.
func TestGateTable(t *testing.T) {
	t.Parallel()
	table := readGateTable(t)
	binary := gateBinary(t)
	for _, file := range slices.Sorted(maps.Keys(table)) {
		for _, c := range table[file] {
			t.Run(c.ID, func(t *testing.T) {
				t.Parallel()
				newGateHouse(t, binary, &c).run()
			})
		}
	}
}

// TestWholeGateTable holds that the table is in order and complete: each ID once,
// in order, and each reason that there is.
func TestWholeGateTable(t *testing.T) {
	t.Parallel()
	seen := make(map[string]string)
	met := make(map[toolcrib.Reason]int)
	total := 0
	for file, cases := range readGateTable(t) {
		total += len(cases)
		for i, c := range cases {
			if other, twice := seen[c.ID]; twice {
				t.Errorf("%s is in %s and in %s", c.ID, other, file)
			}
			seen[c.ID] = file
			if i > 0 && natural(cases[i-1].ID) >= natural(c.ID) {
				t.Errorf("%s: %s stands before %s", file, cases[i-1].ID, c.ID)
			}
			for _, want := range c.wants() {
				met[toolcrib.Reason(want.Reason)]++
			}
		}
	}
	if total < 150 {
		t.Errorf("the table has %d cases only", total)
	}
	later := notReached()
	for _, reason := range declaredReasons(t) {
		_, waits := later[reason]
		switch {
		case waits && met[reason] > 0:
			t.Errorf("%s is met by now: take it off the list", reason)
		case !waits && met[reason] < 3:
			t.Errorf("%s is met by %d cases, want at least 3", reason, met[reason])
		}
	}
}

// wants are all answers that the case wants.
func (c *gateCase) wants() []gateAnswer {
	var all []gateAnswer
	if want, err := readGateAnswer(c.Gate); err == nil {
		all = append(all, want)
	}
	for _, run := range append(slices.Clone(c.Earlier), c.Main) {
		for _, call := range append(run.calls(), run.callsBelow()...) {
			all = append(all, call.Want)
		}
	}
	return all
}

// natural pads the numbers in an ID, so that N9 stands before N10.
func natural(id string) string {
	return regexp.MustCompile(`\d+`).ReplaceAllStringFunc(id, func(n string) string {
		return strings.Repeat("0", max(0, 4-len(n))) + n
	})
}

// declaredReasons are the constants of toolcrib.Reason, as its source has them.
func declaredReasons(t *testing.T) []toolcrib.Reason {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../verdict.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var reasons []toolcrib.Reason
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if kind, named := func() (*ast.Ident, bool) {
			if !ok {
				return nil, false
			}
			id, named := spec.Type.(*ast.Ident)
			return id, named
		}(); named && kind.Name == "Reason" {
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			reasons = append(reasons, toolcrib.Reason(value))
		}
		return true
	})
	if len(reasons) < 20 {
		t.Fatalf("only %d reasons found", len(reasons))
	}
	return reasons
}

// gateBinary is the program that the cases run.
func gateBinary(t *testing.T) string {
	t.Helper()
	if dir := plainBinary(t); dir != "" {
		return filepath.Join(dir, "toolcrib")
	}
	path, err := exec.LookPath("toolcrib")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// gateHouse is where one case lives: a home, a configuration, workspaces.
type gateHouse struct {
	t            *testing.T
	c            *gateCase
	binary, root string
	work         string // the workspace of the command that runs now
	config       string // path
	model        string // address of a model that waits for commands; "" = a script
	serve        *gateRun
	as           string // whom commands act for
	token        string // file of the token by which calls are made

	below map[string]bool // agents that are called, each with a script of its own
}

func newGateHouse(t *testing.T, binary string, c *gateCase) *gateHouse {
	h := &gateHouse{t: t, c: c, binary: binary, root: t.TempDir()}
	for _, dir := range []string{"home", "tmp", "conf"} {
		if err := os.Mkdir(filepath.Join(h.root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, front := range c.Skills {
		h.skill(name, front)
	}
	h.agentsBelow()
	return h
}

// skill writes a skill outside of the workspaces.
func (h *gateHouse) skill(name string, front map[string]any) {
	var b strings.Builder
	fmt.Fprintf(&b, "---\nname: %s\n", name)
	if front["description"] == nil {
		b.WriteString("description: Knows how to do it.\n")
	}
	for _, key := range slices.Sorted(maps.Keys(front)) {
		value, err := json.Marshal(front[key])
		if err != nil {
			h.t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s: %s\n", key, value)
	}
	b.WriteString("---\nDo it.\n")
	h.put(filepath.Join(h.root, "skills", name, "SKILL.md"), b.String())
}

func (h *gateHouse) put(path, text string) {
	h.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// enter makes a workspace with the files of the case, and goes there.
func (h *gateHouse) enter(name string) {
	h.t.Helper()
	h.work = filepath.Join(h.root, name)
	if err := os.MkdirAll(h.work, 0o700); err != nil {
		h.t.Fatal(err)
	}
	for path, text := range h.c.Files {
		h.put(filepath.Join(h.work, path), text)
	}
	for path, to := range h.c.Links {
		if err := os.Symlink(to, filepath.Join(h.work, path)); err != nil {
			h.t.Fatal(err)
		}
	}
	h.config = filepath.Join(h.root, "conf", "table.yaml")
	if h.c.ConfigIn != "" {
		h.config = filepath.Join(h.work, h.c.ConfigIn)
	}
	h.configure(h.c.Config)
}

// configure writes the configuration: what the case says, and a model that plays
// the case.
func (h *gateHouse) configure(given map[string]any) {
	h.t.Helper()
	config := maps.Clone(given)
	if config == nil {
		config = make(map[string]any)
	}
	demo := map[string]any{"type": "script", "file": filepath.Join(h.root, "conf", "demo.script")}
	if h.model != "" {
		demo = map[string]any{"type": "openai", "base_url": h.model, "api_key": "none"}
	}
	providers := map[string]any{"demo": demo}
	config["providers"] = providers
	agents, _ := config["agents"].(map[string]any)
	agents = maps.Clone(agents)
	if agents == nil {
		agents = make(map[string]any)
	}
	if agents["default"] == nil {
		agents["default"] = map[string]any{}
	}
	for name, of := range agents {
		settings, _ := of.(map[string]any)
		settings = maps.Clone(settings)
		if h.below[name] {
			providers["of_"+name] = map[string]any{"type": "script", "file": h.scriptOf(name)}
			settings["model"] = "of_" + name + "/m"
		} else if settings["model"] == nil {
			settings["model"] = "demo/m"
		}
		agents[name] = settings
	}
	config["agents"] = agents
	if len(h.c.Skills) > 0 {
		config["skills"] = map[string]any{"dirs": []string{filepath.Join(h.root, "skills")}}
	}
	data, err := json.Marshal(config)
	if err != nil {
		h.t.Fatal(err)
	}
	h.put(h.config, h.fill(string(data)))
}

// run runs the case.
func (h *gateHouse) run() {
	h.enter("desk")
	for _, line := range h.c.Before {
		h.step(line)
	}
	for i := range h.c.Earlier {
		h.actFor(&h.c.Earlier[i])
		h.play(&h.c.Earlier[i])
	}
	h.actFor(&h.c.Main)
	if h.c.Call == "" {
		h.play(&h.c.Main)
		h.after()
		return
	}
	h.judged()
}

// actFor makes the user, or the token, by whom the next commands act.
func (h *gateHouse) actFor(r *gateRun) {
	h.t.Helper()
	h.as, h.token = "", ""
	if r.Token != "" {
		o := h.tool(append([]string{"tokens", "create"}, words(r.Token)...)...)
		if o.code != 0 {
			h.t.Fatalf("tokens create %s: %s", r.Token, o.err)
		}
		h.token = filepath.Join(h.root, "conf", "token")
		h.put(h.token, o.out)
	}
	h.as = r.As
}

// judging runs a command that makes or judges calls: by the token, if there is one.
func (h *gateHouse) judging(args ...string) output {
	h.t.Helper()
	if h.token != "" {
		args = append([]string{"--token-file", h.token}, args...)
	}
	return h.tool(args...)
}

// output is what a command gave.
type output struct {
	out, err string
	code     int
}

// tool runs one command line: flags of every command, then the command.
func (h *gateHouse) tool(args ...string) output {
	h.t.Helper()
	all := append([]string{"--config", h.config}, args...)
	if h.as != "" && !slices.Contains(args, "--as") {
		all = append([]string{"--as", h.fill(h.as)}, all...)
	}
	if (h.as == "" || h.as == "$SELF") && (args[0] == "run" || args[0] == "tools") {
		all = append([]string{"--admin"}, all...) // "" is the administrator
	}
	cmd := exec.CommandContext(h.t.Context(), h.binary, all...)
	cmd.Dir = h.work
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(h.root, "home"), "TMPDIR=" + filepath.Join(h.root, "tmp"),
		"TERM=xterm", "GOCOVERDIR=" + os.Getenv("GOCOVERDIR"),
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	o := output{out: stdout.String(), err: stderr.String(), code: exitCode(err)}
	if o.code < 0 {
		h.t.Fatalf("toolcrib %q: %v\n%s", all, err, o.err)
	}
	return o
}

// step runs a command line of the case: COMMAND => EXIT, which is 0 if it is not
// given. config JSON puts another configuration in place, skill NAME JSON another
// front matter of a skill. $APPROVAL and $DIGEST stand for what the last run waits
// for, $REMEMBERED for the first approval that is remembered, $TOKEN for the first access
// token, $SELF for the name of whoever runs the test.
func (h *gateHouse) step(line string) {
	h.t.Helper()
	verb, rest, _ := strings.Cut(line, " ")
	switch verb {
	case "config":
		h.configure(h.object(rest))
		return
	case "skill":
		name, front, _ := strings.Cut(rest, " ")
		h.skill(name, h.object(front))
		return
	}
	want := 0
	if command, code, ok := strings.Cut(line, " => "); ok {
		n, err := strconv.Atoi(code)
		if err != nil {
			h.t.Fatalf("%s: %v", line, err)
		}
		line, want = command, n
	}
	args := words(h.fill(line))
	if o := h.tool(args...); o.code != want {
		h.t.Fatalf("%s: exit %d, want %d\n%s%s", line, o.code, want, o.out, o.err)
	}
}

// object reads a JSON object.
func (h *gateHouse) object(text string) (o map[string]any) {
	h.t.Helper()
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		h.t.Fatalf("%s: %v", text, err)
	}
	return o
}

// fill puts IDs in place of their names.
func (h *gateHouse) fill(line string) string {
	if strings.Contains(line, "$SELF") {
		self, err := user.Current()
		if err != nil {
			h.t.Fatal(err)
		}
		line = strings.ReplaceAll(line, "$SELF", "local:"+self.Username)
	}
	if strings.Contains(line, "$APPROVAL") || strings.Contains(line, "$DIGEST") {
		var run struct {
			Pending struct {
				ID     string `json:"approval_id"`
				Digest string `json:"digest"`
			} `json:"pending"`
		}
		h.read(&run, "runs", "show", "last", "--json")
		line = strings.NewReplacer("$APPROVAL", run.Pending.ID, "$DIGEST", run.Pending.Digest).Replace(line)
	}
	if strings.Contains(line, "$TOKEN") {
		var all []struct {
			ID string `json:"id"`
		}
		h.read(&all, "tokens", "list", "--json")
		line = strings.ReplaceAll(line, "$TOKEN", all[0].ID)
	}
	if strings.Contains(line, "$REMEMBERED") {
		var all []struct {
			ID string `json:"id"`
		}
		h.read(&all, "approvals", "remembered", "list", "--json")
		if len(all) == 0 {
			h.t.Fatal("nothing is remembered")
		}
		line = strings.ReplaceAll(line, "$REMEMBERED", all[0].ID)
	}
	return line
}

func (h *gateHouse) read(into any, args ...string) {
	h.t.Helper()
	o := h.tool(args...)
	if err := json.Unmarshal([]byte(o.out), into); err != nil {
		h.t.Fatalf("%q: %v\n%s%s", args, err, o.out, o.err)
	}
}

// words splits a command line at spaces outside of single quotes.
func words(line string) []string {
	var all []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			all = append(all, part)
		} else {
			all = append(all, strings.Fields(part)...)
		}
	}
	return all
}

// play runs a model that makes the calls of r, and holds what the journal says
// against it.
func (h *gateHouse) play(r *gateRun) story {
	h.t.Helper()
	h.scripted(h.before(r), r)
	o := h.judging(append(append([]string{"run"}, words(r.Flags)...), "go")...)
	want := 0
	if r.Exit != nil {
		want = *r.Exit
	} else if len(r.After) == 0 && r.asks() {
		want = 3
	}
	if r.Exit == nil && len(r.After) > 0 {
		want = 3 // somebody has to decide
	}
	if o.code != want {
		h.t.Fatalf("run: exit %d, want %d\n%s%s", o.code, want, o.out, o.err)
	}
	if !strings.Contains(o.err, r.Tells) {
		h.t.Errorf("standard error does not tell %q:\n%s", r.Tells, o.err)
	}
	for _, line := range r.After {
		h.step(line)
	}
	told := h.journal("last")
	told.compare(h.t, r.calls())
	h.runsBelow(r)
	if r.Stop != "" && told.stop != r.Stop {
		h.t.Errorf("the run stopped for %q, want %q", told.stop, r.Stop)
	}
	if !strings.Contains(told.answer, r.Says) {
		h.t.Errorf("the answer is %q, want %q in it", told.answer, r.Says)
	}
	return told
}

func (r *gateRun) asks() bool {
	return slices.ContainsFunc(append(r.calls(), r.callsBelow()...), func(c gateCall) bool { return c.Want.Decision == string(toolcrib.Ask) })
}

// before are the turns that the session of r has had: a script is chosen from by the
// number of replies that the model has given.
func (h *gateHouse) before(r *gateRun) (turns []gateTurn) {
	if !strings.Contains(r.Flags, "--session") {
		return nil
	}
	for i := range h.c.Earlier {
		e := &h.c.Earlier[i]
		if e == r {
			break
		}
		if e.Flags == r.Flags {
			turns = append(append(turns, e.Turns...), gateTurn{Text: "the end"})
		}
	}
	return turns
}

// scripted puts the run's replies where the model takes them from.
func (h *gateHouse) scripted(before []gateTurn, r *gateRun) {
	h.t.Helper()
	h.serve = r
	h.scriptsBelow(r)
	if h.model == "" && slices.ContainsFunc(r.Turns, func(t gateTurn) bool { return t.looks() }) {
		server := httptest.NewServer(modeltest.NewServer(modeltest.OpenAI, modeltest.ServerOptions{Next: h.answer}).Handler())
		h.t.Cleanup(server.Close)
		h.model = server.URL + "/v1"
		h.configure(h.c.Config)
	}
	script, err := script(append(before, r.Turns...))
	if err != nil {
		h.t.Fatal(err)
	}
	h.put(filepath.Join(h.root, "conf", "demo.script"), string(script))
}

// settled is how long another process may take to notice what was switched (contract
// 6: within 1 s); the model takes longer.
const settled = 1100 * time.Millisecond

// answer is the n-th reply of a model that looks at what it is sent, or waits for a
// command. $CANARY in it stands for the mark of untrusted data that it has read.
func (h *gateHouse) answer(n int, body []byte) modeltest.Step {
	if n >= len(h.serve.Turns) {
		return modeltest.Step{Reply: modeltest.Text("the end")}
	}
	turn := h.serve.Turns[n]
	var step modeltest.Step
	if turn.Meanwhile != "" {
		h.meanwhile(turn.Meanwhile)
		step.Latency = settled
	}
	fill := strings.NewReplacer("$CANARY", string(canaries.Find(body)))
	calls := make([]toolcrib.ToolCall, len(turn.Calls))
	for i, c := range turn.Calls {
		calls[i] = toolcrib.ToolCall{ID: fmt.Sprintf("c%d_%d", n, i), Name: c.Name, Arguments: json.RawMessage(fill.Replace(c.Arguments))}
	}
	step.Reply = modeltest.Calls(calls...)
	if turn.Text != "" {
		step.Reply = modeltest.Text(fill.Replace(turn.Text))
	}
	return step
}

// meanwhile runs a command of the administrator, while a run waits for its model.
func (h *gateHouse) meanwhile(line string) {
	other := *h
	other.as, other.token = "", ""
	if o := other.tool(words(other.fill(line))...); o.code != 0 {
		h.t.Errorf("%s: exit %d\n%s", line, o.code, o.err)
	}
}

// looks reports whether the model has to look at what it is sent, or to wait for a
// command: a script does neither.
func (g *gateTurn) looks() bool {
	return g.Meanwhile != "" || strings.Contains(g.Text, "$CANARY") ||
		slices.ContainsFunc(g.Calls, func(c gateCall) bool { return strings.Contains(c.Arguments, "$CANARY") })
}
