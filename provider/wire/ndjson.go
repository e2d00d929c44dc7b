package wire

import (
	"errors"
	"io"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// LineDecoder is a [Decoder] of an API that streams NDJSON, one JSON object a
// line. Each line that is not blank comes as the Data of a [Frame]. Whole must
// take several values in a row: what streams under application/json is read in
// one piece.
type LineDecoder interface {
	Decoder
	NDJSON()
}

// LineReader reads lines of any length up to its bound, LF, CR LF or CR.
type LineReader struct{ frames *FrameReader }

// NewLineReader reads from src at most maxBytes bytes in all (0 = the default).
// buf is the buffer to begin with; it may be nil.
func NewLineReader(src io.Reader, maxBytes int64, buf []byte) *LineReader {
	return &LineReader{NewFrameReader(src, maxBytes, buf)}
}

// Buffer returns the buffer for further use; the reader must not be used after.
func (r *LineReader) Buffer() []byte { return r.frames.Buffer() }

// Next returns the next line that is not blank, without its end. It is only good
// until the next call. At the end of the stream it returns io.EOF; an unfinished
// line before it is returned first: whether it is whole is for the reader of its
// JSON to tell.
func (r *LineReader) Next() ([]byte, error) {
	for {
		line, ok, err := r.frames.line()
		switch {
		case err != nil:
			return nil, err
		case !ok:
			return nil, io.EOF
		}
		for len(line) > 0 && (line[0] == ' ' || line[0] == '\t') {
			line = line[1:]
		}
		if len(line) > 0 {
			return line, nil
		}
	}
}

// streamsLines reports whether a body of this content type is read line by line.
// Plain JSON, and what has no type, is read whole: it may stand on many lines.
func streamsLines(kind string) bool {
	if strings.Contains(kind, "json") {
		return strings.Contains(kind, "ndjson") || strings.Contains(kind, "jsonl") || strings.Contains(kind, "json-seq")
	}
	return kind != ""
}

func (r *Reply) decodeLines(kind string, d LineDecoder, emit Emit) error {
	lines := NewLineReader(r, r.client.opts.MaxReplyBytes, r.client.buffer())
	defer func() { r.client.keep(lines.Buffer()) }()
	listening := true
	watch := func(delta toolcrib.Delta) bool {
		listening = emit(delta)
		return listening
	}
	for first := true; ; first = false {
		line, err := lines.Next()
		if err != nil {
			if d.Complete() && !errors.Is(err, ErrTooLarge) && r.parent.Err() == nil {
				return nil // only what follows the reply is missing
			}
			return r.broken(err)
		}
		if first && line[0] != '{' {
			return r.Mask(&toolcrib.ModelError{
				Class: toolcrib.ErrOther, Provider: r.client.opts.Name, Status: r.Status,
				Message: notJSON(kind, line), Detail: Clip(string(line), maxDetail),
			})
		}
		alive, done, err := d.Frame(Frame{Data: line}, watch)
		if err != nil {
			return r.bad(err, line)
		}
		if !listening || done {
			return nil
		}
		if alive {
			r.Spoke()
		}
	}
}
