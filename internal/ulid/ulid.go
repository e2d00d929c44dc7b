// Package ulid makes IDs that sort by time.
package ulid

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"time"
)

// crockford is the alphabet of ULIDs: no I, L, O, U.
var crockford = base32.NewEncoding("0123456789ABCDEFGHJKMNPQRSTVWXYZ").WithPadding(base32.NoPadding)

// New returns an ID: the prefix and 26 characters that sort by time (to the millisecond) and contain
// 80 random bits.
func New(prefix string, at time.Time) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(at.UnixMilli())<<16)
	_, _ = rand.Read(b[6:]) // crypto/rand never fails: it ends the program instead
	id := make([]byte, 0, 64)
	return string(crockford.AppendEncode(append(id, prefix...), b[:]))
}
