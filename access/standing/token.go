package standing

import (
	"context"
	"encoding/json"

	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/gate"
)

// token is the scope of an access token, as the gate asks about it. Its errors are for
// operators, and begin with their code.
type token struct {
	people *People
	issued *access.Issued
}

var _ gate.Token = (*token)(nil)

// coded is an error whose text begins with its code.
type coded struct{ err error }

func (e coded) Error() string { return told(e.err) }
func (e coded) Unwrap() error { return e.err }

func withCode(err error) error {
	if err == nil {
		return nil
	}
	return coded{err}
}

// Key implements [gate.Token]: what a token was issued for never changes.
func (t *token) Key() string { return t.issued.Claims.ID }

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
// no place any more.
func (t *token) Take(ctx context.Context) error {
	now := t.people.now()
	if err := t.issued.Claims.InTime(now); err != nil {
		return withCode(err)
	}
	return withCode(t.people.source.Take(ctx, t.issued.Claims.ID, t.issued.Claims.Limits(), now))
}
