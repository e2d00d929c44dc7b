package access

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"
	"golang.org/x/text/secure/precis"

	"github.com/toolcrib/toolcrib"
)

// Bounds of a password: NIST SP 800-63B-4 asks for 15 characters where the password
// is all that proves who someone is, and for no rules about which.
const (
	MinPasswordRunes = 15
	MaxPasswordBytes = 1024
)

// argon2id with the parameters of OWASP's Password Storage Cheat Sheet: 19 MiB, two
// passes, one lane.
const (
	hashMemory = 19 << 10 // KiB
	hashPasses = 2
	hashLanes  = 1
	hashBytes  = 32
	saltBytes  = 16

	// What is read back, from whatever was stored, costs no more than this.
	maxHashMemory = 256 << 10 // KiB
	maxHashPasses = 16
	maxHashLanes  = 16
	maxHashText   = 256 // bytes
)

// Hasher hashes and verifies passwords, not more of them at once than the memory is
// meant for. Make it with [NewHasher].
type Hasher struct {
	slots chan struct{}
	none  string // what someone without a password is compared with
}

// NewHasher returns a Hasher that works on at most parallel passwords at once, each
// with 19 MiB; 0 = 4. Further ones wait.
func NewHasher(parallel int) *Hasher {
	if parallel <= 0 {
		parallel = 4
	}
	return &Hasher{slots: make(chan struct{}, parallel), none: newHash([]byte(rand.Text())).String()}
}

// preparePassword returns the password in the form of RFC 8265 (OpaqueString), so
// that it is the same however it is typed.
func preparePassword(password string) ([]byte, error) {
	if len(password) > MaxPasswordBytes {
		return nil, bad("a password has at most %d bytes", MaxPasswordBytes)
	}
	if utf8.RuneCountInString(password) < MinPasswordRunes {
		return nil, bad("a password has at least %d characters; a few words will do", MinPasswordRunes)
	}
	text, err := precis.OpaqueString.Bytes([]byte(password))
	if err != nil || !utf8.ValidString(password) {
		return nil, bad("the password has characters that cannot be typed everywhere, such as control characters")
	}
	return text, nil
}

// Hash returns the hash of a password as it is stored, with its parameters, in the
// form that argon2's own tools use: $argon2id$v=19$m=…,t=…,p=…$SALT$HASH.
func (h *Hasher) Hash(ctx context.Context, password string) (string, error) {
	text, err := preparePassword(password)
	if err != nil {
		return "", err
	}
	defer clear(text)
	leave, err := h.enter(ctx)
	if err != nil {
		return "", err
	}
	defer leave()
	return newHash(text).String(), nil
}

// Verify reports whether this is the password of a stored hash, and whether it should
// be hashed again since today's parameters are others. Without a hash it takes as long
// as with one and is false, so that nobody learns who has a password. An error means
// that it could not be found out: the answer is no.
func (h *Hasher) Verify(ctx context.Context, hash, password string) (ok, rehash bool, err error) {
	if hash == "" {
		hash, password = h.none, "nobody has this password"
	}
	stored, err := parseHash(hash)
	if err != nil {
		return false, false, err
	}
	text, err := preparePassword(password)
	if err != nil { // nobody can have it
		text = []byte{}
	}
	defer clear(text)
	leave, err := h.enter(ctx)
	if err != nil {
		return false, false, err
	}
	defer leave()
	got := stored.of(text)
	if subtle.ConstantTimeCompare(got, stored.sum) != 1 || len(text) == 0 {
		return false, false, nil
	}
	return true, stored.outdated(), nil
}

func (h *Hasher) enter(ctx context.Context) (leave func(), err error) {
	if h == nil || h.slots == nil {
		return nil, toolcrib.Errorf(toolcrib.CodeInternal, "passwords cannot be verified: no hasher was made")
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case h.slots <- struct{}{}:
		return func() { <-h.slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// passwordHash is a hash with its parameters.
type passwordHash struct {
	memory, passes uint32
	lanes          uint8
	salt, sum      []byte
}

func newHash(password []byte) passwordHash {
	h := passwordHash{
		memory: hashMemory, passes: hashPasses, lanes: hashLanes, salt: make([]byte, saltBytes), sum: make([]byte, hashBytes),
	}
	_, _ = rand.Read(h.salt) // it never fails
	h.sum = h.of(password)
	return h
}

func (h passwordHash) of(password []byte) []byte {
	return argon2.IDKey(password, h.salt, h.passes, h.memory, h.lanes, uint32(len(h.sum)))
}

func (h passwordHash) outdated() bool {
	return h.memory != hashMemory || h.passes != hashPasses || h.lanes != hashLanes ||
		len(h.salt) != saltBytes || len(h.sum) != hashBytes
}

func (h passwordHash) String() string {
	text := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, h.memory, h.passes, h.lanes,
		text.EncodeToString(h.salt), text.EncodeToString(h.sum))
}

// parseHash reads a stored hash in the one form that String writes. The error holds
// nothing of it.
func parseHash(text string) (h passwordHash, err error) {
	if parts := strings.Split(text, "$"); len(text) <= maxHashText && len(parts) == 6 {
		_, err0 := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &h.memory, &h.passes, &h.lanes)
		var err1, err2 error
		h.salt, err1 = base64.RawStdEncoding.DecodeString(parts[4])
		h.sum, err2 = base64.RawStdEncoding.DecodeString(parts[5])
		if errors.Join(err0, err1, err2) == nil && h.String() == text && h.bounded() {
			return h, nil
		}
	}
	return passwordHash{}, toolcrib.Errorf(toolcrib.CodeInternal,
		"the stored hash of the password cannot be read; set the password again")
}

// bounded reports whether a hash costs no more than what any of ours may.
func (h passwordHash) bounded() bool {
	return h.memory >= 8*uint32(h.lanes) && h.memory <= maxHashMemory && h.passes > 0 && h.passes <= maxHashPasses &&
		h.lanes > 0 && h.lanes <= maxHashLanes && len(h.salt) >= 8 && len(h.sum) >= 16 && len(h.sum) <= 64
}
