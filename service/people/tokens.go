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
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
)

// The states of a token.
const (
	TokenGood    = "good"
	tokenNotYet  = "not_yet"
	TokenExpired = "expired"
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
		v.State = TokenExpired
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

// ShownToken returns a token as front ends show it.
func (s *People) ShownToken(ctx context.Context, t access.Issued) (Token, error) {
	return s.tokenOf(ctx, t)
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
	return s.issue(ctx, access.Request{
		By: who, Subject: subject, TTL: r.TTL, NotBefore: r.NotBefore, Scope: r.Scope, Via: r.Via,
	}, r.Label, by)
}

// Bounds of the tokens that a user has made, and how long one that is no longer valid is listed.
const (
	maxOwnTokens  = 200 // valid ones
	maxOverTokens = 200 // others
	overKept      = 30 * 24 * time.Hour
)

// CreateOwnToken issues an access token for who asks. It never signs in, so that it has no administration, and what
// asks by an access token gets one that is narrower, lives no longer, and is revoked with it. The token itself is only
// in the answer.
func (s *People) CreateOwnToken(ctx context.Context, who toolcrib.Principal, r TokenRequest) (Token, error) {
	u, err := s.env.Store.Access().User(ctx, who.User)
	switch {
	case errors.Is(err, toolcrib.ErrNotFound) || who.Actor != "":
		return Token{}, toolcrib.Errorf(toolcrib.CodeForbidden, "tokens are for users, and %s is none of them", who.User)
	case err != nil:
		return Token{}, err
	case r.User != "" && r.User != u.Name, r.Bearer:
		return Token{}, toolcrib.Errorf(toolcrib.CodeForbidden, "only administrators issue tokens for others (tokens create)")
	case r.Scope.SignIn:
		return Token{}, env.BadRequestf("sign_in is for administrators to give (tokens create --sign-in)")
	}
	if err := s.env.CheckSecrets(r.Label, r.Scope); err != nil {
		return Token{}, err
	}
	mine, err := s.allTokens(ctx, u.Name)
	if err != nil {
		return Token{}, err
	}
	valid := 0
	for i := range mine {
		if s.Now().Before(endOf(&mine[i])) {
			valid++
		}
	}
	if valid >= maxOwnTokens {
		return Token{}, toolcrib.Errorf(toolcrib.CodeCapacityExceeded, "%s has %d tokens; revoke some first", u.Name, valid)
	}
	if err := s.dropTokens(ctx, mine, maxOverTokens); err != nil {
		return Token{}, err
	}
	q := access.Request{By: who, Subject: u.Name, TTL: r.TTL, NotBefore: r.NotBefore, Scope: r.Scope, Via: r.Via}
	if id := who.TokenID(); id != "" {
		maker, err := s.env.Store.Access().Token(ctx, id)
		if err != nil {
			return Token{}, err
		}
		q.Maker = &maker.Claims
	}
	return s.issue(ctx, q, r.Label, who.User)
}

func (s *People) issue(ctx context.Context, q access.Request, label, by string) (Token, error) {
	signer, err := s.signer()
	if err != nil {
		return Token{}, err
	}
	text, claims, err := signer.Issue(q, s.Now())
	if err != nil {
		return Token{}, err
	}
	c, err := s.env.Store.Access().AddToken(ctx, access.Issued{Claims: claims, Label: label}, by)
	if err != nil {
		return Token{}, err
	}
	t, err := s.tokenOf(ctx, *c.Token)
	t.Token = text
	return t, err
}

// ownTokens returns the tokens of who asks; by an access token, that one and those that it has asked for.
func (s *People) ownTokens(ctx context.Context, who toolcrib.Principal) (mine []access.Issued, err error) {
	all, err := s.allTokens(ctx, who.User)
	for _, t := range all {
		if who.Token == "" || t.Claims.ID == who.Token || t.Claims.Parent == who.Token {
			mine = append(mine, t)
		}
	}
	return mine, err
}

// OwnTokens returns the tokens of who asks, newest first; by an access token, that one and those that it has asked for.
func (s *People) OwnTokens(ctx context.Context, who toolcrib.Principal) ([]Token, error) {
	mine, err := s.ownTokens(ctx, who)
	if err != nil {
		return nil, err
	}
	return s.shownTokens(ctx, mine)
}

// RevokeOwnToken revokes one of OwnTokens by its ID, with those that it has asked for.
func (s *People) RevokeOwnToken(ctx context.Context, who toolcrib.Principal, id string) (v Token, err error) {
	mine, err := s.ownTokens(ctx, who)
	if err != nil {
		return v, err
	}
	i := slices.IndexFunc(mine, func(t access.Issued) bool { return t.Claims.ID == id })
	if i < 0 {
		return v, toolcrib.Errorf(toolcrib.CodeNotFound, "unknown token %+q", guard.Clip(id, access.MaxName))
	}
	return s.revoke(ctx, who, mine[i], agent.NameOf(who), false)
}

// RevokeOwnTokens revokes those of OwnTokens that are valid, except the one that who acts by, and returns how many.
func (s *People) RevokeOwnTokens(ctx context.Context, who toolcrib.Principal) (n int, err error) {
	mine, err := s.ownTokens(ctx, who)
	for i := range mine {
		if t := &mine[i]; err == nil && t.Claims.ID != who.TokenID() && s.Now().Before(endOf(t)) {
			if _, err = s.revoke(ctx, who, *t, agent.NameOf(who), false); err == nil {
				n++
			}
		}
	}
	return n, err
}

// ValidTokens returns those of OwnTokens that are valid, or will be.
func (s *People) ValidTokens(ctx context.Context, who toolcrib.Principal) ([]Token, error) {
	mine, err := s.OwnTokens(ctx, who)
	return slices.DeleteFunc(mine, func(t Token) bool { return t.State == TokenRevoked || t.State == TokenExpired }), err
}

// endOf returns the time from which a token is not valid.
func endOf(t *access.Issued) time.Time {
	if end := t.Claims.Expires.Time(); t.Revoked.IsZero() || end.Before(t.Revoked) {
		return end
	}
	return t.Revoked
}

// byUpkeep is who removes what is no longer needed. No user has such a name.
const byUpkeep = "regular upkeep"

// maxDropped bounds the tokens that are removed at a time.
const maxDropped = 1000

// dropTokens removes the records of tokens that their users have made and that have not been valid for overKept, and of
// the rest the oldest, so that most are left that are not valid. One that signs in is kept: sessions and runs outlast
// it.
func (s *People) dropTokens(ctx context.Context, all []access.Issued, most int) error {
	now := s.Now()
	over := slices.DeleteFunc(slices.Clone(all), func(t access.Issued) bool {
		return t.Claims.Scope.SignIn || t.Claims.Issuer != t.Claims.Subject || now.Before(endOf(&t))
	})
	slices.SortFunc(over, func(x, y access.Issued) int { return endOf(&x).Compare(endOf(&y)) })
	for i := range over[:min(len(over), maxDropped)] {
		if len(over)-i <= most && now.Sub(endOf(&over[i])) < overKept {
			break
		}
		_, err := s.env.Store.Access().RemoveToken(ctx, over[i].Claims.ID, byUpkeep)
		if err != nil && !errors.Is(err, toolcrib.ErrNotFound) { // another server may have
			return err
		}
	}
	return nil
}

// Upkeep removes sessions that have ended, and tokens that have not been valid for long.
func (s *People) Upkeep(ctx context.Context) error {
	_, err := s.eachSession(ctx, "", func(*WebSession) bool { return false })
	if err != nil {
		return err
	}
	all, err := s.allTokens(ctx, "")
	if err != nil {
		return err
	}
	return s.dropTokens(ctx, all, len(all))
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
		return "", toolcrib.Errorf(toolcrib.CodeBadRequest, "a token is either for a user or for anyone who has it")
	case r.Bearer && r.Scope.SignIn:
		return "", toolcrib.Errorf(toolcrib.CodeBadRequest, "a token that signs in is for a user")
	case r.Bearer:
		return access.Bearer, nil
	case r.User == "" && standing.Local(who.User):
		return "", toolcrib.Errorf(toolcrib.CodeBadRequest, "a token needs a user, or must be for anyone who has it")
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
	forNodes := func(t access.Issued) bool { return t.Claims.Audience == access.BusAudience } // bus token list
	return s.shownTokens(ctx, slices.DeleteFunc(all, forNodes))
}

// shownTokens returns tokens as front ends show them, newest first.
func (s *People) shownTokens(ctx context.Context, all []access.Issued) (tokens []Token, err error) {
	slices.SortStableFunc(all, func(x, y access.Issued) int { return cmp.Compare(y.Claims.IssuedAt, x.Claims.IssuedAt) })
	tokens = make([]Token, len(all))
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
	v, err = s.revoke(ctx, who, t, by, cancel)
	return v, changed, err
}

// revoke revokes a token, and those that it has asked for, with their sessions and runs.
func (s *People) revoke(
	ctx context.Context, who toolcrib.Principal, t access.Issued, by string, cancel bool,
) (v Token, err error) {
	all, err := s.allTokens(ctx, t.Claims.Subject)
	if err != nil {
		return v, err
	}
	c, err := s.env.Store.Access().RevokeToken(ctx, t.Claims.ID, by)
	if err != nil {
		return v, err
	}
	for _, child := range all {
		if child.Claims.Parent == t.Claims.ID && child.Revoked.IsZero() {
			if _, err := s.revoke(ctx, who, child, by, cancel); err != nil {
				return v, err
			}
		}
	}
	user := t.Claims.Subject
	if user == access.Bearer {
		user = standing.Anonymous
	}
	err = s.endSessions(ctx, user, func(w *WebSession) bool { return cmp.Or(w.Token, w.SignIn) == t.Claims.ID })
	if err != nil {
		return v, err
	}
	if v, err = s.tokenOf(ctx, *c.Token); err == nil {
		why := string(toolcrib.CodeTokenRevoked) + ": the token was revoked"
		err = s.endRuns(ctx, who, store.Filter{Token: t.Claims.ID}, why, cancel)
	}
	return v, err
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
