package access

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
	"golang.org/x/crypto/argon2"
	"golang.org/x/text/secure/precis"
)

// Bounds of a password: NIST SP 800-63B-4 asks for 15 characters where the password
// is all that proves who somebody is, and for no rules about which.
const (
	MinPasswordRunes = 15
	MaxPasswordBytes = 1024
)

// argon2id with the parameters of OWASP's Password Storage Cheat Sheet: 19 MiB, two
// passes, one lane.
const (
	hashMemory  = 19 << 10 // KiB
	hashPasses  = 2
	hashLanes   = 1
	hashBytes   = 32
	saltBytes   = 16
	hashVersion = argon2.Version

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
	none  string // what somebody without a password is compared with
}

// NewHasher returns a Hasher that works on at most parallel passwords at once, each
// with 19 MiB; 0 = 4. Further ones wait.
func NewHasher(parallel int) *Hasher {
	if parallel <= 0 {
		parallel = 4
	}
	return &Hasher{slots: make(chan struct{}, parallel), none: newHash([]byte(rand.Text())).String()}
}

// CheckPassword says what is wrong with a password that somebody wants to have.
func CheckPassword(password string) error {
	_, err := preparePassword(password)
	return err
}

// preparePassword returns the password in the form of RFC 8265 (OpaqueString), so
// that it is the same however it is typed.
func preparePassword(password string) ([]byte, error) {
	if len(password) > MaxPasswordBytes {
		return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "a password has at most %d bytes", MaxPasswordBytes)
	}
	if utf8.RuneCountInString(password) < MinPasswordRunes {
		return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "a password has at least %d characters; a few words will do", MinPasswordRunes)
	}
	text, err := precis.OpaqueString.Bytes([]byte(password))
	if err != nil || !utf8.ValidString(password) {
		return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "the password has characters that cannot be typed everywhere, such as control characters")
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

// Verify tells whether this is the password of a stored hash, and whether it should
// be hashed anew since today's parameters are others. Without a hash it takes as long
// as with one and is false, so that nobody learns who has a password. An error says
// that it could not be told: the answer is no.
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
	h := passwordHash{memory: hashMemory, passes: hashPasses, lanes: hashLanes, salt: make([]byte, saltBytes), sum: make([]byte, hashBytes)}
	_, _ = rand.Read(h.salt) // it never fails
	h.sum = h.of(password)
	return h
}

func (h passwordHash) of(password []byte) []byte {
	return argon2.IDKey(password, h.salt, h.passes, h.memory, h.lanes, uint32(len(h.sum)))
}

func (h passwordHash) outdated() bool {
	return h.memory != hashMemory || h.passes != hashPasses || h.lanes != hashLanes || len(h.salt) != saltBytes || len(h.sum) != hashBytes
}

func (h passwordHash) String() string {
	text := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", hashVersion, h.memory, h.passes, h.lanes, text.EncodeToString(h.salt), text.EncodeToString(h.sum))
}

// parseHash reads a stored hash. No error tells what was read.
func parseHash(text string) (h passwordHash, err error) {
	bad := &toolcrib.Error{Code: toolcrib.CodeInternal, Message: "the stored hash of the password cannot be read; set the password anew"}
	parts := strings.Split(text, "$")
	if len(text) > maxHashText || len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" || parts[2] != "v="+strconv.Itoa(hashVersion) {
		return h, bad
	}
	numbers := strings.Split(parts[3], ",")
	if len(numbers) != 3 {
		return h, bad
	}
	memory, ok1 := parameter(numbers[0], "m=", maxHashMemory)
	passes, ok2 := parameter(numbers[1], "t=", maxHashPasses)
	lanes, ok3 := parameter(numbers[2], "p=", maxHashLanes)
	decode := base64.RawStdEncoding.Strict()
	salt, err1 := decode.DecodeString(parts[4])
	sum, err2 := decode.DecodeString(parts[5])
	if !ok1 || !ok2 || !ok3 || err1 != nil || err2 != nil || memory < 8*lanes || len(salt) < 8 || len(sum) < 16 || len(sum) > 64 {
		return h, bad
	}
	return passwordHash{memory: memory, passes: passes, lanes: uint8(lanes), salt: salt, sum: sum}, nil
}

func parameter(text, name string, limit uint32) (uint32, bool) {
	digits, ok := strings.CutPrefix(text, name)
	n, err := strconv.ParseUint(digits, 10, 32)
	return uint32(n), ok && err == nil && n > 0 && uint32(n) <= limit
}
