// Package journaltest is the conformance suite of [toolcrib.Journal] and
// [toolcrib.Contents]: every implementation must pass it.
package journaltest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// Run runs the suite of [toolcrib.Journal]; open returns a new empty one.
func Run(t *testing.T, open func(t *testing.T) toolcrib.Journal) {
	for name, test := range map[string]func(*testing.T, toolcrib.Journal){
		"RoundTrip":       roundTrip,
		"AppendRead":      appendRead,
		"AssignsSeq":      assignsSeq,
		"Conflict":        conflict,
		"NoEvents":        noEvents,
		"AllOrNone":       allOrNone,
		"NotFound":        notFound,
		"RunsAreApart":    runsAreApart,
		"TwoWriters":      twoWriters,
		"ManyRuns":        manyRuns,
		"Cancelled":       cancelled,
		"StopReading":     stopReading,
		"ReadWhileAppend": readWhileAppend,
		"Large":           large,
		"Time":            times,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

// read returns the events after a number.
func read(t *testing.T, j toolcrib.Journal, run toolcrib.RunID, after toolcrib.Seq) []toolcrib.Event {
	t.Helper()
	var events []toolcrib.Event
	for e, err := range j.Read(t.Context(), run, after) {
		if err != nil {
			t.Fatalf("read %s after %d: %v", run, after, err)
		}
		events = append(events, e)
	}
	return events
}

func mustAppend(t *testing.T, j toolcrib.Journal, run toolcrib.RunID, after toolcrib.Seq, events ...toolcrib.Event) {
	t.Helper()
	if err := j.Append(t.Context(), run, after, events...); err != nil {
		t.Fatalf("append to %s after %d: %v", run, after, err)
	}
}

// seqs checks that events are numbered from first without gaps.
func seqs(t *testing.T, events []toolcrib.Event, first toolcrib.Seq, n int) {
	t.Helper()
	if len(events) != n {
		t.Fatalf("%d events, want %d", len(events), n)
	}
	for i, e := range events {
		if e.Seq != first+toolcrib.Seq(i) {
			t.Fatalf("event %d has number %d, want %d", i, e.Seq, first+toolcrib.Seq(i))
		}
	}
}

// roundTrip: every kind with every field comes back as it was.
func roundTrip(t *testing.T, j toolcrib.Journal) {
	want := Events(Bodies()...)
	mustAppend(t, j, "run_a", 0, want...)
	got := read(t, j, "run_a", 0)
	seqs(t, got, 1, len(want))
	for i := range want {
		if diff := cmp.Diff(want[i], got[i]); diff != "" {
			t.Errorf("%s came back changed (-appended +read):\n%s", want[i].Body.EventKind(), diff)
		}
	}
}

// appendRead: events come back in order, whole or after any number.
func appendRead(t *testing.T, j toolcrib.Journal) {
	const n = 600 // more than any page of a reader
	mustAppend(t, j, "run_a", 0, notices(1)...)
	mustAppend(t, j, "run_a", 1, notices(3)...)
	mustAppend(t, j, "run_a", 4, notices(n-4)...)
	for _, after := range []toolcrib.Seq{0, 1, 3, 255, 256, 257, n - 1, n, n + 1, 1 << 40} {
		seqs(t, read(t, j, "run_a", after), after+1, int(max(0, n-int64(after))))
	}
}

// assignsSeq: Append numbers the events it was given.
func assignsSeq(t *testing.T, j toolcrib.Journal) {
	events := notices(2)
	mustAppend(t, j, "run_a", 0, events...)
	seqs(t, events, 1, 2)
	more := notices(2)
	mustAppend(t, j, "run_a", 2, more...)
	seqs(t, more, 3, 2)
	if diff := cmp.Diff(append(events, more...), read(t, j, "run_a", 0)); diff != "" {
		t.Errorf("what Append gave differs from what Read gives:\n%s", diff)
	}
}

// conflict: any number but the last one is refused, and changes nothing.
func conflict(t *testing.T, j toolcrib.Journal) {
	mustAppend(t, j, "run_a", 0, notices(3)...)
	for _, c := range []struct {
		run   toolcrib.RunID
		after toolcrib.Seq
	}{{"run_a", 0}, {"run_a", 2}, {"run_a", 4}, {"run_a", 1 << 20}, {"run_new", 1}} {
		events := notices(2)
		err := j.Append(t.Context(), c.run, c.after, events...)
		if !errors.Is(err, toolcrib.ErrConflict) {
			t.Errorf("append to %s after %d: error %v, want ErrConflict", c.run, c.after, err)
		}
		if events[0].Seq != 0 || events[0].Hash != nil {
			t.Errorf("append to %s after %d numbered an event that it refused", c.run, c.after)
		}
	}
	seqs(t, read(t, j, "run_a", 0), 1, 3)
	wantNotFound(t, j, "run_new")
	mustAppend(t, j, "run_a", 3, notices(1)...)
}

// noEvents: an append without events checks the fence and stores nothing.
func noEvents(t *testing.T, j toolcrib.Journal) {
	mustAppend(t, j, "run_a", 0)
	wantNotFound(t, j, "run_a")
	mustAppend(t, j, "run_a", 0, notices(1)...)
	mustAppend(t, j, "run_a", 1)
	if err := j.Append(t.Context(), "run_a", 0); !errors.Is(err, toolcrib.ErrConflict) {
		t.Errorf("append of nothing after 0: error %v, want ErrConflict", err)
	}
	seqs(t, read(t, j, "run_a", 0), 1, 1)
}

// badBody is a body that cannot be stored.
type badBody struct{ C chan int }

func (badBody) EventKind() toolcrib.Kind { return "bad" }

// allOrNone: an append with one event that has no body stores none.
func allOrNone(t *testing.T, j toolcrib.Journal) {
	mustAppend(t, j, "run_a", 0, notices(1)...)
	events := notices(3)
	events[2].Body = nil
	if err := j.Append(t.Context(), "run_a", 1, events...); err == nil {
		t.Error("an event without a body was stored")
	}
	if events[0].Seq != 0 {
		t.Error("a failed append numbered its events")
	}
	seqs(t, read(t, j, "run_a", 0), 1, 1)
	mustAppend(t, j, "run_a", 1, notices(1)...)

	if err := j.Append(t.Context(), "run_b", 0, Events(badBody{})...); err == nil {
		t.Error("a body that is not JSON was stored")
	}
	wantNotFound(t, j, "run_b")
}

func wantNotFound(t *testing.T, j toolcrib.Journal, run toolcrib.RunID) {
	t.Helper()
	n := 0
	for _, err := range j.Read(t.Context(), run, 0) {
		n++
		if !errors.Is(err, toolcrib.ErrNotFound) {
			t.Errorf("read of %s: error %v, want ErrNotFound", run, err)
		}
	}
	if n != 1 {
		t.Errorf("read of %s yielded %d times, want once", run, n)
	}
}

func notFound(t *testing.T, j toolcrib.Journal) {
	wantNotFound(t, j, "run_none")
	mustAppend(t, j, "run_a", 0, notices(1)...)
	wantNotFound(t, j, "run_")
	wantNotFound(t, j, "RUN_A")
}

func runsAreApart(t *testing.T, j toolcrib.Journal) {
	for i, run := range []toolcrib.RunID{"run_a", "run_b", "run_a' OR 1=1 --", "läufe/ü"} {
		mustAppend(t, j, run, 0, notices(i+1)...)
	}
	mustAppend(t, j, "run_a", 1, notices(4)...)
	seqs(t, read(t, j, "run_a", 0), 1, 5)
	seqs(t, read(t, j, "run_b", 0), 1, 2)
	seqs(t, read(t, j, "run_a' OR 1=1 --", 0), 1, 3)
	seqs(t, read(t, j, "läufe/ü", 0), 1, 4)
}

// twoWriters: of two that append after the same event, exactly one wins, each
// time, and the loser's events are nowhere.
func twoWriters(t *testing.T, j toolcrib.Journal) {
	const rounds = 50
	for after := toolcrib.Seq(0); after < rounds; after++ {
		var errs [2]error
		var wg sync.WaitGroup
		start := make(chan struct{})
		for w := range errs {
			wg.Go(func() {
				<-start
				events := Events(&journal.Notice{Notice: toolcrib.Notice{Code: fmt.Sprint(w)}})
				errs[w] = j.Append(t.Context(), "run_a", after, events...)
			})
		}
		close(start)
		wg.Wait()
		winner := 0
		if errs[0] != nil {
			winner = 1
		}
		if errs[winner] != nil || !errors.Is(errs[1-winner], toolcrib.ErrConflict) {
			t.Fatalf("after %d: errors %v and %v, want one nil and one ErrConflict", after, errs[0], errs[1])
		}
		got := read(t, j, "run_a", after)
		if len(got) != 1 || got[0].Body.(*journal.Notice).Code != fmt.Sprint(winner) {
			t.Fatalf("after %d: %d events, not the winner's one", after, len(got))
		}
	}
}

// manyRuns: runs that append at once do not disturb each other.
func manyRuns(t *testing.T, j toolcrib.Journal) {
	const runs, appends = 16, 20
	var wg sync.WaitGroup
	for r := range runs {
		wg.Go(func() {
			run := toolcrib.RunID(fmt.Sprintf("run_%d", r))
			for i := range appends {
				events := notices(2)
				if i%5 == 4 {
					events[1].Body = &journal.ConfirmationResolved{ApprovalID: "a"}
				}
				if err := j.Append(t.Context(), run, toolcrib.Seq(2*i), events...); err != nil {
					t.Errorf("append %d to %s: %v", i, run, err)
					return
				}
			}
		})
	}
	wg.Wait()
	for r := range runs {
		seqs(t, read(t, j, toolcrib.RunID(fmt.Sprintf("run_%d", r)), 0), 1, 2*appends)
	}
}

func cancelled(t *testing.T, j toolcrib.Journal) {
	mustAppend(t, j, "run_a", 0, notices(3)...)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := j.Append(ctx, "run_a", 3, notices(1)...); !errors.Is(err, context.Canceled) {
		t.Errorf("append with a cancelled context: error %v", err)
	}
	var last error
	for _, err := range j.Read(ctx, "run_a", 0) {
		last = err
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("read with a cancelled context ended with error %v", last)
	}
	seqs(t, read(t, j, "run_a", 0), 1, 3)
}

// stopReading: a reader may stop at any event, and cancel in the middle.
func stopReading(t *testing.T, j toolcrib.Journal) {
	mustAppend(t, j, "run_a", 0, notices(10)...)
	for range 20 { // more often than a pool has connections
		for e, err := range j.Read(t.Context(), "run_a", 0) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Seq == 2 {
				break
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []toolcrib.Seq
	var last error
	for e, err := range j.Read(ctx, "run_a", 0) {
		last = err
		if err == nil {
			got = append(got, e.Seq)
			cancel()
		}
	}
	if len(got) != 1 || !errors.Is(last, context.Canceled) {
		t.Errorf("a reader that was cancelled at event 1 got %v and error %v", got, last)
	}
}

// readWhileAppend: who reads may append, and read other runs.
func readWhileAppend(t *testing.T, j toolcrib.Journal) {
	mustAppend(t, j, "run_a", 0, notices(3)...)
	n := toolcrib.Seq(0)
	for e, err := range j.Read(t.Context(), "run_a", 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq > 3 {
			t.Fatal("reading does not end: it yields what was appended meanwhile")
		}
		n++
		mustAppend(t, j, "run_a", 2+n, notices(1)...)
		mustAppend(t, j, "run_b", n-1, notices(1)...)
		seqs(t, read(t, j, "run_b", 0), 1, int(n))
	}
	seqs(t, read(t, j, "run_a", 0), 1, 6)
}

func large(t *testing.T, j toolcrib.Journal) {
	content := strings.Repeat("0123456789abcde\n", 1<<16) // 1 MiB
	var after toolcrib.Seq
	for range 6 {
		mustAppend(t, j, "run_a", after, Events(
			&journal.ToolResult{ToolCallID: "c", Content: content}, &journal.ToolResult{ToolCallID: "d", Content: content[1:]})...)
		after += 2
	}
	got := read(t, j, "run_a", 0)
	seqs(t, got, 1, 12)
	for i, e := range got {
		if e.Body.(*journal.ToolResult).Content != content[i%2:] {
			t.Fatalf("event %d came back changed", i)
		}
	}
}

// times: UTC, whole microseconds, and the caller's events say what is stored.
func times(t *testing.T, j toolcrib.Journal) {
	zone := time.FixedZone("east", 5*3600+30*60)
	in := []time.Time{
		time.Date(2026, 3, 1, 5, 29, 59, 123_456_789, zone), time.Now(), time.Unix(0, 0), time.Date(1969, 12, 31, 23, 59, 59, 999_999_999, time.UTC),
	}
	events := notices(len(in))
	for i := range in {
		events[i].Time = in[i]
	}
	mustAppend(t, j, "run_a", 0, events...)
	for i, e := range read(t, j, "run_a", 0) {
		want := time.UnixMicro(in[i].UnixMicro()).UTC()
		if e.Time != want || e.Time.Location() != time.UTC {
			t.Errorf("time %v is read as %v, want %v", in[i], e.Time, want)
		}
		if events[i].Time != want {
			t.Errorf("time %v: Append left %v in the event, want %v", in[i], events[i].Time, want)
		}
	}
}

// RunContents runs the suite of [toolcrib.Contents]; open returns a new empty one.
func RunContents(t *testing.T, open func(t *testing.T) toolcrib.Contents) {
	for name, test := range map[string]func(*testing.T, toolcrib.Contents){
		"Range":     ranges,
		"Once":      once,
		"NotFound":  contentNotFound,
		"Large":     largeContent,
		"Cancelled": contentCancelled,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

func wantRange(t *testing.T, c toolcrib.Contents, ref string, offset, limit int64, want string, size int64) {
	t.Helper()
	got, n, err := c.Range(t.Context(), "run_a", ref, offset, limit)
	if err != nil || string(got) != want || n != size {
		t.Errorf("range %d, %d of %s: %d bytes of %d, error %v; want %d bytes of %d", offset, limit, ref, len(got), n, err, len(want), size)
	}
}

func mustPut(t *testing.T, c toolcrib.Contents, run toolcrib.RunID, ref string, data []byte) {
	t.Helper()
	if err := c.Put(t.Context(), run, ref, data); err != nil {
		t.Fatal(err)
	}
}

func ranges(t *testing.T, c toolcrib.Contents) {
	data := "\x00a\xff\xfebc\n"
	mustPut(t, c, "run_a", "r", []byte(data))
	size := int64(len(data))
	for _, r := range []struct {
		offset, limit int64
		want          string
	}{
		{0, 100, data},
		{0, size, data},
		{0, 0, ""},
		{2, 3, data[2:5]},
		{size - 1, 9, "\n"},
		{size, 9, ""},
		{size + 5, 9, ""},
		{-3, 2, data[:2]},
		{1, -1, ""},
		{0, 1<<63 - 1, data},
		{1<<63 - 1, 1<<63 - 1, ""},
	} {
		wantRange(t, c, "r", r.offset, r.limit, r.want, size)
	}
	mustPut(t, c, "run_a", "empty", nil)
	wantRange(t, c, "empty", 0, 10, "", 0)
}

// once: a key is written once; the same bytes again are no error, others are.
func once(t *testing.T, c toolcrib.Contents) {
	data := []byte("one")
	for range 2 {
		mustPut(t, c, "run_a", "r", data)
	}
	if err := c.Put(t.Context(), "run_a", "r", []byte("two")); err == nil {
		t.Error("a key was written again with other bytes")
	}
	data[0] = 'X' // the caller's slice is its own
	wantRange(t, c, "r", 0, 9, "one", 3)
	if err := c.Put(t.Context(), "run_b", "r", []byte("two")); err != nil {
		t.Errorf("the same reference of another run: %v", err)
	}
	wantRange(t, c, "r", 0, 9, "one", 3)
}

func contentNotFound(t *testing.T, c toolcrib.Contents) {
	mustPut(t, c, "run_a", "r", []byte("one"))
	for _, key := range [][2]string{{"run_a", "s"}, {"run_b", "r"}} {
		if _, _, err := c.Range(t.Context(), toolcrib.RunID(key[0]), key[1], 0, 1); !errors.Is(err, toolcrib.ErrNotFound) {
			t.Errorf("range of %v: error %v, want ErrNotFound", key, err)
		}
	}
}

func largeContent(t *testing.T, c toolcrib.Contents) {
	data := []byte(strings.Repeat("0123456789abcdef", 3<<16)) // 3 MiB
	for _, cut := range []int{0, 1, 65535} {
		ref := fmt.Sprint("r", cut)
		whole := data[:len(data)-cut]
		mustPut(t, c, "run_a", ref, whole)
		size := int64(len(whole))
		for _, from := range []int64{0, 65535, 65536, 65537, 1 << 20, size - 1} {
			for _, limit := range []int64{1, 65535, 65536, 65537, size} {
				wantRange(t, c, ref, from, limit, string(whole[from:min(from+limit, size)]), size)
			}
		}
	}
}

func contentCancelled(t *testing.T, c toolcrib.Contents) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Put(ctx, "run_a", "r", []byte("one")); !errors.Is(err, context.Canceled) {
		t.Errorf("put with a cancelled context: error %v", err)
	}
	if _, _, err := c.Range(t.Context(), "run_a", "r", 0, 1); !errors.Is(err, toolcrib.ErrNotFound) {
		t.Errorf("a cancelled put left something: error %v", err)
	}
	if _, _, err := c.Range(ctx, "run_a", "r", 0, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("range with a cancelled context: error %v", err)
	}
}
