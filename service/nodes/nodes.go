// Package nodes has what a data folder knows of the other nodes of the bus: the register of those it trusts, invites,
// and tokens for its capabilities. It starts the node of the data folder, and says whom a call from outside acts for.
//
// The keys of the node are derived from those of the data folder and from the database, so all servers of a database
// are one node, and a copy of the database is another one. Commands are instances of the same node that offer nothing.
package nodes

import (
	"cmp"
	"context"
	"os"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/bus"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/people"
)

// Nodes are the other nodes of the bus as a data folder knows them. They are safe for use by several goroutines.
type Nodes struct {
	env    *env.Env
	people *people.People
	*state
}

// state is shared under all configurations of a data folder. Its fields are set when they are first used.
type state struct {
	mu       sync.Mutex
	keys     *bus.Keys
	signer   *access.Signer
	verifier *access.Verifier
	register *register // as it was read last
	server   *Instance // of a server in this process; nil without one
}

// New returns the nodes of a data folder.
func New(e *env.Env, p *people.People) *Nodes {
	n := &Nodes{env: e, people: p, state: new(state)}
	p.SetNodes(n.mayAct)
	return n
}

// Under returns the nodes under another configuration.
func (n *Nodes) Under(e *env.Env, p *people.People) *Nodes { return &Nodes{e, p, n.state} }

// Purposes for which keys are derived.
const tokenPurpose = "bus tokens"

// own returns the keys of this node, and what signs and verifies its tokens. The store must be open.
func (n *Nodes) own(ctx context.Context) (*bus.Keys, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.keys != nil {
		return n.keys, nil
	}
	seed, err := n.env.DatabaseKey(ctx, bus.KeyPurpose)
	if err != nil {
		return nil, err
	}
	keys, err := bus.NewKeys(seed)
	if err != nil {
		return nil, err
	}
	if seed, err = n.env.DatabaseKey(ctx, tokenPurpose); err != nil {
		return nil, err
	}
	signer, err := access.NewSigner(seed)
	if err != nil {
		return nil, err
	}
	n.keys, n.signer = keys, signer
	n.verifier = &access.Verifier{
		Keys: []access.PublicKey{signer.Public()}, Audience: access.BusAudience, Now: n.people.Now,
		Revoked: func(ctx context.Context, c access.Claims) (string, error) {
			return n.people.Standing().WhyRevoked(ctx, c)
		},
	}
	return keys, nil
}

// Key returns the key of this node. The store must be open.
func (n *Nodes) Key(ctx context.Context) (bus.Key, error) {
	keys, err := n.own(ctx)
	if err != nil {
		return "", err
	}
	return keys.Public(), nil
}

// Name returns what other nodes call this one.
func (n *Nodes) Name() string {
	host, _ := os.Hostname() // for people
	return cmp.Or(n.env.Config.Bus.Name, host, "toolcrib")
}

// Levels returns the levels of trust, the lowest first.
func Levels() []string {
	return []string{
		people.UnknownTrust, string(toolcrib.TrustMember), string(toolcrib.TrustTrusted), string(toolcrib.TrustAnchor),
	}
}

// ParseLevel reads a level of trust.
func ParseLevel(text string) (toolcrib.Trust, error) {
	for i, level := range Levels() {
		if text == level && i == 0 {
			return toolcrib.TrustUnknown, nil
		} else if text == level {
			return toolcrib.Trust(level), nil
		}
	}
	return "", env.UnknownValue("level", guard.Clip(text, access.MaxName), Levels())
}

// LevelText returns the name of a level of trust.
func LevelText(t toolcrib.Trust) string { return cmp.Or(string(t), people.UnknownTrust) }

// Fresh is how long what was read of the register is used. A change by another process applies after that time at the
// latest, one by this process at once.
const Fresh = 500 * time.Millisecond
