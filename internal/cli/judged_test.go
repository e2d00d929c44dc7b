package cli_test

import (
	"encoding/json"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// cmdJudged wants one verdict on one call, from tools explain --args and from tools
// call alike, since the first must be what the second does: judged WANT TOOL ARGS
// FLAGS. WANT is allow, ask/REASON or REASON (refused), and /rule:NAME if a rule
// decides; the last word of FLAGS may be tainted:SOURCE, which only explain can
// pretend.
func cmdJudged(ts *testscript.TestScript, _ bool, args []string) {
	want, tool, arguments, flags := args[0], args[1], args[2], args[3:]
	explain := append(append([]string{}, flags...), "tools", "explain", tool, "--args", arguments, "--json")
	if n := len(flags); n > 0 && strings.HasPrefix(flags[n-1], "tainted:") {
		explain = append(append([]string{}, flags[:n-1]...), "tools", "explain", tool, "--args", arguments, "--json", "--tainted", flags[n-1][8:])
		flags = nil
	}
	ts.Check(ts.Exec("toolcrib", explain...))
	var told []struct {
		Call struct {
			Verdict journal.Verdict `json:"verdict"`
		} `json:"call"`
	}
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &told))
	if got := verdictText(told[0].Call.Verdict); got != want {
		ts.Fatalf("tools explain %s %s: %s, want %s", tool, arguments, got, want)
	}
	if flags == nil {
		return
	}
	_ = ts.Exec("toolcrib", append(flags, "tools", "call", tool, "--args", arguments, "--json")...) // exits as the verdict is
	var run struct {
		Status toolcrib.Status `json:"status"`
		Trace  []struct {
			Status toolcrib.ResultStatus `json:"status"`
			Reason toolcrib.Reason       `json:"reason"`
			Rule   string                `json:"rule"`
		} `json:"trace"`
	}
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &run))
	done := journal.Verdict{Decision: toolcrib.Allow, Rule: run.Trace[0].Rule}
	switch {
	case run.Status.Parked(): // the reason of an ask is no result's
		done.Decision, done.Reason = toolcrib.Ask, told[0].Call.Verdict.Reason
	case run.Trace[0].Status == toolcrib.ResultRefused:
		done.Decision, done.Reason = toolcrib.Refuse, run.Trace[0].Reason
	}
	if got := verdictText(done); got != want {
		ts.Fatalf("tools call %s %s: %s, and explain says %s", tool, arguments, got, want)
	}
}

func verdictText(v journal.Verdict) string {
	text := string(v.Reason)
	switch v.Decision {
	case toolcrib.Allow:
		text = "allow"
	case toolcrib.Ask:
		text = "ask/" + text
	}
	if v.Rule != "" {
		text += "/rule:" + v.Rule
	}
	return text
}
