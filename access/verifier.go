package access

import (
	"context"
	"crypto/ed25519"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/toolcrib/toolcrib"
)

// ClockSkew is how far the clock of the server that issued a token may go before the
// one that verifies it. It never makes a token live longer: an expired token is
// expired to the second.
const ClockSkew = 30 * time.Second

// Verifier verifies tokens. A field that is missing refuses every token. It is safe
// for concurrent use.
type Verifier struct {
	Keys     []PublicKey // today's, and those before it while their tokens live
	Audience string
	// Revoked says why a token counts as revoked, "" if it does not ([WhyRevoked]). An
	// error refuses.
	Revoked func(ctx context.Context, c Claims) (why string, err error)
	// Now is the time; that of a [Clock] never goes back.
	Now func() time.Time
}

// Verify returns the claims of a token that is good now, or an [*toolcrib.Error] (M16):
// bad_request if it does not have the form of a token (the prefix, three parts of
// base64url, the length), token_invalid if it was not signed by one of the keys as it
// is, token_expired if its time is over or has not come, unauthorized for
// another audience, token_revoked; internal_error if that could not be found out.
func (v *Verifier) Verify(ctx context.Context, token string) (Claims, error) {
	if v == nil || v.Audience == "" || v.Revoked == nil || v.Now == nil {
		return Claims{}, toolcrib.Errorf(toolcrib.CodeInternal, "tokens cannot be verified: the verifier is not set up")
	}
	signed, err := shape(token)
	if err != nil {
		return Claims{}, err
	}
	c, err := v.signed(signed)
	if err != nil {
		return Claims{}, err
	}
	if err := c.InTime(v.Now()); err != nil {
		return Claims{}, err
	}
	if c.Audience != v.Audience {
		return Claims{}, toolcrib.Errorf(toolcrib.CodeUnauthorized,
			"the token is for another server or interface; ask for one for this")
	}
	why, err := v.Revoked(ctx, c)
	switch {
	case err != nil:
		return Claims{}, &toolcrib.Error{
			Code: toolcrib.CodeInternal, Message: "it cannot be found out whether the token was revoked; try again", Err: err,
		}
	case why != "":
		return Claims{}, toolcrib.Errorf(toolcrib.CodeTokenRevoked, "%s; ask for a new one", why)
	}
	return c, nil
}

// shape returns the JSON Web Signature in a token that looks like one.
func shape(token string) (string, error) {
	signed, ok := strings.CutPrefix(token, TokenPrefix)
	switch {
	case len(token) > MaxTokenBytes:
		return "", bad("this is not a token: it has more than %d bytes", MaxTokenBytes)
	case !ok && strings.HasPrefix(token, tokenAnyVersion):
		return "", bad("the token was made by another version of toolcrib, or was changed on its way; ask for a new one")
	case !ok:
		return "", bad("this is not a token: it does not begin with %s", TokenPrefix)
	}
	strange := strings.ContainsFunc(signed, func(r rune) bool { // base64 would pass over line ends
		return r > 'z' || !isLetterOrDigit(byte(r)) && !strings.ContainsRune(".-_", r)
	})
	// An empty signature has the form of one, and is wrong.
	parts := strings.Split(signed, ".")
	if strange || len(parts) != 3 || parts[0] == "" || parts[1] == "" {
		return "", bad("the token is incomplete; copy it again, from its first to its last character")
	}
	return signed, nil
}

// signed returns the claims if one of the keys signed them. A token that was changed
// anywhere is told in the same words, whatever became of it.
func (v *Verifier) signed(text string) (Claims, error) {
	invalid := func(message string, err error) (Claims, error) {
		return Claims{}, &toolcrib.Error{Code: toolcrib.CodeTokenInvalid, Message: message, Err: err}
	}
	parser := jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}),
		jwt.WithStrictDecoding(), jwt.WithoutClaimsValidation())
	var p payload
	if _, err := parser.ParseWithClaims(text, &p, v.keyOf); err != nil {
		return invalid("the token was changed or is not whole, or was signed with a key that this server does not have; "+
			"copy it again, or ask for a new one", err)
	}
	c, err := p.claims()
	if err != nil {
		return invalid("the token says what this version of toolcrib does not know; "+
			"update this server, or ask for a new token", err)
	}
	if problem := c.check(); problem != "" {
		return invalid("the token is not complete: "+problem+"; ask for a new one", nil)
	}
	if c.Scope, err = c.Scope.Check(); err != nil {
		return invalid("the scope of the token cannot be read; ask for a new one", err)
	}
	return c, nil
}

// keyOf returns the key that a header names. The header may say nothing else: what it
// could say besides (RFC 7515: jwk, jku, x5c, crit) is how others were fooled.
func (v *Verifier) keyOf(t *jwt.Token) (any, error) {
	for _, key := range v.Keys {
		if t.Header["kid"] == key.ID && key.ID != "" && t.Header["typ"] == tokenType && len(t.Header) == 3 &&
			len(key.Key) == ed25519.PublicKeySize {
			return key.Key, nil
		}
	}
	return nil, errors.New("the header is unknown")
}

// InTime returns nil if a token is good at this time, and an error with token_expired
// if its time is over or has not come.
func (c *Claims) InTime(now time.Time) error {
	// A token that is good from its issue on may come from a clock that goes before; a
	// beginning that somebody chose is kept.
	from := c.NotBefore.Time()
	if c.NotBefore == c.IssuedAt {
		from = from.Add(-ClockSkew)
	}
	const code = toolcrib.CodeTokenExpired
	switch {
	case now.Before(c.IssuedAt.Time().Add(-ClockSkew)):
		return toolcrib.Errorf(code, "the token is not valid yet: "+
			"by the clock of this server it was issued in the future; set the clock")
	case now.Before(from):
		begin := c.NotBefore.Time().Format(time.RFC3339)
		return toolcrib.Errorf(code, "the token is not valid yet; it will be from %s", begin)
	case !now.Before(c.Expires.Time()):
		return toolcrib.Errorf(code, "the token expired at %s; ask for a new one", c.Expires.Time().Format(time.RFC3339))
	}
	return nil
}

// WhyRevoked says why a token is no longer good, though its time is not over: it
// must be among the tokens that were issued and not revoked, and both its subject and
// its issuer, if they are users, must still be allowed to do something. "" means that
// it is good.
func WhyRevoked(ctx context.Context, users Users, tokens Tokens, c Claims) (string, error) {
	issued, err := tokens.Token(ctx, c.ID)
	switch {
	case errors.Is(err, toolcrib.ErrNotFound):
		return "the token was not issued here", nil
	case err != nil:
		return "", err
	case !issued.Revoked.IsZero():
		return "the token was revoked", nil
	}
	if c.Subject != Bearer {
		if why, err := inactive(ctx, users, c.Subject, "its user"); why != "" || err != nil {
			return why, err
		}
	}
	if strings.HasPrefix(c.Issuer, "local:") {
		return "", nil
	}
	return inactive(ctx, users, c.Issuer, "who issued it")
}

// inactive says that somebody may no longer do anything; what they are to the token.
func inactive(ctx context.Context, users Users, name, what string) (string, error) {
	u, err := users.User(ctx, name)
	switch {
	case errors.Is(err, toolcrib.ErrNotFound):
		return "the token is no longer valid: " + what + ", " + clip(name) + ", was removed", nil
	case err != nil || u.Active():
		return "", err
	}
	return "the token is no longer valid: " + what + ", " + clip(name) + ", is disabled", nil
}

// Clock is a time that never goes back, so that a clock that is set back gives no
// expired token a second life, and no used minute a second time. A clock that is set
// forward by mistake, and back, holds until the time has come again or the process
// ends.
type Clock struct {
	now  func() time.Time
	mu   sync.Mutex
	last time.Time
}

// NewClock makes a clock from now (if nil, [time.Now]) that starts no earlier than
// floor, the time of the last thing that is known to have happened; it may be zero.
func NewClock(now func() time.Time, floor time.Time) *Clock {
	if now == nil {
		now = time.Now
	}
	return &Clock{now: now, last: floor}
}

// Now returns the time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Without the monotonic reading, which would hide that the clock was set.
	if t := c.now().Round(0); t.After(c.last) {
		c.last = t
	}
	return c.last
}
