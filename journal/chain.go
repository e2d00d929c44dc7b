package journal

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/toolcrib/toolcrib"
)

// PayloadHash returns the SHA-256 of the stored JSON of a body.
func PayloadHash(payload []byte) []byte {
	h := sha256.Sum256(payload)
	return h[:]
}

// ChainHash returns the hash of the chain up to and including this event. It covers the
// hash of the payload instead of the payload, so that content can be pruned and
// the chain remains valid. The layout is fixed:
//
//	SHA-256(prev ‖ run ‖ 0 ‖ seq ‖ kind ‖ 0 ‖ time ‖ payloadHash)
//
// with seq and time (Unix microseconds) as big-endian 64-bit numbers. prev is
// empty for the first event.
func ChainHash(prev []byte, run toolcrib.RunID, seq toolcrib.Seq, kind toolcrib.Kind, at time.Time,
	payloadHash []byte,
) []byte {
	var room [192]byte // enough for the usual lengths
	b := append(room[:0], prev...)
	b = append(b, run...)
	b = append(b, 0)
	b = binary.BigEndian.AppendUint64(b, uint64(seq))
	b = append(b, kind...)
	b = append(b, 0)
	b = binary.BigEndian.AppendUint64(b, uint64(at.UnixMicro()))
	b = append(b, payloadHash...)
	h := sha256.Sum256(b)
	return h[:]
}
