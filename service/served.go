package service

import (
	"bytes"
	"cmp"
	"context"
	"crypto/cipher"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/policy"
	"github.com/toolcrib/toolcrib/service/worker"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/team"
	"github.com/toolcrib/toolcrib/tool/spawn"
)

// Serving is an agent whose tools a program calls from outside, such as an MCP client. Each call is a run of one given
// call. It belongs to one client: untrusted data that one of its calls has read taints all later calls.
type Serving struct {
	*serving
	reads sync.Mutex
	taint []string
	// canaries mark what the client has read, so that a later call that contains one repeats it. The first also marks what
	// the client reads next.
	canaries []string
}

// serving is the part of a [Serving] that its calls share.
type serving struct {
	s     *Service
	p     *Prepared
	scope gate.Scope
	seal  cipher.AEAD
	pool  *Pool // its bounds apply to the runs; may be nil

	ctx     context.Context // of runs in the background
	end     context.CancelCauseFunc
	running sync.WaitGroup

	mu     sync.Mutex
	teams  []team.Kind              // tools that ask a team
	agents map[string]string        // agents by the names of their tools
	driven map[toolcrib.RunID]error // runs in the background, with the errors of those that were interrupted
}

// statePurpose is the purpose of the key that seals the state that a client keeps between two requests.
const statePurpose = "mcp request state"

// Serve returns an agent whose tools can be called from outside.
func (s *Service) Serve(ctx context.Context, who toolcrib.Principal, r StartRequest) (*Serving, error) {
	r.Approve = agent.ApproveNone
	p, err := s.Prepare(ctx, who, r)
	if err == nil {
		err = s.Env.OpenFor(ctx, who)
	}
	if err != nil {
		return nil, err
	}
	p.models.Alone(true)
	p.Agent.FindAbove = 0 // clients get the whole list
	v := &Serving{serving: &serving{s: s, p: p, driven: map[toolcrib.RunID]error{}}}
	if v.scope, err = s.Policy.Scope(&p.Agent, p.Workspace, p.Approve, p.Tools, p.tell); err == nil {
		_, err = p.theGate(policy.Paths{})
	}
	if err != nil {
		return nil, err
	}
	p.reportUnknown()
	if v.seal, err = s.Env.Sealer(statePurpose); err != nil {
		return nil, err
	}
	v.ctx, v.end = context.WithCancelCause(context.WithoutCancel(ctx))
	return v, nil
}

// Within has each call reserve a place in a pool, so that the bounds of the pool apply.
func (v *Serving) Within(p *Pool) { v.pool = p }

// place reserves a place in the pool for a run. run is "" if it has no ID yet.
func (v *Serving) place(run toolcrib.RunID) (leave func(), err error) {
	if v.pool == nil {
		return func() {}, nil
	}
	d, err := v.pool.Reserve(run, "")
	return func() { d.Release(nil) }, err
}

// ReadBefore adds the untrusted data that calls with the same token, user and agent have read since a time. It is for
// clients without a session.
func (v *Serving) ReadBefore(ctx context.Context, since time.Time) error {
	who := &v.p.Who
	page, err := v.s.Env.Store.Runs(ctx, store.Filter{
		User: who.User, Token: who.Token, Agent: v.p.Agent.Name, TopLevel: true, Since: since, Limit: store.MaxLimit,
	})
	if err != nil {
		return err
	}
	for i := range page.Runs {
		state, err := agent.Load(ctx, v.s.Env.Store, page.Runs[i].ID)
		if err != nil {
			return err
		}
		if state.Start.Given != nil {
			v.read(state.Taint, state.Start.Canary)
		}
	}
	return nil
}

// Close leaves the runs in the background to be resumed, of all clients, and waits for their drivers.
func (v *Serving) Close() {
	v.end(errClosed)
	v.running.Wait()
}

var errClosed = errors.New("the server has ended")

// Cancelled returns the cause for ending the context of a call so that its run ends as cancelled by somebody. After any
// other cause the run is left to be resumed.
func Cancelled(by string) error { return &agent.CancelError{By: by} }

// agentTool is the prefix of the names of agents as tools.
const agentTool = "agent__"

// Offer returns the tools that can be called now: those that the agent is offered and, instead of spawn, one for each
// agent that may be given a task.
func (v *Serving) Offer(ctx context.Context) ([]toolcrib.Spec, error) {
	scope, err := v.scope, error(nil)
	if len(v.p.Agent.Skills) > 0 { // skills may have been switched off
		scope, err = v.s.Policy.Scope(&v.p.Agent, v.p.Workspace, v.p.Approve, v.p.Tools, v.p.tell)
	}
	if err != nil {
		return nil, err
	}
	scope.FindAbove = 0 // clients search tools themselves
	offer, err := v.p.gate.Offer(ctx, v.p.Who, scope)
	if err != nil {
		return nil, err
	}
	specs, agents, teams := slices.Clone(offer.Specs), map[string]string{}, []team.Kind(nil)
	if i := slices.IndexFunc(specs, named(spawn.Name)); i >= 0 {
		of := specs[i]
		specs = slices.Delete(specs, i, i+1)
		for _, a := range policy.CallableAgents(v.s.Env.Config) {
			name := agentTool + a.Name
			refused, err := v.p.gate.MayRun(ctx, v.p.Who, a.Name)
			if err != nil || refused != "" || !toolcrib.ValidToolName(name) || slices.ContainsFunc(specs, named(name)) {
				continue
			}
			of.Name, of.Effect, agents[name] = name, toolcrib.EffectNonIdempotentWrite, a.Name // effect of what the agent does
			of.Description = strings.TrimSpace("Give a task to the agent " + a.Name + ", and read its answer. " + a.Description)
			of.Parameters = json.RawMessage(taskSchema)
			specs = append(specs, of)
		}
		if len(agents) > 0 {
			for _, spec := range teamTools(of) {
				if !slices.ContainsFunc(specs, named(spec.Name)) {
					specs, teams = append(specs, spec), append(teams, team.Kind(spec.Name))
				}
			}
		}
	}
	v.mu.Lock()
	v.agents, v.teams = agents, teams
	v.mu.Unlock()
	return specs, nil
}

const taskSchema = `{"type":"object","properties":{"task":{"type":"string","description":` +
	`"What to do, with everything that it has to know"},"tools":{"type":"array","items":{"type":"string"},"description":` +
	`"The tools that it may use; absent = all of its own"}},"required":["task"],"additionalProperties":false}`

func named(name string) func(toolcrib.Spec) bool {
	return func(spec toolcrib.Spec) bool { return spec.Name == name }
}

// ServedCall is a call from outside.
type ServedCall struct {
	Client    string // name of the client, for people
	Name      string
	Arguments []byte // as received
}

// Served is the outcome of a call.
type Served struct {
	Run    toolcrib.RunID
	Status toolcrib.Status
	Result *journal.ToolResult // nil if the call has none yet
	Files  []toolcrib.OutputFile
	Waits  *journal.ConfirmationRequired // decision that it waits for, with the open calls, or nil
	// State is passed to [Serving.Answer]. If it is "", only a person may answer.
	State string
	Asked string // approval of an [Serving.Answer] without a decision
}

// given returns a call for its run.
func (v *Serving) given(c *ServedCall) *toolcrib.ToolCall {
	v.mu.Lock()
	name, ok := v.agents[c.Name]
	v.mu.Unlock()
	if !ok {
		return policy.NewCall(v.s.Env.Mask, c.Name, c.Arguments)
	}
	raw := c.Arguments
	canonical, err := guard.Arguments(raw)
	var task map[string]json.RawMessage
	if err == nil && json.Unmarshal(canonical, &task) == nil && task["agent"] == nil {
		task["agent"], _ = json.Marshal(name) // cannot fail for a string
		raw, _ = json.Marshal(task)
	} else if err == nil { // the gate refuses a call with two names of an agent
		raw = append([]byte(`{"agent":"","agent":"",`), bytes.TrimLeft(canonical, "{")...)
	}
	return policy.NewCall(v.s.Env.Mask, spawn.Name, raw)
}

// begin removes the canaries from a call, and returns a task with the taint of what the client has read.
func (v *Serving) begin(c *ServedCall) (task agent.Task) {
	v.reads.Lock()
	defer v.reads.Unlock()
	task.Taint = slices.Clone(v.taint)
	raw := c.Arguments
	if canonical, err := guard.Arguments(raw); err == nil { // the form in which a canary is literal
		raw = canonical
	}
	arguments, n := string(raw), 0
	for i, canary := range v.canaries {
		if i == 0 {
			task.Canary = canary
		}
		var times int
		arguments, times = guard.RedactCanary(arguments, canary)
		n += times
	}
	if n > 0 {
		c.Arguments = []byte(arguments)
		task.Notices = []toolcrib.Notice{{Code: core.NoticeCanaryLeak, Message: fmt.Sprintf(
			"the client repeated the mark of untrusted data in the arguments of its call (%s); it was taken out", guard.Count(n, "time"))}}
	}
	return task
}

// Call executes a call until it has a result or waits for a decision.
func (v *Serving) Call(ctx context.Context, c ServedCall, f Front) (*Served, error) {
	task := v.begin(&c)
	if kind, ok := v.teamKind(c.Name); ok {
		return v.askTeam(ctx, kind, &c, task.Taint, task.Notices, f)
	}
	task.Given = v.given(&c)
	if err := v.s.traced(ctx, v.p.Who, &StartRequest{Given: task.Given}, &task); err != nil {
		return nil, err
	}
	leave, err := v.place("")
	if err != nil {
		return nil, err
	}
	defer leave()
	p := *v.p // a copy for this goroutine
	if f.Person != nil {
		p.Approve = agent.ApproveAsk // the call itself waits for Answer
	}
	state, err := p.run(ctx, task, f)
	if err != nil {
		return nil, err
	}
	return v.served(ctx, task.Given, state)
}

// served returns the outcome of the run of a call.
func (v *Serving) served(ctx context.Context, given *toolcrib.ToolCall, state *agent.State) (*Served, error) {
	v.read(state.Taint, state.Start.Canary)
	state = v.s.Env.StateFor(v.p.Who, state)
	out := &Served{Run: state.Run, Status: state.Status}
	if team.PlanOf(state.Start) != nil {
		if state.Ended() {
			var err error
			out.Result, err = v.teamResult(ctx, state)
			return out, err
		}
	} else if out.Result = state.Trace[0].Result; out.Result != nil {
		for i := range out.Result.Files {
			file, err := v.s.file(ctx, &out.Result.Files[i])
			if err != nil {
				return out, fmt.Errorf("a file of the result cannot be read: %w", err)
			}
			out.Files = append(out.Files, file)
		}
		return out, nil
	}
	switch {
	case state.Failed != nil:
		return out, toolcrib.Errorf(toolcrib.Code(state.Failed.Code), "%s", state.Failed.Text())
	case state.Pending == nil:
		return out, nil
	}
	r, at, err := v.waits(ctx, state.Run)
	if err != nil || at == nil || at.Approval == nil {
		return out, err
	}
	ask := *at.Approval
	ask.Calls = openCalls(at)
	if out.Waits = &ask; given != nil && !r.ForAPerson(at) {
		kept := requestState{
			Run: state.Run, At: at.Run, Approval: ask.ApprovalID, Digest: ask.Digest, Until: time.Now().Add(stateAge),
		}
		out.State, err = v.sealed(&kept, given)
	}
	return out, err
}

// waits returns the run with the decision that a parked run waits for.
func (v *Serving) waits(ctx context.Context, run toolcrib.RunID) (*agent.Runner, *agent.State, error) {
	rec, err := v.s.Env.Store.Run(ctx, run)
	if err != nil {
		return nil, nil, err
	}
	r, err := v.s.runner(rec)
	if err != nil {
		return nil, nil, err
	}
	at, err := r.WaitsFor(ctx, run)
	return r, at, err
}

// read records untrusted data that the client was given, and the canary that marks it.
func (v *Serving) read(taint []string, canary string) {
	v.reads.Lock()
	defer v.reads.Unlock()
	if canary != "" && len(taint) > 0 && len(v.canaries) < maxListed && !slices.Contains(v.canaries, canary) {
		v.canaries = append(v.canaries, canary)
	}
	for _, source := range taint {
		if !slices.Contains(v.taint, source) {
			v.taint = append(v.taint, source)
		}
	}
}

// stateAge is how long a client can answer a question that it was given.
const stateAge = 15 * time.Minute

// requestState is kept by the client while it asks a person. It is sealed, and bound to the caller and the call. It can
// be used once, because an approval is decided once.
type requestState struct {
	Run, At          toolcrib.RunID // run of the call, and the run that asks: the same, or one below
	Approval, Digest string
	Until            time.Time
}

func (v *Serving) sealed(kept *requestState, given *toolcrib.ToolCall) (string, error) {
	text, err := json.Marshal(kept)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(v.seal.Seal(nil, nil, text, v.bound(given))), nil
}

// bound returns the data to which a state is bound.
func (v *Serving) bound(given *toolcrib.ToolCall) []byte {
	who := &v.p.Who
	text, _ := json.Marshal([]string{ // cannot fail for strings
		who.User, who.Actor, who.Token, v.p.Agent.Name, given.Name, given.ProviderName, given.Broken,
		string(given.Arguments),
	})
	return text
}

// opened is the inverse of sealed.
func (v *Serving) opened(state string, given *toolcrib.ToolCall) (kept requestState, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(state)
	if err == nil {
		raw, err = v.seal.Open(nil, nil, raw, v.bound(given))
	}
	if err == nil {
		err = json.Unmarshal(raw, &kept)
	}
	switch {
	case err != nil:
		return kept, env.BadRequestf("requestState: is not one that this server gave for this call")
	case !time.Now().Before(kept.Until):
		return kept, toolcrib.Errorf(toolcrib.CodeTokenExpired, "requestState: the question is too old to be answered "+
			"here; approval %s waits for a person", kept.Approval)
	}
	return kept, nil
}

// ServedAnswer is the answer of a client to a question. Decision is "" if it has none.
type ServedAnswer struct {
	Decision string // journal.DecisionApprove, DecisionDeny or DecisionAnswer
	Reason   string
	Value    json.RawMessage // with DecisionAnswer
	Again    bool            // without a Decision: the client will ask again
}

// Answer decides what a call waits for, on behalf of the client, and continues its run. An approval is used once.
// Without a decision, the call then waits for a person.
func (v *Serving) Answer(ctx context.Context, c ServedCall, state string, a ServedAnswer, f Front) (*Served, error) {
	v.begin(&c)
	given := v.given(&c)
	kept, err := v.opened(state, given)
	if err != nil {
		return nil, err
	}
	if a.Decision == "" {
		waiting, err := agent.Load(ctx, v.s.Env.Store, kept.Run)
		if err != nil {
			return nil, err
		}
		if !a.Again {
			given = nil
		}
		out, err := v.served(ctx, given, waiting)
		if out != nil {
			out.Asked = kept.Approval
		}
		return out, err
	}
	leave, err := v.place(kept.Run)
	if err != nil {
		return nil, err
	}
	defer leave()
	rec, err := v.s.Env.Store.Run(ctx, kept.At)
	if err != nil {
		return nil, err
	}
	r, err := v.s.runner(rec)
	if err != nil {
		return nil, err
	}
	if _, err := r.Decide(ctx, kept.At, agent.Decision{
		ApprovalID: kept.Approval, Digest: kept.Digest, Who: v.p.Who, Client: c.Client, Decision: a.Decision,
		Reason: a.Reason, Result: a.Value,
	}); err != nil {
		return nil, err
	}
	run, err := v.s.resume(ctx, v.p.Who, ResumeRequest{Run: string(kept.Run)}, f)
	if err != nil {
		return nil, err
	}
	return v.served(ctx, given, run)
}

// Cancel ends a run that waits, on behalf of the client.
func (v *Serving) Cancel(ctx context.Context, run toolcrib.RunID) error {
	_, err := v.s.Cancel(ctx, v.p.Who, string(run))
	return err
}

// collectEvery is how often [Serving.Collect] looks at a run.
const collectEvery = 200 * time.Millisecond

// Collect returns the outcome of a call that waited for an approval, found as by [Service.Approval]. It continues a run
// that was decided on or interrupted, and waits for a result for a bounded time.
func (v *Serving) Collect(ctx context.Context, id string, patience time.Duration) (*Served, error) {
	s, none := v.s, toolcrib.Errorf(toolcrib.CodeNotFound, "there is no approval %s of a call by this client's agent", id)
	a, err := s.Approval(ctx, v.p.Who, id)
	if toolcrib.CodeOf(err) == toolcrib.CodeNotFound {
		return nil, none
	}
	if err != nil {
		return nil, err
	}
	top, err := s.Env.Top(ctx, a.record)
	if err != nil {
		return nil, err
	}
	state, err := agent.Load(ctx, s.Env.Store, top.ID)
	if err != nil {
		return nil, err
	}
	mine := state.Start.Given != nil && state.Start.Agent.Name == v.p.Agent.Name || team.PlanOf(state.Start) != nil
	if !mine || !env.Owns(v.p.Who, &top) {
		return nil, none
	}
	for end := time.Now().Add(patience); ; {
		rec, err := s.Env.Store.Run(ctx, top.ID)
		if err != nil {
			return nil, err
		}
		over := rec.Status.Ended() || !time.Now().Before(end)
		if !over && !s.Drivers.Driven(ctx, rec.ID) {
			if over, err = v.continueRun(ctx, rec.ID, a); err != nil {
				return nil, err
			}
		}
		if over {
			break
		}
		if err := worker.Pause(ctx, collectEvery); err != nil {
			return nil, err
		}
	}
	if state, err = agent.Load(ctx, s.Env.Store, top.ID); err != nil {
		return nil, err
	}
	return v.served(ctx, nil, state)
}

// continueRun continues a run in the background that was decided on or interrupted. over is set if the run now waits
// for something else, so that there is no result to wait for.
func (v *Serving) continueRun(ctx context.Context, run toolcrib.RunID, a *Approval) (over bool, err error) {
	_, at, err := v.waits(ctx, run)
	switch {
	case err != nil:
		return false, err
	case at != nil && (at.Approval == nil || at.Approval.ApprovalID != a.ID):
		return true, nil
	case at != nil && (a.ExpiresAt == nil || time.Now().Before(*a.ExpiresAt)) && a.Status != api.ApprovalExpired:
		return false, nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	failed, known := v.driven[run]
	switch {
	case failed != nil:
		delete(v.driven, run) // the next call tries again
		return false, failed
	case known || v.ctx.Err() != nil:
		return false, nil
	}
	v.driven[run] = nil
	v.running.Go(func() {
		leave, err := v.place(run)
		if err == nil {
			_, err = v.s.resume(v.ctx, v.p.Who, ResumeRequest{Run: string(run)}, Front{})
			leave()
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.driven, run)
		if err != nil && toolcrib.CodeOf(err) != toolcrib.CodeConflict && !errors.Is(err, toolcrib.ErrConflict) {
			v.driven[run] = err
		}
	})
	return false, nil
}

// maxListed bounds the runs and approvals in a list for a client.
const maxListed = 50

// ServedRun is a run in a list for clients, and ServedApproval an approval.
type (
	ServedRun struct {
		ID        toolcrib.RunID  `json:"id"`
		Status    toolcrib.Status `json:"status"`
		Agent     string          `json:"agent"`
		CreatedAt time.Time       `json:"created_at"`
	}
	ServedApproval struct {
		ID        string               `json:"approval_id"`
		Run       toolcrib.RunID       `json:"run_id"`
		Status    string               `json:"status"`
		Kind      journal.ApprovalKind `json:"kind"`
		Tools     []string             `json:"tools"`
		CreatedAt time.Time            `json:"created_at"`
	}
)

// Runs returns the newest runs of the client's user.
func (v *Serving) Runs(ctx context.Context) ([]ServedRun, error) {
	runs, _, err := v.s.Runs(ctx, v.p.Who, RunsQuery{Filter: store.Filter{Limit: maxListed}})
	list := make([]ServedRun, len(runs))
	for i, r := range runs {
		list[i] = ServedRun{ID: r.ID, Status: r.Status, Agent: r.Agent, CreatedAt: r.CreatedAt}
	}
	return list, err
}

// Run returns a run with its trace. Its taint applies to the client.
func (v *Serving) Run(ctx context.Context, id string) (Run, error) {
	run, err := v.s.Run(ctx, v.p.Who, id)
	if err != nil || len(run.Taint) == 0 {
		return run, err
	}
	start, err := v.s.startOf(ctx, run.ID)
	if err != nil || start == nil {
		return Run{}, cmp.Or(err, toolcrib.ErrNotFound)
	}
	v.read(run.Taint, start.Canary)
	return run, nil
}

// Approvals returns the pending approvals, newest first.
func (v *Serving) Approvals(ctx context.Context) ([]ServedApproval, error) {
	all, err := v.s.Approvals(ctx, v.p.Who)
	all = all[:min(len(all), maxListed)]
	list := make([]ServedApproval, len(all))
	for i, a := range all {
		list[i] = ServedApproval{
			ID: a.ID, Run: a.Run, Status: a.Status, Kind: a.Kind, CreatedAt: a.CreatedAt, Tools: []string{},
		}
		for _, c := range a.Calls {
			list[i].Tools = append(list[i].Tools, c.Name)
		}
	}
	return list, err
}

// Approval returns an approval. The taint of its run applies to the client.
func (v *Serving) Approval(ctx context.Context, id string) (*Approval, error) {
	a, err := v.s.Approval(ctx, v.p.Who, id)
	if err != nil {
		return nil, err
	}
	_, err = v.Run(ctx, string(a.Run))
	return a, err
}
