package access

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"

	"github.com/toolcrib/toolcrib"
)

// A token is TokenPrefix and a JSON Web Signature (RFC 7515, compact) made with EdDSA
// over Ed25519 (RFC 8037). The prefix has the version, and lets scanners find tokens
// that leaked.
const (
	TokenPrefix = "toolcrib_v1_"
	// MaxTokenBytes bounds a token: a header that servers and proxies let pass.
	MaxTokenBytes = 7 << 10

	tokenAnyVersion = "toolcrib_v"
	tokenType       = "toolcrib+jwt" // RFC 8725, 3.11
	idPrefix        = "tok_"
	maxClaimBytes   = 256 // of a name or an ID
)

// KeyPurpose is the purpose under which the seed of the signing key is derived from
// the keys of a data folder (store.Keys.Derive): the same key file on all servers
// makes the same key.
const KeyPurpose = "access tokens"

// DefaultAudience is the audience of tokens for toolcrib's own interfaces.
const DefaultAudience = "toolcrib"

// Bearer as a subject means whoever carries the token.
const Bearer = "*"

// How long a token is good.
const (
	DefaultTTL    = time.Hour
	DefaultMaxTTL = 366 * 24 * time.Hour
	minTTL        = time.Second
)

// UnixTime is a time in whole seconds since 1970, as tokens carry it (RFC 7519,
// NumericDate).
type UnixTime int64

// Time returns it in UTC.
func (t UnixTime) Time() time.Time { return time.Unix(int64(t), 0).UTC() }

// Claims are what a token says (M16).
type Claims struct {
	Issuer    string   `json:"iss"` // the user who issued it
	Subject   string   `json:"sub"` // the user who is acted for, or [Bearer]
	Audience  string   `json:"aud"` // where it is good
	IssuedAt  UnixTime `json:"iat"`
	NotBefore UnixTime `json:"nbf"`
	Expires   UnixTime `json:"exp"` // it is worthless from this second on
	ID        string   `json:"jti"`
	Scope     Scope    `json:"scope"`
	Via       string   `json:"issued_via"` // how it was issued: cli, api, web, start
}

// ActsFor returns the user whom the token acts for. caller is who presents it, where
// something else than the token proves that (the node at the bus); if "", the token is
// all there is. A token of somebody else is unauthorized, as is one for any bearer
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

// Limits of the calls that the token may make.
func (c *Claims) Limits() Limits {
	return Limits{PerMinute: c.Scope.RatePerMinute, Total: c.Scope.MaxCalls, Expires: c.Expires.Time()}
}

// check says what is wrong with the claims; "" if nothing.
func (c *Claims) check() string {
	for _, text := range []string{c.Issuer, c.Subject, c.Audience, c.ID, c.Via} {
		if text == "" || len(text) > maxClaimBytes || !utf8.ValidString(text) {
			return "one of its claims is missing or too long"
		}
	}
	const latest = 253402300800 // the year 10000
	if c.IssuedAt <= 0 || c.NotBefore < c.IssuedAt || c.Expires <= c.NotBefore || c.Expires >= latest {
		return "its times do not fit together"
	}
	return ""
}

// payload carries the claims through the JWT library unread: they are read after the
// signature was found good. The library has no claims of its own to check.
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

// claims reads the payload strictly: what this version does not know could narrow the
// scope, so it refuses the whole.
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

// Signer issues tokens. It prints as a word, never as its key.
type Signer struct {
	key    ed25519.PrivateKey
	public PublicKey
	maxTTL time.Duration
}

// NewSigner makes a signer from 32 secret bytes (see [KeyPurpose]). maxTTL is the
// longest time that a token may be good; 0 means [DefaultMaxTTL].
func NewSigner(seed []byte, maxTTL time.Duration) (*Signer, error) {
	if len(seed) != ed25519.SeedSize {
		return nil, toolcrib.Errorf(toolcrib.CodeInternal, "the key that signs tokens must have %d bytes", ed25519.SeedSize)
	}
	if maxTTL < 0 {
		return nil, toolcrib.Errorf(toolcrib.CodeInternal, "the longest life of a token must not be negative")
	}
	if maxTTL == 0 {
		maxTTL = DefaultMaxTTL
	}
	key := ed25519.NewKeyFromSeed(seed)
	public, _ := key.Public().(ed25519.PublicKey)
	sum := sha256.Sum256(public)
	return &Signer{key: key, public: PublicKey{ID: hex.EncodeToString(sum[:8]), Key: public}, maxTTL: maxTTL}, nil
}

// Public returns the key that verifies this signer's tokens.
func (s *Signer) Public() PublicKey { return s.public }

// Format implements [fmt.Formatter], so that no verb prints the key.
func (s *Signer) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "signer") }

// Request asks for a token.
type Request struct {
	// By is who asks. An administrator may ask for anybody, others for themselves.
	By toolcrib.Principal
	// ByToken is the ID of the token by which By acts, if any: no token issues another
	// one (M16).
	ByToken   string
	Subject   string        // a user's name or [Bearer]; if "", By
	Audience  string        // if "", [DefaultAudience]
	TTL       time.Duration // in whole seconds; if 0, [DefaultTTL]
	NotBefore time.Time     // if zero, now
	Scope     Scope
	Via       string // cli, api, web or start
}

// Issue makes a token. Only its claims are kept ([Tokens]); the token itself is shown
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
	if token = TokenPrefix + signed; len(token) > MaxTokenBytes {
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
	if r.TTL == 0 {
		r.TTL = min(DefaultTTL, s.maxTTL)
	}
	longest := s.maxTTL.String()
	if days := s.maxTTL / (24 * time.Hour); days > 1 && s.maxTTL%(24*time.Hour) == 0 {
		longest = fmt.Sprintf("%d days", days)
	}
	from := now
	if r.NotBefore.After(now) {
		from = r.NotBefore
	}
	switch {
	case r.TTL < minTTL || r.TTL > s.maxTTL:
		return c, bad("a token is good for %s to %s; ask for a time between", minTTL, longest)
	case from.Sub(now) > s.maxTTL:
		return c, bad("a token must be good within %s from now", longest)
	case r.Audience == "":
		r.Audience = DefaultAudience
	}
	c = Claims{
		Issuer: r.By.User, Subject: subject, Audience: r.Audience, Scope: scope, Via: r.Via, ID: idPrefix + rand.Text(),
		IssuedAt: UnixTime(now.Unix()), NotBefore: UnixTime(from.Unix()),
	}
	c.Expires = c.NotBefore + UnixTime(r.TTL/time.Second)
	if problem := c.check(); problem != "" {
		return Claims{}, bad("the token cannot be issued: %s", problem)
	}
	return c, nil
}

// mayIssue returns the subject of a token that may be issued.
func mayIssue(r Request) (string, error) {
	subject := r.Subject
	if subject == "" {
		subject = r.By.User
	}
	switch {
	case r.By.User == "":
		return "", toolcrib.Errorf(toolcrib.CodeUnauthorized, "the user who asks for the token is missing")
	case r.ByToken != "":
		return "", toolcrib.Errorf(toolcrib.CodeForbidden,
			"a token cannot issue another one; log in, or use the command line on the server")
	case !r.By.Admin && subject != r.By.User:
		return "", toolcrib.Errorf(toolcrib.CodeForbidden,
			"only administrators issue tokens for others, and %s is not one", r.By.User)
	case subject == Bearer:
		return subject, nil
	}
	name, err := CheckName(subject)
	if err != nil {
		return "", bad("a token belongs to a user that `toolcrib users add` made, and %+q can be none", clip(subject))
	}
	return name, nil
}
