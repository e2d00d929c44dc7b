package wire

import (
	"io"
	"sync/atomic"
)

// Segments is the body of a request in pieces that were encoded before: what is
// old is neither copied nor encoded again. The pieces must stay unchanged until
// Done; bytes may be appended behind them.
type Segments struct {
	parts [][]byte
	size  int64
	open  atomic.Int32 // readers that the transport has not closed yet
}

// NewSegments makes a body of parts.
func NewSegments(parts ...[]byte) *Segments {
	s := &Segments{parts: parts}
	for _, p := range parts {
		s.size += int64(len(p))
	}
	return s
}

// Size is the length of the body in bytes.
func (s *Segments) Size() int64 { return s.size }

// Done tells whether the transport has let go of the body. It may hold it for a
// moment longer than the request takes when that was cancelled.
func (s *Segments) Done() bool { return s.open.Load() == 0 }

// Bytes joins the pieces.
func (s *Segments) Bytes() []byte {
	out := make([]byte, 0, s.size)
	for _, p := range s.parts {
		out = append(out, p...)
	}
	return out
}

// Reader opens the body for reading, from its start.
func (s *Segments) Reader() io.ReadCloser {
	s.open.Add(1)
	return &segmentReader{body: s}
}

type segmentReader struct {
	body   *Segments
	part   int
	offset int
	closed atomic.Bool
}

func (r *segmentReader) Read(p []byte) (int, error) {
	if r.closed.Load() {
		return 0, io.ErrClosedPipe
	}
	var n int
	for n < len(p) && r.part < len(r.body.parts) {
		src := r.body.parts[r.part][r.offset:]
		k := copy(p[n:], src)
		n += k
		r.offset += k
		if k == len(src) {
			r.part++
			r.offset = 0
		}
	}
	if n == 0 && r.part == len(r.body.parts) {
		return 0, io.EOF
	}
	return n, nil
}

func (r *segmentReader) Close() error {
	if r.closed.CompareAndSwap(false, true) {
		r.body.open.Add(-1)
	}
	return nil
}
