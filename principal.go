package toolcrib

import "cmp"

// Principal is whom a run acts for. Its zero value may do nothing that needs a
// right: it is no administrator and has no grant.
type Principal struct {
	User   string   `json:"user"`             // local:OSUSER, anonymous, or a name
	Admin  bool     `json:"admin,omitempty"`  // holds every right, implicitly
	Roles  []string `json:"roles,omitempty"`  // names
	Groups []string `json:"groups,omitempty"` // names
	// tools and groups by name or glob; null = no restriction, [] = nothing; no wildcard by accident
	Grants []string `json:"grants"`
	Trust  Trust    `json:"trust,omitempty"`
	// Actor is who was really at the keyboard, if that is somebody else (--as);
	// both names are in the audit log.
	Actor string `json:"actor,omitempty"`
	// Token is the ID of the access token by which the principal acts, within its own
	// rights; "" = none.
	Token string `json:"token,omitempty"`
	// SignIn is the ID of the access token by which the principal has signed in, with all of their
	// rights; "" = none.
	SignIn string `json:"sign_in,omitempty"`
}

// TokenID is the ID of the access token by which the principal acts, of either kind; "" = none.
func (p *Principal) TokenID() string { return cmp.Or(p.Token, p.SignIn) }

// Trust is a level of trust between nodes and callers (H19).
type Trust string

const (
	TrustUnknown Trust = "" // the zero value trusts nobody
	TrustMember  Trust = "member"
	TrustTrusted Trust = "trusted"
	TrustAnchor  Trust = "anchor"
)
