package service

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
	TokenNotYet  = "not_yet"
	TokenExpired = "expired"
	TokenRevoked = "revoked"
)

// Token is an access token as front ends show it. The token itself is kept nowhere.
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

func (s *Service) tokenOf(ctx context.Context, t access.Issued) (Token, error) {
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
		v.State = TokenExpired
	case c.InTime(now) != nil:
		v.State = TokenNotYet
	}
	left, err := s.Env.Store.Access().Left(ctx, c.ID, c.Limits(), now)
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

// CreateToken issues an access token, for administrators. The token itself is in the answer
// and nowhere else.
func (s *Service) CreateToken(ctx context.Context, who toolcrib.Principal, r TokenRequest) (Token, error) {
	by, err := env.Administrator(who)
	if err != nil {
		return Token{}, err
	}
	subject, err := s.subject(ctx, who, r)
	if err != nil {
		return Token{}, err
	}
	if err := s.Env.CheckSecrets(r.Label, r.Scope); err != nil {
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
	c, err := s.Env.Store.Access().AddToken(ctx, access.Issued{Claims: claims, Label: r.Label}, by)
	if err != nil {
		return Token{}, err
	}
	t, err := s.tokenOf(ctx, *c.Token)
	t.Token = text
	return t, err
}

// FirstAdministrator is the name of the one that [Service.FirstStart] makes.
const FirstAdministrator = "admin"

// FirstStart makes an administrator where no user is one, in the name of who owns the data
// folder, and returns a token that signs them in; "" = there is one.
func (s *Service) FirstStart(ctx context.Context, who toolcrib.Principal) (token string, err error) {
	for u, err := range s.eachUser(ctx) {
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

// subject is the user whom a new token acts for: one of the directory who may do
// something.
func (s *Service) subject(ctx context.Context, who toolcrib.Principal, r TokenRequest) (string, error) {
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

// allTokens are the tokens of a user ("" = all), by their IDs.
func (s *Service) allTokens(ctx context.Context, user string) (all []access.Issued, err error) {
	for after := ""; ; after = all[len(all)-1].Claims.ID {
		page, err := s.Env.Store.Access().Tokens(ctx, user, after, access.MaxPage)
		if all = append(all, page...); err != nil || len(page) < access.MaxPage {
			return all, err
		}
	}
}

// Tokens returns the tokens of a user ("" = all), the newest first, for administrators.
func (s *Service) Tokens(ctx context.Context, who toolcrib.Principal, user string) ([]Token, error) {
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

// RevokeToken makes a token worthless from now on, for administrators. part is its ID, or
// the beginning of it. It reports whether the token still counted. Runs that the token started and that
// wait end at once, those that are driven with their next call; with cancel all are cancelled.
func (s *Service) RevokeToken(
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
	c, err := s.Env.Store.Access().RevokeToken(ctx, t.Claims.ID, by)
	if err != nil {
		return v, false, err
	}
	if v, err = s.tokenOf(ctx, *c.Token); err == nil {
		why := string(toolcrib.CodeTokenRevoked) + ": the token was revoked"
		err = s.endRuns(ctx, who, store.Filter{Token: t.Claims.ID}, why, cancel)
	}
	return v, changed, err
}

// endRuns ends the runs that fit and have not ended, or cancels them: their user or token no longer
// counts, as why says. One that is driven ends with its next call.
func (s *Service) endRuns(ctx context.Context, who toolcrib.Principal, f store.Filter, why string, cancel bool) error {
	var failed []error
	// Runs below others are newer than those, and end before them.
	f.TopLevel, f.Status = cancel, slices.DeleteFunc(Statuses(), toolcrib.Status.Ended)
	for rec, err := range s.Env.Each(ctx, f) {
		switch {
		case err != nil:
			return err
		case cancel:
			_, err = s.Cancel(ctx, who, string(rec.ID))
		default:
			err = s.denyHere(ctx, rec, why)
		}
		if err != nil && !errors.Is(err, toolcrib.ErrConflict) { // it may have ended meanwhile
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// endRunsOf ends the runs of a user who may no longer do anything, and those of the tokens that they issued.
func (s *Service) endRunsOf(ctx context.Context, who toolcrib.Principal, u access.User) error {
	failed := s.endRuns(ctx, who, store.Filter{User: u.Name}, standing.Inactive(u), false)
	all, err := s.allTokens(ctx, "")
	failed = errors.Join(failed, err)
	for _, t := range all {
		if t.Claims.Issuer != u.Name {
			continue
		}
		why, err := access.WhyRevoked(ctx, s.Env.Store.Access(), s.Env.Store.Access(), t.Claims)
		if err == nil && why != "" {
			why = string(toolcrib.CodeTokenRevoked) + ": " + why
			err = s.endRuns(ctx, who, store.Filter{Token: t.Claims.ID}, why, false)
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// denyHere ends a run unless somebody drives it: then its next call ends it.
func (s *Service) denyHere(ctx context.Context, rec store.RunRecord, why string) error {
	leave, driven := s.Drivers.Take(rec.ID)
	if driven != nil {
		return nil
	}
	defer leave()
	r, err := s.runner(rec)
	if err == nil {
		_, err = r.Deny(ctx, rec.ID, why)
	}
	return err
}

// findToken finds a token by its ID, or the beginning of it.
func (s *Service) findToken(ctx context.Context, part string) (access.Issued, error) {
	all, err := s.allTokens(ctx, "")
	if err != nil {
		return access.Issued{}, err
	}
	return env.ByPart("token", "tok_", part, all, func(t access.Issued) string { return t.Claims.ID })
}

// CheckToken returns what a token is good for, for administrators; the error of one that is
// not good says why.
func (s *Service) CheckToken(ctx context.Context, who toolcrib.Principal, text string) (Token, error) {
	if _, err := env.Administrator(who); err != nil {
		return Token{}, err
	}
	c, err := s.verified(ctx, text)
	if err != nil {
		return Token{}, err
	}
	t, err := s.Env.Store.Access().Token(ctx, c.ID)
	if err != nil {
		return Token{}, err
	}
	return s.tokenOf(ctx, t)
}

// eachAudit yields all entries of the audit log that fit.
func (s *Service) eachAudit(ctx context.Context, f store.AuditFilter) iter.Seq2[store.AuditEntry, error] {
	return env.Paged(func(cursor string) ([]store.AuditEntry, string, error) {
		f.Limit, f.Cursor = store.MaxLimit, cursor
		page, err := s.Env.Store.Audit(ctx, f)
		return page.Entries, page.Next, err
	})
}
