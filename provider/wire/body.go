package wire

import (
	"bytes"
	"io"
	"sync/atomic"
)

// Body is the body of one request, in pieces that were encoded before. They are
// joined when it is sent: net/http sends a body that it knows to be in memory
// together with the head, in one write; any other kind costs a write and a buffer
// more. The pieces must stay unchanged until the answer has come.
type Body struct{ parts [][]byte }

// NewBody makes a body of its pieces.
func NewBody(parts ...[]byte) *Body { return &Body{parts: parts} }

// outgoing is a body on its way: one piece of memory, which serves another request
// when the transport has surely released it.
type outgoing struct {
	bytes []byte
	// What the transport did: connections it took, and requests it wrote to their
	// end. More than one of either is a retry, of which nobody knows what is left.
	connections, written atomic.Int32
	// connecting is true while the transport looks for a connection: nothing was sent.
	connecting atomic.Bool
}

// join makes b one piece.
func (o *outgoing) join(b *Body) {
	size := 0
	for _, p := range b.parts {
		size += len(p)
	}
	if cap(o.bytes) < size {
		o.bytes = make([]byte, 0, size+size/4)
	}
	o.bytes = o.bytes[:0]
	for _, p := range b.parts {
		o.bytes = append(o.bytes, p...)
	}
}

// open opens the body for reading, from its start.
func (o *outgoing) open() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(o.bytes)), nil }

// free reports whether nothing reads the bytes now, and nothing will.
func (o *outgoing) free() bool { return o.connections.Load() == 1 && o.written.Load() == 1 }
