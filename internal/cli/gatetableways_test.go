package cli_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// judged holds the three ways to the gate against each other: explain, a call
// without a model, a run with one.
func (h *gateHouse) judged() {
	call, err := splitGateCall(h.c.Call)
	if err != nil {
		h.t.Fatal(err)
	}
	if call.Want, err = readGateAnswer(h.c.Gate); err != nil {
		h.t.Fatal(err)
	}
	var told []told
	if h.way("explain") {
		told = append(told, h.explain(&call))
		h.explained(&call)
		h.missing()
	}
	if h.way("call") && len(h.c.Tainted) == 0 {
		h.scriptsBelow(&h.c.Main)
		told = append(told, h.call(&call))
		h.runsBelow(&h.c.Main)
		h.after()
	}
	if h.way("run") && len(h.c.Tainted) == 0 {
		h.enter("work2")
		r := gateRun{As: h.c.Main.As, Flags: h.c.Main.Flags, Turns: []gateTurn{{Calls: []gateCall{call}}}, Tells: h.c.Main.Tells, Says: h.c.Main.Says, Below: h.c.Main.Below}
		told = append(told, h.play(&r).calls[0])
		h.after()
	}
	for i := range told {
		h.same(&told[0], &told[i])
		h.verdict(&told[i], call.Want)
	}
}

func (h *gateHouse) way(name string) bool {
	return len(h.c.Only) == 0 || slices.Contains(h.c.Only, name)
}

// told is what was told about one call.
type told struct {
	way      string
	id       string
	verdict  journal.Verdict
	offered  bool
	started  bool
	answered string // what the model read; "" = nothing
	parked   bool   // the run waits: what is refused is answered later
}

// explain asks tools explain.
func (h *gateHouse) explain(call *gateCall) told {
	args := append([]string{"tools", "explain", call.Name, "--json", "--args", call.arguments()}, words(h.c.Main.Flags)...)
	for _, source := range h.c.Tainted {
		args = append(args, "--tainted", source)
	}
	var all []struct {
		Offered bool            `json:"offered"`
		Reason  toolcrib.Reason `json:"reason"`
		Call    struct {
			Verdict journal.Verdict `json:"verdict"`
			Content json.RawMessage `json:"content"`
		} `json:"call"`
	}
	o := h.judging(args...)
	if err := json.Unmarshal([]byte(o.out), &all); err != nil {
		h.t.Fatalf("%q: %v\n%s%s", args, err, o.out, o.err)
	}
	x := all[0]
	v := x.Call.Verdict
	if !x.Offered && v.Reason != x.Reason && v.Reason != toolcrib.ReasonParseError {
		h.t.Errorf("explain: not offered for %s, but a call is refused for %s", x.Reason, v.Reason)
	}
	if v.Decision == "refuse" {
		v.Decision = toolcrib.Refuse // as the journal has it
	}
	var content bytes.Buffer
	if len(x.Call.Content) > 0 {
		if err := json.Compact(&content, x.Call.Content); err != nil {
			h.t.Fatal(err)
		}
	}
	return told{way: "explain", verdict: v, offered: x.Offered, answered: content.String()}
}

// explained holds what tools explain says for people against the case.
func (h *gateHouse) explained(call *gateCall) {
	if len(h.c.Explain) == 0 {
		return
	}
	o := h.judging(append([]string{"tools", "explain", call.Name}, words(h.c.Main.Flags)...)...)
	for _, want := range h.c.Explain {
		if !strings.Contains(o.out, want) {
			h.t.Errorf("tools explain does not say %q:\n%s%s", want, o.out, o.err)
		}
	}
}

// arguments are {} for a call without any.
func (c *gateCall) arguments() string {
	if c.Arguments == "" {
		return "{}"
	}
	return c.Arguments
}

// call runs tools call. What it prints does not tell everything that the journal
// has: the reason of a question, the effect of a call that nobody is asked about.
func (h *gateHouse) call(call *gateCall) told {
	o := h.judging(append([]string{"tools", "call", call.Name, "--json", "--args", call.arguments()}, words(h.c.Main.Flags)...)...)
	var run struct {
		Trace []struct {
			ID       string                `json:"id"`
			Status   toolcrib.ResultStatus `json:"status"`
			Reason   toolcrib.Reason       `json:"reason"`
			Result   string                `json:"result"`
			Rule     string                `json:"rule"`
			Position string                `json:"position"`
		} `json:"trace"`
		Pending *journal.Pending `json:"pending"`
	}
	if err := json.Unmarshal([]byte(o.out), &run); err != nil || len(run.Trace) != 1 {
		h.t.Fatalf("tools call: %v\n%s%s", err, o.out, o.err)
	}
	at := run.Trace[0]
	t := told{way: "tools call", id: at.ID, answered: at.Result, started: at.Status != "" && at.Status != toolcrib.ResultRefused}
	t.verdict = journal.Verdict{CallID: at.ID, Tool: call.Name, Decision: toolcrib.Allow, Rule: at.Rule, Position: at.Position}
	code := 0
	switch {
	case run.Pending != nil:
		code, t.verdict.Decision = 3, toolcrib.Ask
		t.verdict.Message, t.verdict.Effect = run.Pending.Calls[0].Reason, run.Pending.Calls[0].Effect
	case at.Status == toolcrib.ResultRefused:
		var read struct{ Message string }
		if err := json.Unmarshal([]byte(at.Result), &read); err != nil {
			h.t.Fatalf("tools call: %v: %s", err, at.Result)
		}
		code, t.verdict.Decision, t.verdict.Reason, t.verdict.Message = 5, toolcrib.Refuse, at.Reason, read.Message
	case at.Status != toolcrib.ResultOK:
		code = 1
	}
	if o.code != code {
		h.t.Errorf("tools call: exit %d, want %d\n%s%s", o.code, code, o.out, o.err)
	}
	return t
}

// same wants the same answer by all ways.
func (h *gateHouse) same(a, b *told) {
	h.t.Helper()
	for _, pair := range [][3]string{
		{"decision", string(a.verdict.Decision), string(b.verdict.Decision)},
		{"reason", string(a.verdict.Reason), string(b.verdict.Reason)},
		{"rule", a.verdict.Rule, b.verdict.Rule},
		{"message", a.verdict.Message, b.verdict.Message},
		{"hint", a.verdict.OperatorHint, b.verdict.OperatorHint},
		{"position", strings.TrimPrefix(a.verdict.Position, h.root), strings.TrimPrefix(b.verdict.Position, h.root)},
		{"effect", string(a.verdict.Effect), string(b.verdict.Effect)},
		{"offered", strconv.FormatBool(a.offered), strconv.FormatBool(b.offered)},
	} {
		if h.untold(a, pair[0], pair[1]) || h.untold(b, pair[0], pair[2]) {
			continue
		}
		if pair[1] != pair[2] {
			h.t.Errorf("%s: %s says %q, %s says %q", pair[0], a.way, pair[1], b.way, pair[2])
		}
	}
}

// untold reports whether this way does not tell this: see call. Each workspace has its
// own configuration where that lies inside, so its places differ.
func (h *gateHouse) untold(t *told, what, value string) bool {
	if what == "position" && h.c.ConfigIn != "" {
		return true
	}
	return t.way == "tools call" &&
		(what == "offered" || value == "" && slices.Contains([]string{"reason", "hint", "effect", "position"}, what))
}

// verdict holds one answer against the case.
func (h *gateHouse) verdict(have *told, want gateAnswer) {
	h.t.Helper()
	have.check(h.t, want)
	v := have.verdict
	if h.c.Rule != "" && v.Rule != h.c.Rule {
		h.t.Errorf("rule %q, want %q", v.Rule, h.c.Rule)
	}
	if h.c.Effect != "" && string(v.Effect) != h.c.Effect && (have.way != "tools call" || v.Effect != "") {
		h.t.Errorf("effect %s, want %s", v.Effect, h.c.Effect)
	}
	if h.c.Offered != nil && have.way != "tools call" && have.offered != *h.c.Offered {
		h.t.Errorf("offered: %v, want %v", have.offered, *h.c.Offered)
	}
}

// after holds the files against what the case says about them.
func (h *gateHouse) after() {
	h.t.Helper()
	for _, path := range h.c.Exists {
		if _, err := os.Stat(filepath.Join(h.work, path)); err != nil {
			h.t.Errorf("%s must be there: %v", path, err)
		}
	}
	for path, want := range h.c.Content {
		if data, err := os.ReadFile(filepath.Join(h.work, path)); err != nil || string(data) != want {
			h.t.Errorf("%s holds %q (%v), want %q", path, data, err, want)
		}
	}
	h.missing()
}

func (h *gateHouse) missing() {
	h.t.Helper()
	for _, path := range h.c.Missing {
		if _, err := os.Lstat(filepath.Join(h.work, path)); err == nil {
			h.t.Errorf("%s must not be there", path)
		}
	}
}
