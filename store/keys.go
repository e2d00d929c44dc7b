package store

import (
	"bytes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/toolcrib/toolcrib"
)

// MaxKeysBytes bounds a key file.
const MaxKeysBytes = 4096

const (
	keysTitle = "toolcrib keys "
	keysV1    = keysTitle + "1"
	keyBytes  = 32
)

// Keys are the secrets of a data folder: a root of 32 random bytes, from which
// the key of each purpose is derived, so that one file serves all of them. It
// prints as a word, never as what it holds.
type Keys struct {
	root [keyBytes]byte

	// Derived from it.
	head, id, row, place []byte
	record               cipher.AEAD
}

// NewKeys makes new keys.
func NewKeys() *Keys {
	k := new(Keys)
	_, _ = rand.Read(k.root[:]) // it never fails
	return k.derived()
}

// ParseKeys reads a key file: a line that names the format, then one line for
// each key, which is its name and hexadecimal digits. No error reports what was read.
func ParseKeys(text []byte) (*Keys, error) {
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	switch first := string(bytes.TrimSpace(lines[0])); {
	case len(text) > MaxKeysBytes:
		return nil, fmt.Errorf("more than %d bytes", MaxKeysBytes)
	case first == keysV1:
	case len(first) > len(keysTitle) && first[:len(keysTitle)] == keysTitle:
		return nil, errors.New("written by a later version of toolcrib")
	default:
		return nil, fmt.Errorf("its first line is not %q", keysV1)
	}
	k, found := new(Keys), false
	for i, line := range lines[1:] {
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		if string(name) != "root" {
			return nil, fmt.Errorf("line %d is not a key", i+2)
		}
		root, err := hex.DecodeString(string(bytes.TrimSpace(value)))
		if err != nil || len(root) != keyBytes || found {
			return nil, fmt.Errorf("line %d: there must be one root, of %d hexadecimal digits", i+2, 2*keyBytes)
		}
		copy(k.root[:], root)
		found = true
	}
	if !found {
		return nil, errors.New("it has no key")
	}
	return k.derived(), nil
}

// Text returns the content of a key file.
func (k *Keys) Text() []byte {
	return fmt.Appendf(nil, "%s\nroot %x\n", keysV1, k.root[:])
}

// Derive returns the key of a purpose: 32 bytes by HKDF-SHA256 (RFC 5869).
// Different purposes have keys that tell nothing about each other.
func (k *Keys) Derive(purpose string) []byte {
	key, err := hkdf.Key(sha256.New, k.root[:], nil, "toolcrib "+purpose, keyBytes)
	if err != nil { // only for lengths that are not asked for
		return nil
	}
	return key
}

// HeadMAC is the seal of a [Head]: HMAC-SHA256 over the last number of the system
// journal and the count of moves (big-endian, 64 bits each) and the hash of its chain.
func (k *Keys) HeadMAC(seq toolcrib.Seq, moves uint64, hash []byte) []byte {
	m := hmac.New(sha256.New, k.head)
	_, _ = m.Write(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(seq)), moves))
	_, _ = m.Write(hash)
	return m.Sum(nil)
}

// derived makes the keys that are needed often.
func (k *Keys) derived() *Keys {
	k.head = k.Derive("system journal head")
	k.id = k.Derive("key ID")[:16]
	k.row, k.place = k.Derive("row of a run"), k.Derive("place of a run")
	k.record = newRecordCipher(k.Derive("record of all runs"))
	return k
}

// ID tells these keys from others, and nothing about them. A database has it beside
// its seal, so that a wrong key file is told from a broken seal.
func (k *Keys) ID() []byte { return bytes.Clone(k.id) }

// Format implements [fmt.Formatter], so that no verb prints a key.
func (k *Keys) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "keys") }
