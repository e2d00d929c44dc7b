package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// value decodes one JSON value with the cursor into the types of encoding/json.
func value(c *wire.Cursor) any {
	switch c.Peek() {
	case '{':
		m := map[string]any{}
		c.Enter('{')
		for {
			key, ok := c.Key()
			if !ok {
				return m
			}
			name := strings.ToValidUTF8(string(key), "\uFFFD")
			m[name] = value(c)
		}
	case '[':
		list := []any{}
		c.Enter('[')
		for c.Next() {
			list = append(list, value(c))
		}
		return list
	case '"':
		return c.String()
	}
	var v any
	if json.Unmarshal(c.Raw(), &v) != nil {
		return nil
	}
	return v
}

// FuzzCursor: the cursor decodes valid JSON to the value of encoding/json, and
// always terminates.
func FuzzCursor(f *testing.F) {
	for _, seed := range []string{
		`{"a":[1,-2.5e3,"x\n\u00e9\ud83d\ude00\"\\",null,true,false,{}],"b":{"c":[]}}`, `[]`, `"\ud800"`, ` 1 `, `{"a":1,}`, `[1 2]`, `{"a"}`, `{`, `"`, `tru`, "\x00", `[[[[`, `{"\u0041":1}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := wire.NewCursor(data)
		got := value(&c)
		err := c.End()
		var want any
		if json.Unmarshal(data, &want) != nil || !utf8.Valid(data) {
			return
		}
		if err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%q: %s", data, diff)
		}
		s := wire.NewCursor(data)
		s.Skip()
		if err := s.End(); err != nil {
			t.Fatalf("%q: skipped: %v", data, err)
		}
	})
}

// A truncated text is an error.
func TestCursor_Cut(t *testing.T) {
	const text = `{"a":[1,{"b":"c\"\u0041"}],"d":null}`
	for n := range len(text) {
		c := wire.NewCursor([]byte(text[:n]))
		c.Skip()
		if c.End() == nil {
			t.Errorf("%q is taken for whole", text[:n])
		}
	}
}

func FuzzAppendString(f *testing.F) {
	for _, seed := range []string{"", "a\"\\\n\x00\x1f", "é日😀\u2028", "\xff\xc3", "<script>&"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var back string
		encoded := wire.AppendString(nil, s)
		if err := json.Unmarshal(encoded, &back); err != nil {
			t.Fatalf("%q: %v", encoded, err)
		}
		if utf8.ValidString(s) && back != s || !utf8.Valid(encoded) {
			t.Errorf("%q became %q", s, back)
		}
	})
}

func frames(t *testing.T, src io.Reader, limit int64) (list []string, err error) {
	t.Helper()
	r := wire.NewFrameReader(src, limit, nil)
	for {
		f, err := r.Next()
		if err != nil {
			return list, err
		}
		list = append(list, string(f.Event)+"|"+string(f.Data))
	}
}

func TestFrameReader(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	tests := []struct {
		name, in string
		want     []string
	}{
		{"plain", "data: a\n\ndata:b\n\n", []string{"|a", "|b"}},
		{"event", "event: e\ndata: a\n\n", []string{"e|a"}},
		{"event without data", "event: e\n\ndata: a\n\n", []string{"|a"}},
		{"lines joined", "data: a\ndata: b\ndata\n\n", []string{"|a\nb\n"}},
		{"CR LF", "data: a\r\ndata: b\r\n\r\n", []string{"|a\nb"}},
		{"CR", "data: a\rdata: b\r\rdata: c\r\r", []string{"|a\nb", "|c"}},
		{"mark and comments", "\uFEFF: hi\n\nid: 1\nretry: 3\nother\ndata: a\n\n", []string{"|a"}},
		{"no end", "data: a", []string{"|a"}},
		{"long", "event: e\ndata: " + long + "\ndata: " + long + "\n\ndata: b\n\n", []string{"e|" + long + "\n" + long, "|b"}},
		{"nothing", "", nil},
	}
	for _, tt := range tests {
		for name, src := range map[string]io.Reader{
			"whole": strings.NewReader(tt.in), "bytes": iotest.OneByteReader(strings.NewReader(tt.in)), "data with the end": iotest.DataErrReader(strings.NewReader(tt.in)),
		} {
			got, err := frames(t, src, 0)
			if err != io.EOF {
				t.Errorf("%s/%s: error %v", tt.name, name, err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s/%s: %s", tt.name, name, diff)
			}
		}
	}
	if _, err := frames(t, bytes.NewReader(bytes.Repeat([]byte("data: x\n"), 100_000)), 10_000); !errors.Is(err, wire.ErrTooLarge) {
		t.Errorf("without end: error %v", err)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	tests := []struct {
		header map[string]string
		want   time.Duration
	}{
		{nil, 0},
		{map[string]string{"Retry-After": "3"}, 3 * time.Second},
		{map[string]string{"Retry-After": "0.25"}, 250 * time.Millisecond},
		{map[string]string{"Retry-After": now.Add(time.Minute).Format(http.TimeFormat)}, time.Minute},
		{map[string]string{"Retry-After": now.Add(-time.Minute).Format(http.TimeFormat)}, 0},
		{map[string]string{"Retry-After": "1e300"}, 24 * time.Hour},
		{map[string]string{"Retry-After": "NaN"}, 0},
		{map[string]string{"Retry-After": "-5"}, 0},
		{map[string]string{"Retry-After": "soon"}, 0},
		{map[string]string{"Retry-After-Ms": "40", "Retry-After": "3"}, 40 * time.Millisecond},
		{map[string]string{"X-Ratelimit-Remaining-Tokens": "0", "X-Ratelimit-Reset-Tokens": "6m0s"}, 6 * time.Minute},
		{map[string]string{"X-Ratelimit-Remaining-Tokens": "9", "X-Ratelimit-Reset-Tokens": "6m0s"}, 0},
	}
	for _, tt := range tests {
		h := http.Header{}
		for k, v := range tt.header {
			h.Set(k, v)
		}
		if got := wire.RetryAfter(h, now); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.header, got, tt.want)
		}
	}
}

func TestRunes(t *testing.T) {
	const text = "aé日😀z"
	var r wire.Runes
	var out strings.Builder
	for i := range len(text) {
		piece := r.Add(text[i : i+1])
		if !utf8.ValidString(piece) {
			t.Errorf("piece %q", piece)
		}
		out.WriteString(piece)
	}
	if out.String() != text {
		t.Errorf("joined %q", out.String())
	}
	if got := r.Add("\xff") + r.Add("x\xc3"); got != "\uFFFDx" {
		t.Errorf("bad bytes: %q", got)
	}
}

func TestToken(t *testing.T) {
	for in, want := range map[string]string{"call_1": "call_1", "a-B_9": "a-B_9"} {
		if got := wire.Token(in, 64); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
	seen := map[string]string{}
	for _, in := range []string{"", "f:0", "f.0", "日", strings.Repeat("x", 65), strings.Repeat("x", 66)} {
		got := wire.Token(in, 40)
		if len(got) == 0 || len(got) > 40 || strings.Trim(got, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" || seen[got] != "" || got != wire.Token(in, 40) {
			t.Errorf("%q became %q", in, got)
		}
		seen[got] = in
	}
}

func TestSpec1c4_ObjectSchema(t *testing.T) {
	const empty = `{"type":"object","properties":{}}`
	tests := map[string]string{
		``: empty, `null`: empty, `{}`: `{"properties":{},"type":"object"}`, `[]`: empty,
		`{"type":"object","properties":[]}`: `{"properties":{},"type":"object"}`,
		"{ \"type\":\"object\",\n \"properties\": {\"z\":{\"type\":\"string\"},\"a\":{\"minimum\":1.50}}}":              `{"type":"object","properties":{"z":{"type":"string"},"a":{"minimum":1.50}}}`,
		`{"type":"object","properties":{"x":true,"y":{"type":["array","null"]},"z":{"type":"object","properties":[]}}}`: `{"properties":{"x":{},"y":{"items":{},"type":["array","null"]},"z":{"properties":{},"type":"object"}},"type":"object"}`,
	}
	for in, want := range tests {
		got, err := wire.ObjectSchema(json.RawMessage(in))
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v; want %s", in, got, err, want)
		}
	}
	for _, bad := range []string{`{`, `"x"`, `{"type":"string"}`, `{"type":7}`, `{"type":["null"]}`} {
		if got, err := wire.ObjectSchema(json.RawMessage(bad)); err == nil {
			t.Errorf("%s: %s", bad, got)
		}
	}
}

func TestClassify(t *testing.T) {
	for _, tt := range []struct {
		status int
		e      wire.APIError
		want   toolcrib.ErrorClass
	}{
		{401, wire.APIError{Type: "invalid_request_error"}, toolcrib.ErrAuth},
		{400, wire.APIError{Code: "content_filter"}, toolcrib.ErrRefused},
		{0, wire.APIError{Type: "overloaded_error"}, toolcrib.ErrOverloaded},
		{0, wire.APIError{Type: "invalid_request_error", Message: "prompt is too long: 1 > 0"}, toolcrib.ErrContextLength},
		{429, wire.APIError{Message: "prompt is too long"}, toolcrib.ErrRateLimit},
		{418, wire.APIError{}, toolcrib.ErrBadRequest},
		{0, wire.APIError{}, toolcrib.ErrOther},
	} {
		if got := wire.Classify(tt.status, tt.e); got != tt.want {
			t.Errorf("%d %+v: %s, want %s", tt.status, tt.e, got, tt.want)
		}
	}
}
