package policy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access/standing"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/team"
)

// BacktestRequest selects the runs whose calls are judged again under the configuration.
type BacktestRequest struct {
	Run string // one run, by its ID or a part of it; if "", those that the other fields select
	store.Filter
	Until time.Time // only runs that began before; if zero, all
	Limit int       // only the newest; 0 means all
	// Changed is called for each call with a different decision. If nil, the answer has the first 10,000.
	Changed func(ChangedCall)
	Damaged func(error)           // called for each run that cannot be read; may be nil
	Looked  func(runs, calls int) // called with the progress; may be nil
}

// Backtest is the result of a backtest: what the configuration would have decided.
type Backtest struct {
	Config  string          `json:"config"` // "" without a file
	Changes []ChangedCall   `json:"changes"`
	Offers  []*ChangedOffer `json:"offers"`
	Summary struct {
		Runs      int                    `json:"runs"`   // that were read
		Judged    int                    `json:"judged"` // calls
		Unchanged int                    `json:"unchanged"`
		Wider     int                    `json:"wider"`
		Narrower  int                    `json:"narrower"`
		Otherwise int                    `json:"reason"`          // the same decision, for another reason
		Offered   int                    `json:"tools_offered"`   // that had not been
		Withdrawn int                    `json:"tools_withdrawn"` // that would no longer be offered
		Unjudged  map[agent.Unjudged]int `json:"unjudged"`
		Pruned    int                    `json:"pruned_runs"`
		Damaged   []damagedRun           `json:"damaged_runs"`
		Omitted   int                    `json:"changes_omitted"` // more than changes has
		Limit     int                    `json:"limit"`           // 0 means none
		More      bool                   `json:"more"`            // more runs match
	} `json:"summary"`
}

// ChangedCall is a call with a different decision.
type ChangedCall struct {
	Change    agent.Change    `json:"change"` // wider | narrower | reason
	Run       toolcrib.RunID  `json:"run_id"`
	Seq       toolcrib.Seq    `json:"seq"` // event of the verdicts
	Time      time.Time       `json:"time"`
	User      string          `json:"user"`
	Agent     string          `json:"agent"`
	CallID    string          `json:"call_id"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Old       ShownVerdict    `json:"old"`
	New       ShownVerdict    `json:"new"`
}

// ShownVerdict is a verdict without the fields that only the loop needs.
type ShownVerdict struct {
	Decision toolcrib.Decision `json:"decision"` // allow | ask | refuse
	Reason   toolcrib.Reason   `json:"reason,omitempty"`
	Rule     string            `json:"rule,omitempty"`
	Position string            `json:"position,omitempty"` // FILE:LINE
	Message  string            `json:"message,omitempty"`
}

func shownVerdict(v *journal.Verdict) ShownVerdict {
	// The journal leaves a refusal empty.
	return ShownVerdict{cmp.Or(v.Decision, "refuse"), v.Reason, v.Rule, v.Position, v.Message}
}

// ChangedOffer is a tool that would be offered and was not, or the other way round, in a number of runs.
type ChangedOffer struct {
	Tool     string          `json:"tool"`
	Offered  bool            `json:"offered"` // whether it would be
	Reason   toolcrib.Reason `json:"reason,omitempty"`
	Position string          `json:"position,omitempty"`
	Runs     int             `json:"runs"`
	Run      toolcrib.RunID  `json:"run_id"` // the newest of them
}

// damagedRun is a run that could not be read to the end.
type damagedRun struct {
	Run    toolcrib.RunID `json:"run_id"`
	Detail string         `json:"detail"`
}

// backtest is a walk over stored runs. They are judged under the configuration; all other facts are those of their
// time.
type backtest struct {
	*Policy
	BacktestRequest
	out      Backtest
	switches *switchesThen
	gates    map[string]*gate.Gate    // by workspace, and apart for teams; nil if no run may have the workspace now
	kits     map[string]*chosenSkills // by their names
	offers   map[ChangedOffer]*ChangedOffer
	tell     func(string)
	failed   error // an error that ended the walk and is not about one run
}

// Backtest judges the calls of stored runs again, for administrators. It runs nothing and stores nothing.
func (p *Policy) Backtest(ctx context.Context, who toolcrib.Principal, r BacktestRequest) (Backtest, error) {
	b := &backtest{
		Policy: p, BacktestRequest: r, gates: map[string]*gate.Gate{},
		kits: map[string]*chosenSkills{}, offers: map[ChangedOffer]*ChangedOffer{}, tell: p.env.Once(p.env.Notice),
	}
	b.out.Config, b.out.Changes, b.out.Offers = p.env.Config.File(), []ChangedCall{}, []*ChangedOffer{}
	b.out.Summary.Unjudged, b.out.Summary.Damaged, b.out.Summary.Limit = map[agent.Unjudged]int{}, []damagedRun{}, r.Limit
	if _, err := env.Administrator(who); err != nil {
		return b.out, err
	}
	err := b.read(ctx)
	if err != nil {
		return b.out, err
	}
	if r.Run != "" {
		var rec store.RunRecord
		if rec, err = p.env.Find(ctx, who, r.Run); err == nil {
			err = b.judge(ctx, rec)
		}
	} else {
		err = b.judgeAll(ctx, who)
	}
	slices.SortStableFunc(b.out.Offers, func(x, y *ChangedOffer) int { return cmp.Compare(x.Tool, y.Tool) })
	of := map[bool]map[string]bool{true: {}, false: {}}
	for _, o := range b.out.Offers {
		of[o.Offered][o.Tool] = true
	}
	b.out.Summary.Offered, b.out.Summary.Withdrawn = len(of[true]), len(of[false])
	return b.out, err
}

// judgeAll judges the calls of all selected runs.
func (b *backtest) judgeAll(ctx context.Context, who toolcrib.Principal) error {
	for rec, err := range b.env.EachRun(ctx, who, b.Filter) {
		switch {
		case err != nil:
			return err
		case !b.Until.IsZero() && !rec.CreatedAt.Before(b.Until):
			continue
		case b.Limit > 0 && b.out.Summary.Runs == b.Limit:
			b.out.Summary.More = true
			return nil
		}
		if err := b.judge(ctx, rec); err != nil {
			return err
		}
	}
	return nil
}

// read returns an error if no run could start under the configuration, and reads the overrides.
func (b *backtest) read(ctx context.Context) (err error) {
	if _, err := b.CheckRules(); err != nil {
		return err
	}
	b.switches, err = b.switchesThen(ctx)
	return err
}

// judge judges the calls of one run. A run that cannot be read is recorded, and does not end the backtest.
func (b *backtest) judge(ctx context.Context, rec store.RunRecord) error {
	sum := &b.out.Summary
	sum.Runs++
	if b.Looked != nil {
		b.Looked(sum.Runs, sum.Judged)
	}
	if !rec.PrunedAt.IsZero() {
		sum.Pruned++
		return nil
	}
	walk := agent.Backtest{Terms: b.terms, At: b.switches.at, Missing: missingElsewhere}
	err := walk.Run(ctx, b.env.Store, rec.ID, agent.Rejudging{
		Call: func(r agent.Rejudged) error { b.call(&rec, r); return nil }, Offer: b.offer,
	})
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case b.failed != nil:
		return b.failed
	case errors.Is(err, store.ErrPruned):
		sum.Pruned++
		return nil
	}
	if b.Damaged != nil {
		b.Damaged(err)
	}
	const most = 100
	if len(sum.Damaged) < most {
		sum.Damaged = append(sum.Damaged, damagedRun{rec.ID, err.Error()})
	}
	return nil
}

// missingElsewhere reports whether a tool that does not exist now is missing for a reason other than the policy.
// Whether these built-in tools exist depends on the configuration. Any other tool came from elsewhere, so its calls
// cannot be judged.
func missingElsewhere(tool string) bool {
	return !slices.Contains([]string{"exec_shell", "web_fetch", "web_search", "message", "describe_tables"}, tool)
}

// call records a call that was judged again.
func (b *backtest) call(rec *store.RunRecord, r agent.Rejudged) {
	s := &b.out.Summary
	if r.Unjudged != "" {
		s.Unjudged[r.Unjudged]++
		return
	}
	s.Judged++
	switch r.Change {
	case agent.Wider:
		s.Wider++
	case agent.Narrower:
		s.Narrower++
	case agent.Otherwise:
		s.Otherwise++
	default:
		s.Unchanged++
		return
	}
	c := ChangedCall{
		Change: r.Change, Run: r.Run, Seq: r.Seq, Time: r.Time, User: rec.User, Agent: rec.Agent, CallID: r.Call.ID,
		Tool: r.Call.Name, Arguments: r.Call.Arguments, Old: shownVerdict(&r.Old), New: shownVerdict(&r.New),
	}
	const most = 10_000
	switch {
	case b.Changed != nil:
		b.Changed(c)
	case len(b.out.Changes) < most:
		b.out.Changes = append(b.out.Changes, c)
	default:
		s.Omitted++
	}
}

// offer records a tool that would be offered and was not, or the other way round.
func (b *backtest) offer(c agent.OfferChange) error {
	if c.Reason == toolcrib.ReasonRequiresAdmin || c.Reason == toolcrib.ReasonNotPermitted {
		return nil // the configuration does not decide that
	}
	key := ChangedOffer{Tool: c.Tool, Offered: c.Offered, Reason: c.Reason, Position: c.Position}
	o := b.offers[key]
	if o == nil {
		one := key
		one.Run, o = c.Run, &one
		b.offers[key], b.out.Offers = o, append(b.out.Offers, o)
	}
	o.Runs++
	return nil
}

// terms returns the terms under which a run is judged.
func (b *backtest) terms(ctx context.Context, start *journal.RunStarted, _ gate.Scope) (t agent.Terms, err error) {
	defer func() { b.failed = err }()
	t = agent.Terms{FourEyes: b.env.Config.Approvals.FourEyes}
	token, err := b.token(ctx, start.Principal.Token)
	if err != nil {
		return t, err
	}
	if token == nil && start.Principal.Token != "" {
		t.Unjudged = agent.UnjudgedToken
		return t, nil
	}
	if info, err := os.Stat(start.Workspace); err != nil || !info.IsDir() {
		t.Uncertain = agent.UnjudgedWorkspace
	}
	var tools func([]toolcrib.Tool) []toolcrib.Tool
	key := start.Workspace
	if ofTeam(start) {
		tools, key = b.ofWorkers, key+"\x00team"
	}
	t.Gate, err = ready(b.gates, key, func() (*gate.Gate, error) {
		if _, err := b.Protection(start.Workspace, nil); err != nil {
			if toolcrib.CodeOf(err) == toolcrib.CodeBadRequest {
				err = nil
			}
			return nil, err
		}
		g, err := b.gateOf(start.Workspace, b.switches, b, tools)
		return g, err
	})
	if err != nil {
		return t, err
	}
	if t.Gate == nil {
		t.Unjudged = agent.UnjudgedWorkspace
		return t, nil
	}
	now := *start
	if err := b.asAgent(&now); err != nil {
		return t, err
	}
	t.Scope = agent.Scope(&agent.State{Start: &now})
	return t, nil
}

// ready returns the value of a key, or makes and keeps it. It keeps a bounded number of values.
func ready[V any](all map[string]V, key string, produce func() (V, error)) (V, error) {
	const most = 64
	v, ok := all[key]
	if ok {
		return v, nil
	}
	v, err := produce()
	if err != nil {
		return v, err
	}
	if len(all) >= most {
		clear(all)
	}
	all[key] = v
	return v, nil
}

// asAgent changes the first event of a run to what it would be now: with the agent and its skills as they are
// configured, and with what was asked of the run itself.
func (b *backtest) asAgent(start *journal.RunStarted) error {
	name := start.Agent.Name
	if team.PlanOf(start) != nil {
		return nil // the conductor of a team is not a configured agent
	}
	if _, ok := b.env.Config.Agents[name]; !ok {
		b.tell(fmt.Sprintf("the configuration has no agent %s; its runs are judged with the agent as it was then", name))
		return nil
	}
	def, err := b.env.Config.Agent(name, b.env.Resolver())
	if err != nil {
		return err
	}
	if start.Worker != nil {
		def.TaintWrites = team.WorkerTaint(def.TaintWrites, b.AnyHost())
	}
	a := &start.Agent
	a.Tools, a.TaintWrites, a.ReadOnly = def.Tools, def.TaintWrites, def.ReadOnly || a.RunReadOnly
	a.Limits = def.Limits.WithDefaults()
	names, err := withSkills(def.Skills, a.RunSkills)
	if err != nil || slices.Equal(names, a.Skills) {
		return err // with the same names, the skills are those of the run
	}
	k, err := ready(b.kits, strings.Join(names, "\x00"), func() (*chosenSkills, error) {
		k, err := b.chooseSkills(names)
		if err == nil {
			k.Tell(b.env.Once(b.tell))
		}
		return k, err
	})
	if err == nil {
		k.record(start)
	}
	return err
}

// token returns an access token with the scope with which it was issued, or nil if the ID is unknown. Its expiry and
// the calls that it has left do not matter here.
func (b *backtest) token(ctx context.Context, id string) (gate.Token, error) {
	if id == "" {
		return nil, nil
	}
	issued, err := b.env.Store.Access().Token(ctx, id)
	if errors.Is(err, toolcrib.ErrNotFound) {
		return nil, nil
	}
	return standing.Recorded(issued), err
}

// Standing implements [gate.People]. Principals are those in the journals of their runs.
func (b *backtest) Standing(ctx context.Context, who toolcrib.Principal) (s gate.Standing, err error) {
	s.Principal = who
	s.Token, err = b.token(ctx, who.Token)
	return s, err
}

// switchesThen has the overrides of tools as they were at a time in the past. It must be used by one goroutine.
type switchesThen struct {
	changes []switched // oldest first
	upto    int        // number of changes that are in over
	over    gate.Overrides
}

// switched is a change of an override.
type switched struct {
	store.Override
	at    time.Time
	reset bool
}

// switchesThen reads the changes of overrides from the system journal.
func (p *Policy) switchesThen(ctx context.Context) (*switchesThen, error) {
	then := &switchesThen{upto: -1}
	f := store.AuditFilter{Kinds: []toolcrib.Kind{store.SystemOverrideSet, store.SystemOverrideReset}, OldestFirst: true}
	for e, err := range p.people.EachAudit(ctx, f) {
		if err != nil {
			return nil, err
		}
		c := switched{at: e.Time, reset: e.Kind == store.SystemOverrideReset}
		if err := json.Unmarshal(e.Payload, &c.Override); err != nil {
			return nil, fmt.Errorf("event %d of the system journal cannot be read: %w", e.Seq, err)
		}
		then.changes = append(then.changes, c)
	}
	then.at(time.Time{})
	return then, nil
}

// at sets the overrides to those at a time.
func (t *switchesThen) at(when time.Time) {
	n := sort.Search(len(t.changes), func(i int) bool { return t.changes[i].at.After(when) })
	if n == t.upto {
		return
	}
	t.upto, t.over = n, gate.Overrides{}
	for _, c := range t.changes[:n] {
		if of := set(&t.over, c.Kind, c.Name, c.Enabled); c.reset {
			delete(of, c.Name)
		}
	}
}

// Overrides implements [gate.Availability].
func (t *switchesThen) Overrides(context.Context) (gate.Overrides, error) { return t.over, nil }
