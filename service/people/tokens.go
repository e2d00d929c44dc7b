package people

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/access/standing"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
)

// The states of a token.
const (
	TokenGood    = "good"
	tokenNotYet  = "not_yet"
	tokenExpired = "expired"
	TokenRevoked = "revoked"
)

// Token is an access token as front ends show it. The token itself is not stored.
type Token struct {
	Token     string       `json:"token,omitempty"` // only of a new one
	ID        string       `json:"id"`
	User      string       `json:"user"` // * = whoever carries it
	Label     string       `json:"label,omitempty"`
	State     string       `json:"state"` // good | not_yet | expired | revoked
	Scope     access.Scope `json:"scope"`
	IssuedBy  string       `json:"issued_by"`
	Via       string       `json:"issued_via"`
	IssuedAt  time.Time    `json:"issued_at"`
	NotBefore time.Time    `json:"not_before"`
	Expires   time.Time    `json:"expires_at"`
	Revoked   time.Time    `json:"revoked_at,omitzero"`
	RevokedBy string       `json:"revoked_by,omitempty"`
	// How many calls are left; null = no limit.
	CallsLeft  *int64 `json:"calls_left"`
	MinuteLeft *int64 `json:"calls_left_this_minute"`
}

func (s *People) tokenOf(ctx context.Context, t access.Issued) (Token, error) {
	c, now := &t.Claims, s.Now()
	v := Token{
		ID: c.ID, User: c.Subject, Label: t.Label, State: TokenGood, Scope: c.Scope, IssuedBy: t.IssuedBy, Via: c.Via,
		IssuedAt: c.IssuedAt.Time(), NotBefore: c.NotBefore.Time(), Expires: c.Expires.Time(), Revoked: t.Revoked,
		RevokedBy: t.RevokedBy,
	}
	switch {
	case !t.Revoked.IsZero():
		v.State = TokenRevoked
	case !now.Before(v.Expires):
		v.State = tokenExpired
	case c.InTime(now) != nil:
		v.State = tokenNotYet
	}
	left, err := s.env.Store.Access().Left(ctx, c.ID, c.Limits(), now)
	if err != nil {
		return v, err
	}
	if left.Limits.Total > 0 {
		v.CallsLeft = &left.Total
	}
	if left.Limits.PerMinute > 0 {
		v.MinuteLeft = &left.Minute
	}
	return v, nil
}

// TokenRequest asks for an access token.
type TokenRequest struct {
	User      string // whom it acts for; if empty, who asks, unless that is a user of the operating system
	Bearer    bool   // instead of User: it acts as anonymous, for whoever carries it
	Label     string // what its owner calls it
	Scope     access.Scope
	TTL       time.Duration // if 0, access.DefaultTTL
	NotBefore time.Time     // if zero, now
	Via       string        // cli, api, web or start
}

// CreateToken issues an access token, for administrators. The token itself is only in the answer.
func (s *People) CreateToken(ctx context.Context, who toolcrib.Principal, r TokenRequest) (Token, error) {
	by, err := env.Administrator(who)
	if err != nil {
		return Token{}, err
	}
	// subject returns the user for whom a new token acts. The user must be active.
	subject, err := s.subject(ctx, who, r)
	if err != nil {
		return Token{}, err
	}
	if err := s.env.CheckSecrets(r.Label, r.Scope); err != nil {
		return Token{}, err
	}
	signer, err := s.signer()
	if err != nil {
		return Token{}, err
	}
	text, claims, err := signer.Issue(access.Request{
		By: who, Subject: subject, TTL: r.TTL, NotBefore: r.NotBefore, Scope: r.Scope, Via: r.Via,
	}, s.Now())
	if err != nil {
		return Token{}, err
	}
	c, err := s.env.Store.Access().AddToken(ctx, access.Issued{Claims: claims, Label: r.Label}, by)
	if err != nil {
		return Token{}, err
	}
	t, err := s.tokenOf(ctx, *c.Token)
	t.Token = text
	return t, err
}

// FirstAdministrator is the name of the user that [People.FirstStart] adds.
const FirstAdministrator = "admin"

// FirstStart adds an administrator if no user exists, in the name of the owner of the data folder, and returns a
// token that signs them in.
func (s *People) FirstStart(ctx context.Context, who toolcrib.Principal) (token string, err error) {
	for u, err := range s.EachUser(ctx) {
		if err != nil {
			return "", err
		}
		if u.Admin && standing.Inactive(u) == "" {
			return "", nil
		}
	}
	first := access.User{Name: FirstAdministrator, Display: "Administrator", Admin: true}
	if _, err := s.AddUser(ctx, who, access.NewUser{User: first}); err != nil {
		return "", err
	}
	t, err := s.CreateToken(ctx, who, TokenRequest{
		User: first.Name, Label: "first start", Scope: access.Scope{SignIn: true}, TTL: access.MaxTTL, Via: "start",
	})
	return t.Token, err
}

// subject is the user whom a new token acts for: one of the directory who may do something.
func (s *People) subject(ctx context.Context, who toolcrib.Principal, r TokenRequest) (string, error) {
	switch {
	case r.Bearer && r.User != "":
		return "", toolcrib.Errorf(toolcrib.CodeBadRequest, "a token is either for a user or for any bearer")
	case r.Bearer && r.Scope.SignIn:
		return "", toolcrib.Errorf(toolcrib.CodeBadRequest, "a token that signs in is for a user")
	case r.Bearer:
		return access.Bearer, nil
	case r.User == "" && standing.Local(who.User):
		return "", toolcrib.Errorf(toolcrib.CodeBadRequest, "a token needs a user, or must be for any bearer")
	}
	_, u, err := s.administered(ctx, who, cmp.Or(r.User, who.User))
	if err != nil {
		return "", err
	}
	if why := standing.Inactive(u); why != "" {
		return "", toolcrib.Errorf(toolcrib.CodeForbidden, "%s", why)
	}
	return u.Name, nil
}

// allTokens returns the tokens of a user, or of all users if user is empty, by their IDs.
func (s *People) allTokens(ctx context.Context, user string) (all []access.Issued, err error) {
	for after := ""; ; after = all[len(all)-1].Claims.ID {
		page, err := s.env.Store.Access().Tokens(ctx, user, after, access.MaxPage)
		if all = append(all, page...); err != nil || len(page) < access.MaxPage {
			return all, err
		}
	}
}

// Tokens returns the tokens of a user, or of all users if user is empty, newest first, for administrators.
func (s *People) Tokens(ctx context.Context, who toolcrib.Principal, user string) ([]Token, error) {
	if _, err := env.Administrator(who); err != nil {
		return nil, err
	}
	all, err := s.allTokens(ctx, user)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(all, func(x, y access.Issued) int { return cmp.Compare(y.Claims.IssuedAt, x.Claims.IssuedAt) })
	tokens := make([]Token, len(all))
	for i, t := range all {
		if tokens[i], err = s.tokenOf(ctx, t); err != nil {
			return nil, err
		}
	}
	return tokens, nil
}

// RevokeToken revokes a token, for administrators. part is its ID or the beginning of it. It reports whether the
// token was valid until now. Waiting runs that the token started end at once, running ones with their next call; if
// cancel is set, all are cancelled.
func (s *People) RevokeToken(
	ctx context.Context, who toolcrib.Principal, part string, cancel bool,
) (v Token, changed bool, err error) {
	by, err := env.Administrator(who)
	if err != nil {
		return v, false, err
	}
	t, err := s.findToken(ctx, part)
	if err != nil {
		return v, false, err
	}
	changed = t.Revoked.IsZero()
	c, err := s.env.Store.Access().RevokeToken(ctx, t.Claims.ID, by)
	if err != nil {
		return v, false, err
	}
	err = s.endSessions(ctx, func(w *WebSession) bool { return cmp.Or(w.Token, w.SignIn) == t.Claims.ID })
	if err != nil {
		return v, changed, err
	}
	if v, err = s.tokenOf(ctx, *c.Token); err == nil {
		why := string(toolcrib.CodeTokenRevoked) + ": the token was revoked"
		err = s.endRuns(ctx, who, store.Filter{Token: t.Claims.ID}, why, cancel)
	}
	return v, changed, err
}

// endRunsOf ends the runs of a user who was disabled or removed, and those of the tokens that they issued.
func (s *People) endRunsOf(ctx context.Context, who toolcrib.Principal, u access.User) error {
	failed := s.endRuns(ctx, who, store.Filter{User: u.Name}, standing.Inactive(u), false)
	all, err := s.allTokens(ctx, "")
	failed = errors.Join(failed, err)
	for _, t := range all {
		if t.Claims.Issuer != u.Name {
			continue
		}
		why, err := access.WhyRevoked(ctx, s.env.Store.Access(), s.env.Store.Access(), t.Claims)
		if err == nil && why != "" {
			why = string(toolcrib.CodeTokenRevoked) + ": " + why
			err = s.endRuns(ctx, who, store.Filter{Token: t.Claims.ID}, why, false)
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// findToken finds a token by its ID, or the beginning of it.
func (s *People) findToken(ctx context.Context, part string) (access.Issued, error) {
	all, err := s.allTokens(ctx, "")
	if err != nil {
		return access.Issued{}, err
	}
	return env.ByPart("token", "tok_", part, all, func(t access.Issued) string { return t.Claims.ID })
}

// CheckToken returns what a token is valid for, for administrators, or an error that says why it is not valid.
func (s *People) CheckToken(ctx context.Context, who toolcrib.Principal, text string) (Token, error) {
	if _, err := env.Administrator(who); err != nil {
		return Token{}, err
	}
	c, err := s.verified(ctx, text)
	if err != nil {
		return Token{}, err
	}
	t, err := s.env.Store.Access().Token(ctx, c.ID)
	if err != nil {
		return Token{}, err
	}
	return s.tokenOf(ctx, t)
}

// EachAudit yields all entries of the audit log that match f.
func (s *People) EachAudit(ctx context.Context, f store.AuditFilter) iter.Seq2[store.AuditEntry, error] {
	return env.Paged(func(cursor string) ([]store.AuditEntry, string, error) {
		f.Limit, f.Cursor = store.MaxLimit, cursor
		page, err := s.env.Store.Audit(ctx, f)
		return page.Entries, page.Next, err
	})
}
