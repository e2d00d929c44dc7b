package toolcrib

import "cmp"

// Principal is the user for whom a run acts. Its zero value has no rights: it is not an administrator
// and has no grants.
type Principal struct {
	User   string   `json:"user"`             // local:OSUSER, anonymous, or a name
	Admin  bool     `json:"admin,omitempty"`  // has every right
	Roles  []string `json:"roles,omitempty"`  // names
	Groups []string `json:"groups,omitempty"` // names
	// Grants are names or globs of tools and groups; null means no restriction, [] means nothing. A
	// wildcard must be explicit.
	Grants []string `json:"grants"`
	Trust  Trust    `json:"trust,omitempty"`
	// Actor is the user who acts for User, if they differ (--as). The audit log has both names.
	Actor string `json:"actor,omitempty"`
	// Token is the ID of the access token by which the principal acts, within the rights of the token.
	// It is "" without one.
	Token string `json:"token,omitempty"`
	// SignIn is the ID of the access token by which the principal has signed in, with all of the user's
	// rights. It is "" without one.
	SignIn string `json:"sign_in,omitempty"`
}

// TokenID returns the ID of the access token of either kind, or "".
func (p *Principal) TokenID() string { return cmp.Or(p.Token, p.SignIn) }

// Trust is a level of trust between nodes and callers.
type Trust string

const (
	TrustUnknown Trust = "" // the zero value trusts no node
	TrustMember  Trust = "member"
	TrustTrusted Trust = "trusted"
	TrustAnchor  Trust = "anchor"
)

// Rank orders the levels: 0 for [TrustUnknown] and any other text, 1 for [TrustMember], up to 3.
func (t Trust) Rank() int {
	switch t {
	case TrustMember:
		return 1
	case TrustTrusted:
		return 2
	case TrustAnchor:
		return 3
	}
	return 0
}
