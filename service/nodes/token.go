package nodes

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/bus"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/people"
)

// Token is a token for capabilities of a node, as front ends show it.
type Token struct {
	Claims access.Claims `json:"claims"`
	// Own reports whether this node has issued it. The signature of the token of another node is not checked.
	Own bool `json:"own"`
	// Node is the name that the node has here that the token is for, or "".
	Node string `json:"node,omitempty"`
	people.Token
}

// TokenRequest asks for a token for capabilities of this node.
type TokenRequest struct {
	For          string // the key of a node, its name in the register, or [access.Bearer]
	Capabilities []string
	Params       map[string][]any
	TTL          time.Duration // if 0, [access.DefaultTTL]
	MaxCalls     int64         // if 0, no limit
	PerMinute    int64         // if 0, no limit
	Label        string
}

// IssueToken issues a token with which a node calls capabilities of this one, for administrators. A node that is not
// trusted is a member with it. The token itself is only in the answer.
func (n *Nodes) IssueToken(ctx context.Context, who toolcrib.Principal, q TokenRequest) (t Token, err error) {
	by, err := env.Administrator(who)
	if err != nil {
		return t, err
	}
	self, err := n.Key(ctx)
	if err != nil {
		return t, err
	}
	subject := q.For
	if subject != access.Bearer {
		key, err := n.Find(ctx, subject)
		if err != nil {
			return t, err
		}
		subject = string(key)
	}
	scope := access.Scope{
		Capabilities: q.Capabilities, Params: q.Params, MaxCalls: q.MaxCalls, RatePerMinute: q.PerMinute,
	}
	for _, text := range q.Capabilities {
		if _, err := bus.ParseName(text); err != nil {
			return t, err
		}
	}
	if err := n.env.CheckSecrets(q.Label, scope); err != nil {
		return t, err
	}
	text, claims, err := n.signer.Issue(access.Request{
		By: who, Issuer: string(self), Subject: subject, Audience: access.BusAudience, TTL: q.TTL, Scope: scope, Via: "cli",
	}, n.people.Now())
	if err != nil {
		return t, err
	}
	c, err := n.env.Store.Access().AddToken(ctx, access.Issued{Claims: claims, Label: q.Label}, by)
	if err != nil {
		return t, err
	}
	t, err = n.tokenOf(ctx, *c.Token)
	t.Token.Token = text
	return t, err
}

func (n *Nodes) tokenOf(ctx context.Context, t access.Issued) (Token, error) {
	r, err := n.entries(ctx)
	if err != nil {
		return Token{}, err
	}
	shown, err := n.people.ShownToken(ctx, t)
	return Token{Claims: t.Claims, Own: true, Node: r.byKey[bus.Key(t.Claims.Subject)].Name, Token: shown}, err
}

// NotOffered returns those of some capabilities that this node does not offer.
func (n *Nodes) NotOffered(names []string) (missing []string) {
	offers := append(n.env.Config.OfferNames(), ownOffers()...)
	if slices.ContainsFunc(offers, func(offer string) bool { return strings.HasPrefix(offer, "llm.chat@") }) {
		offers = append(offers, "llm.chat@1.0", "llm.chat@2.0") // one entry offers both
	}
	for _, text := range names {
		asked, err := bus.ParseName(text)
		serves := func(offer string) bool {
			name, no := bus.ParseName(offer)
			return no == nil && name.Serves(asked)
		}
		if err != nil || !slices.ContainsFunc(offers, serves) {
			missing = append(missing, text)
		}
	}
	return missing
}

// ownOffers are capabilities that every node serves, and for which a token may be.
func ownOffers() []string { return []string{"node.list@1.0", "llm.tools.call@1.0"} }

// Find returns the key of a node: the key itself, or that of a name in the register.
func (n *Nodes) Find(ctx context.Context, name string) (bus.Key, error) {
	if key, err := bus.ParseKey(name); err == nil {
		return key, nil
	}
	r, err := n.entries(ctx)
	if err != nil {
		return "", err
	}
	if key, known := r.byName[name]; known {
		return key, nil
	}
	names := slices.Sorted(maps.Keys(r.byName))
	known := strings.Join(names[:min(len(names), maxNamed)], ", ")
	if len(names) > maxNamed {
		known += ", …"
	}
	return "", env.BadRequestf("no node is called %q here (known: %s); the key of a node has 43 letters, digits, - and _, "+
		"as `toolcrib bus status` prints it", guard.Clip(name, 64), cmp.Or(known, "none"))
}

// maxNamed is the number of nodes that an error names.
const maxNamed = 8

// issued returns the tokens for the bus of a subject, or of all if it is "".
func (n *Nodes) issued(ctx context.Context, subject string) (all []access.Issued, err error) {
	for after := ""; ; {
		page, err := n.env.Store.Access().Tokens(ctx, subject, after, access.MaxPage)
		if err != nil {
			return nil, err
		}
		for _, t := range page {
			if after = t.Claims.ID; t.Claims.Audience == access.BusAudience {
				all = append(all, t)
			}
		}
		if len(page) < access.MaxPage {
			return all, nil
		}
	}
}

// Tokens returns the tokens that this node has issued, the newest first, for administrators.
func (n *Nodes) Tokens(ctx context.Context, who toolcrib.Principal) (tokens []Token, err error) {
	if _, err := env.Administrator(who); err != nil {
		return nil, err
	}
	all, err := n.issued(ctx, "")
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(all, func(x, y access.Issued) int { return cmp.Compare(y.Claims.IssuedAt, x.Claims.IssuedAt) })
	tokens = make([]Token, len(all))
	for i, t := range all {
		if tokens[i], err = n.tokenOf(ctx, t); err != nil {
			return nil, err
		}
	}
	return tokens, nil
}

// ShowToken returns what a token is for, for administrators. If this node has issued it and it is not valid, the error
// says why.
func (n *Nodes) ShowToken(ctx context.Context, who toolcrib.Principal, text string) (t Token, err error) {
	if _, err := env.Administrator(who); err != nil {
		return t, err
	}
	self, err := n.Key(ctx)
	if err != nil {
		return t, err
	}
	claims, err := access.ReadUnverified(text, access.BusAudience)
	if err != nil {
		return t, err
	}
	if claims.Issuer != string(self) {
		t = Token{Claims: claims}
		t.ID, t.User, t.Scope, t.Via, t.State = claims.ID, claims.Subject, claims.Scope, claims.Via, "unknown"
		t.IssuedBy, t.IssuedAt, t.NotBefore, t.Expires = claims.Issuer, claims.IssuedAt.Time(), claims.NotBefore.Time(),
			claims.Expires.Time()
		return t, nil
	}
	if claims, err = n.verifier.Verify(ctx, text); err != nil {
		return t, err
	}
	issued, err := n.env.Store.Access().Token(ctx, claims.ID)
	if err != nil {
		return t, err
	}
	return n.tokenOf(ctx, issued)
}

// RevokeToken revokes a token that this node has issued, for administrators. Its calls in flight end. part is its ID,
// the beginning of it, or the token itself. changed reports whether it was valid until now.
func (n *Nodes) RevokeToken(
	ctx context.Context, who toolcrib.Principal, part string,
) (t Token, changed bool, err error) {
	if _, err := env.Administrator(who); err != nil {
		return t, false, err
	}
	if claims, err := access.ReadUnverified(part, access.BusAudience); err == nil {
		part = claims.ID
	}
	all, err := n.issued(ctx, "")
	if err != nil {
		return t, false, err
	}
	found, err := env.ByPart("token", "tok_", part, all, func(t access.Issued) string { return t.Claims.ID })
	if err != nil {
		return t, false, err
	}
	_, changed, err = n.people.RevokeToken(ctx, who, found.Claims.ID, true)
	if err != nil {
		return t, false, err
	}
	if found, err = n.env.Store.Access().Token(ctx, found.Claims.ID); err == nil {
		t, err = n.tokenOf(ctx, found)
	}
	return t, changed, err
}

// revokeFor revokes the tokens for a node.
func (n *Nodes) revokeFor(ctx context.Context, who toolcrib.Principal, key bus.Key) error {
	all, err := n.issued(ctx, string(key))
	for _, t := range all {
		if t.Revoked.IsZero() {
			_, _, no := n.people.RevokeToken(ctx, who, t.Claims.ID, true)
			err = errors.Join(err, no)
		}
	}
	return err
}

// verify implements [bus.Options.Token]. Only a token that this node has issued for the node that presents it, or for
// any, is valid.
func (n *Nodes) verify(ctx context.Context, text string, node bus.Key) (*access.Claims, error) {
	self, err := n.Key(ctx)
	if err != nil {
		return nil, err
	}
	claims, err := access.ReadUnverified(text, access.BusAudience)
	if err != nil {
		return nil, err
	}
	if claims.Issuer != string(self) {
		return nil, n.foreign(ctx, claims.Issuer, node)
	}
	if claims, err = n.verifier.Verify(ctx, text); err != nil {
		return nil, err
	}
	if _, err := claims.ActsFor(string(node)); err != nil {
		return nil, err
	}
	return &claims, nil
}

// foreign returns the error for a token that another node has issued. Only a node that is trusted learns that the
// issuer no longer is.
func (n *Nodes) foreign(ctx context.Context, issuer string, node bus.Key) error {
	r, err := n.entries(ctx)
	if err != nil {
		return err
	}
	e, known := r.byKey[bus.Key(issuer)]
	if known && e.Trust == toolcrib.TrustUnknown && r.byKey[node].Trust != toolcrib.TrustUnknown {
		return toolcrib.Errorf(toolcrib.CodeRevoked, "the node that issued the token, %s, is no longer trusted here", e.Name)
	}
	return toolcrib.Errorf(toolcrib.CodeTokenInvalid, "another node issued this token, and it alone accepts it")
}

// count counts a call of a token. It returns a [*access.QuotaError] if there is no call left.
func (n *Nodes) count(ctx context.Context, c *access.Claims) error {
	limits := c.Limits()
	if limits.Total == 0 && limits.PerMinute == 0 {
		return nil
	}
	return n.env.Store.Access().Take(ctx, c.ID, limits, n.people.Now())
}
