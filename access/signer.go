package access

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"time"

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
)

// KeyPurpose is the purpose under which the seed of the signing key is derived from
// the keys of a data folder (store.Keys.Derive): the same key file on all servers
// makes the same key.
const KeyPurpose = "access tokens"

// DefaultAudience is the audience of tokens for toolcrib's own interfaces.
const DefaultAudience = "toolcrib"

// How long a token is good.
const (
	DefaultTTL    = time.Hour
	DefaultMaxTTL = 366 * 24 * time.Hour
	minTTL        = time.Second
)

// PublicKey verifies tokens.
type PublicKey struct {
	ID  string // the first 16 hexadecimal digits of its SHA-256
	Key ed25519.PublicKey
}

// NewPublicKey names a key.
func NewPublicKey(key ed25519.PublicKey) PublicKey {
	sum := sha256.Sum256(key)
	return PublicKey{ID: hex.EncodeToString(sum[:8]), Key: key}
}

// Signer issues tokens. It prints as a word, never as its key.
type Signer struct {
	key    ed25519.PrivateKey
	public PublicKey
	maxTTL time.Duration
}

// NewSigner makes a signer from 32 secret bytes (see [KeyPurpose]). maxTTL is the
// longest time that a token may be good; 0 = [DefaultMaxTTL].
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
	return &Signer{key: key, public: NewPublicKey(public), maxTTL: maxTTL}, nil
}

// spanText is a span of time in words.
func spanText(d time.Duration) string {
	const day = 24 * time.Hour
	if d > day && d%day == 0 {
		return fmt.Sprintf("%d days", d/day)
	}
	return d.String()
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
	Subject   string        // a user's name or [Bearer]; "" = By
	Audience  string        // "" = [DefaultAudience]
	TTL       time.Duration // 0 = [DefaultTTL]; whole seconds
	NotBefore time.Time     // zero = now
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
		return "", Claims{}, &toolcrib.Error{Code: toolcrib.CodeBadRequest, Message: "the claims of the token are no JSON", Err: err}
	}
	unsigned := jwt.NewWithClaims(jwt.SigningMethodEdDSA, &payload{raw: raw})
	unsigned.Header["typ"] = tokenType
	unsigned.Header["kid"] = s.public.ID
	signed, err := unsigned.SignedString(s.key)
	if err != nil {
		return "", Claims{}, &toolcrib.Error{Code: toolcrib.CodeInternal, Message: "the token cannot be signed", Err: err}
	}
	if token = TokenPrefix + signed; len(token) > MaxTokenBytes {
		return "", Claims{}, toolcrib.Errorf(toolcrib.CodeBadRequest, "the token would have more than %d bytes; use globs, or fewer names in its scope", MaxTokenBytes)
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
	if r.TTL < minTTL || r.TTL > s.maxTTL {
		return c, toolcrib.Errorf(toolcrib.CodeBadRequest, "a token is good for %s to %s; ask for a time between", minTTL, spanText(s.maxTTL))
	}
	from := now
	if !r.NotBefore.IsZero() && r.NotBefore.After(now) {
		if r.NotBefore.Sub(now) > s.maxTTL {
			return c, toolcrib.Errorf(toolcrib.CodeBadRequest, "a token must be good within %s from now", spanText(s.maxTTL))
		}
		from = r.NotBefore
	}
	c = Claims{
		Issuer: r.By.User, Subject: subject, Audience: r.Audience, Scope: scope, Via: r.Via, ID: idPrefix + rand.Text(),
		IssuedAt: UnixTime(now.Unix()), NotBefore: UnixTime(from.Unix()),
	}
	c.Expires = c.NotBefore + UnixTime(r.TTL/time.Second)
	if c.Audience == "" {
		c.Audience = DefaultAudience
	}
	if problem := c.check(); problem != "" {
		return Claims{}, toolcrib.Errorf(toolcrib.CodeBadRequest, "the token cannot be issued: %s", problem)
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
		return "", toolcrib.Errorf(toolcrib.CodeUnauthorized, "it is not known who asks for the token")
	case r.ByToken != "":
		return "", toolcrib.Errorf(toolcrib.CodeForbidden, "a token cannot issue another one; log in, or use the command line on the server")
	case !r.By.Admin && subject != r.By.User:
		return "", toolcrib.Errorf(toolcrib.CodeForbidden, "tokens for others are issued by administrators, and %s is none", r.By.User)
	case subject == Bearer:
		return subject, nil
	}
	name, err := CheckName(subject)
	if err != nil {
		return "", toolcrib.Errorf(toolcrib.CodeBadRequest, "a token belongs to a user that `toolcrib users add` made, and %+q can be none", clip(subject))
	}
	return name, nil
}
