package access

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"strings"
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
	// Revoked tells whether a token was revoked, or whoever issued it or is its
	// subject may do nothing any more; [RevokedIn] asks a store. An error refuses.
	Revoked func(ctx context.Context, c Claims) (bool, error)
	// Why says why a token counts as revoked, for the message; it may be nil
	// ([WhyRevoked]).
	Why func(ctx context.Context, c Claims) (string, error)
	// Now is the time; one that never goes back is that of a [Clock].
	Now func() time.Time
}

// Verify returns the claims of a token that is good now, or an [*toolcrib.Error] (M16):
// bad_request if it has not the form of a token of ours (the prefix, three parts of
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
		return Claims{}, toolcrib.Errorf(toolcrib.CodeUnauthorized, "the token is for another server or interface; ask for one for this")
	}
	revoked, err := v.Revoked(ctx, c)
	switch {
	case err != nil:
		return Claims{}, &toolcrib.Error{Code: toolcrib.CodeInternal, Message: "it cannot be found out whether the token was revoked; try again", Err: err}
	case revoked:
		return Claims{}, toolcrib.Errorf(toolcrib.CodeTokenRevoked, "%s; ask for a new one", v.why(ctx, c))
	}
	return c, nil
}

// why says why a token counts as revoked.
func (v *Verifier) why(ctx context.Context, c Claims) string {
	if v.Why != nil {
		if why, err := v.Why(ctx, c); err == nil && why != "" {
			return why
		}
	}
	return "the token was revoked, or its user, or who issued it, is disabled"
}

// shape returns the JSON Web Signature in a token that looks like one.
func shape(token string) (string, error) {
	if len(token) > MaxTokenBytes {
		return "", toolcrib.Errorf(toolcrib.CodeBadRequest, "this is no token: it has more than %d bytes", MaxTokenBytes)
	}
	signed, ok := strings.CutPrefix(token, TokenPrefix)
	switch {
	case !ok && strings.HasPrefix(token, tokenAnyVersion):
		return "", toolcrib.Errorf(toolcrib.CodeBadRequest, "the token was made by another version of toolcrib, or was changed on its way; ask for a new one")
	case !ok:
		return "", toolcrib.Errorf(toolcrib.CodeBadRequest, "this is no token: it does not begin with %s", TokenPrefix)
	}
	for i := range len(signed) { // base64 would pass over line ends
		if c := signed[i]; !isLetterOrDigit(c) && c != '.' && c != '-' && c != '_' {
			return "", malformed()
		}
	}
	// A signature that is empty is one that is wrong.
	parts := strings.Split(signed, ".")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" {
		return "", malformed()
	}
	return signed, nil
}

func malformed() error {
	return toolcrib.Errorf(toolcrib.CodeBadRequest, "this is no whole token; copy it again, from its first to its last character")
}

func invalid(err error) error {
	return &toolcrib.Error{Code: toolcrib.CodeTokenInvalid, Message: "the token was changed or is not whole, or was signed with a key that this server does not have; copy it again, or ask for a new one", Err: err}
}

// signed returns the claims if one of the keys signed them. Nothing of the token is
// read before that: the signature is over its text, and a token that was changed
// anywhere is told in the same words, whatever became of it.
func (v *Verifier) signed(text string) (Claims, error) {
	by := v.signer(text)
	if by == "" {
		return Claims{}, invalid(nil)
	}
	parser := jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}), jwt.WithStrictDecoding(), jwt.WithoutClaimsValidation())
	var p payload
	if _, err := parser.ParseWithClaims(text, &p, func(t *jwt.Token) (any, error) { return v.keyOf(t, by) }); err != nil {
		return Claims{}, invalid(err)
	}
	c, err := p.claims()
	if err != nil {
		return Claims{}, &toolcrib.Error{Code: toolcrib.CodeTokenInvalid, Message: "the token says what this version of toolcrib does not know; update this server, or ask for a new token", Err: err}
	}
	if problem := c.check(); problem != "" {
		return Claims{}, toolcrib.Errorf(toolcrib.CodeTokenInvalid, "the token is not complete: %s; ask for a new one", problem)
	}
	if c.Scope, err = c.Scope.Check(); err != nil {
		return Claims{}, &toolcrib.Error{Code: toolcrib.CodeTokenInvalid, Message: "the scope of the token cannot be read; ask for a new one", Err: err}
	}
	return c, nil
}

// signer names the key that signed the text; "" = none of them. Each key is tried, as
// the header that names one is not to be believed yet.
func (v *Verifier) signer(text string) string {
	dot := strings.LastIndexByte(text, '.')
	// Strict: the last character has spare bits, which else could be any.
	signature, err := base64.RawURLEncoding.Strict().DecodeString(text[dot+1:])
	if err != nil {
		return ""
	}
	found := ""
	for _, key := range v.Keys {
		if len(key.Key) == ed25519.PublicKeySize && key.ID != "" && ed25519.Verify(key.Key, []byte(text[:dot]), signature) {
			found = key.ID
		}
	}
	return found
}

// keyOf returns the key that a header names, which must be the one that signed. The
// header may say nothing else: what it could say besides (RFC 7515: jwk, jku, x5c,
// crit) is how others were fooled.
func (v *Verifier) keyOf(t *jwt.Token, signer string) (any, error) {
	id, _ := t.Header["kid"].(string)
	if t.Header["typ"] != tokenType || len(t.Header) != 3 || id != signer {
		return nil, errors.New("the header is none of ours")
	}
	for _, key := range v.Keys {
		if key.ID == id && len(key.Key) == ed25519.PublicKeySize {
			return key.Key, nil
		}
	}
	return nil, errors.New("no such key")
}

// InTime tells whether a token is good at this time: nil, or an error with
// token_expired if its time is over or has not come.
func (c *Claims) InTime(now time.Time) error {
	switch {
	case now.Before(c.IssuedAt.Time().Add(-ClockSkew)):
		return toolcrib.Errorf(toolcrib.CodeTokenExpired, "the token is not valid yet: by the clock of this server it was issued in the future; set the clock")
	case now.Before(c.NotBefore.Time()) && now.Before(c.NotBefore.Time().Add(-skewOf(c))):
		return toolcrib.Errorf(toolcrib.CodeTokenExpired, "the token is not valid yet; it will be from %s", c.NotBefore.Time().Format(time.RFC3339))
	case !now.Before(c.Expires.Time()):
		return toolcrib.Errorf(toolcrib.CodeTokenExpired, "the token expired at %s; ask for a new one", c.Expires.Time().Format(time.RFC3339))
	}
	return nil
}

// skewOf is what counts for the beginning: a token that is good from its issue on may
// come from a clock that goes before; a beginning that somebody chose is kept.
func skewOf(c *Claims) time.Duration {
	if c.NotBefore == c.IssuedAt {
		return ClockSkew
	}
	return 0
}

// RevokedIn returns what a [Verifier] needs: a token is good only if [WhyRevoked] has
// nothing against it.
func RevokedIn(users Users, tokens Tokens) func(context.Context, Claims) (bool, error) {
	return func(ctx context.Context, c Claims) (bool, error) {
		why, err := WhyRevoked(ctx, users, tokens, c)
		return why != "", err
	}
}

// WhyRevoked says why a token is not good any more, though its time is not over: it
// must be among the tokens that were issued and not revoked, and both its subject and
// its issuer, if they are users, must still be allowed to do something. "" = it is good.
func WhyRevoked(ctx context.Context, users Users, tokens Tokens, c Claims) (string, error) {
	issued, err := tokens.Token(ctx, c.ID)
	switch {
	case errors.Is(err, toolcrib.ErrNotFound):
		return "the token is none of those that were issued here", nil
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

// inactive says that somebody may do nothing any more; what they are to the token.
func inactive(ctx context.Context, users Users, name, what string) (string, error) {
	u, err := users.User(ctx, name)
	switch {
	case errors.Is(err, toolcrib.ErrNotFound):
		return "the token is not good any more: " + what + ", " + clip(name) + ", was removed", nil
	case err != nil || u.Active():
		return "", err
	}
	return "the token is not good any more: " + what + ", " + clip(name) + ", is disabled", nil
}
