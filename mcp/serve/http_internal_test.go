package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// An answer that nothing is written to for long is a stream with comments, and what comes then is an
// event of it, also if it would have been a whole answer with a status of its own.
func TestAnswer(t *testing.T) {
	for _, tt := range []struct {
		name    string
		streams bool
		do      func(*answer)
		status  int
		want    string
	}{
		{"an error early", true, func(a *answer) { refuse(a, 400) }, 400, `{"error":1}`},
		{"an error late", true, func(a *answer) { _ = a.ping(); refuse(a, 400) }, 200, ": ping\n\nevent: message\ndata: {\"error\":1}\n\n"},
		{"an event late", true, func(a *answer) {
			_ = a.ping()
			a.Header().Set("Content-Type", stream)
			_, _ = a.Write([]byte("data: x\n\n"))
			_ = a.ping()
		}, 200, ": ping\n\ndata: x\n\n: ping\n\n"},
		{"no stream", false, func(a *answer) { _ = a.ping(); refuse(a, 404) }, 404, `{"error":1}`},
		{"no comment in JSON", true, func(a *answer) { refuse(a, 400); _ = a.ping() }, 400, `{"error":1}`},
		{"a text", true, func(a *answer) { http.Error(a, "what", http.StatusMethodNotAllowed); _ = a.ping() }, 200, "405 what"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			a := newAnswer(w, func(status int, text string) { fmt.Fprint(w, status, " ", text) })
			a.streams = tt.streams
			tt.do(a)
			if w.Code != tt.status || w.Body.String() != tt.want {
				t.Errorf("%d %q, want %d %q", w.Code, w.Body.String(), tt.status, tt.want)
			}
		})
	}
}

func refuse(a *answer, status int) {
	a.Header().Set("Content-Type", "application/json")
	a.WriteHeader(status)
	_, _ = a.Write([]byte(`{"error":1}`))
}

// Who does not read is left.
func TestAnswer_Beat(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	a := newAnswer(deaf{httptest.NewRecorder()}, nil)
	a.streams = true
	stop := a.beat(ctx, time.Millisecond, cancel)
	select {
	case <-ctx.Done():
	case <-time.After(time.Minute):
		t.Error("it does not stop")
	}
	stop()
}

type deaf struct{ http.ResponseWriter }

func (deaf) Write([]byte) (int, error) { return 0, errors.New("nobody reads") }

// What is kept of a session is bounded, and either whole or an error.
func TestReplay(t *testing.T) {
	r := replay{next: map[string]int{}}
	ctx := t.Context()
	all := func(stream string, after int) (got []string) {
		for data, err := range r.After(ctx, "s", stream, after) {
			if err != nil {
				return []string{err.Error()}
			}
			got = append(got, string(data))
		}
		return got
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, stream := range []string{"", "a", "b"} {
		must(r.Open(ctx, "s", stream))
		for i := range 3 {
			must(r.Append(ctx, "s", stream, []byte(fmt.Sprint(stream, i))))
		}
	}
	gone := errNotKept.Error()
	for _, tt := range []struct {
		stream string
		after  int
		want   string
	}{
		{"a", -1, "a0 a1 a2"}, {"a", 1, "a2"}, {"a", 2, ""}, {"a", 9, ""}, {"b", 0, "b1 b2"}, {"c", 0, gone}, {"", -1, ""}, {"", 7, ""},
	} {
		if got := strings.Join(all(tt.stream, tt.after), " "); got != tt.want {
			t.Errorf("%q after %d: %q, want %q", tt.stream, tt.after, got, tt.want)
		}
	}
	must(r.Append(ctx, "s", "b", bytes.Repeat([]byte("x"), keptBytes))) // takes the place of all
	if got := all("a", -1); !slices.Equal(got, []string{gone}) {
		t.Errorf("%q", got)
	}
	if got := all("b", 2); len(got) != 1 || len(got[0]) != keptBytes {
		t.Errorf("%d", len(got))
	}
	for i := range 2 * keptStreams {
		must(r.Open(ctx, "s", fmt.Sprint(i)))
		must(r.Append(ctx, "s", fmt.Sprint(i), []byte("y")))
	}
	must(r.Append(ctx, "s", "0", []byte("z")))
	if got := all("0", -1); !slices.Equal(got, []string{gone}) {
		t.Errorf("%q", got)
	}
	if len(r.events) > keptEvents || len(r.next) > keptStreams || r.bytes > keptBytes || cap(r.events) > 4*keptEvents ||
		cap(r.streams) > 4*keptStreams {
		t.Errorf("%d events (%d), %d streams, %d bytes", len(r.events), cap(r.events), len(r.next), r.bytes)
	}
}
