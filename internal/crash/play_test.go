package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/journal"
)

// Harness starts processes, kills them, and looks at what they leave.
type Harness struct {
	Exe string // the program that is started: this test
	Dir string // an existing folder for the scenarios' own
	// Database, if not nil, makes the database of a story in a folder, and returns what removes it.
	Database func(ctx context.Context, dir string) (remove func() error, err error)
}

// Kill is one death: in the Step-th process of a story (from 0), at a point.
type Kill struct {
	Step   int
	Server bool // it is the MCP server that dies, in whatever process of the story
	Label  string
	Delay  time.Duration   // for points of the kind "during"
	Kinds  []toolcrib.Kind // of the events of an append
}

func (k Kill) String() string {
	if k.Server {
		return "MCP server at " + k.Label
	}
	text := fmt.Sprintf("process %d at %s", k.Step, k.Label)
	if k.Delay > 0 {
		text += fmt.Sprintf(" + %s", k.Delay)
	}
	return text
}

// Step is one process.
type Step struct {
	Command string
	Points  []Point // as they were passed
	Killed  bool
}

// Story is a run from its start to its end, in as many processes as it took.
type Story struct {
	Scenario *Scenario
	Kills    []Kill
	Steps    []Step
	Outcome  Outcome
	InDoubt  int // calls that a person was asked about
	Told     int // writes whose tool knew what became of them
	Problems []string
	Served   []Point // that the MCP server has passed

	dir      string
	finished map[string]int    // executions of calls that had a result at some kill
	words    map[string]string // what the person said of calls in doubt
	said     bool
	stop     bool // the run was cancelled before its process died
}

// maxSteps bounds the processes of a story.
const maxSteps = 40

// String says how the story can be played again.
func (s *Story) String() string {
	text := "scenario " + s.Scenario.Name
	for _, k := range s.Kills {
		text += "; kill " + k.String()
	}
	return text
}

func (s *Story) problemf(format string, args ...any) {
	s.Problems = append(s.Problems, fmt.Sprintf(format, args...))
}

// Play plays a scenario with kills. The error is one of the test itself; faults of the run are in
// Story.Problems. want is the outcome without kills, or nil if kills is empty.
func (h *Harness) Play(ctx context.Context, sc *Scenario, kills []Kill, want *Outcome) (*Story, error) {
	dir, err := os.MkdirTemp(h.Dir, "story-")
	if err != nil {
		return nil, err
	}
	s := &Story{Scenario: sc, Kills: kills, dir: dir, finished: map[string]int{}, words: map[string]string{}}
	remove := func() error { return nil }
	if h.Database != nil {
		if remove, err = h.Database(ctx, dir); err != nil {
			return nil, err
		}
	}
	err = h.play(ctx, s, want)
	return s, errors.Join(err, remove(), os.RemoveAll(dir))
}

func (h *Harness) play(ctx context.Context, s *Story, want *Outcome) (err error) {
	for name, content := range s.Scenario.workFiles() {
		path := filepath.Join(s.dir, workspace, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			return err
		}
	}
	if s.Scenario.mcp == overHTTP {
		stop, err := h.keepServer(ctx, s)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	for len(s.Steps) < maxSteps {
		now, err := h.look(ctx, s)
		if err != nil {
			s.problemf("the journals cannot be read: %v", err)
			return nil
		}
		if now != nil && now.top.Ended() {
			return h.check(ctx, s, now, want)
		}
		o, err := s.next(now, want)
		if err != nil {
			s.problemf("%v", err)
			return nil
		}
		if err := h.step(ctx, s, o); err != nil || len(s.Problems) > 0 {
			return err
		}
	}
	s.problemf("after %d processes the run has not ended", maxSteps)
	return nil
}

// step starts one process and waits for its end.
func (h *Harness) step(ctx context.Context, s *Story, o *order) error {
	n := len(s.Steps)
	for _, k := range s.Kills {
		if k.Step == n && !k.Server {
			o.Kill, o.Delay = k.Label, k.Delay
		}
	}
	o.Scenario, o.Dir, o.ServerKill = s.Scenario.Name, s.dir, s.serverKill()
	o.Trace = filepath.Join(s.dir, fmt.Sprintf("trace-%d", n))
	status, text, err := h.start(ctx, o)
	if err != nil {
		return err
	}
	points, err := readTrace(o.Trace)
	if err != nil {
		return err
	}
	if s.Scenario.mcp == overPipes {
		if err := awaitDead(filepath.Join(s.dir, serversFile)); err != nil { // it ends with the process
			return err
		}
	}
	if s.Served, err = readTrace(filepath.Join(s.dir, serverTrace)); err != nil {
		return err
	}
	step := Step{Command: o.Command, Points: points, Killed: killed(status)}
	s.Steps = append(s.Steps, step)
	for _, p := range points {
		s.stop = s.stop || p.Label == "cancelled"
	}
	switch {
	case step.Killed && o.Kill == "":
		s.problemf("process %d (%s) was killed, by nobody here", n, o.Command)
	case !step.Killed && status.ExitCode() != 0:
		s.problemf("process %d (%s) failed with %d: %s", n, o.Command, status.ExitCode(), text)
	case step.Killed && o.Command == commandDecide:
		return h.again(ctx, s, o)
	}
	return nil
}

// again makes a decision again whose process was killed: it must be refused if it
// was written down.
func (h *Harness) again(ctx context.Context, s *Story, o *order) error {
	now, err := h.look(ctx, s)
	if err != nil || now == nil || now.runs[o.Run].Pending != nil {
		return err
	}
	second := *o
	second.Kill, second.Trace = "", o.Trace+"-again"
	status, _, err := h.start(ctx, &second)
	if err == nil && status.ExitCode() != refused {
		s.problemf("a decision was taken twice (%d)", status.ExitCode())
	}
	return err
}

func (h *Harness) start(ctx context.Context, o *order) (*os.ProcessState, string, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, "", err
	}
	var out bytes.Buffer
	c := exec.CommandContext(ctx, h.Exe)
	c.Env = append(os.Environ(), childEnv+"="+string(text))
	c.Stdout, c.Stderr = &out, &out
	err = c.Run()
	var ended *exec.ExitError
	if ctx.Err() != nil {
		return nil, "", ctx.Err()
	}
	if err != nil && !errors.As(err, &ended) {
		return nil, "", err
	}
	return c.ProcessState, strings.TrimSpace(out.String()), nil
}

// next is what a person does next.
func (s *Story) next(now *scene, want *Outcome) (*order, error) {
	if now == nil {
		return &order{Command: commandRun}, nil
	}
	top, waits := now.top, now.waits
	switch {
	case waits == nil && s.stop && top.Stopping == nil:
		return &order{Command: commandCancel, Run: top.Run}, nil // what was asked of the dead process
	case waits == nil:
		return &order{Command: commandResume, Run: top.Run}, nil
	case s.Scenario.say != "" && !s.said:
		// Said once: a person who is not sure looks into the run.
		for _, m := range top.Messages {
			s.said = s.said || m.Text() == s.Scenario.say
		}
		if !s.said && len(top.Said) == 0 {
			return &order{Command: commandSay, Run: top.Run}, nil
		}
		s.said = true
		return s.next(now, want)
	case waits.Pending.Kind == string(journal.ApprovalInDoubt):
		return s.clear(waits, want)
	case s.Scenario.cancel:
		return &order{Command: commandCancel, Run: top.Run}, nil
	case waits.Pending.Kind == journal.PendingProvider && waits.Pending.Error.Class == core.ClassBudget:
		// What was lost is made up for, as the run says.
		out := waits.Pending.Error
		add := journal.Granted{Tokens: out.AddTokens, CostUSD: out.AddCostUSD, Requests: out.AddRequests}
		return &order{Command: commandGrant, Run: waits.Run, Granted: add}, nil
	case waits.Pending.Kind == journal.PendingProvider && s.Scenario.other != "" && waits.Models[len(waits.Models)-1].ID != otherModel:
		return &order{Command: commandModel, Run: waits.Run}, nil
	case waits.Pending.Kind == journal.PendingProvider:
		return &order{Command: commandResume, Run: top.Run}, nil
	case waits.Pending.Kind == string(journal.ApprovalInput) && len(waits.Pending.Calls) == 0 && s.Scenario.granted != nil:
		return &order{Command: commandGrant, Run: waits.Run, Granted: *s.Scenario.granted}, nil
	}
	d := agent.Decision{Decision: journal.DecisionApprove}
	switch {
	case waits.Pending.Kind != string(journal.ApprovalInput):
		if s.Scenario.decide != nil {
			d = s.Scenario.decide(waits)
		}
	case len(waits.Pending.Calls) == 0:
		d.Decision = journal.DecisionDeny
	default:
		d.Decision, d.Result = journal.DecisionAnswer, json.RawMessage(s.Scenario.answer)
	}
	return decision(waits, d), nil
}

func decision(state *agent.State, d agent.Decision) *order {
	d.ApprovalID, d.Digest = state.Pending.ApprovalID, state.Pending.Digest
	d.Who = toolcrib.Principal{User: person, Admin: true}
	return &order{Command: commandDecide, Run: state.Run, Decision: &d}
}

// clear answers for calls in doubt, as a person does who looks at what happened.
func (s *Story) clear(state *agent.State, want *Outcome) (*order, error) {
	if want == nil {
		return nil, errors.New("calls are in doubt, though nothing was killed")
	}
	d := agent.Decision{Calls: map[string]journal.CallDecision{}}
	for _, item := range state.Pending.Calls {
		effect, err := s.effectOf(item.ID)
		if err != nil {
			return nil, err
		}
		word := journal.CallDecision{Decision: journal.DecisionRetry}
		switch {
		case effect:
			word.Decision, word.Result = journal.DecisionHappened, want.resultOf(item.ID)
		case s.Scenario.notHappened:
			word.Decision = journal.DecisionNotHappened
		}
		d.Calls[item.ID] = word
		s.words[item.ID] = word.Decision
		s.InDoubt++
	}
	return decision(state, d), nil
}
