// Package standing answers the gate what a principal may do today: [People] looks up the
// user in the directory, and the access token among those that were issued (contract
// §6, N18, H19, H21, M16).
//
// What it has read it keeps for as long as the version of the directory is the same,
// and it reads the version, which is one number, each time it is asked. So a changed
// grant, a disabled user and a revoked token count from the next question on, whichever
// process changed them. Those who are in no directory (local:OSUSER, anonymous) need
// no look at all, unless they act by a token.
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

// Who is in no directory: no user can be given such a name (access.CheckName).
const (
	Anonymous   = "anonymous" // somebody who has not said who they are
	localPrefix = "local:"    // a user of the operating system
)

// Local reports whether a name is that of a user of the operating system.
func Local(name string) bool { return strings.HasPrefix(name, localPrefix) }

// Source is what [People] reads.
type Source interface {
	access.Users
	access.Groups
	access.Tokens
	access.Quota
	// Version returns a number that rises with every change of users, groups and
	// tokens, whoever makes it, as it was at most age ago, and never as it was before a
	// change through this source itself.
	Version(ctx context.Context, age time.Duration) (uint64, error)
}

// Fresh is an age at which what is known of the directory may still count: contract §6
// gives a change by another process a second.
const Fresh = 500 * time.Millisecond

// Options are what a [People] is made from.
type Options struct {
	Source Source
	// Now is the time; one that never goes back is that of an [access.Clock].
	Now func() time.Time
	// Capability returns the capability that a tool is bound to, as NAME@MAJOR.MINOR, or
	// "". If nil, tools are bound to none.
	Capability func(tool string) string
	// Age is how long what is known may count without another look at the version of
	// the source. A change through the source itself counts at once whatever it is. If 0,
	// each question looks.
	Age time.Duration
}

// People is a [gate.People] over a directory and its tokens. It is safe for concurrent
// use.
type People struct {
	source     Source
	now        func() time.Time
	capability func(tool string) string
	age        time.Duration

	mu              sync.Mutex
	known           *known
	renewed, looked int // how often it was renewed, and how often before the last look
}

var _ gate.People = (*People)(nil)

// New makes a People. It fails without a source or a time.
func New(o Options) (*People, error) {
	if o.Source == nil || o.Now == nil {
		return nil, errors.New("standing: Source and Now are needed")
	}
	if o.Capability == nil {
		o.Capability = func(string) string { return "" }
	}
	return &People{source: o.Source, now: o.Now, capability: o.Capability, age: o.Age}, nil
}

// Standing implements [gate.People]. A user of the operating system and anonymous are
// as they say (the latter never an administrator); a user of the directory has the
// rights of today; a name that nobody has keeps what was said of it, and is no
// administrator. A user who was disabled or removed, a name that looks like that of a
// user, and a token that is not good for the principal now, may do nothing. A token by which the user
// has signed in counts until it is revoked: what it began may outlast its time.
func (p *People) Standing(ctx context.Context, who toolcrib.Principal) (gate.Standing, error) {
	if who.TokenID() == "" && (Local(who.User) || who.User == Anonymous) {
		return gate.Standing{Principal: outside(who)}, nil
	}
	k, err := p.today(ctx)
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
	s.Token = &token{people: p, issued: &one.issued}
	return s, nil
}

// WhyRevoked is [access.WhyRevoked] of a token that was issued, by what is known of the directory.
func (p *People) WhyRevoked(ctx context.Context, c access.Claims) (string, error) {
	k, err := p.today(ctx)
	if err != nil {
		return "", err
	}
	one, err := k.token(ctx, p.source, c.ID)
	if err != nil {
		return "", err
	}
	return one.revoked, nil
}

// outside is somebody who is in no directory.
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

// person is what the principal may do without a token.
func (p *People) person(ctx context.Context, k *known, who toolcrib.Principal) (gate.Standing, error) {
	if who.User == "" || who.User == Anonymous || Local(who.User) {
		return gate.Standing{Principal: outside(who)}, nil
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
	today := access.Principal(u, groups)
	today.Actor, today.Token, today.SignIn = who.Actor, who.Token, who.SignIn
	return gate.Standing{Principal: today}, nil
}

// Inactive says why a user of the directory may do nothing; "" if they may.
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

// token is the scope of an access token, as the gate asks about it. Its errors are for
// operators, and begin with their code.
type token struct {
	people *People
	issued *access.Issued
}

var _ gate.Token = (*token)(nil)

// withCode makes the text of an error begin with its code of contract §9.
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

// Take implements [gate.Token]. A token that has expired since it was asked about takes
// a place no longer.
func (t *token) Take(ctx context.Context) error {
	now := t.people.now()
	if err := t.issued.Claims.InTime(now); err != nil {
		return withCode(err)
	}
	return withCode(t.people.source.Take(ctx, t.issued.Claims.ID, t.issued.Claims.Limits(), now))
}

// Recorded is the scope of a token that was issued, whether or not it is good today. Its
// calls are not counted.
func Recorded(issued access.Issued) gate.Token {
	return recorded{&token{people: &People{capability: func(string) string { return "" }}, issued: &issued}}
}

type recorded struct{ *token }

// Room implements [gate.Token].
func (recorded) Room(context.Context) error { return nil }

// Take implements [gate.Token].
func (recorded) Take(context.Context) error {
	return errors.New("no calls are made by a recorded token")
}
