package access

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"
	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// A token is TokenPrefix and a JSON Web Signature (RFC 7515, compact) made with EdDSA
// over Ed25519 (RFC 8037). The prefix contains the version, and lets scanners find leaked
// tokens.
const (
	TokenPrefix   = guard.TokenPrefix
	MaxTokenBytes = guard.MaxTokenBytes

	tokenAnyVersion = "toolcrib_v"
	tokenType       = "toolcrib+jwt" // RFC 8725, 3.11
	idPrefix        = "tok_"
	maxClaimBytes   = 256 // bytes of a name or an ID
)

// KeyPurpose is the purpose under which the seed of the signing key is derived from
// the keys of a data folder (store.Keys.Derive), so that all servers with the same key file
// have the same signing key.
const KeyPurpose = "access tokens"

// DefaultAudience is the audience of tokens for toolcrib's own interfaces.
const DefaultAudience = "toolcrib"

// BusAudience is the audience of tokens for capabilities on the bus. Such a token begins with BusPrefix. It is issued
// by a node, which alone accepts it, and its subject is the key of a node, or [Bearer].
const (
	BusAudience = "bus"
	BusPrefix   = guard.BusTokenPrefix
)

// prefixOf returns the beginning of tokens for an audience.
func prefixOf(audience string) string {
	if audience == BusAudience {
		return BusPrefix
	}
	return TokenPrefix
}

// Bearer is the subject of a token that any user may use.
const Bearer = "*"

// Lifetimes of a token.
const (
	DefaultTTL = time.Hour
	MaxTTL     = maxDays * 24 * time.Hour
	maxDays    = 366
	minTTL     = time.Second
)

// UnixTime is a time in whole seconds since 1970, as tokens carry it (RFC 7519,
// NumericDate).
type UnixTime int64

// Time returns t in UTC.
func (t UnixTime) Time() time.Time { return time.Unix(int64(t), 0).UTC() }

// Claims are the content of a token.
type Claims struct {
	Issuer    string   `json:"iss"` // the user who issued it
	Subject   string   `json:"sub"` // user for whom the token acts, or [Bearer]
	Audience  string   `json:"aud"` // the services that accept it
	IssuedAt  UnixTime `json:"iat"`
	NotBefore UnixTime `json:"nbf"`
	Expires   UnixTime `json:"exp"` // the first second at which it is expired
	ID        string   `json:"jti"`
	Scope     Scope    `json:"scope"`
	Via       string   `json:"issued_via"` // how it was issued: cli, api, web, start
	// Parent is the ID of the token by which it was asked for, or "". It is revoked with that token.
	Parent string `json:"parent,omitempty"`
}

// ActsFor returns the user whom the token acts for. caller is the user who presents it, if
// something other than the token proves that (the node on the bus), and otherwise "". The
// token of another user is unauthorized, and so is one of any bearer
// without a caller.
func (c Claims) ActsFor(caller string) (string, error) {
	switch {
	case c.Subject == "" || c.Subject == Bearer && caller == "":
		return "", toolcrib.Errorf(toolcrib.CodeUnauthorized,
			"the token names no user; prove who you are as well, or use a token of your own")
	case c.Subject == Bearer:
		return caller, nil
	case caller != "" && caller != c.Subject:
		return "", toolcrib.Errorf(toolcrib.CodeUnauthorized, "the token belongs to somebody else; use one of your own")
	}
	return c.Subject, nil
}

// Limits returns the limits of the token's calls.
func (c *Claims) Limits() Limits {
	return Limits{PerMinute: c.Scope.RatePerMinute, Total: c.Scope.MaxCalls, Expires: c.Expires.Time()}
}

// check returns the problem of invalid claims, or "".
func (c *Claims) check() string {
	for _, text := range []string{c.Issuer, c.Subject, c.Audience, c.ID, c.Via} {
		if text == "" || len(text) > maxClaimBytes || !utf8.ValidString(text) {
			return "one of its claims is missing or too long"
		}
	}
	const latest = 253402300800 // the year 10000
	if c.IssuedAt <= 0 || c.NotBefore < c.IssuedAt || c.Expires <= c.NotBefore || c.Expires >= latest {
		return "its times contradict each other"
	}
	return ""
}

// payload carries the claims through the JWT library as raw JSON: they are decoded after
// the signature was verified. The library has no claims of its own to check.
type payload struct {
	jwt.RegisteredClaims
	raw json.RawMessage
}

// UnmarshalJSON implements [json.Unmarshaler].
func (p *payload) UnmarshalJSON(data []byte) error {
	p.raw = bytes.Clone(data)
	return nil
}

// MarshalJSON implements [json.Marshaler].
func (p *payload) MarshalJSON() ([]byte, error) { return p.raw, nil }

// claims decodes the payload strictly: a field that this version does not know could narrow
// the scope, so it is an error.
func (p *payload) claims() (c Claims, err error) {
	d := json.NewDecoder(bytes.NewReader(p.raw))
	d.DisallowUnknownFields()
	d.UseNumber()
	err = d.Decode(&c)
	return c, err
}

// PublicKey verifies tokens.
type PublicKey struct {
	ID  string // the first 16 hexadecimal digits of its SHA-256
	Key ed25519.PublicKey
}

// Signer issues tokens. Printing it does not reveal its key.
type Signer struct {
	key    ed25519.PrivateKey
	public PublicKey
}

// NewSigner returns a signer from 32 secret bytes (see [KeyPurpose]).
func NewSigner(seed []byte) (*Signer, error) {
	if len(seed) != ed25519.SeedSize {
		return nil, toolcrib.Errorf(toolcrib.CodeInternal, "the key that signs tokens must have %d bytes", ed25519.SeedSize)
	}
	key := ed25519.NewKeyFromSeed(seed)
	public, _ := key.Public().(ed25519.PublicKey)
	sum := sha256.Sum256(public)
	return &Signer{key: key, public: PublicKey{ID: hex.EncodeToString(sum[:8]), Key: public}}, nil
}

// Public returns the key that verifies this signer's tokens.
func (s *Signer) Public() PublicKey { return s.public }

// Format implements [fmt.Formatter], so that no verb prints the key.
func (s *Signer) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "signer") } // fmt has no use for it

// Request is a request for a token.
type Request struct {
	// By is the user who asks. An administrator may ask for any user, others for themselves. Whoever
	// acts by a token may ask only with Maker.
	By toolcrib.Principal
	// Maker are the claims of the token by which By acts. The new one must be narrower ([Scope.Within]), not live
	// longer, and is revoked with it.
	Maker     *Claims
	Issuer    string        // if "", By; of a token for the bus, the key of the node
	Subject   string        // name of a user (of a token for the bus: the key of a node), or [Bearer]; if "", By
	Audience  string        // if "", [DefaultAudience]
	TTL       time.Duration // in whole seconds; if 0, [DefaultTTL], or until Maker expires
	NotBefore time.Time     // if zero, now
	Scope     Scope
	Via       string // cli, api, web or start
}

// Issue returns a token. Only its claims are stored ([Tokens]); the token itself is shown
// once and must not be logged.
func (s *Signer) Issue(r Request, now time.Time) (token string, c Claims, err error) {
	if c, err = s.claims(r, now); err != nil {
		return "", Claims{}, err
	}
	raw, err := json.Marshal(c)
	if err != nil {
		return "", Claims{}, &toolcrib.Error{
			Code: toolcrib.CodeBadRequest, Message: "the claims of the token cannot be written as JSON", Err: err,
		}
	}
	unsigned := jwt.NewWithClaims(jwt.SigningMethodEdDSA, &payload{raw: raw})
	unsigned.Header["typ"] = tokenType
	unsigned.Header["kid"] = s.public.ID
	signed, err := unsigned.SignedString(s.key)
	if err != nil {
		return "", Claims{}, &toolcrib.Error{Code: toolcrib.CodeInternal, Message: "the token cannot be signed", Err: err}
	}
	if token = prefixOf(c.Audience) + signed; len(token) > MaxTokenBytes {
		return "", Claims{}, bad("the token would have more than %d bytes; use globs, or fewer names in its scope",
			MaxTokenBytes)
	}
	return token, c, nil
}

func (s *Signer) claims(r Request, now time.Time) (c Claims, err error) {
	subject, err := mayIssue(r)
	if err != nil {
		return c, err
	}
	scope, err := r.Scope.Check()
	if err != nil {
		return c, err
	}
	byDefault := r.TTL == 0
	if byDefault {
		r.TTL = DefaultTTL
	}
	from := now
	if r.NotBefore.After(now) {
		from = r.NotBefore
	}
	switch {
	case r.TTL < minTTL || r.TTL > MaxTTL:
		return c, bad("a token's lifetime must be %s to %d days", minTTL, maxDays)
	case from.Sub(now) > MaxTTL:
		return c, bad("a token must become valid within %d days", maxDays)
	case r.Audience == "":
		r.Audience = DefaultAudience
	}
	c = Claims{
		Issuer: cmp.Or(r.Issuer, r.By.User), Subject: subject, Audience: r.Audience, Scope: scope, Via: r.Via,
		ID: idPrefix + rand.Text(), IssuedAt: UnixTime(now.Unix()), NotBefore: UnixTime(from.Unix()),
	}
	c.Expires = c.NotBefore + UnixTime(r.TTL/time.Second)
	if m := r.Maker; m != nil {
		if err := scope.Within(m.Scope); err != nil {
			return Claims{}, err
		}
		if m.Parent != "" {
			return Claims{}, toolcrib.Errorf(toolcrib.CodeForbidden, "this token was asked for by another one, and asks for none itself")
		}
		if byDefault && m.Expires > c.NotBefore {
			c.Expires = min(c.Expires, m.Expires)
		}
		if c.Parent = m.ID; c.Expires > m.Expires {
			return Claims{}, bad("a token lives no longer than the one that asks for it, until %s",
				m.Expires.Time().Format(time.RFC3339))
		}
	}
	if problem := c.check(); problem != "" {
		return Claims{}, bad("the token cannot be issued: %s", problem)
	}
	return c, nil
}

// mayIssue returns the subject of the requested token, or an error if it must not be issued.
func mayIssue(r Request) (string, error) {
	subject := r.Subject
	if subject == "" {
		subject = r.By.User
	}
	switch {
	case r.By.User == "":
		return "", toolcrib.Errorf(toolcrib.CodeUnauthorized, "the user who asks for the token is missing")
	case r.Audience == BusAudience:
		return subject, mayIssueForBus(r)
	case r.By.Token != "" && (r.Maker == nil || r.Maker.ID != r.By.Token || subject != r.By.User):
		return "", toolcrib.Errorf(toolcrib.CodeForbidden,
			"a token cannot issue another one; log in, or use the command line on the server")
	case !r.By.Admin && subject != r.By.User:
		return "", toolcrib.Errorf(toolcrib.CodeForbidden,
			"only administrators issue tokens for others, and %s is not one", r.By.User)
	case subject == Bearer:
		return subject, nil
	}
	if CheckName(subject) != nil {
		return "", bad("a token belongs to a user that `toolcrib users add` made, and %+q can be none", clip(subject))
	}
	return subject, nil
}

// mayIssueForBus returns an error if a requested token for the bus must not be issued.
func mayIssueForBus(r Request) error {
	switch {
	case r.By.Token != "" || r.Maker != nil:
		return toolcrib.Errorf(toolcrib.CodeForbidden,
			"a token cannot issue another one; log in, or use the command line on the server")
	case !r.By.Admin:
		return toolcrib.Errorf(toolcrib.CodeForbidden,
			"only administrators issue tokens for other nodes, and %s is not one", r.By.User)
	case r.Issuer == "" || r.Subject == "":
		return bad("a token for the bus needs the node that issues it, and the one that it is for")
	case r.Scope.SignIn || len(r.Scope.Capabilities) == 0 || r.Scope.Agents != nil || r.Scope.Tools != nil:
		return bad("a token for the bus is for capabilities, and names at least one, such as rag.query@1.0")
	}
	return nil
}

// ClockSkew is how far the clock of the server that issued a token may be ahead of the
// clock that verifies it. It never extends the life of a token: expiry is exact to the
// second.
const ClockSkew = 30 * time.Second

// Verifier verifies tokens. If a field is missing, it rejects every token. It is safe
// for concurrent use.
type Verifier struct {
	Keys     []PublicKey // the current key, and earlier ones while their tokens live
	Audience string
	// Revoked returns why a token is revoked, or "" if it is not ([WhyRevoked]). After an
	// error the token is rejected.
	Revoked func(ctx context.Context, c Claims) (why string, err error)
	// Now returns the time; that of a [Clock] never goes back.
	Now func() time.Time

	mu    sync.Mutex
	found map[[sha256.Size]byte]Claims // claims of tokens with a valid signature, by the hashes of the tokens
}

// Verify returns the claims of a token that is valid now, or an [*toolcrib.Error]:
// token_invalid if it does not have the form of a token (the prefix, three parts of
// base64url, the length; for [BusAudience] that is bad_request), was not signed by one of the keys or is altered,
// token_expired if it has expired or is not valid yet, unauthorized for
// another audience, token_revoked; internal_error if its state could not be determined.
func (v *Verifier) Verify(ctx context.Context, token string) (Claims, error) {
	if v == nil || v.Audience == "" || v.Revoked == nil || v.Now == nil {
		return Claims{}, toolcrib.Errorf(toolcrib.CodeInternal, "tokens cannot be verified: the verifier is not set up")
	}
	signed, err := shape(token, v.Audience)
	if err != nil {
		return Claims{}, err
	}
	c, err := v.signed(signed)
	if err != nil {
		return Claims{}, err
	}
	if err := v.Current(ctx, c); err != nil {
		return Claims{}, err
	}
	return c, nil
}

// Current returns an error as [Verifier.Verify] does unless a token that was verified earlier is still valid.
func (v *Verifier) Current(ctx context.Context, c Claims) error {
	if err := c.InTime(v.Now()); err != nil {
		return err
	}
	if c.Audience != v.Audience {
		return toolcrib.Errorf(toolcrib.CodeUnauthorized,
			"the token is for another server or interface; ask for one for this")
	}
	why, err := v.Revoked(ctx, c)
	switch {
	case err != nil:
		return &toolcrib.Error{
			Code: toolcrib.CodeInternal, Message: "cannot check whether the token was revoked; try again", Err: err,
		}
	case why != "":
		return toolcrib.Errorf(toolcrib.CodeTokenRevoked, "%s; ask for a new one", why)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return toolcrib.Errorf(toolcrib.CodeTokenInvalid, format, args...)
}

// shape returns the JSON Web Signature of a token for an audience that has the right form.
func shape(token, audience string) (string, error) {
	no := invalid
	if audience == BusAudience {
		no = bad
	}
	signed, ok := strings.CutPrefix(token, prefixOf(audience))
	switch {
	case len(token) > MaxTokenBytes:
		return "", no("this is not a token: it has more than %d bytes", MaxTokenBytes)
	case !ok && strings.HasPrefix(token, tokenAnyVersion) && audience != BusAudience:
		return "", no("the token was made by another version of toolcrib, or was changed on its way; ask for a new one")
	case !ok:
		return "", no("this is not a token: it does not begin with %s", prefixOf(audience))
	}
	strange := strings.ContainsFunc(signed, func(r rune) bool { // base64 would ignore line breaks
		return r > 'z' || !isLetterOrDigit(byte(r)) && !strings.ContainsRune(".-_", r)
	})
	// A token with an empty signature has the right form, and is rejected later.
	parts := strings.Split(signed, ".")
	if strange || len(parts) != 3 || parts[0] == "" || parts[1] == "" {
		return "", no("the token is incomplete; copy it again, from its first to its last character")
	}
	return signed, nil
}

// signed is read with a cache of tokens whose signatures were verified.
func (v *Verifier) signed(text string) (Claims, error) {
	hash := sha256.Sum256([]byte(text))
	v.mu.Lock()
	c, found := v.found[hash]
	v.mu.Unlock()
	if found {
		return c, nil
	}
	c, err := v.read(text)
	if err == nil {
		const most = 1000
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.found == nil || len(v.found) >= most {
			v.found = map[[sha256.Size]byte]Claims{}
		}
		v.found[hash] = c
	}
	return c, err
}

// read returns the claims if one of the keys signed them. The error for an altered token is
// the same wherever it was altered.
func (v *Verifier) read(text string) (Claims, error) {
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
		return invalid("the token has claims that this version of toolcrib does not know; "+
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

// ReadUnverified returns the claims of a token for an audience, to show them. They prove nothing: the signature is not
// checked. The error is that of [Verifier.Verify] for a token that does not have the form of one.
func ReadUnverified(token, audience string) (Claims, error) {
	signed, err := shape(token, audience)
	if err != nil {
		return Claims{}, err
	}
	var p payload
	if _, _, err = jwt.NewParser(jwt.WithStrictDecoding()).ParseUnverified(signed, &p); err != nil {
		code := toolcrib.CodeTokenInvalid
		if audience == BusAudience {
			code = toolcrib.CodeBadRequest
		}
		return Claims{}, &toolcrib.Error{Code: code, Message: "the token was changed or is malformed", Err: err}
	}
	c, err := p.claims()
	if err != nil {
		return Claims{}, &toolcrib.Error{
			Code: toolcrib.CodeTokenInvalid, Message: "the token has claims that this version of toolcrib does not know", Err: err,
		}
	}
	if problem := c.check(); problem != "" {
		return Claims{}, invalid("the token is not complete: %s", problem)
	}
	return c, nil
}

// keyOf returns the key that a header names. Other fields are rejected: attacks have
// used them (RFC 7515: jwk, jku, x5c, crit).
func (v *Verifier) keyOf(t *jwt.Token) (any, error) {
	for _, key := range v.Keys {
		if t.Header["kid"] == key.ID && key.ID != "" && t.Header["typ"] == tokenType && len(t.Header) == 3 &&
			len(key.Key) == ed25519.PublicKeySize {
			return key.Key, nil
		}
	}
	return nil, errors.New("the header is unknown")
}

// InTime returns nil if a token is valid at this time, and an error with token_expired
// if it has expired or is not valid yet.
func (c *Claims) InTime(now time.Time) error {
	// A token that is valid from its issue on may come from a clock that is ahead; a later
	// start was chosen by a person and is exact.
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

// WhyRevoked returns why a token is revoked, or "" if it is not. A token that is not
// revoked is recorded as issued and not as revoked, and its subject and
// its issuer, if they are users, are active. Expiry is not
// checked.
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
	if c.Parent != "" {
		parent, err := tokens.Token(ctx, c.Parent)
		switch {
		case errors.Is(err, toolcrib.ErrNotFound) || err == nil && parent.Claims.Parent != "":
			return "the token that asked for it was not issued here", nil
		case err != nil:
			return "", err
		}
		if why, err := WhyRevoked(ctx, users, tokens, parent.Claims); why != "" || err != nil {
			return why, err
		}
	}
	if c.Audience == BusAudience { // neither its subject nor its issuer is a user
		return "", nil
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

// inactive returns why a token is no longer valid if a user is not active; what is the role of the user in the token.
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

// Clock is a time that never goes back, so that a clock that is set back neither revives
// an expired token nor resets a used-up minute. After a clock was set forward by mistake,
// and back, a Clock returns the same time until that time is reached or the process
// ends.
type Clock struct {
	now  func() time.Time
	mu   sync.Mutex
	last time.Time
}

// NewClock returns a clock from now (if nil, [time.Now]) that starts no earlier than
// floor, the time of the last recorded event; it may be zero.
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
	// Round(0) strips the monotonic reading, which would hide that the clock was set.
	if t := c.now().Round(0); t.After(c.last) {
		c.last = t
	}
	return c.last
}
