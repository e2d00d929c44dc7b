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

// Values of another type than their field, as some servers send them, are ignored.
func TestRead_OtherTypes(t *testing.T) {
	type inner struct {
		Name  string                 `json:"name"`
		Index wire.Optional[float64] `json:"index"`
	}
	type outer struct {
		S string                 `json:"s"`
		T wire.Text              `json:"t"`
		L wire.Loose             `json:"l"`
		B bool                   `json:"b"`
		I float64                `json:"i"`
		F wire.Optional[float64] `json:"f"`
		O wire.Optional[inner]   `json:"o"`
		X []wire.Optional[inner] `json:"x"`
		R json.RawMessage        `json:"r"`
		M wire.Optional[float64] `json:"m"`
	}
	index := func(n float64) wire.Optional[float64] { return wire.Optional[float64]{Value: n, Present: true} }
	for text, want := range map[string]outer{
		`{"s":"a\u00e9","t":"b\"","l":"c","b":true,"i":7,"f":0.5,"m":0}`:                              {S: "aé", T: `b"`, L: "c", B: true, I: 7, F: wire.Optional[float64]{Value: 0.5, Present: true}, M: index(0)},
		`{"s":1,"t":{},"l":{"a": 1.50},"b":"x","i":"7","f":"0.5","o":[],"x":{},"m":"3"}`:              {L: `{"a": 1.50}`},
		`{"s":null,"t":null,"l":null,"b":null,"i":null,"f":null,"o":null,"x":null,"m":null,"r":null}`: {R: json.RawMessage("null")},
		`{"s":"kept","s":3,"i":3.75,"m":-1e3,"r": [1.10, 2] }`:                                        {S: "kept", I: 3.75, M: index(-1000), R: json.RawMessage("[1.10, 2]")},
		`{"i":9007199254740993,"m":1e400,"f":1e400}`:                                                  {I: 1 << 53},
		`{"i":1e400,"b":false,"unknown":[{"s":"inner"}]}`:                                             {},
		`{"o":{"name":5,"index":2}}`:                                                                  {O: wire.Optional[inner]{Value: inner{Index: index(2)}, Present: true}},
		`{"x":[null,{"name":"a"},7,"b",{"name":{}}]}`:                                                 {X: []wire.Optional[inner]{{}, {Value: inner{Name: "a"}, Present: true}, {}, {}, {Present: true}}},
		"{\"t\":\"\xf0\x9f\",\"l\":\"\xff\",\"s\":\"\xff\"}":                                          {T: "\xf0\x9f", L: "\xff", S: "\uFFFD"},
		`{"t":"\ud83d\ude00 \ud800"}`:                                                                 {T: "😀 \uFFFD"},
		`{}`:                                                                                          {}, `[]`: {}, `"x"`: {}, ` 7 `: {}, `null`: {},
	} {
		var got outer
		if err := wire.Read([]byte(text), &got); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
	for f, want := range map[float64]int64{3.75: 3, -1e3: -1000, 1 << 53: 1 << 53, 1e30: 0, -1e30: 0} {
		if got := wire.Int(f); got != want {
			t.Errorf("%g is %d, want %d", f, got, want)
		}
	}
	const whole = `{"x":[1,{"name":"c\"\u0041"}],"s":null}`
	for n := range len(whole) {
		if wire.Read([]byte(whole[:n]), &outer{}) == nil {
			t.Errorf("%q is taken for whole", whole[:n])
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
		piece := r.Add(wire.Text(text[i : i+1]))
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
