package store

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/safefile"
	"github.com/toolcrib/toolcrib/journal"
)

// Seal is a keyed hash: HMAC-SHA256 under a key that is not in the store.
type Seal [sha256.Size]byte

// Add adds other to a sum of seals, or removes it: the sum is bitwise XOR. Without knowing the
// summands or the sum, other summands with the same sum cannot be made.
func (s *Seal) Add(other Seal) { subtle.XORBytes(s[:], s[:], other[:]) }

// Equal reports whether stored is equal to the seal, in constant time.
func (s Seal) Equal(stored []byte) bool { return hmac.Equal(s[:], stored) }

// The tables, in addition to that of runs, on which permissions depend; see [SealedDocs]. Each
// is small, and has one seal over all rows.
const (
	SealedOverrides = iota
	SealedRemembered
	SealedAccess
	SealedTables // number of tables
)

// Record covers everything in a store on which permissions depend. It is sealed, so that no part
// of the store can be reset to an older state alone.
type Record struct {
	Moves  uint64 // number of times that the place of a run or file has changed
	Runs   Seal   // sum of the places of all runs and stored files
	Tables [SealedTables]Seal
}

const recordBytes = 8 + (1+SealedTables)*sha256.Size

// Place returns the summand of a run in [Record.Runs]: the seal of the number of its last
// event and of the hash of its chain there.
func (k *Keys) Place(run toolcrib.RunID, seq toolcrib.Seq, hash []byte) Seal {
	return k.SealPlace().Place(run, seq, hash)
}

// SealPlace returns a Sealing for calls of [Sealing.Place].
func (k *Keys) SealPlace() *Sealing { return newSealing(k.place) }

// Place resets s and returns the same seal as [Keys.Place].
func (s *Sealing) Place(run toolcrib.RunID, seq toolcrib.Seq, hash []byte) Seal {
	return s.Reset().Add(string(run), int64(seq), hash).Sum()
}

// SealFile returns the seal of the row of a stored file. at is the time of its change in Unix microseconds,
// which rises with each.
func (k *Keys) SealFile(name string, at int64, content []byte) Seal {
	return newSealing(k.row).Add("file", name, at, content).Sum()
}

// FilePlace returns the summand of a stored file in [Record.Runs].
func (k *Keys) FilePlace(name string, seal []byte) Seal {
	return newSealing(k.place).Add("file", name, seal).Sum()
}

// SealRun begins the seal of the row of a run.
func (k *Keys) SealRun() *Sealing { return newSealing(k.row) }

// SealTable begins the seal of one of the sealed tables.
func (k *Keys) SealTable(table int) *Sealing { return newSealing(k.row).Add(int64(table)) }

// SealSchema returns the seal of the schema of a database: of its version, the oldest version whose programs
// may work on it, and the definitions of everything in it.
func (k *Keys) SealSchema(version, oldest int, definitions []string) Seal {
	s := newSealing(k.Derive("schema")).Add(int64(version), int64(oldest))
	for _, d := range definitions {
		s.Add(d)
	}
	return s.Sum()
}

// SealRecord encrypts a record and binds it to the last event of the system journal. It is
// encrypted because an attacker who sees the sums could combine them.
func (k *Keys) SealRecord(r *Record, seq toolcrib.Seq, hash []byte) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, recordBytes), r.Moves)
	b = append(b, r.Runs[:]...)
	for i := range r.Tables {
		b = append(b, r.Tables[i][:]...)
	}
	return k.record.Seal(nil, nil, b, headBytes(seq, hash))
}

// OpenRecord is the inverse of SealRecord; ok is false if sealed was made with another key or
// for another last event of the system journal.
func (k *Keys) OpenRecord(sealed []byte, seq toolcrib.Seq, hash []byte) (r Record, ok bool) {
	b, err := k.record.Open(nil, nil, sealed, headBytes(seq, hash))
	if err != nil || len(b) != recordBytes {
		return Record{}, false
	}
	r.Moves = binary.BigEndian.Uint64(b)
	b = b[8:]
	copy(r.Runs[:], b)
	for i := range r.Tables {
		b = b[sha256.Size:]
		copy(r.Tables[i][:], b)
	}
	return r, true
}

func headBytes(seq toolcrib.Seq, hash []byte) []byte {
	return append(binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(hash)), uint64(seq)), hash...)
}

// newRecordCipher returns AES-256-GCM with random nonces, each stored before its text. The key
// is for one store, which may seal its record 2^32 times before a repeated nonce becomes likely.
func newRecordCipher(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil { // only for a key of another length
		return nil
	}
	c, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil
	}
	return c
}

// Sealing computes a [Seal] over values, each with its type and length.
type Sealing struct {
	mac hash.Hash
	b   []byte
}

func newSealing(key []byte) *Sealing {
	return &Sealing{mac: hmac.New(sha256.New, key), b: make([]byte, 0, 512)}
}

// Reset clears everything that was added, also by SealTable.
func (s *Sealing) Reset() *Sealing {
	s.mac.Reset()
	s.b = s.b[:0]
	return s
}

// Add adds values of the types that a database returns: nil, int64, float64, string and []byte.
func (s *Sealing) Add(values ...any) *Sealing {
	for _, v := range values {
		switch v := v.(type) {
		case nil:
			s.b = append(s.b, 'n')
		case int64:
			s.number('i', uint64(v))
		case float64:
			s.number('f', math.Float64bits(v))
		case string:
			s.number('s', uint64(len(v)))
			s.b = append(s.b, v...)
		case []byte:
			s.number('b', uint64(len(v)))
			s.b = append(s.b, v...)
		default: // no database returns this type, so the seal never matches a stored one
			s.b = append(s.b, '?')
		}
		if len(s.b) > 4096 {
			s.flush()
		}
	}
	return s
}

func (s *Sealing) number(kind byte, n uint64) {
	s.b = binary.BigEndian.AppendUint64(append(s.b, kind), n)
}

func (s *Sealing) flush() {
	_, _ = s.mac.Write(s.b) // a hash never fails to write
	s.b = s.b[:0]
}

// Sum returns the seal. Only Reset may be called after it.
func (s *Sealing) Sum() (sum Seal) {
	s.flush()
	s.mac.Sum(sum[:0])
	return sum
}

// Head is the last event of the system journal at some time, sealed with a key of the data
// folder. A copy kept elsewhere later shows that the whole store was replaced by an older copy,
// which nothing inside the store can show.
type Head struct {
	Seq  toolcrib.Seq `json:"seq"`  // 0 if there was no event yet
	Hash string       `json:"hash"` // hash of the chain up to Seq, in hex
	MAC  string       `json:"mac"`  // seal, in hex; see [Keys.HeadMAC]
	// Moves is [Record.Moves]. It shows an older copy even if only runs have changed since.
	Moves uint64    `json:"moves"`
	Time  time.Time `json:"time,omitzero"` // time of the event Seq
}

// The kinds of system events about the seal itself.
const (
	SystemHeadAdopted    toolcrib.Kind = "head_adopted"    // payload: HeadAdopted
	SystemDamageAccepted toolcrib.Kind = "damage_accepted" // payload: DamageAccepted
)

// HeadAdopted records that everything stored before this event was sealed as it was found,
// because its seal was broken or its key lost. Nothing proves that what came before is unchanged.
type HeadAdopted struct {
	Seq  toolcrib.Seq `json:"seq"`  // last event found
	Hash string       `json:"hash"` // hash of the chain up to Seq, in hex
	By   string       `json:"by"`
	What string       `json:"what"` // problem with the seal
}

// DamageAccepted records that new runs may start in spite of these problems. The problems are
// still reported, and the runs concerned stay unusable.
type DamageAccepted struct {
	By       string        `json:"by"`
	Problems []*ChainError `json:"problems"`
}

// SystemHead is the last event of the system journal.
type SystemHead struct {
	Seq  toolcrib.Seq // 0 if there is no event
	Hash []byte
	Time int64 // Unix microseconds
}

// SealedHead is the stored head, and the last event of the system journal to compare it with.
type SealedHead struct {
	Found  bool // whether the row of the head exists
	Head   SystemHead
	KeyID  []byte
	Record []byte // sealed; see [Keys.OpenRecord]
	Last   SystemHead
}

// Open returns the sealed record. The error is a [*ChainError] if the journal or the record is
// not as it was sealed.
func (s *SealedHead) Open(keys *Keys) (Record, error) {
	r, ok := keys.OpenRecord(s.Record, s.Head.Seq, s.Head.Hash)
	what := ""
	switch {
	case !s.Found:
		what = "its head is gone"
	case !bytes.Equal(s.KeyID, keys.ID()):
		what = "its head was not sealed with this key but with another one; is the key file the right one?"
	case !ok:
		what = "its head was not sealed with this key"
	case s.Head.Seq > s.Last.Seq:
		what = fmt.Sprintf("it ends at event %d, and its head says %d", s.Last.Seq, s.Head.Seq)
	case s.Head.Seq < s.Last.Seq:
		what = fmt.Sprintf("its head says that it ends at event %d", s.Head.Seq)
	case !bytes.Equal(s.Head.Hash, s.Last.Hash):
		what = "its head has another hash"
	default:
		return r, nil
	}
	return Record{}, &ChainError{Run: SystemChain, Seq: s.Last.Seq, What: what}
}

// Export returns the head to be kept elsewhere. Its errors are those of Open.
func (s *SealedHead) Export(keys *Keys) (Head, error) {
	r, err := s.Open(keys)
	if err != nil {
		return Head{}, err
	}
	h := Head{
		Seq: s.Head.Seq, Hash: hex.EncodeToString(s.Head.Hash), Moves: r.Moves,
		MAC: hex.EncodeToString(keys.HeadMAC(s.Head.Seq, r.Moves, s.Head.Hash)),
	}
	if h.Seq > 0 {
		h.Time = Micro(s.Last.Time)
	}
	return h, nil
}

// Next sets the number and hashes of the event that follows h, and returns the new head.
func (h SystemHead) Next(e *SystemEvent) SystemHead {
	e.Seq = h.Seq + 1
	e.PayloadHash = journal.PayloadHash(e.Payload)
	e.Hash = journal.ChainHash(h.Hash, SystemChain, e.Seq, e.Kind, e.Time, e.PayloadHash)
	return SystemHead{Seq: e.Seq, Hash: bytes.Clone(e.Hash), Time: e.Time.UnixMicro()}
}

// MaxKeysBytes bounds a key file.
const MaxKeysBytes = 4096

const (
	keysTitle   = "toolcrib keys"
	keysVersion = "1"
	keyBytes    = 32
)

// Keys are the secrets of a data folder: a root of 32 random bytes, from which the key of each
// purpose is derived, so that one file is enough. No format verb prints them.
type Keys struct {
	root [keyBytes]byte

	// Derived from root.
	head, id, row, place []byte
	record               cipher.AEAD
}

// NewKeys makes new keys.
func NewKeys() *Keys {
	k := new(Keys)
	_, _ = rand.Read(k.root[:]) // it never fails
	return k.derived()
}

// ParseKeys parses the content of a key file: a line that names the format, then the root in
// hexadecimal digits. No error contains any of the text.
func ParseKeys(text []byte) (*Keys, error) {
	words := strings.Fields(string(text))
	switch {
	case len(text) > MaxKeysBytes:
		return nil, fmt.Errorf("more than %d bytes", MaxKeysBytes)
	case len(words) < 3 || words[0]+" "+words[1] != keysTitle:
		return nil, fmt.Errorf("it does not begin with %q", keysTitle)
	case words[2] != keysVersion:
		return nil, errors.New("written by a later version of toolcrib")
	}
	k := new(Keys)
	if len(words) == 5 && words[3] == "root" && len(words[4]) == 2*keyBytes {
		if _, err := hex.Decode(k.root[:], []byte(words[4])); err == nil {
			return k.derived(), nil
		}
	}
	return nil, fmt.Errorf("there must be one root, of %d hexadecimal digits", 2*keyBytes)
}

// LoadKeys reads a key file. Every error is [ErrKeys].
func LoadKeys(path string) (k *Keys, err error) {
	text, err := safefile.Read(path, MaxKeysBytes)
	if err == nil {
		k, err = ParseKeys(text)
	}
	return k, keysError(path, err)
}

// MakeKeys reads a key file, or creates it if it is missing. It never replaces a file that
// another process has created.
func MakeKeys(path string) (*Keys, error) {
	k, err := LoadKeys(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return k, err
	}
	if err := NewKeys().Create(path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return LoadKeys(path)
}

// Create writes the keys to a new file, whole or not at all, and creates its folder if necessary.
func (k *Keys) Create(path string) error {
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = safefile.Create(path, ".keys-", k.Text())
	}
	return keysError(path, err)
}

func keysError(path string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Kind: ErrKeys, Path: path, Err: err}
}

// Text returns the content of a key file.
func (k *Keys) Text() []byte {
	return fmt.Appendf(nil, "%s %s\nroot %x\n", keysTitle, keysVersion, k.root[:])
}

// Derive returns the key of a purpose: 32 bytes by HKDF-SHA256 (RFC 5869). The key of one
// purpose reveals nothing about that of another.
func (k *Keys) Derive(purpose string) []byte {
	key, err := hkdf.Key(sha256.New, k.root[:], nil, "toolcrib "+purpose, keyBytes)
	if err != nil { // only for longer keys
		return nil
	}
	return key
}

// HeadMAC returns the seal of a [Head]: HMAC-SHA256 over the number of the last event of the
// system journal and the number of moves (big-endian, 64 bits each) and the hash of its chain.
func (k *Keys) HeadMAC(seq toolcrib.Seq, moves uint64, hash []byte) []byte {
	m := hmac.New(sha256.New, k.head)
	_, _ = m.Write(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(seq)), moves))
	_, _ = m.Write(hash)
	return m.Sum(nil)
}

// derived computes the keys that are needed often.
func (k *Keys) derived() *Keys {
	k.head = k.Derive("system journal head")
	k.id = k.Derive("key ID")[:16]
	k.row, k.place = k.Derive("row of a run"), k.Derive("place of a run")
	k.record = newRecordCipher(k.Derive("record of all runs"))
	return k
}

// ID returns an identifier of the keys, which reveals nothing about them. A database stores it
// with its seal, so that a wrong key file can be distinguished from a broken seal.
func (k *Keys) ID() []byte { return bytes.Clone(k.id) }

// Format implements [fmt.Formatter], so that no verb prints a key.
func (k *Keys) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "keys") }
