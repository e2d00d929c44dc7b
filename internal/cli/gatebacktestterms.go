package cli

import (
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
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// maxBacktestKept bounds the gates, skills and tokens that a backtest holds ready.
const maxBacktestKept = 64

// backtesting is what stored runs are judged under: the configuration, and everything
// else as it was.
type backtesting struct {
	svc      *service.Service
	a        *app
	c        *config.Config
	s        *sqlite.Store
	switches *switchesThen
	people   *recordedPeople
	gates    map[string]*gate.Gate // by workspace
	skills   map[string]skillsNow  // by names
	tell     func(string)
	failed   error // what ended the walk and is not about one run
}

// skillsNow is what the skills of a run come to now.
type skillsNow struct {
	tools []string
	any   bool
}

func (a *app) newBacktesting(ctx context.Context) (*backtesting, error) {
	c, err := a.configuration()
	if err != nil {
		return nil, err
	}
	if _, err := a.about(c).CheckRules(); err != nil {
		return nil, err
	}
	var refused []string
	for _, u := range c.Unsupported() {
		if u.Safety {
			refused = append(refused, u.Error())
		}
	}
	if len(refused) > 0 { // as config check
		return nil, usagef("%s", strings.Join(refused, "\n"))
	}
	s, err := a.storeOfRuns(ctx, c)
	if err != nil {
		return nil, err
	}
	then, err := switchesOf(ctx, s)
	if err != nil {
		return nil, err
	}
	kept, err := a.svc()
	if err != nil {
		return nil, err
	}
	return &backtesting{
		a: a, svc: kept, c: c, s: s, switches: then, people: &recordedPeople{tokens: s.Access(), known: map[string]*access.Scope{}},
		gates: map[string]*gate.Gate{}, skills: map[string]skillsNow{},
		tell: kept.Once(a.note),
	}, nil
}

// storeOfRuns opens the store that has the runs. A configuration that is named to be
// tried moves it only if it says where the data lies; else that is where the
// configuration in use has it.
func (a *app) storeOfRuns(ctx context.Context, c *config.Config) (*sqlite.Store, error) {
	if a.configFlag == "" || a.dataFlag != "" || c.IsSet("data_dir") {
		return a.databaseToRead(ctx)
	}
	now, err := config.Load(config.Find("", os.Getenv), a.trustedAlready)
	if err != nil {
		return a.databaseToRead(ctx) // it is not in use
	}
	a.config = now
	defer func() { a.config = c }()
	dir, err := a.dataDir()
	if err != nil {
		return nil, err
	}
	s, err := a.databaseToRead(ctx)
	a.dataFlag = dir
	return s, err
}

// trustedAlready lets a configuration pass if its user trusts it; it asks nothing.
func (a *app) trustedAlready(path string, content []byte) error {
	store, err := a.trustStore()
	if err != nil {
		return err
	}
	return store.Require(path, content)
}

// terms are what a run is judged under.
func (b *backtesting) terms(ctx context.Context, start *journal.RunStarted, scope gate.Scope) (agent.Terms, error) {
	t := agent.Terms{Scope: scope, FourEyes: b.c.Approvals.FourEyes}
	if known, err := b.people.knows(ctx, start.Principal.Token); err != nil {
		return t, b.fails(err)
	} else if !known {
		t.Unjudged = agent.UnjudgedToken
		return t, nil
	}
	if info, err := os.Stat(start.Workspace); err != nil || !info.IsDir() {
		t.Uncertain = agent.UnjudgedWorkspace
	}
	var err error
	if t.Gate, err = b.gateOf(ctx, start.Workspace); err != nil {
		return t, b.fails(err)
	}
	if t.Gate == nil {
		t.Unjudged = agent.UnjudgedWorkspace
		return t, nil
	}
	return t, b.fails(b.asAgent(start, &t.Scope))
}

func (b *backtesting) fails(err error) error {
	if err != nil {
		b.failed = err
	}
	return err
}

// gateOf makes the gate for a workspace; nil = no run could have it any more.
func (b *backtesting) gateOf(ctx context.Context, workspace string) (*gate.Gate, error) {
	if g, ok := b.gates[workspace]; ok {
		return g, nil
	}
	var g *gate.Gate
	_, err := b.svc.Protection(workspace)
	switch {
	case err == nil:
		g, err = b.svc.GateWith(workspace, b.switches, b.people)
	case wrongUsage(err):
		err = nil
	}
	if err != nil {
		return nil, err
	}
	if len(b.gates) >= maxBacktestKept {
		clear(b.gates)
	}
	b.gates[workspace] = g
	return g, nil
}

// asAgent makes the scope that of the agent as the configuration has it, with what the
// run itself was told.
func (b *backtesting) asAgent(start *journal.RunStarted, scope *gate.Scope) error {
	name := start.Agent.Name
	if _, ok := b.c.Agents[name]; !ok {
		b.tell(fmt.Sprintf("the configuration has no agent %s; its runs are judged under the agent as it was", name))
		return nil
	}
	def, err := b.c.Agent(name, b.a.resolver())
	if err != nil {
		return err
	}
	limits := def.Limits.WithDefaults()
	scope.AgentTools, scope.TaintWrites, scope.ReadOnly = def.Tools, def.TaintWrites, def.ReadOnly || start.Agent.ToldReadOnly
	scope.MaxDepth, scope.MaxCalls, scope.MaxRepeats = limits.MaxDepth, limits.MaxCallsPerTurn, limits.MaxIdenticalCalls
	scope.Timeout, scope.TimeoutSet, scope.MaxBytes = limits.ToolTimeout, limits.ToolTimeoutSet, limits.MaxResultBytes
	names, err := service.WithSkills(def.Skills, start.Agent.ToldSkills)
	if err != nil || slices.Equal(names, start.Agent.Skills) {
		return err // the same skills count with what they held then
	}
	now, err := b.skillsOf(names)
	scope.SkillTools, scope.HasSkills = now.tools, now.any
	return err
}

// skillsOf is what skills come to, with what they hold now.
func (b *backtesting) skillsOf(names []string) (skillsNow, error) {
	key := strings.Join(names, "\x00")
	if now, ok := b.skills[key]; ok {
		return now, nil
	}
	k, err := b.svc.Kit(toolcrib.Principal{}, names, nil, false, b.tell)
	if err != nil {
		return skillsNow{}, err
	}
	if len(b.skills) >= maxBacktestKept {
		clear(b.skills)
	}
	now := skillsNow{tools: k.Tools, any: len(k.Set.Skills()) > 0}
	b.skills[key] = now
	return now, nil
}

// recordedPeople are people as the journals of their runs have them, with the scopes
// that their access tokens were issued with: whether a token is good today, and how
// many calls it has left, is no matter.
type recordedPeople struct {
	tokens access.Tokens
	known  map[string]*access.Scope // by ID; nil = there is no such token
}

// knows reports whether a token is known; "" = none is.
func (p *recordedPeople) knows(ctx context.Context, id string) (bool, error) {
	if id == "" {
		return true, nil
	}
	if scope, ok := p.known[id]; ok {
		return scope != nil, nil
	}
	var scope *access.Scope
	issued, err := p.tokens.Token(ctx, id)
	switch {
	case err == nil:
		scope = &issued.Claims.Scope
	case !errors.Is(err, toolcrib.ErrNotFound):
		return false, err
	}
	if len(p.known) >= maxBacktestKept {
		clear(p.known)
	}
	p.known[id] = scope
	return scope != nil, nil
}

// Standing implements [gate.People].
func (p *recordedPeople) Standing(ctx context.Context, who toolcrib.Principal) (gate.Standing, error) {
	s := gate.Standing{Principal: who}
	known, err := p.knows(ctx, who.Token)
	if err == nil && known && who.Token != "" {
		s.Token = recordedToken{scope: p.known[who.Token]}
	}
	return s, err
}

// recordedToken is the scope of an access token. Nothing is counted.
type recordedToken struct {
	scope *access.Scope
}

// Agent implements [gate.Token].
func (t recordedToken) Agent(name string) error { return t.scope.Runs(name) }

// Offers implements [gate.Token].
func (t recordedToken) Offers(agent, tool string) error {
	return t.scope.Offers(access.Target{Agent: agent, Tool: tool})
}

// Covers implements [gate.Token].
func (t recordedToken) Covers(agent, tool string, arguments json.RawMessage) error {
	return t.scope.Covers(access.Target{Agent: agent, Tool: tool}, arguments)
}

// Room implements [gate.Token].
func (t recordedToken) Room(context.Context) error { return nil }

// Take implements [gate.Token].
func (t recordedToken) Take(context.Context) error { return errors.New("a backtest makes no calls") }

// switchesThen is what was switched on and off at a time of the past. It is used by
// one goroutine.
type switchesThen struct {
	changes []switched // the oldest first
	upto    int        // how many of them over has
	over    gate.Overrides
}

// switched is one change of the switches.
type switched struct {
	at    time.Time
	o     store.Override
	reset bool
}

// switchesOf reads them from the system journal.
func switchesOf(ctx context.Context, s *sqlite.Store) (*switchesThen, error) {
	then := &switchesThen{upto: -1}
	f := store.AuditFilter{Kinds: []toolcrib.Kind{store.SystemOverrideSet, store.SystemOverrideReset}, OldestFirst: true, Limit: store.MaxLimit}
	for {
		page, err := s.Audit(ctx, f)
		if err != nil {
			return nil, err
		}
		for _, e := range page.Entries {
			c := switched{at: e.Time, reset: e.Kind == store.SystemOverrideReset}
			if err := json.Unmarshal(e.Payload, &c.o); err != nil {
				return nil, fmt.Errorf("event %d of the system journal cannot be read: %w", e.Seq, err)
			}
			then.changes = append(then.changes, c)
		}
		if page.Next == "" {
			then.at(time.Time{})
			return then, nil
		}
		f.Cursor = page.Next
	}
}

// at makes it what it was at a time.
func (t *switchesThen) at(when time.Time) {
	n := sort.Search(len(t.changes), func(i int) bool { return t.changes[i].at.After(when) })
	if n == t.upto {
		return
	}
	over := gate.Overrides{Tools: map[string]bool{}, Groups: map[string]bool{}}
	for _, c := range t.changes[:n] {
		of := over.Tools
		if c.o.Kind == store.OverrideGroup {
			of = over.Groups
		}
		if of[c.o.Name] = c.o.Enabled; c.reset {
			delete(of, c.o.Name)
		}
	}
	t.upto, t.over = n, over
}

// Overrides implements [gate.Availability].
func (t *switchesThen) Overrides(context.Context) (gate.Overrides, error) { return t.over, nil }
