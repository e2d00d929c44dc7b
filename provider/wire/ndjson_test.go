package wire_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/toolcrib/toolcrib/provider/wire"
)

func readLines(r *wire.FrameReader) (lines []string, err error) {
	r.NDJSON = true
	for {
		line, err := r.Next()
		if err == io.EOF {
			return lines, nil
		}
		if err != nil {
			return lines, err
		}
		lines = append(lines, string(line.Data))
	}
}

func TestNext_NDJSON(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	tests := map[string][]string{
		"":                          nil,
		"\n\r\n \t\n":               nil,
		"{}\n{}\n":                  {"{}", "{}"},
		"{}\r\n \t{\"a\":1}\r{}":    {"{}", `{"a":1}`, "{}"},
		"\xEF\xBB\xBF{}\n":          {"{}"},
		"{" + long + "}\n{}\nrest":  {"{" + long + "}", "{}", "rest"},
		"{\n  \"a\": [\n{}]\n}\n{}": {"{\n\"a\": [\n{}]\n}", "{}"}, // on several lines
	}
	for in, want := range tests {
		for name, src := range map[string]io.Reader{"whole": strings.NewReader(in), "bytes": iotest.OneByteReader(strings.NewReader(in))} {
			got, err := readLines(wire.NewFrameReader(src, 0, nil))
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: %.40q: got %.60q, error %v, want %.60q", name, in, got, err, want)
			}
		}
	}
}

func TestNext_NDJSON_Bounded(t *testing.T) {
	for name, in := range map[string]string{"one line": strings.Repeat("a", 1<<20), "blank lines": strings.Repeat("\n", 1<<20), "lines": strings.Repeat("{}\n", 1<<19)} {
		if _, err := readLines(wire.NewFrameReader(strings.NewReader(in), 100_000, nil)); !errors.Is(err, wire.ErrTooLarge) {
			t.Errorf("%s: error %v, want %v", name, err, wire.ErrTooLarge)
		}
	}
}

// FuzzNext_NDJSON compares the lines of the reader with those of the whole input, wherever
// the input is split.
func FuzzNext_NDJSON(f *testing.F) {
	f.Add([]byte("{}\n\r\n{\"a\":1}\r{"), 1)
	f.Add([]byte("\xEF\xBB\xBF \n\t{}"), 3)
	f.Fuzz(func(t *testing.T, in []byte, step int) {
		var want []string
		for _, line := range bytes.FieldsFunc(bytes.TrimPrefix(in, []byte("\xEF\xBB\xBF")), func(r rune) bool { return r == '\n' || r == '\r' }) {
			if line = bytes.TrimLeft(line, " \t"); len(line) > 0 {
				want = append(want, string(line))
			}
		}
		got, err := readLines(wire.NewFrameReader(&steps{rest: in, n: max(step, 1)}, 0, nil))
		if got = strings.Split(strings.Join(got, "\n"), "\n"); want == nil {
			want = []string{""}
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("got %q, error %v, want %q", got, err, want)
		}
	})
}

type steps struct {
	rest []byte
	n    int
}

func (s *steps) Read(p []byte) (int, error) {
	if len(s.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), s.n)], s.rest)
	s.rest = s.rest[n:]
	return n, nil
}
