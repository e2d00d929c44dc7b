// Package journaltest contains the suites for implementations of [toolcrib.Journal] and [toolcrib.Contents].
package journaltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// Run tests a [toolcrib.Journal]. open returns a new empty one.
func Run(t *testing.T, open func(t *testing.T) toolcrib.Journal) {
	for name, test := range map[string]func(*testing.T, toolcrib.Journal){
		"RoundTrip":       roundTrip,
		"AsTheModel":      asTheModel,
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

// roundTrip tests that every kind with every field is read unchanged.
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

// badBody is a body that cannot be stored.
type badBody struct{ C chan int }

func (badBody) EventKind() toolcrib.Kind { return "bad" }

// asTheModel compares with a model: after any appends and reads, each run has the events that were appended after
// its last one, numbered without gaps, and as Append returned them. An append after another number, or with an
// event that cannot be stored, changes nothing; one without events checks the number.
func asTheModel(t *testing.T, j toolcrib.Journal) {
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		runs, kept := []string{"a", "b", "A", "a' OR 1=1 --", "läufe/ü", ""}, map[toolcrib.RunID][]toolcrib.Event{}
		for range rapid.IntRange(5, 30).Draw(rt, "steps") {
			run := toolcrib.RunID(fmt.Sprintf("run_%d%s", n, rapid.SampledFrom(runs).Draw(rt, "run")))
			last := toolcrib.Seq(len(kept[run]))
			if rapid.Bool().Draw(rt, "reads") {
				after := rapid.SampledFrom([]toolcrib.Seq{0, 1, 255, 256, 257, max(last, 1) - 1, last, last + 1, 1 << 40}).Draw(rt,
					"after")
				var got []toolcrib.Event
				if last == 0 {
					wantNotFound(t, j, run)
				} else {
					got = read(t, j, run, after)
				}
				if diff := cmp.Diff(kept[run][min(after, last):], got, cmpopts.EquateEmpty()); diff != "" {
					rt.Fatalf("%s after %d (-want +got):\n%s", run, after, diff)
				}
				continue
			}
			after, events := last, notices(rapid.SampledFrom([]int{0, 1, 2, 3, 300}).Draw(rt, "events"))
			if rapid.IntRange(0, 3).Draw(rt, "fits") == 3 {
				after = rapid.SampledFrom([]toolcrib.Seq{0, max(last, 1) - 1, last + 1, last + 2, 1 << 20}).Draw(rt,
					"instead of the last")
			}
			bad := len(events) > 1 && rapid.IntRange(0, 5).Draw(rt, "good") == 5
			if bad {
				events[1].Body = rapid.SampledFrom([]toolcrib.Body{nil, badBody{}}).Draw(rt, "bad")
			}
			err := j.Append(t.Context(), run, after, events...)
			switch {
			case err == nil != (after == last && !bad), !bad && err != nil && !errors.Is(err, toolcrib.ErrConflict):
				rt.Fatalf("append of %d events to %s after %d, bad %v: error %v", len(events), run, after, bad, err)
			case err == nil:
				seqs(t, events, last+1, len(events))
				kept[run] = append(kept[run], events...)
			case len(events) > 0 && (events[0].Seq != 0 || events[0].Hash != nil):
				rt.Fatal("a failed append numbered its events")
			}
		}
	})
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

// twoWriters tests that of two appends after the same event, exactly one succeeds each time, and the
// other one's events are not stored.
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

// manyRuns tests that concurrent appends to different runs do not affect each other.
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

// stopReading tests that a reader may stop at any event and cancel at any time.
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

// readWhileAppend tests that a reader may append, and read other runs.
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
			&journal.ToolResult{ToolCallID: "c", Content: content},
			&journal.ToolResult{ToolCallID: "d", Content: content[1:]})...)
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

// times tests that times are UTC with whole microseconds, and that the caller's events are set to the stored times.
func times(t *testing.T, j toolcrib.Journal) {
	zone := time.FixedZone("east", 5*3600+30*60)
	in := []time.Time{
		time.Date(2026, 3, 1, 5, 29, 59, 123_456_789, zone), time.Now(), time.Unix(0, 0),
		time.Date(1969, 12, 31, 23, 59, 59, 999_999_999, time.UTC),
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

// RunContents tests a [toolcrib.Contents]. open returns a new empty one.
func RunContents(t *testing.T, open func(t *testing.T) toolcrib.Contents) {
	for name, test := range map[string]func(*testing.T, toolcrib.Contents){
		"AsTheModel": contentsAsTheModel,
		"Cancelled":  contentCancelled,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

// contentsAsTheModel tests that content stored under a key of a run can be read, in any range. Storing
// the same bytes again succeeds, other bytes are an error.
func contentsAsTheModel(t *testing.T, c toolcrib.Contents) {
	source, n := []byte(strings.Repeat("\x00a\xff\xfebc\n01234567", 20_000)), 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		kept := map[string][]byte{}
		for range rapid.IntRange(5, 30).Draw(rt, "steps") {
			run := toolcrib.RunID(fmt.Sprint("run_", n, rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "run")))
			ref := rapid.SampledFrom([]string{"r", "s"}).Draw(rt, "ref")
			have, ok := kept[string(run)+ref]
			if rapid.Bool().Draw(rt, "puts") {
				data := slices.Clone(source[:rapid.SampledFrom([]int{0, 1, 13, 65535, 65536, 65537, len(source)}).Draw(rt,
					"bytes")])
				err := c.Put(t.Context(), run, ref, data)
				if (err == nil) != (!ok || bytes.Equal(have, data)) {
					rt.Fatalf("%d bytes where there are %d: error %v", len(data), len(have), err)
				}
				if err == nil {
					kept[string(run)+ref] = slices.Clone(data)
				}
				clear(data) // the caller may modify its slice
				continue
			}
			size := int64(len(have))
			offset := rapid.SampledFrom([]int64{-3, 0, 2, 65535, 65536, 65537, size - 1, size, size + 5, math.MaxInt64}).Draw(rt,
				"offset")
			limit := rapid.SampledFrom([]int64{-1, 0, 1, 3, 65535, 65536, 65537, size, math.MaxInt64}).Draw(rt, "limit")
			got, of, err := c.Range(t.Context(), run, ref, offset, limit)
			if !ok {
				if !errors.Is(err, toolcrib.ErrNotFound) {
					rt.Fatalf("error %v, want ErrNotFound", err)
				}
				continue
			}
			from := max(0, min(offset, size))
			if want := have[from : from+max(0, min(limit, size-from))]; err != nil || of != size || !bytes.Equal(got, want) {
				rt.Fatalf("range %d, %d: %d bytes of %d, error %v; want %d bytes of %d", offset, limit, len(got), of, err,
					len(want), size)
			}
		}
	})
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
