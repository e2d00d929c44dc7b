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

// Serving is an agent whose tools a program calls from outside, such as an MCP client. Each call is a run of one
// given call. It is for one client: untrusted data that one of its calls has read counts for all that follow.
type Serving struct {
	*serving
	reads sync.Mutex
	taint []string
	// canaries mark what the client has read; if one shows up in a later call, that was repeated. The first marks
	// what it reads next, too.
	canaries []string
}

// serving is what the calls of a [Serving] share.
type serving struct {
	s     *Service
	p     *Prepared
	scope gate.Scope
	seal  cipher.AEAD
	pool  *Pool // whose bounds hold for the runs; nil = none

	ctx     context.Context // of runs that go on in the background
	end     context.CancelCauseFunc
	running sync.WaitGroup

	mu     sync.Mutex
	teams  []team.Kind              // how a team may be asked
	agents map[string]string        // the agents that are offered as tools, by the names of those
	driven map[toolcrib.RunID]error // runs in the background; their errors, once they have ended with one
}

// statePurpose is the purpose of the key that seals what a client keeps between two requests.
const statePurpose = "mcp request state"

// Serve makes an agent ready to have its tools called from outside.
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
	p.Agent.FindAbove = 0 // clients are given the whole list
	v := &Serving{serving: &serving{s: s, p: p, driven: map[toolcrib.RunID]error{}}}
	if v.scope, err = s.Policy.Scope(&p.Agent, p.Workspace, p.Approve, p.Tools, p.tell); err == nil {
		_, err = p.theGate(policy.Paths{})
	}
	if err != nil {
		return nil, err
	}
	p.tellUnknown()
	if v.seal, err = s.Env.Sealer(statePurpose); err != nil {
		return nil, err
	}
	v.ctx, v.end = context.WithCancelCause(context.WithoutCancel(ctx))
	return v, nil
}

// Within has each call take a place in a pool, so that its bounds hold.
func (v *Serving) Within(p *Pool) { v.pool = p }

// place takes a place for a run in the pool; run is "" if it has no ID yet.
func (v *Serving) place(run toolcrib.RunID) (leave func(), err error) {
	if v.pool == nil {
		return func() {}, nil
	}
	d, err := v.pool.Reserve(v.p.Who.User, v.p.Agent.Name, run, "")
	return func() { d.Release(nil) }, err
}

// ReadBefore has untrusted data count that calls by the same token, user and agent have read
// since then, as a client without a session may have.
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

// Close leaves the runs in the background to be resumed, and waits for their drivers; of all clients.
func (v *Serving) Close() {
	v.end(errClosed)
	v.running.Wait()
}

var errClosed = errors.New("the server has ended")

// Cancelled is the cause to end the context of a call with so that its run ends as cancelled
// by somebody. With any other cause it is left to be resumed.
func Cancelled(by string) error { return &agent.CancelError{By: by} }

// agentTool begins the names of agents as tools.
const agentTool = "agent__"

// Offer returns the tools that a call of now would find: those of the agent's offer and, in
// place of spawn, one for each agent that may be given a task.
func (v *Serving) Offer(ctx context.Context) ([]toolcrib.Spec, error) {
	scope, err := v.scope, error(nil)
	if len(v.p.Agent.Skills) > 0 { // they may have been switched off
		scope, err = v.s.Policy.Scope(&v.p.Agent, v.p.Workspace, v.p.Approve, v.p.Tools, v.p.tell)
	}
	if err != nil {
		return nil, err
	}
	scope.FindAbove = 0 // clients find tools in their own ways
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
			of.Name, of.Effect, agents[name] = name, toolcrib.EffectNonIdempotentWrite, a.Name // what the agent does
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
	Client    string // who calls, for people
	Name      string
	Arguments []byte // as they came
}

// Served is what became of a call.
type Served struct {
	Run    toolcrib.RunID
	Status toolcrib.Status
	Result *journal.ToolResult // nil if the call has none yet
	Files  []toolcrib.OutputFile
	Waits  *journal.ConfirmationRequired // what it waits for, with the calls that are open; nil = no decision
	// State is what [Serving.Answer] continues with; "" = only a person may answer.
	State string
	Asked string // the approval that [Serving.Answer] was about, if it said nothing
}

// given is a call as its run has it.
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
		task["agent"], _ = json.Marshal(name) // a text
		raw, _ = json.Marshal(task)
	} else if err == nil { // with two names of an agent the gate refuses it
		raw = append([]byte(`{"agent":"","agent":"",`), bytes.TrimLeft(canonical, "{")...)
	}
	return policy.NewCall(v.s.Env.Mask, spawn.Name, raw)
}

// begin takes the canary out of a call, and begins its task with what the client has read before.
func (v *Serving) begin(c *ServedCall) (task agent.Task) {
	v.reads.Lock()
	defer v.reads.Unlock()
	task.Taint = slices.Clone(v.taint)
	raw := c.Arguments
	if canonical, err := guard.Arguments(raw); err == nil { // where it stands as it is
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

// Call carries a call out, up to its result or what it waits for.
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
	p := *v.p // for this goroutine
	if f.Person != nil {
		p.Approve = agent.ApproveAsk // what the call itself waits for is left to Answer
	}
	state, err := p.run(ctx, task, f)
	if err != nil {
		return nil, err
	}
	return v.served(ctx, task.Given, state)
}

// served is what a run of this call has come to.
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

// waits finds the run whose decision a parked run waits for.
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

// read notes what untrusted data the client was given, and what marks it.
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

// stateAge is how long a question that a client was given can be answered by it.
const stateAge = 15 * time.Minute

// requestState is what a client keeps while a person is asked there. It is sealed, and bound to who calls and to
// the call. That it is used once follows from the journal: an approval is decided once.
type requestState struct {
	Run, At          toolcrib.RunID // the run of the call, and the one that asks: itself, or one below it
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

// bound is what a state is bound to.
func (v *Serving) bound(given *toolcrib.ToolCall) []byte {
	who := &v.p.Who
	text, _ := json.Marshal([]string{ // of texts
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

// ServedAnswer is what a client says to a question. Decision is "" if it says nothing.
type ServedAnswer struct {
	Decision string // journal.DecisionApprove, DecisionDeny or DecisionAnswer
	Reason   string
	Value    json.RawMessage // with DecisionAnswer
	Again    bool            // without a Decision: the question stays the client's, and is put again
}

// Answer decides what a call waits for, as the client's word, and continues its run. An
// approval is used once. Without a word the call waits for a person from now on.
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

// Cancel ends a run that waits, in the client's name.
func (v *Serving) Cancel(ctx context.Context, run toolcrib.RunID) error {
	_, err := v.s.Cancel(ctx, v.p.Who, string(run))
	return err
}

// collectEvery is how often a run is looked at whose outcome is waited for.
const collectEvery = 200 * time.Millisecond

// Collect returns what became of a call that waited for an approval, found as by [Service.Approval]. It continues
// the run if that was decided or cut off, and waits for a result for a bounded time.
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
		if !over && !s.Drivers.Driven(rec.ID) {
			if over, err = v.goOn(ctx, rec.ID, a); err != nil {
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

// goOn continues a run in the background that was decided or cut off. over reports that
// there is nothing to wait for: it waits for something else by now.
func (v *Serving) goOn(ctx context.Context, run toolcrib.RunID, a *Approval) (over bool, err error) {
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
		delete(v.driven, run) // to be tried again by the next
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

// maxListed bounds how many runs and approvals a client is shown.
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

// Runs returns the newest runs of whom the client acts for.
func (v *Serving) Runs(ctx context.Context) ([]ServedRun, error) {
	runs, _, err := v.s.Runs(ctx, v.p.Who, RunsQuery{Filter: store.Filter{Limit: maxListed}})
	list := make([]ServedRun, len(runs))
	for i, r := range runs {
		list[i] = ServedRun{ID: r.ID, Status: r.Status, Agent: r.Agent, CreatedAt: r.CreatedAt}
	}
	return list, err
}

// Run returns a whole run. What it has read, the client has read.
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

// Approvals returns what waits for a decision, the newest first.
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

// Approval returns an approval. What its run has read, the client has read.
func (v *Serving) Approval(ctx context.Context, id string) (*Approval, error) {
	a, err := v.s.Approval(ctx, v.p.Who, id)
	if err != nil {
		return nil, err
	}
	_, err = v.Run(ctx, string(a.Run))
	return a, err
}
