package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// People knows the current rights of principals. A changed grant or a revoked token is effective
// from the next call on. Standing is called once for each offer, each turn and each request, so it
// must be fast. An error refuses everything.
type People interface {
	Standing(ctx context.Context, who toolcrib.Principal) (Standing, error)
}

// Standing is the current rights of a principal. The zero value may do nothing.
type Standing struct {
	// Principal has the current rights. If its user is not the one that was asked about, it may do
	// nothing.
	Principal toolcrib.Principal
	// Token is the scope of the access token by which the principal acts, within the principal's
	// own rights. If nil, the principal acts by none, provided that its toolcrib.Principal.Token is
	// empty.
	Token Token
	// Refused says why the principal may do nothing at all, such as a disabled user or a revoked
	// token. It is "" if the principal may do something.
	Refused string
}

// Token is the scope of an access token. It is asked about names, then about arguments, then
// for a place among its calls. The errors give the reason, for operators.
type Token interface {
	// Agent reports whether runs of this agent are covered.
	Agent(name string) error
	// Offers reports whether a tool is covered with some arguments.
	Offers(agent, tool string) error
	// Covers reports whether a call with these arguments is covered.
	Covers(agent, tool string, arguments json.RawMessage) error
	// Room returns an error if no further call may be made. It does not count a call.
	Room(ctx context.Context) error
	// Take counts one call, or returns an error if the call must not be made.
	Take(ctx context.Context) error
}

// errNoPeople refuses a principal with a token if there is no [People] to look it up.
var errNoPeople = errors.New("gate: the principal uses an access token, but tokens cannot be looked up")

// standing returns the current rights of the principal. A panic and a context that has ended are
// errors as well.
func (g *Gate) standing(ctx context.Context, who toolcrib.Principal) (s Standing, err error) {
	if g.options.People == nil {
		if who.Token != "" {
			return Standing{}, errNoPeople
		}
		return Standing{Principal: who}, nil
	}
	if err := ctx.Err(); err != nil {
		return Standing{}, err
	}
	s, err = contained(g, func() (Standing, error) { return g.options.People.Standing(ctx, who) })
	switch {
	case err != nil:
		return Standing{}, fmt.Errorf("the rights of %s cannot be read: %w", shown(who.User), err)
	case s.Refused != "":
	case s.Principal.User != who.User || s.Principal.Token != who.Token:
		s.Refused = "the answer about the user was about another one"
	case who.Token != "" && s.Token == nil:
		s.Refused = "the access token is not known"
	}
	if s.Refused != "" {
		s.Principal = toolcrib.Principal{
			User: who.User, Actor: who.Actor, Token: who.Token, SignIn: who.SignIn, Grants: []string{},
		}
	}
	return s, nil
}

// agentGrant is the prefix of grants that name agents.
const agentGrant = "agent:"

// MayRun reports whether a principal may currently have a run of this agent at all. refused says
// why not, or is "" if it may. An error means that the rights could not be determined. If grants
// name agents (agent:NAME, or a glob that is not only wildcards), only those may be used; if none
// does, all agents may.
func (g *Gate) MayRun(ctx context.Context, who toolcrib.Principal, agent string) (refused string, err error) {
	s, err := g.standing(ctx, who)
	switch {
	case err != nil:
		return "", err
	case s.Refused != "":
		return s.Refused, nil
	}
	return notUsed(&s.Principal, s.Token, agent), nil
}

// notUsed says why the principal may not use an agent, by its own rights or by its token. It
// returns "" if it may.
func notUsed(who *toolcrib.Principal, token Token, agent string) string {
	if token != nil {
		if err := contain(func() error { return token.Agent(agent) }); err != nil {
			return err.Error()
		}
	}
	if !mayUse(who, agent, nil) {
		return notThisAgent(who.User, agent)
	}
	return ""
}

func notThisAgent(user, agent string) string {
	return fmt.Sprintf("no grant of %s names the agent %s", shown(user), shown(agent))
}

// Today returns the current rights of a principal, for decisions that are not about a tool. An
// error says that they could not be determined, or why the principal may do nothing at all.
func (g *Gate) Today(ctx context.Context, who toolcrib.Principal) (toolcrib.Principal, error) {
	s, err := g.standing(ctx, who)
	if err == nil && s.Refused != "" {
		err = toolcrib.Errorf(toolcrib.CodeForbidden, "%s", s.Refused)
	}
	return s.Principal, err
}

// Withdrawn reports whether a call that was allowed may no longer run, because a layer now refuses
// its tool: it was switched off, or a grant or a token is gone. A turn can take long, and calls
// that have not started need not start. The verdict is then the refusal.
func (g *Gate) Withdrawn(ctx context.Context, who toolcrib.Principal, scope Scope, call *toolcrib.ToolCall) (
	v Verdict, withdrawn bool,
) {
	p, _ := g.policyOf(ctx, &who, &scope) // an error is in the answers
	j := judgement{policy: p, ctx: ctx, asked: call, entry: p.tools.byName[call.Name], verdict: &v}
	v.CallID, v.Tool = call.ID, call.Name
	if j.entry != nil {
		v.Effect = j.entry.spec.Effect.OrStrictest()
	}
	r := j.ask([]step{{toolcrib.ReasonNotPermitted, (*judgement).layersStep}})
	if r == nil {
		return Verdict{}, false
	}
	v.refused(r)
	return v, true
}

// MayUse returns a forbidden error if a principal may not use a tool of this spec in any run,
// because it is switched off or not granted to them. The gate need not have the tool: the spec may
// represent something that is not a tool, but is switched and granted like one.
func (g *Gate) MayUse(ctx context.Context, who toolcrib.Principal, spec toolcrib.Spec) error {
	over, err := g.overrides(ctx)
	if err != nil {
		return err
	}
	s, err := g.standing(ctx, who)
	if err != nil {
		return err
	}
	q := &Query{
		Name: spec.Name, Spec: &spec, Who: &s.Principal, Token: s.Token, Refused: s.Refused,
		Scope: &Scope{}, Overrides: &over,
	}
	for _, judge := range []func(*Query) Answer{enabled, forAdmin, permitted} {
		if a := judge(q); !a.Allowed {
			return toolcrib.Errorf(toolcrib.CodeForbidden, "%s is not available: %s", shown(spec.Name), a.Detail)
		}
	}
	return nil
}

func mayUse(who *toolcrib.Principal, agent string, ready *readyLists) bool {
	if who.Admin && who.User != "" {
		return true
	}
	grants, named := who.Grants, false
	if l := ready.of(grantList, grants); l != nil {
		grants = l.agents
	}
	for _, grant := range grants {
		pattern, ok := strings.CutPrefix(grant, agentGrant)
		if !ok {
			continue
		}
		named = true
		if !wildOnly(pattern) && matchAgent(pattern, agent) {
			return true
		}
	}
	return !named
}

// ApproverError means that a user may not approve a call.
type ApproverError struct {
	User, Tool string
	Reason     toolcrib.Reason
	Detail     string
}

func (e *ApproverError) Error() string {
	return fmt.Sprintf("%s may not approve calls of %s (%s: %s)", shown(e.User), shown(e.Tool), e.Reason, e.Detail)
}

// Unwrap returns a [toolcrib.Error] with [toolcrib.CodeForbidden].
func (e *ApproverError) Unwrap() error {
	return toolcrib.Errorf(toolcrib.CodeForbidden, "%s", e.Error())
}

// MayApprove returns an error if approver may not approve calls of these tools in a run of this
// scope. An approver passes the same layers as a caller, so that users cannot approve what they may
// not do themselves. The error is an [*ApproverError], or says that the rights could not be
// determined.
func (g *Gate) MayApprove(ctx context.Context, approver toolcrib.Principal, scope Scope, tools ...string) error {
	if g == nil {
		g = &Gate{}
	}
	p, err := g.policyOf(ctx, &approver, &scope)
	if err != nil {
		return err
	}
	for _, name := range tools {
		if a, no := g.firstRefusal(p.query(name, p.tools.byName[name])); no {
			return &ApproverError{User: approver.User, Tool: name, Reason: a.Layer, Detail: a.Detail}
		}
	}
	return nil
}

// policyOf sets p, which must be empty, to the current policy for this principal and scope. If it
// returns an error, the policy refuses everything and says why.
func (g *Gate) policyOf(ctx context.Context, who *toolcrib.Principal, scope *Scope) (*policy, error) {
	p := &policy{gate: g}
	tools := g.toolsOf(scope)
	over, err := g.overrides(ctx)
	if err != nil {
		err = fmt.Errorf("the list of disabled tools cannot be read: %w", err)
		return p.of(tools, &Standing{Principal: *who}, scope, over, err), err
	}
	s, err := g.standing(ctx, *who)
	if err != nil {
		s = Standing{Principal: toolcrib.Principal{User: who.User, Grants: []string{}}, Refused: err.Error()}
	}
	p.of(tools, &s, scope, over, nil).ownReady.cache = &g.lists
	if s.Refused == "" && !mayUse(p.who, scope.Agent, &p.ownReady) {
		p.asked.Refused = notThisAgent(who.User, scope.Agent)
	}
	return p, err
}

// tokenStep checks the arguments against the scope of the token by which the principal acts, and
// the agents that the call lets work against those that the principal may use. The layer before it
// has checked the tool.
func (j *judgement) tokenStep() *refusal {
	if j.policy.asked.Token != nil {
		if err := j.policy.asked.Token.Covers(j.scope.Agent, policyName(&j.entry.spec), j.call.Arguments); err != nil {
			return refuse("%s is not available to this user with these arguments. Continue without it, or with others.",
				j.name()).because("", err.Error())
		}
	}
	for _, t := range j.targets {
		if t.Kind != toolcrib.TargetAgent {
			continue
		}
		if refused := notUsed(j.who, j.policy.asked.Token, t.Name); refused != "" {
			return refuse("the agent %s is not available to this user. Continue without it, or with another agent.",
				shown(t.Name)).because("", refused)
		}
	}
	return nil
}

// budgetStep refuses a call for which the token has no place left, and a call that another agent
// answers for which the run's budget has no share left. It takes no place, because a person may
// still have to be asked about the call.
func (j *judgement) budgetStep() *refusal {
	if j.policy.asked.Token != nil && !j.facts.Counted[j.asked.ID] && !j.facts.Past {
		if err := j.policy.asked.Token.Room(j.ctx); err != nil {
			return j.noPlace(err)
		}
	}
	return j.shareStep()
}

// count takes a place among the calls of the token for a call that is allowed. A call that is
// judged again is not counted again.
func (j *judgement) count() *refusal {
	if j.policy.asked.Token == nil || j.facts.DryRun || j.facts.Past {
		return nil
	}
	if !j.facts.Counted[j.asked.ID] {
		err := contain(func() error { return j.policy.asked.Token.Take(j.ctx) })
		if err != nil {
			return j.noPlace(err)
		}
	}
	j.verdict.Counted = true
	return nil
}

func (j *judgement) noPlace(err error) *refusal {
	return refuse("%s was not run: the calls that this access token is good for are used up for now. "+
		"Answer with what you have.", j.name()).because(toolcrib.ReasonBudgetExhausted, err.Error())
}

// Availability knows which tools administrators have switched on and off. It is asked
// once for each offer and each turn, so it must be fast. An error refuses everything.
type Availability interface {
	Overrides(ctx context.Context) (Overrides, error)
}

// Overrides has the decisions of administrators; a tool that is not in it is as its spec says. A
// group that is off takes all its tools away, whatever the entries of the tools are; a group that
// is on changes nothing. The maps must not be modified after they were handed out. The zero value
// overrides nothing.
type Overrides struct {
	Tools  map[string]bool `json:"tools"`
	Groups map[string]bool `json:"groups"`
	// Off switches off all tools, whatever the maps say.
	Off bool `json:"off,omitempty"`
}

// Overrides makes o an [Availability] that never changes.
func (o Overrides) Overrides(context.Context) (Overrides, error) { return o, nil }

var errNoAvailability = errors.New("gate: no availability: nothing is available")

// overrides asks the availability. A panic and a context that has ended are errors as well.
func (g *Gate) overrides(ctx context.Context) (over Overrides, err error) {
	if g.options.Availability == nil {
		return over, errNoAvailability
	}
	if err := ctx.Err(); err != nil {
		return over, err
	}
	if over, err = contained(g, func() (Overrides, error) { return g.options.Availability.Overrides(ctx) }); err != nil {
		return Overrides{}, err
	}
	return over, nil
}
