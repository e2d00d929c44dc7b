package people

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"
	"golang.org/x/text/unicode/norm"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/access/standing"
	"github.com/toolcrib/toolcrib/service/env"
)

// Bounds of a password, and the lifetime of a link by which a person sets one.
const (
	MinPassword      = 12   // characters
	MaxPasswordBytes = 1024 // in UTF-8
	LinkTTL          = 24 * time.Hour

	maxLinkBytes = 64
)

// The parameters of argon2id for new passwords: those that OWASP recommends for 19 MiB.
const (
	hashMemory  = 19 << 10 // KiB
	hashTime    = 2
	hashThreads = 1
	hashSalt    = 16 // bytes
	hashBytes   = 32

	// hashesAtOnce bounds the memory for passwords that are checked at the same time, and hashWait how long others wait.
	hashesAtOnce = 4
	hashWait     = 10 * time.Second
)

// credential is what is stored of a user's password. Neither the password nor the link can be found from it.
type credential struct {
	User string    `json:"user"`
	Hash string    `json:"hash,omitempty"` // in PHC form; "" if there is no password
	Set  time.Time `json:"set_at,omitzero"`
	Link *link     `json:"link,omitempty"`
	Kept string    `json:"kept,omitempty"` // key of the session that has set the password, and continues
}

// link permits to set a password once.
type link struct {
	Hash    string    `json:"hash"` // SHA-256 of its token
	By      string    `json:"by"`
	Expires time.Time `json:"expires_at"`
}

// tag distinguishes a password from those before and after it. It is "" without a password.
func (c *credential) tag() string {
	if c.Hash == "" {
		return ""
	}
	return keyOf(c.Hash)[:32]
}

// folderOf returns the name of a stored file that belongs to a key, which is not in the name.
func folderOf(folder, key string) string {
	sum := sha256.Sum256([]byte(key))
	name := hex.EncodeToString(sum[:])
	return folder + "/" + name[:2] + "/" + name
}

// credentialOf returns the stored credential of a user, or the zero value.
func (s *People) credentialOf(ctx context.Context, user string) (c credential, err error) {
	data, err := s.env.Store.File(ctx, folderOf(env.PasswordFolder, user))
	if errors.Is(err, toolcrib.ErrNotFound) {
		return c, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err == nil && c.User != user {
		err = toolcrib.Errorf(toolcrib.CodeInternal, "the stored password belongs to another user")
	}
	return c, err
}

// changeCredential changes the stored credential of a user. change may be called more than once.
func (s *People) changeCredential(ctx context.Context, user string, change func(*credential) error) error {
	return s.env.Store.ChangeFile(ctx, folderOf(env.PasswordFolder, user), func(before []byte) ([]byte, error) {
		c := credential{User: user}
		if before != nil {
			if err := json.Unmarshal(before, &c); err != nil {
				return nil, err
			}
		}
		if err := change(&c); err != nil {
			return nil, err
		}
		return c.stored()
	})
}

func (c *credential) stored() ([]byte, error) {
	if c.Hash == "" && c.Link == nil {
		return nil, nil
	}
	return json.Marshal(c)
}

// WithoutLink removes the link from the stored content of a password.
func WithoutLink(stored []byte) ([]byte, error) {
	var c credential
	if err := json.Unmarshal(stored, &c); err != nil {
		return nil, err
	}
	c.Link = nil
	return c.stored()
}

// CheckPassword returns an error that says why a password cannot be set, or nil.
func CheckPassword(user, password string) error {
	if len(password) > MaxPasswordBytes { // before any work
		return env.BadRequestf("the password has more than %d bytes; choose a shorter one", MaxPasswordBytes)
	}
	// Some characters are several in the normal form, and are not harder to guess for it.
	switch n := min(utf8.RuneCountInString(password), utf8.RuneCountInString(norm.NFKC.String(password))); {
	case !utf8.ValidString(password):
		return env.BadRequestf("the password is not text in UTF-8")
	case n < MinPassword:
		return env.BadRequestf("the password has %d characters; choose one of at least %d, such as four random words", n,
			MinPassword)
	case strings.ContainsFunc(password, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return env.BadRequestf("the password has a control character, such as a line break")
	case user != "" && strings.Trim(strings.ToLower(password), strings.ToLower(user)) == "",
		strings.Trim(password, password[:1]) == "":
		return env.BadRequestf("the password is too easy to guess; choose another one")
	}
	return nil
}

// clipped bounds what is done with a password before its length is checked.
func clipped(password string) string { return password[:min(len(password), MaxPasswordBytes+1)] }

// hash returns a password in the PHC form of argon2id, with a salt of its own.
func (s *People) hash(ctx context.Context, password string) (string, error) {
	salt := make([]byte, hashSalt)
	_, _ = rand.Read(salt) // it never fails
	h := phc{memory: hashMemory, time: hashTime, threads: hashThreads, salt: salt}
	key, err := s.derive(ctx, password, h, hashBytes)
	if err != nil {
		return "", err
	}
	h.key = key
	return h.String(), nil
}

// matches reports whether a password has a hash. Without a hash it takes the same time, and is false.
func (s *People) matches(ctx context.Context, password, hash string) (bool, error) {
	h, err := parsePHC(hash)
	none := err != nil || len(password) > MaxPasswordBytes
	if none {
		h = phc{memory: hashMemory, time: hashTime, threads: hashThreads, salt: make([]byte, hashSalt)}
		h.key = make([]byte, hashBytes)
	}
	if hash != "" && err != nil {
		return false, toolcrib.Errorf(toolcrib.CodeInternal, "the stored password cannot be read")
	}
	key, err := s.derive(ctx, clipped(password), h, len(h.key))
	return err == nil && subtle.ConstantTimeCompare(key, h.key) == 1 && !none, err
}

// derive computes a key within the bound of memory. Keyboards differ in how they compose characters, so a password is
// normalized first.
func (s *People) derive(ctx context.Context, password string, h phc, n int) ([]byte, error) {
	waiting, cancel := context.WithTimeout(ctx, hashWait)
	defer cancel()
	select {
	case s.state.hashing <- struct{}{}:
	case <-waiting.Done():
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		err := toolcrib.Errorf(toolcrib.CodeOverloaded, "too many passwords are being checked; try again")
		err.RetryAfter = time.Second
		return nil, err
	}
	defer func() { <-s.state.hashing }()
	return argon2.IDKey([]byte(norm.NFKC.String(password)), h.salt, h.time, h.memory, h.threads, uint32(n)), nil
}

// phc is a hash of argon2id in the form of the Password Hashing Competition.
type phc struct {
	memory, time uint32
	threads      uint8
	salt, key    []byte
}

func (h phc) String() string {
	b64 := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, h.memory, h.time, h.threads,
		b64.EncodeToString(h.salt), b64.EncodeToString(h.key))
}

func parsePHC(text string) (h phc, err error) {
	parts := strings.Split(text, "$")
	if len(parts) != 6 || parts[1] != "argon2id" || parts[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return h, errors.New("not a hash of argon2id")
	}
	if _, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &h.memory, &h.time, &h.threads); err != nil {
		return h, err
	}
	b64 := base64.RawStdEncoding.Strict()
	if h.salt, err = b64.DecodeString(parts[4]); err != nil {
		return h, err
	}
	if h.key, err = b64.DecodeString(parts[5]); err != nil {
		return h, err
	}
	const mostMemory, mostTime, mostThreads = 256 << 10, 16, 16
	if h.memory == 0 || h.memory > mostMemory || h.time == 0 || h.time > mostTime || h.threads == 0 ||
		h.threads > mostThreads || len(h.salt) < 8 || len(h.key) < hashBytes || len(h.key) > 64 {
		return h, errors.New("impossible parameters of argon2id")
	}
	return h, nil
}

// SetPassword sets the password of a user, for administrators, and ends the sessions of that user.
func (s *People) SetPassword(ctx context.Context, who toolcrib.Principal, name, password string) error {
	by, u, err := s.administered(ctx, who, name)
	if err == nil {
		err = s.setPassword(ctx, u.Name, password, signInEntry{By: by}, "", nil)
	}
	return err
}

// ChangePassword sets one's own password, and ends the other sessions of that user. cookie is the one of the session
// that continues. Wrong old passwords are counted for what it acts by: the session or the access token. Own tokens stay
// valid ([People.RevokeOwnTokens]). A first password, for which old is "", is for administrators: it would outlive the
// token or the provider by which others have signed in.
func (s *People) ChangePassword(ctx context.Context, who toolcrib.Principal, from, old, password, cookie string) error {
	u, err := s.env.Store.Access().User(ctx, who.User)
	switch {
	case err != nil:
		return err
	case who.Token != "" || who.Actor != "":
		return toolcrib.Errorf(toolcrib.CodeForbidden, "sign in as %s to set the password", who.User)
	}
	if err := CheckPassword(u.Name, password); err != nil {
		return err
	}
	c, err := s.credentialOf(ctx, u.Name)
	if err != nil {
		return err
	}
	if c.Hash == "" && !who.Admin {
		return toolcrib.Errorf(toolcrib.CodeForbidden, "an administrator gives a link by which you set your first password "+
			"(toolcrib users password %s --link)", u.Name)
	}
	if c.Hash != "" {
		counters, err := s.countersOf(ctx, who, from, cookie)
		if err == nil {
			_, err = s.checkPassword(ctx, u.Name, old, from, counters)
		}
		if err != nil {
			return err
		}
	}
	return s.setPassword(ctx, u.Name, password, signInEntry{By: u.Name}, cookie, func(now *credential) error {
		if now.Hash != c.Hash {
			return toolcrib.Errorf(toolcrib.CodeConflict, "the password was changed meanwhile")
		}
		return nil
	})
}

// countersOf returns the counters of who is signed in: of the access token, or the session, or else those of any other
// client.
func (s *People) countersOf(ctx context.Context, who toolcrib.Principal, from, cookie string) ([]counter, error) {
	if id := who.TokenID(); id != "" {
		return known(id), nil
	}
	w, err := s.session(ctx, cookie)
	switch {
	case err == nil && w.User == who.User:
		return known(w.key), nil
	case err != nil && !errors.Is(err, toolcrib.ErrNotFound):
		return nil, err
	}
	return unknown(who.User, from), nil
}

// HasPassword reports whether a user has a password: who asks or, for administrators, anybody.
func (s *People) HasPassword(ctx context.Context, who toolcrib.Principal, user string) (bool, error) {
	if user != who.User || who.Token != "" {
		if _, err := env.Administrator(who); err != nil {
			return false, err
		}
	}
	c, err := s.credentialOf(ctx, user)
	return c.Hash != "", err
}

// setPassword sets the password of a user, and ends the sessions of that user, except the one with this cookie. check
// may refuse what is stored now; it may be nil.
func (s *People) setPassword(
	ctx context.Context, user, password string, entry signInEntry, cookie string, check func(*credential) error,
) error {
	if err := CheckPassword(user, password); err != nil {
		return err
	}
	hash, err := s.hash(ctx, password)
	if err != nil {
		return err
	}
	entry.Name, entry.User = user, user
	if err := s.env.Record(ctx, access.PasswordSet, entry); err != nil {
		return err
	}
	err = s.changeCredential(ctx, user, func(c *credential) error {
		if check != nil {
			if err := check(c); err != nil {
				return err
			}
		}
		c.Hash, c.Set, c.Link, c.Kept = hash, s.Now(), nil, ""
		if cookie != "" {
			c.Kept = keyOf(cookie)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.endSessions(ctx, user, func(w *WebSession) bool { return w.key != keyOf(cookie) })
}

// RemovePassword removes the password and the link of a user, for administrators, and ends the sessions of that user.
// It reports whether there was one.
func (s *People) RemovePassword(ctx context.Context, who toolcrib.Principal, name string) (changed bool, err error) {
	by, u, err := s.administered(ctx, who, name)
	if err != nil {
		return false, err
	}
	c, err := s.credentialOf(ctx, u.Name)
	if err != nil || c.User == "" {
		return false, err
	}
	err = s.env.Record(ctx, access.PasswordRemoved, signInEntry{Name: u.Name, User: u.Name, By: by})
	if err == nil {
		err = s.forgetPassword(ctx, u.Name)
	}
	return err == nil, err
}

// forgetPassword removes the credential of a user, and ends the sessions of that user.
func (s *People) forgetPassword(ctx context.Context, user string) error {
	err := s.changeCredential(ctx, user, func(c *credential) error {
		c.Hash, c.Link, c.Kept = "", nil, ""
		return nil
	})
	if err == nil {
		err = s.endSessions(ctx, user, func(*WebSession) bool { return true })
	}
	return err
}

// PasswordLink is a link by which a person sets a password, once.
type PasswordLink struct {
	User    string    `json:"user"`
	Link    string    `json:"link"` // the part after the address of the server
	Expires time.Time `json:"expires_at"`
}

// LinkPath is the path of the page where a person sets a password; the token follows as a fragment, which browsers do
// not send.
const LinkPath = "/password#"

// PasswordLink returns a link by which the user sets a password, for administrators. A link made before becomes
// invalid. Only its hash is stored.
func (s *People) PasswordLink(ctx context.Context, who toolcrib.Principal, name string) (l PasswordLink, err error) {
	by, u, err := s.administered(ctx, who, name)
	if err != nil {
		return l, err
	}
	if why := standing.Inactive(u); why != "" {
		return l, toolcrib.Errorf(toolcrib.CodeForbidden, "%s", why)
	}
	token := base64.RawURLEncoding.EncodeToString([]byte(u.Name)) + "." + rand.Text()
	l = PasswordLink{User: u.Name, Link: LinkPath + token, Expires: s.Now().Add(LinkTTL)}
	if err := s.env.Record(ctx, access.PasswordLinked, signInEntry{Name: u.Name, User: u.Name, By: by}); err != nil {
		return l, err
	}
	return l, s.changeCredential(ctx, u.Name, func(c *credential) error {
		c.Link = &link{Hash: keyOf(token), By: by, Expires: l.Expires}
		return nil
	})
}

// errLink does not say whether a link was used, has expired or was never made.
func errLink() error {
	return toolcrib.Errorf(toolcrib.CodeUnauthorized,
		"the link is not valid: it was used, has expired, or is not complete; ask an administrator for another one")
}

// LinkUser returns the user for whom a link is. from is the address of the client, whose failures are counted.
func (s *People) LinkUser(ctx context.Context, token, from string) (user string, err error) {
	u, _, err := s.linked(ctx, token, from)
	return u.Name, err
}

func (s *People) linked(ctx context.Context, token, from string) (u access.User, c credential, err error) {
	if err := s.env.OpenToRead(ctx); err != nil {
		return u, c, err
	}
	if refused, err := s.tooMany(ctx, byAddress(from)); err != nil || refused != nil {
		return u, c, cmp.Or(err, refused)
	}
	encoded, _, ok := strings.Cut(token, ".")
	name, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if err == nil && ok && len(token) <= 2*access.MaxName+maxLinkBytes && access.CheckName(string(name)) == nil {
		if c, err = s.credentialOf(ctx, string(name)); err != nil {
			return u, c, err
		}
		if l := c.Link; l != nil && s.Now().Before(l.Expires) &&
			subtle.ConstantTimeCompare([]byte(l.Hash), []byte(keyOf(token))) == 1 {
			u, err = s.env.Store.Access().User(ctx, string(name))
			if err == nil && u.Active() {
				return u, c, nil
			}
			if err != nil && !errors.Is(err, toolcrib.ErrNotFound) {
				return u, c, err
			}
		}
	}
	if err := s.count(ctx, []counter{byAddress(from)}); err != nil {
		return u, c, err
	}
	return access.User{}, credential{}, errLink()
}

// UseLink sets the password of the user of a link, which becomes invalid, and ends the sessions of that user.
func (s *People) UseLink(ctx context.Context, token, password, from string) (user string, err error) {
	u, c, err := s.linked(ctx, token, from)
	if err != nil {
		return "", err
	}
	if err := CheckPassword(u.Name, password); err != nil { // the link stays valid
		return "", err
	}
	entry := signInEntry{By: u.Name, Via: ViaLink}
	return u.Name, s.setPassword(ctx, u.Name, password, entry, "", func(now *credential) error {
		if now.Link == nil || now.Link.Hash != c.Link.Hash { // of two at once, one uses it
			return errLink()
		}
		return nil
	})
}
