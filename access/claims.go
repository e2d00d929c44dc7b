package access

import (
	"bytes"
	"encoding/json"
	"io"
	"time"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"
	"github.com/toolcrib/toolcrib"
)

// UnixTime is a time in whole seconds since 1970, as tokens carry it (RFC 7519,
// NumericDate).
type UnixTime int64

// Time returns it in UTC.
func (t UnixTime) Time() time.Time { return time.Unix(int64(t), 0).UTC() }

// Bearer as a subject means whoever carries the token.
const Bearer = "*"

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

const (
	maxClaimBytes = 256 // of a name or an ID
	idPrefix      = "tok_"
)

// ActsFor returns the user whom the token acts for. caller is who presents it, where
// something else than the token proves that (the node at the bus); "" = the token is
// all there is. A token of somebody else is unauthorized, as is one for any bearer
// without a caller.
func (c Claims) ActsFor(caller string) (string, error) {
	switch {
	case c.Subject == "" || c.Subject == Bearer && caller == "":
		return "", toolcrib.Errorf(toolcrib.CodeUnauthorized, "the token names no user; prove who you are as well, or use a token of your own")
	case c.Subject == Bearer:
		return caller, nil
	case caller != "" && caller != c.Subject:
		return "", toolcrib.Errorf(toolcrib.CodeUnauthorized, "the token belongs to somebody else; use one of your own")
	}
	return c.Subject, nil
}

// Limits of the calls that the token may make.
func (c *Claims) Limits() Limits {
	l := c.Scope.Limits()
	l.Expires = c.Expires.Time()
	return l
}

// check says whether the claims hang together; "" = they do.
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

// payload is what the JWT library carries: the claims, not read before the signature
// was found good. The library's own checks of claims are not used, so that it has
// nothing to ask.
type payload struct{ raw json.RawMessage }

func (*payload) GetExpirationTime() (*jwt.NumericDate, error) { return nil, nil }
func (*payload) GetIssuedAt() (*jwt.NumericDate, error)       { return nil, nil }
func (*payload) GetNotBefore() (*jwt.NumericDate, error)      { return nil, nil }
func (*payload) GetIssuer() (string, error)                   { return "", nil }
func (*payload) GetSubject() (string, error)                  { return "", nil }
func (*payload) GetAudience() (jwt.ClaimStrings, error)       { return nil, nil }

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
	if err := d.Decode(&c); err != nil {
		return Claims{}, err
	}
	if _, err := d.Token(); err != io.EOF {
		return Claims{}, io.ErrUnexpectedEOF
	}
	return c, nil
}
