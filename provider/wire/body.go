package wire

import (
	"bytes"
	"io"
	"sync/atomic"
)

// Body is the body of one request, in one piece. net/http sends a body that it
// knows to be in memory together with the head, in one write; any other kind costs
// a write and a buffer more. Joining the pieces is a copy of bytes that were
// encoded before.
type Body struct {
	bytes    []byte
	answered atomic.Bool
}

// NewBody joins the parts in buf, which is grown as needed.
func NewBody(buf []byte, parts ...[]byte) *Body {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	if cap(buf) < size {
		buf = make([]byte, 0, size+size/4)
	}
	buf = buf[:0]
	for _, p := range parts {
		buf = append(buf, p...)
	}
	return &Body{bytes: buf}
}

// Size is the length of the body in bytes.
func (b *Body) Size() int64 { return int64(len(b.bytes)) }

// Bytes is the body.
func (b *Body) Bytes() []byte { return b.bytes }

// reader opens the body for reading, from its start.
func (b *Body) reader() io.ReadCloser { return io.NopCloser(bytes.NewReader(b.bytes)) }

// spare returns the memory of the body for the next one, if its request was
// answered whole: only then has the transport surely let go of it.
func (b *Body) spare() []byte {
	if b == nil || !b.answered.Load() || cap(b.bytes) > maxKept {
		return nil
	}
	return b.bytes[:0]
}
