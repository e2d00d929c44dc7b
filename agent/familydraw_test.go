package agent_test

import (
	"encoding/json"
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
)

// saga is a generated run tree: the rights, the replies of the models, and the faults on the way.
type saga struct {
	agents   map[string]toolcrib.Agent
	skills   map[string][]string
	replies  replies
	errors   map[string]map[int]toolcrib.ErrorClass // by agent and number of its request
	usage    map[string]toolcrib.TokenUsage         // what a model reports
	unpriced map[string]bool                        // models without a price
	confirm  gate.ConfirmMode
	settings map[string]gate.ToolSettings
	approve  agent.Approve
	answers  bool // somebody sits there
	runTools []string
	taint    []string
	given    *toolcrib.ToolCall
	breaks   []interruption
	tape     []int // for what is chosen while it is driven
	apart    bool  // child runs that work in parallel are driven by another process
	other    int   // appends until that one dies; negative = it does not
}

// interruption ends a driver before the run has ended.
type interruption struct {
	kind   string // cancel | shutdown | crash | decide (nothing breaks it) | end (it is cancelled by another process)
	at     int    // frame or append
	decide int    // how many decisions somebody makes after it
}

func sample[T any](t *rapid.T, what string, of ...T) T { return rapid.SampledFrom(of).Draw(t, what) }

// oneIn is true about once in n times.
func oneIn(t *rapid.T, n int, what string) bool { return rapid.IntRange(0, n-1).Draw(t, what) == 0 }

func drawSaga(t *rapid.T) saga {
	f := saga{
		agents: map[string]toolcrib.Agent{}, skills: map[string][]string{}, replies: replies{}, errors: map[string]map[int]toolcrib.ErrorClass{},
		usage: map[string]toolcrib.TokenUsage{}, unpriced: map[string]bool{},
		confirm: sample(t, "confirm", gate.ConfirmNever, gate.ConfirmNever, gate.ConfirmWrites, gate.ConfirmAlways),
		approve: sample(t, "approve", agent.ApproveNone, agent.ApproveAll, agent.ApproveAll, agent.ApproveDeny, agent.ApproveAsk),
		answers: rapid.Bool().Draw(t, "answers"),
	}
	for _, name := range []string{"boss", "helper", "third"} {
		f.agents[name] = drawAgent(t, name)
		if oneIn(t, 6, "skills") {
			f.skills[name] = drawList(t)
		}
		turns := rapid.IntRange(0, 3).Draw(t, "turns of "+name)
		for range turns {
			f.replies[name] = append(f.replies[name], drawTurn(t, name))
		}
		f.replies[name] = append(f.replies[name], say(name+" is done"))
		if oneIn(t, 5, "fails") {
			f.errors[name] = map[int]toolcrib.ErrorClass{
				rapid.IntRange(0, 3).Draw(t, "at"): sample(t, "class", toolcrib.ErrAuth, toolcrib.ErrRateLimit, toolcrib.ErrNetwork, toolcrib.ErrBadRequest),
			}
		}
		f.usage[name] = toolcrib.TokenUsage{
			InputTokens: int64(sample(t, "input", 100, 100, 400, 20)), OutputTokens: int64(sample(t, "output", 10, 10, 200)), Reported: !oneIn(t, 4, "silent"),
		}
		f.unpriced[name] = oneIn(t, 12, "unpriced")
	}
	if oneIn(t, 4, "eager") {
		f.eager(t)
	}
	f.apart, f.other = rapid.Bool().Draw(t, "apart"), rapid.IntRange(-1, 12).Draw(t, "other")
	if oneIn(t, 6, "timeout") {
		f.settings = map[string]gate.ToolSettings{"spawn": {Timeout: sample(t, "of spawn", 5*time.Millisecond, time.Second)}}
	}
	if oneIn(t, 5, "narrow") {
		f.runTools = drawList(t)
	}
	if oneIn(t, 6, "tainted") {
		f.taint = []string{"mail"}
	}
	if oneIn(t, 10, "given") {
		f.given = &toolcrib.ToolCall{ID: "call_1", Name: "spawn", Arguments: json.RawMessage(spawn("helper"))}
	}
	for range rapid.IntRange(0, 3).Draw(t, "breaks") {
		f.breaks = append(f.breaks, interruption{
			kind: sample(t, "kind", "cancel", "shutdown", "shutdown", "crash", "crash", "crash", "decide", "decide", "end"),
			at:   rapid.IntRange(1, 40).Draw(t, "at"), decide: rapid.IntRange(0, 3).Draw(t, "decides"),
		})
	}
	f.tape = rapid.SliceOfN(rapid.IntRange(0, 1000), 8, 24).Draw(t, "tape")
	return f
}

// eager makes a run tree that spends all of its budget: one turn starts several agents, each of which
// makes requests without end.
func (f *saga) eager(t *rapid.T) {
	boss := f.agents["boss"]
	boss.Tools, boss.Limits.MaxIterations, boss.Limits.MaxCallsPerTurn, boss.Limits.MaxDepth, boss.Limits.WallTime = nil, 5, 8, 4, time.Hour
	boss.Budget = toolcrib.Budget{MaxRequests: rapid.IntRange(0, 9).Draw(t, "requests"), MaxTokens: sample[int64](t, "tokens", 0, 3000, 9000), MaxCostUSD: sample(t, "cost", 0, 0.002, 0.01)}
	f.agents["boss"], f.runTools, f.skills = boss, nil, map[string][]string{}
	var turn []string
	for range rapid.IntRange(2, 5).Draw(t, "children") {
		turn = append(turn, "spawn", spawn(sample(t, "agent", "helper", "third")))
	}
	f.replies["boss"] = [][]toolcrib.Delta{calls(turn...), say("boss is done")}
	for _, name := range []string{"helper", "third"} {
		a := f.agents[name]
		a.Limits.MaxIterations, a.Limits.WallTime = 12, time.Hour
		f.agents[name], f.replies[name] = a, nil
		for i := range 12 {
			f.replies[name] = append(f.replies[name], calls("echo", fmt.Sprintf(`{"n":%d}`, i)))
		}
		if name == "helper" && oneIn(t, 3, "below") {
			f.replies[name][0] = calls("spawn", spawn("third"), "spawn", spawn("third"))
		}
	}
}

func drawAgent(t *rapid.T, name string) toolcrib.Agent {
	a := toolcrib.Agent{Name: name, Model: "fake/" + name, Limits: toolcrib.DefaultLimits()}
	l := &a.Limits
	l.MaxIterations = rapid.IntRange(1, 5).Draw(t, "iterations")
	l.MaxParallel = rapid.IntRange(1, 4).Draw(t, "parallel")
	l.MaxCallsPerTurn = rapid.IntRange(1, 8).Draw(t, "calls")
	l.MaxIdenticalCalls = rapid.IntRange(0, 3).Draw(t, "identical")
	l.MaxDepth = rapid.IntRange(1, 4).Draw(t, "depth")
	l.OnLimit = sample(t, "onLimit", toolcrib.OnLimitFinalize, toolcrib.OnLimitFinalize, toolcrib.OnLimitError, toolcrib.OnLimitAsk)
	l.WallTime = sample(t, "wall", time.Hour, time.Hour, time.Hour, 2*time.Second, 30*time.Millisecond)
	if rapid.Bool().Draw(t, "budgeted") {
		a.Budget = toolcrib.Budget{
			MaxRequests: sample(t, "requests", 0, 1, 2, 3, 5, 8), MaxTokens: sample[int64](t, "tokens", 0, 0, 400, 2000, 9000),
			MaxCostUSD: sample(t, "cost", 0, 0, 0.0005, 0.004), Mode: sample(t, "mode", "", "", toolcrib.BudgetEnforce, toolcrib.BudgetWarn, toolcrib.BudgetOff),
		}
	}
	if oneIn(t, 5, "tools") {
		a.Tools = drawList(t)
	}
	a.ReadOnly = oneIn(t, 8, "readOnly")
	a.TaintWrites = sample(t, "taint", "", gate.TaintAsk, gate.TaintDeny, gate.TaintAllow, gate.TaintAllow)
	a.OnDenial = sample(t, "onDenial", "", "continue", "stop")
	return a
}

// drawList is a list of names and globs of tools.
func drawList(t *rapid.T) []string {
	return append([]string{}, rapid.SliceOfN(rapid.SampledFrom([]string{"*", "spawn", "echo", "w*", "write", "draw", "put", "nest", "ghost"}), 0, 4).Draw(t, "list")...)
}

// drawTurn is a reply that calls tools, some of them other agents, some of them in vain.
func drawTurn(t *rapid.T, name string) []toolcrib.Delta {
	var turn []toolcrib.Delta
	if rapid.Bool().Draw(t, "talks") {
		turn = append(turn, toolcrib.Delta{Text: name + " thinks"})
	}
	hostile := []string{
		spawn("ghost"), spawn("boss"), spawn(""), `{"agent":"helper"}`, `{"agent":"helper","task":"x","tools":"echo"}`, `{"agent":"helper","task":" "}`,
		`{"agent":"helper","task":"x","Task":"y"}`, `{"agent":["helper"],"task":"x"}`, `{"agent":"helper","task":"x","run_id":"run_1"}`, `{"agent`, ``,
	}
	for i := range rapid.IntRange(1, 5).Draw(t, "n") {
		tool := sample(t, "tool", "spawn", "spawn", "spawn", "spawn", "echo", "write", "put", "draw", "wait", "slow", "nest", "ask", "off", "ghost", "fails", "panics")
		arguments := fmt.Sprintf(`{"n":%d}`, rapid.IntRange(0, 2).Draw(t, "argument"))
		switch {
		case tool == "nest":
			arguments = sample(t, "nested", `{"tool":"echo"}`, `{"tool":"write"}`, `{"tool":"spawn"}`, `{"tool":"draw"}`)
		case tool == "ask":
			arguments = `{"question":"why?"}`
		case tool == "spawn" && oneIn(t, 6, "hostile"):
			arguments = rapid.SampledFrom(hostile).Draw(t, "hostility")
		case tool == "spawn" && oneIn(t, 4, "restricted"):
			arguments = spawn(sample(t, "agent", "helper", "third"), drawList(t)...)
		case tool == "spawn":
			arguments = spawn(sample(t, "agent", "helper", "third"))
		}
		turn = append(turn, toolcrib.Delta{ToolCall: &toolcrib.ToolCallDelta{
			Index: i, ID: sample(t, "id", "", "", "", "a", "b"), Name: tool, Arguments: arguments,
		}})
	}
	return append(turn, finish(sample(t, "finish", toolcrib.FinishToolCalls, toolcrib.FinishToolCalls, toolcrib.FinishToolCalls, toolcrib.FinishLength)))
}
