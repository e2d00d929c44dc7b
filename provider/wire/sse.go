package wire

import (
	"bytes"
	"errors"
	"io"
)

// Bounds of a stream. A line has at most one frame of a reply.
const (
	// DefaultMaxReplyBytes bounds one whole reply, after decompression.
	DefaultMaxReplyBytes = 32 << 20
	readBytes            = 2 << 10
)

// ErrTooLarge reports that a reply was longer than its bound.
var ErrTooLarge = errors.New("the reply is too large")

// Frame is one server-sent event (WHATWG HTML §9.2). Its bytes are only valid
// until the next call of Next.
type Frame struct {
	Event []byte // "" if the server sent none
	Data  []byte // the data lines joined by \n
}

// FrameReader reads server-sent events: lines of any length up to the
// bound, ended by LF, CR LF or CR; comments and unknown fields are ignored.
type FrameReader struct {
	NDJSON bool // the frames are JSON objects on lines of their own

	src   io.Reader
	buf   []byte // read, not yet consumed: buf[start:end]
	start int
	end   int
	max   int64
	total int64
	eof   bool
	began bool
	event []byte
	data  []byte
	lines int // data lines of the current frame

	taken  int     // bytes of the last line, including its end
	tight  bool    // there are no blank lines between the events
	nest   Nesting // nesting of data[:nested]
	nested int

	joined []byte // data of a frame of several lines
	stray  []byte // see Stray
}

// NewFrameReader returns a reader of at most maxBytes bytes of src; if 0, of the default.
// buf is its first buffer, and contains bytes that were read already; it may be nil.
func NewFrameReader(src io.Reader, maxBytes int64, buf []byte) *FrameReader {
	if maxBytes <= 0 {
		maxBytes = DefaultMaxReplyBytes
	}
	end := len(buf)
	if cap(buf) < readBytes {
		buf = append(make([]byte, 0, readBytes), buf...)
	}
	return &FrameReader{src: src, buf: buf[:cap(buf)], end: end, total: int64(end), max: maxBytes}
}

// Next returns the next frame that has data, or io.EOF at the end of the stream. An
// unfinished frame at the end is returned first, since some servers omit the last blank
// line; the caller must check whether its data is complete.
func (r *FrameReader) Next() (Frame, error) {
	r.event, r.data, r.lines, r.nest, r.nested = nil, nil, 0, Nesting{}, 0
	for {
		line, ok, err := r.line()
		if err != nil {
			return Frame{}, err
		}
		if !ok && r.lines == 0 {
			return Frame{}, io.EOF
		}
		switch {
		case r.NDJSON:
			if line = bytes.TrimLeft(line, " \t"); len(line) > 0 {
				r.add(line)
			}
			if r.lines > 0 && (!ok || r.data[0] != '{' || r.whole()) {
				return Frame{Data: r.data}, nil
			}
		case len(line) == 0 && r.lines == 0:
			r.event = nil
		case len(line) == 0:
			return Frame{Event: r.event, Data: r.data}, nil
		case r.field(line):
			r.start -= r.taken // the line belongs to the next frame
			return Frame{Event: r.event, Data: r.data}, nil
		case string(r.data) == "[DONE]", r.tight && r.lines > 0 && r.whole():
			return Frame{Event: r.event, Data: r.data}, nil
		}
	}
}

// whole reports whether the data is a complete JSON object, or the end marker.
func (r *FrameReader) whole() bool {
	for ; r.nested < len(r.data); r.nested++ {
		r.nest.Step(r.data[r.nested])
	}
	return r.nest.Whole() || string(r.data) == "[DONE]"
}

// field reads a line; next reports whether it begins another frame. By the standard, frames are
// separated by a blank line, but some servers omit it after complete data.
func (r *FrameReader) field(line []byte) (next bool) {
	name, value, _ := bytes.Cut(line, colon)
	if len(value) > 0 && value[0] == ' ' {
		value = value[1:]
	}
	switch string(name) {
	case "data":
		if r.lines > 0 && r.whole() {
			r.tight = true
			return true
		}
		r.add(value)
	case "event":
		if r.lines > 0 && r.whole() {
			r.tight = true
			return true
		}
		r.event = value
	case "error": // a field of older llama-servers, with the error as JSON
		if r.stray == nil {
			r.stray = append([]byte{}, value[:min(len(value), maxErrorBody)]...)
		}
	default:
		if r.stray == nil && (line[0] == '{' || line[0] == '<') {
			r.stray = append([]byte{}, line[:min(len(line), maxErrorBody)]...)
		}
	}
	return false
}

func (r *FrameReader) add(line []byte) {
	r.lines++
	if r.lines == 1 {
		r.data = line
		return
	}
	if r.lines == 2 {
		r.joined = append(r.joined[:0], r.data...)
	}
	r.joined = append(append(r.joined, '\n'), line...)
	r.data = r.joined
}

// Stray returns the first line that is not a field of a frame but looks like an
// error in plain JSON, or like a web page.
func (r *FrameReader) Stray() []byte { return r.stray }

var (
	colon = []byte{':'}
	bom   = []byte("\xEF\xBB\xBF")
)

// line returns the next line without its end; ok is false at the end of the
// stream. All lines of a frame remain valid: the buffer is only moved in
// fill, which adjusts the slices of the current frame.
func (r *FrameReader) line() (line []byte, ok bool, err error) {
	scanned := 0
	for {
		if !r.began && (r.end-r.start >= len(bom) || r.eof) {
			r.began = true
			if bytes.HasPrefix(r.buf[r.start:r.end], bom) {
				r.start += len(bom)
			}
		}
		window := r.buf[r.start:r.end]
		if r.began {
			if n, skip := lineEnd(window, scanned, r.eof); n >= 0 {
				line = window[:n]
				r.taken = n + skip
				r.start += r.taken
				return line, true, nil
			}
			scanned = max(len(window)-1, 0) // the last byte may be a CR before an LF
		}
		if r.eof {
			if len(window) == 0 {
				return nil, false, nil
			}
			r.taken, r.start = len(window), r.end
			return window, true, nil
		}
		if err := r.fill(); err != nil {
			return nil, false, err
		}
	}
}

// lineEnd returns the position of the first line end at or after from, or -1 if there is
// none yet, and the length of the line end.
func lineEnd(b []byte, from int, eof bool) (n, skip int) {
	lf := bytes.IndexByte(b[from:], '\n')
	head := b[from:]
	if lf >= 0 {
		head = head[:lf]
	}
	cr := bytes.IndexByte(head, '\r')
	switch {
	case cr >= 0 && cr+1 < len(b[from:]):
		if b[from+cr+1] == '\n' {
			return from + cr, 2
		}
		return from + cr, 1
	case cr >= 0 && eof:
		return from + cr, 1
	case lf >= 0:
		return from + lf, 1
	}
	return -1, 0
}

// fill reads more. It never overwrites bytes of the current frame: if the buffer is full
// and a frame is open, the unread rest moves to a new buffer.
func (r *FrameReader) fill() error {
	if r.end == len(r.buf) {
		r.makeRoom()
	}
	n, err := r.src.Read(r.buf[r.end:])
	r.end += n
	r.total += int64(n)
	if r.total > r.max {
		return ErrTooLarge
	}
	if err == io.EOF {
		r.eof = true
		return nil
	}
	return err
}

func (r *FrameReader) makeRoom() {
	pending, next := r.buf[r.start:r.end], r.buf
	if r.lines > 0 || r.event != nil || len(pending) > len(r.buf)/2 {
		next = make([]byte, max(2*len(pending), len(r.buf)))
	}
	r.start, r.end = 0, copy(next, pending)
	r.buf = next
}
