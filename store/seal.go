package store

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"hash"
	"math"

	"github.com/toolcrib/toolcrib"
)

// Seal is a keyed hash: HMAC-SHA256 under a key that is not in the store.
type Seal [sha256.Size]byte

// Add puts other into a sum of seals, or takes it out of it: the sum is bitwise XOR.
// Who knows neither the summands nor the sum cannot make other ones with the same sum.
func (s *Seal) Add(other Seal) { subtle.XORBytes(s[:], s[:], other[:]) }

// Holds reports whether stored is this seal.
func (s Seal) Holds(stored []byte) bool { return hmac.Equal(s[:], stored) }

// The tables, beside that of runs, on which permission rests; see [SealedDocs]. Each is small,
// and has one seal over all rows.
const (
	SealedOverrides = iota
	SealedRemembered
	SealedAccess
	SealedTables // how many there are
)

// Record is what a store keeps, sealed, of everything that permission rests on, so that
// no part of it can be put back to what it was without the others.
type Record struct {
	Moves  uint64 // how often a run's place was moved
	Runs   Seal   // the sum of the places of all runs
	Tables [SealedTables]Seal
}

const recordBytes = 8 + (1+SealedTables)*sha256.Size

// Place is the summand of a run in [Record.Runs]: that it has reached the event seq, at
// which its chain has this hash.
func (k *Keys) Place(run toolcrib.RunID, seq toolcrib.Seq, hash []byte) Seal {
	return k.SealPlace().Of(run, seq, hash)
}

// SealPlace makes many places.
func (k *Keys) SealPlace() *Placing { return &Placing{newSealing(k.place)} }

// Placing makes places; see [Keys.Place].
type Placing struct{ s *Sealing }

// Of returns a place.
func (p *Placing) Of(run toolcrib.RunID, seq toolcrib.Seq, hash []byte) Seal {
	return p.s.Reset().Text(string(run)).Int(int64(seq)).Blob(hash).Sum()
}

// SealRun begins the seal of a run's row.
func (k *Keys) SealRun() *Sealing { return newSealing(k.row) }

// SealTable begins the seal of one of the sealed tables.
func (k *Keys) SealTable(table int) *Sealing { return newSealing(k.row).Int(int64(table)) }

// SealRecord encrypts a record and binds it to where the system journal ends. It is
// encrypted because sums that can be watched can be combined.
func (k *Keys) SealRecord(r *Record, seq toolcrib.Seq, hash []byte) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, recordBytes), r.Moves)
	b = append(b, r.Runs[:]...)
	for i := range r.Tables {
		b = append(b, r.Tables[i][:]...)
	}
	return k.record.Seal(nil, nil, b, headBytes(seq, hash))
}

// OpenRecord is the inverse of SealRecord; ok is false if sealed was made with another
// key, or for another end of the system journal.
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

// newRecordCipher is AES-256-GCM with random nonces, each kept before its text. The key
// is for one store, which would have to seal its record 2^32 times for a nonce to repeat.
func newRecordCipher(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil { // only for lengths that no key has
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

// Reset begins it again. What SealTable has added is gone.
func (s *Sealing) Reset() *Sealing {
	s.mac.Reset()
	s.b = s.b[:0]
	return s
}

// Add adds values of the types that a database returns.
func (s *Sealing) Add(values ...any) *Sealing {
	for _, v := range values {
		switch v := v.(type) {
		case nil:
			s.Null()
		case int64:
			s.Int(v)
		case float64:
			s.Float(v)
		case string:
			s.Text(v)
		case []byte:
			s.Blob(v)
		default: // no database returns it, so that a seal with it never holds
			s.b = append(s.b, '?')
		}
	}
	return s
}

// Null adds that there is no value.
func (s *Sealing) Null() *Sealing {
	s.b = append(s.b, 'n')
	return s
}

// Int adds an integer.
func (s *Sealing) Int(n int64) *Sealing { return s.number('i', uint64(n)) }

// Bool adds 0 or 1.
func (s *Sealing) Bool(is bool) *Sealing {
	if is {
		return s.Int(1)
	}
	return s.Int(0)
}

// Float adds a floating-point number.
func (s *Sealing) Float(f float64) *Sealing { return s.number('f', math.Float64bits(f)) }

// Text adds a text.
func (s *Sealing) Text(text string) *Sealing {
	s.number('s', uint64(len(text)))
	s.b = append(s.b, text...)
	return s.long()
}

// Blob adds bytes.
func (s *Sealing) Blob(b []byte) *Sealing {
	s.number('b', uint64(len(b)))
	s.b = append(s.b, b...)
	return s.long()
}

func (s *Sealing) number(kind byte, n uint64) *Sealing {
	s.b = binary.BigEndian.AppendUint64(append(s.b, kind), n)
	return s
}

// long passes on what has become long.
func (s *Sealing) long() *Sealing {
	if len(s.b) > 4096 {
		s.flush()
	}
	return s
}

func (s *Sealing) flush() {
	_, _ = s.mac.Write(s.b) // a hash never fails to write
	s.b = s.b[:0]
}

// Sum returns the seal. Only Reset may follow.
func (s *Sealing) Sum() (sum Seal) {
	s.flush()
	s.mac.Sum(sum[:0])
	return sum
}
