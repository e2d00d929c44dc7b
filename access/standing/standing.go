// Package standing answers the gate's questions about the current rights of a principal:
// [People] looks up the user in the directory, and the access token among the issued ones.
//
// It caches what it reads as long as the version of the directory is the same, and reads the
// version, which is one number, for each question. So a changed grant, a disabled user and a
// revoked token take effect with the next question, whichever process changed them. Users
// outside the directory (local:OSUSER, anonymous) need no lookup unless they act by a
// token.
package standing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/gate"
)

// Users outside the directory; no user can be given such a name (access.CheckName).
const (
	Anonymous   = "anonymous" // a user who is not authenticated
	localPrefix = "local:"    // prefix of a user of the operating system
	NodePrefix  = "node:"     // prefix of another node of the bus, and of its users
)

// Node reports whether a name is that of another node of the bus, or of one of its users.
func Node(name string) bool { return strings.HasPrefix(name, NodePrefix) }

// Local reports whether a name is that of a user of the operating system.
func Local(name string) bool { return strings.HasPrefix(name, localPrefix) }

// Source is the directory that [People] reads.
type Source interface {
	access.Users
	access.Groups
	access.Tokens
	access.Quota
	// Version returns a number that rises with every change of users, groups and
	// tokens by any process. It may be the number of at most age ago, but never of a time
	// before a change through this source itself.
	Version(ctx context.Context, age time.Duration) (uint64, error)
}

// Fresh is an age of the version that delays a change by another process by less than a
// second.
const Fresh = 500 * time.Millisecond

// Options are the options of [New].
type Options struct {
	Source Source
	// Now returns the time; that of an [access.Clock] never goes back.
	Now func() time.Time
	// Capability returns the capability that a tool is bound to, as NAME@MAJOR.MINOR, or
	// "". If nil, no tool is bound to one.
	Capability func(tool string) string
	// Age is how long the cache is used before the version of the source is read again.
	// A change through the source itself takes effect at once regardless. If 0, the version
	// is read for each question.
	Age time.Duration
	// Node returns the current trust of a principal whose name has [NodePrefix], at most that which it has, or why it may
	// do nothing. If nil, nodes may do nothing.
	Node func(ctx context.Context, who toolcrib.Principal) (trust toolcrib.Trust, refused string, err error)
}

// People is a [gate.People] over a directory and its tokens. It is safe for concurrent
// use.
type People struct {
	source     Source
	now        func() time.Time
	capability func(tool string) string
	age        time.Duration
	node       func(ctx context.Context, who toolcrib.Principal) (toolcrib.Trust, string, error)

	mu              sync.Mutex
	known           *known
	renewed, looked int // number of calls of Renew, and that number at the last read of the version
}

var _ gate.People = (*People)(nil)

// New returns a People. It fails without a source or a time.
func New(o Options) (*People, error) {
	if o.Source == nil || o.Now == nil {
		return nil, errors.New("standing: Source and Now are needed")
	}
	if o.Capability == nil {
		o.Capability = func(string) string { return "" }
	}
	if o.Node == nil {
		o.Node = func(context.Context, toolcrib.Principal) (toolcrib.Trust, string, error) {
			return "", "there are no other nodes here", nil
		}
	}
	return &People{source: o.Source, now: o.Now, capability: o.Capability, age: o.Age, node: o.Node}, nil
}

// Standing implements [gate.People]. The principal of a user of the operating system and of
// anonymous is used as it is (but anonymous is never an administrator); a user of the
// directory has the current rights; the principal of a node has its current trust, as long as
// the node may do something; the principal of an unknown name is used as it is, but is not an
// administrator. A disabled or removed user, a name that looks like that of a user, and a token
// that is not valid for the principal now, may do nothing. A token used to sign in is valid until
// it is revoked, even after it has expired.
func (p *People) Standing(ctx context.Context, who toolcrib.Principal) (gate.Standing, error) {
	if who.TokenID() == "" && (Local(who.User) || who.User == Anonymous) {
		return gate.Standing{Principal: outside(who)}, nil
	}
	k, err := p.current(ctx)
	if err != nil {
		return gate.Standing{}, err
	}
	s, err := p.person(ctx, k, who)
	if err != nil || s.Refused != "" || who.TokenID() == "" {
		return s, err
	}
	one, err := k.token(ctx, p.source, who.TokenID())
	if err != nil {
		return gate.Standing{}, err
	}
	if who.Token == "" {
		if one.revoked != "" {
			s = refused(who, string(toolcrib.CodeTokenRevoked)+": "+one.revoked)
		}
		return s, nil
	}
	if refusal := one.good(who.User, p.now()); refusal != nil {
		return refused(who, withCode(refusal).Error()), nil
	}
	if one.issued.Claims.Audience == access.BusAudience {
		s.Token = admitted{}
		return s, nil
	}
	s.Token = &token{people: p, issued: &one.issued}
	return s, nil
}

// WhyRevoked is [access.WhyRevoked] for an issued token, from the cache.
func (p *People) WhyRevoked(ctx context.Context, c access.Claims) (string, error) {
	k, err := p.current(ctx)
	if err != nil {
		return "", err
	}
	one, err := k.token(ctx, p.source, c.ID)
	if err != nil {
		return "", err
	}
	return one.revoked, nil
}

// outside returns the principal of a user outside the directory.
func outside(who toolcrib.Principal) toolcrib.Principal {
	who.Admin = who.Admin && Local(who.User)
	return who
}

func refused(who toolcrib.Principal, why string) gate.Standing {
	return gate.Standing{
		Principal: toolcrib.Principal{
			User: who.User, Actor: who.Actor, Token: who.Token, SignIn: who.SignIn, Grants: []string{},
		},
		Refused: why,
	}
}

// person returns the rights of the principal without a token.
func (p *People) person(ctx context.Context, k *known, who toolcrib.Principal) (gate.Standing, error) {
	if who.User == "" || who.User == Anonymous || Local(who.User) {
		return gate.Standing{Principal: outside(who)}, nil
	}
	if Node(who.User) {
		trust, why, err := p.node(ctx, who)
		if err != nil || why != "" {
			return refused(who, why), err
		}
		who = outside(who)
		who.Trust = trust
		who.Grants = append([]string{}, who.Grants...) // never nil, which restricts nothing
		return gate.Standing{Principal: who}, nil
	}
	u, err := k.user(ctx, p.source, who.User)
	switch {
	case errors.Is(err, toolcrib.ErrNotFound):
		return gate.Standing{Principal: outside(who)}, nil
	case err != nil:
		return gate.Standing{}, err
	case u.Name != who.User:
		why := fmt.Sprintf("there is no user %+q, and the name can be mistaken for that of %s", who.User, u.Name)
		return refused(who, why), nil
	}
	if why := Inactive(u); why != "" {
		return refused(who, why), nil
	}
	groups, err := k.groupsOf(ctx, p.source, u)
	if err != nil {
		return gate.Standing{}, err
	}
	current := access.Principal(u, groups)
	current.Actor, current.Token, current.SignIn = who.Actor, who.Token, who.SignIn
	return gate.Standing{Principal: current}, nil
}

// Inactive returns why a user of the directory may do nothing, or "" if the user is active.
func Inactive(u access.User) string {
	switch {
	case u.Removed:
		return fmt.Sprintf("the user %s was removed", u.Name)
	case u.Disabled:
		return fmt.Sprintf("the user %[1]s is disabled; "+
			"an administrator can change that: toolcrib users enable %[1]s", u.Name)
	case !u.Active():
		return "the user has no name"
	}
	return ""
}

// token is the scope of an access token, as [gate.Token]. Its errors are for
// operators, and begin with their code.
type token struct {
	people *People
	issued *access.Issued
}

var _ gate.Token = (*token)(nil)

// withCode puts the code of an error at the beginning of its text.
func withCode(err error) error {
	var known *toolcrib.Error
	if errors.As(err, &known) {
		return fmt.Errorf("%s: %w", known.Code, err)
	}
	return err
}

// Agent implements [gate.Token].
func (t *token) Agent(name string) error { return withCode(t.issued.Claims.Scope.Runs(name)) }

// Offers implements [gate.Token].
func (t *token) Offers(agent, tool string) error {
	return withCode(t.issued.Claims.Scope.Offers(t.target(agent, tool)))
}

// Covers implements [gate.Token].
func (t *token) Covers(agent, tool string, arguments json.RawMessage) error {
	return withCode(t.issued.Claims.Scope.Covers(t.target(agent, tool), arguments))
}

func (t *token) target(agent, tool string) access.Target {
	return access.Target{Agent: agent, Tool: tool, Capability: t.people.capability(tool)}
}

// Room implements [gate.Token].
func (t *token) Room(ctx context.Context) error {
	limits := t.issued.Claims.Limits()
	if limits.Total == 0 && limits.PerMinute == 0 {
		return nil
	}
	left, err := t.people.source.Left(ctx, t.issued.Claims.ID, limits, t.people.now())
	if err == nil {
		err = left.Refusal()
	}
	return withCode(err)
}

// Take implements [gate.Token]. It fails if the token has expired since it was
// checked.
func (t *token) Take(ctx context.Context) error {
	now := t.people.now()
	if err := t.issued.Claims.InTime(now); err != nil {
		return withCode(err)
	}
	return withCode(t.people.source.Take(ctx, t.issued.Claims.ID, t.issued.Claims.Limits(), now))
}

// admitted is a token for the bus, as [gate.Token], of a call that was admitted: its scope named the capability, and
// the call was counted. What serves the capability is restricted by the grants of the principal.
type admitted struct{}

func (admitted) Agent(string) error                           { return nil }
func (admitted) Offers(string, string) error                  { return nil }
func (admitted) Covers(string, string, json.RawMessage) error { return nil }
func (admitted) Room(context.Context) error                   { return nil }
func (admitted) Take(context.Context) error                   { return nil }

// Recorded returns the scope of a token that was issued, whether or not it is still valid.
// Its calls are not counted.
func Recorded(issued access.Issued) gate.Token {
	if issued.Claims.Audience == access.BusAudience {
		return admitted{}
	}
	return recorded{&token{people: &People{capability: func(string) string { return "" }}, issued: &issued}}
}

type recorded struct{ *token }

// Room implements [gate.Token].
func (recorded) Room(context.Context) error { return nil }

// Take implements [gate.Token].
func (recorded) Take(context.Context) error {
	return errors.New("no calls are made by a recorded token")
}
