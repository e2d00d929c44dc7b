package wire

import (
	"bytes"
	"io"
	"strings"
)

// LineDecoder is a [Decoder] of an API that streams NDJSON, one JSON object a
// line. Each line that is not blank comes as the Data of a [Frame]. Whole must
// take several values in a row: what streams under application/json is read in
// one piece.
type LineDecoder interface {
	Decoder
	NDJSON()
}

// NextLine returns the next line that is not blank, without its end, as a frame. At the
// end of the stream it returns io.EOF; an unfinished line before it is returned first:
// whether it is whole is for the reader of its JSON to tell. A reader has either lines or
// frames.
func (r *FrameReader) NextLine() (Frame, error) {
	for {
		line, ok, err := r.line()
		switch {
		case err != nil:
			return Frame{}, err
		case !ok:
			return Frame{}, io.EOF
		}
		if line = bytes.TrimLeft(line, " \t"); len(line) > 0 {
			return Frame{Data: line}, nil
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

// lines is [FrameReader.NextLine] for a body of this content type, whose first line must be
// a JSON object.
func (r *Reply) lines(kind string) func(*FrameReader) (Frame, error) {
	first := true
	return func(frames *FrameReader) (Frame, error) {
		f, err := frames.NextLine()
		if err == nil && first && f.Data[0] != '{' {
			err = r.notJSON(kind, f.Data)
		}
		first = false
		return f, err
	}
}
