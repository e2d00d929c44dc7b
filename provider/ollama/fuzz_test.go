package ollama_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

// answer is a transport that always answers the same.
type answer struct {
	kind string
	body []byte
}

func (a answer) RoundTrip(req *http.Request) (*http.Response, error) {
	_ = req.Body.Close()
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {a.kind}}, Body: io.NopCloser(bytes.NewReader(a.body)), ContentLength: -1,
	}, nil
}

// FuzzReply: for any input there is a valid reply in valid UTF-8,
// or one error with a class, and it is the same whether the input was a
// stream or not.
func FuzzReply(f *testing.F) {
	list, err := modeltest.Fixtures(modeltest.Ollama)
	if err != nil {
		f.Fatal(err)
	}
	for _, x := range list {
		f.Add(append(x.Stream, x.Whole...))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var replies []toolcrib.Reply
		for _, kind := range []string{"application/x-ndjson", "application/json"} {
			r, err := modeltest.Collect(t.Context(), open(t, modeltest.Target{Transport: answer{kind, body}}), modeltest.Request("q"))
			var e *toolcrib.ModelError
			switch {
			case errors.As(err, &e):
				if e.Class == "" || e.Provider == "" || e.Message == "" || !utf8.ValidString(e.Message) {
					t.Fatalf("error %+v", e)
				}
				continue
			case err != nil:
				t.Fatal(err)
			}
			if !utf8.ValidString(r.Message.Text()) {
				t.Fatalf("text %q", r.Message.Text())
			}
			replies = append(replies, r)
		}
		// A stream that continues after its end, or has a JSON value on several
		// lines, may be read in one of the two ways only.
		if len(replies) == 2 && replies[0].Message.Text() != replies[1].Message.Text() {
			t.Errorf("stream %+v, whole %+v", replies[0], replies[1])
		}
	})
}

func TestInvalidUTF8(t *testing.T) {
	line := func(s string) string {
		return `{"model":"m","message":{"role":"assistant","content":"` + s + `"},"done":false}` + "\n"
	}
	body := line("a\xffb") + line("\xe6\x97") + line("\xa5!") + line(`\ud83d`) + `{"done":true,"done_reason":"stop"}`
	r, err := modeltest.Collect(t.Context(), open(t, modeltest.Target{Transport: answer{"application/x-ndjson", []byte(body)}}), modeltest.Request("q"))
	if err != nil || r.Message.Text() != "a\uFFFDb日!\uFFFD" {
		t.Errorf("text %q, error %v", r.Message.Text(), err)
	}
}

func TestTooManyCalls(t *testing.T) {
	calls := strings.Repeat(`{"function":{"name":"f","arguments":{}}},`, 5000)
	body := `{"message":{"tool_calls":[` + calls + `{}]},"done":true}`
	_, err := modeltest.Collect(t.Context(), open(t, modeltest.Target{Transport: answer{"application/x-ndjson", []byte(body)}}), modeltest.Request("q"))
	var e *toolcrib.ModelError
	if !errors.As(err, &e) || e.Class != toolcrib.ErrOther {
		t.Errorf("error %v", err)
	}
}

// A large message under every status: no crash, one error, its class by status.
func TestEveryStatus(t *testing.T) {
	usual := []int{301, 302, 307, 400, 401, 403, 404, 408, 413, 429, 500, 502, 503, 504, 529}
	for status := 300; status < 600; status++ {
		if testing.Short() && status%7 != 0 && !slices.Contains(usual, status) {
			continue
		}
		for _, body := range []string{"", "{}", `{"error":"x"}`, `{"error":null}`, `{"error":{"message":"x"}}`, "<html>", "\xff\x00", `[]`, string(mustJSON(strings.Repeat("x", 100_000)))} {
			_, err := modeltest.Collect(t.Context(), open(t, modeltest.Target{Transport: refusal{status, body}}), modeltest.Request("q"))
			var e *toolcrib.ModelError
			if !errors.As(err, &e) || e.Class == "" || e.Status != status || len(e.Message) > 500 || len(e.Detail) > 8<<10 {
				t.Fatalf("status %d, body %.20q: error %v", status, body, err)
			}
		}
	}
}

type refusal struct {
	status int
	body   string
}

func (r refusal) RoundTrip(req *http.Request) (*http.Response, error) {
	_ = req.Body.Close()
	return &http.Response{StatusCode: r.status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(r.body)), ContentLength: -1}, nil
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
