package accesstest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib/access"
)

// RunQuota checks a quota. open returns one that has counted nothing, which is closed
// by the test's cleanup.
func RunQuota(t *testing.T, open func(t *testing.T) access.Quota) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, access.Quota){
		"M16 calls in total":           total,
		"M16 calls a minute":           perMinute,
		"a refused call is no call":    refusedIsFree,
		"a clock that is set back":     setBack,
		"a clock that was far ahead":   wasAhead,
		"the edge of a minute":         edges,
		"no limits":                    noLimits,
		"what cannot be counted":       impossible,
		"in parallel, never overspent": parallel,
		"a look counts nothing":        looking,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
	t.Run("any calls at any time", func(t *testing.T) { anyCalls(t, open(t)) })
}

// took checks the answer of Take: bucket "" = taken.
func took(t *testing.T, err error, bucket string, retry time.Duration) {
	t.Helper()
	var q *access.QuotaError
	switch {
	case bucket == "" && err == nil:
	case bucket != "" && errors.As(err, &q) && q.Bucket == bucket && q.RetryAfter == retry:
	default:
		t.Errorf("got %v, want bucket %q and retry after %s", err, bucket, retry)
	}
}

func total(t *testing.T, q access.Quota) {
	l := access.Limits{Total: 3}
	for i := range 5 {
		bucket := ""
		if i >= 3 {
			bucket = access.BucketTotal
		}
		took(t, q.Take(t.Context(), "tok_1", l, epoch.Add(time.Duration(i)*time.Hour)), bucket, 0)
	}
	took(t, q.Take(t.Context(), "tok_2", l, epoch), "", 0)
}

func perMinute(t *testing.T, q access.Quota) {
	l := access.Limits{PerMinute: 2}
	for _, tt := range []struct {
		second int
		bucket string
		retry  time.Duration
	}{
		{0, "", 0},
		{50, "", 0},
		{59, access.BucketMinute, time.Second},
		{60, "", 0}, // the first one is a minute ago
		{61, access.BucketMinute, 49 * time.Second}, // any 60 seconds, not those of the clock
		{110, "", 0},
		{119, access.BucketMinute, time.Second},
	} {
		took(t, q.Take(t.Context(), "tok_1", l, epoch.Add(time.Duration(tt.second)*time.Second)), tt.bucket, tt.retry)
	}
}

func refusedIsFree(t *testing.T, q access.Quota) {
	l := access.Limits{PerMinute: 1, Total: 2}
	took(t, q.Take(t.Context(), "tok_1", l, epoch), "", 0)
	took(t, q.Take(t.Context(), "tok_1", l, epoch.Add(30*time.Second)), access.BucketMinute, 30*time.Second)
	took(t, q.Take(t.Context(), "tok_1", l, epoch.Add(60*time.Second)), "", 0)
	took(t, q.Take(t.Context(), "tok_1", l, epoch.Add(10*time.Minute)), access.BucketTotal, 0)
}

func setBack(t *testing.T, q access.Quota) {
	l := access.Limits{PerMinute: 1}
	took(t, q.Take(t.Context(), "tok_1", l, epoch), "", 0)
	took(t, q.Take(t.Context(), "tok_1", l, epoch.Add(-time.Hour)), access.BucketMinute, time.Hour+time.Minute)
}

// A clock that is ahead for a while gives no token its calls back.
func wasAhead(t *testing.T, q access.Quota) {
	l := access.Limits{Total: 2, PerMinute: 2, Expires: epoch.Add(time.Hour)}
	took(t, q.Take(t.Context(), "tok_1", l, epoch), "", 0)
	took(t, q.Take(t.Context(), "tok_1", l, epoch), "", 0)
	took(t, q.Take(t.Context(), "tok_2", access.Limits{Total: 1}, epoch.AddDate(5, 0, 0)), "", 0)
	took(t, q.Take(t.Context(), "tok_1", l, epoch.Add(time.Minute)), access.BucketTotal, 0)
	if left, err := q.Left(t.Context(), "tok_1", l, epoch.Add(time.Minute)); err != nil || left.Total != 0 {
		t.Errorf("%+v, %v", left, err)
	}
}

// A call counts for a whole minute, and not a nanosecond longer.
func edges(t *testing.T, q access.Quota) {
	l := access.Limits{PerMinute: 1}
	took(t, q.Take(t.Context(), "tok_1", l, epoch), "", 0)
	took(t, q.Take(t.Context(), "tok_1", l, epoch.Add(access.Minute-1)), access.BucketMinute, 1)
	took(t, q.Take(t.Context(), "tok_1", l, epoch.Add(access.Minute)), "", 0)
	took(t, q.Take(t.Context(), "tok_1", l, epoch.Add(access.Minute)), access.BucketMinute, access.Minute)
}

func noLimits(t *testing.T, q access.Quota) {
	for range 10 {
		took(t, q.Take(t.Context(), "tok_1", access.Limits{}, epoch), "", 0)
	}
}

func impossible(t *testing.T, q access.Quota) {
	for name, err := range map[string]error{
		"no token":     q.Take(t.Context(), "", access.Limits{}, epoch),
		"no time":      q.Take(t.Context(), "tok_1", access.Limits{}, time.Time{}),
		"long ago":     q.Take(t.Context(), "tok_1", access.Limits{}, time.Date(1969, 12, 31, 0, 0, 0, 0, time.UTC)),
		"far ahead":    q.Take(t.Context(), "tok_1", access.Limits{}, time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)),
		"negative":     q.Take(t.Context(), "tok_1", access.Limits{Total: -1}, epoch),
		"negative too": q.Take(t.Context(), "tok_1", access.Limits{PerMinute: -1}, epoch),
	} {
		if err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := q.Take(ctx, "tok_1", access.Limits{}, epoch); err == nil {
		t.Error("a context that has ended: taken")
	}
}

func parallel(t *testing.T, q access.Quota) {
	const workers, each, limit = 8, 10, 17
	for _, l := range []access.Limits{{Total: limit}, {PerMinute: limit}} {
		token := fmt.Sprintf("tok_%d", l.Total)
		var all sync.WaitGroup
		var taken, other atomic.Int64
		for range workers {
			all.Go(func() {
				for range each {
					err := q.Take(t.Context(), token, l, epoch)
					var refusal *access.QuotaError
					switch {
					case err == nil:
						taken.Add(1)
					case !errors.As(err, &refusal):
						other.Add(1)
					}
				}
			})
		}
		all.Wait()
		if taken.Load() != limit || other.Load() != 0 {
			t.Errorf("%+v: %d calls were taken, want %d; %d could not be counted", l, taken.Load(), limit, other.Load())
		}
	}
}

// anyCalls compares with a count by hand.
func anyCalls(t *testing.T, q access.Quota) {
	round := 0
	rapid.Check(t, func(r *rapid.T) {
		round++
		token := fmt.Sprintf("tok_any_%d", round)
		l := access.Limits{PerMinute: rapid.Int64Range(0, 4).Draw(r, "minute"), Total: rapid.Int64Range(0, 8).Draw(r, "total")}
		var kept []time.Time
		at := epoch
		for _, step := range rapid.SliceOfN(rapid.IntRange(-5, 40), 1, 15).Draw(r, "steps") {
			at = at.Add(time.Duration(step) * time.Second)
			now, inMinute := at, int64(0)
			if n := len(kept); n > 0 && kept[n-1].After(now) {
				now = kept[n-1]
			}
			for _, k := range kept {
				if k.After(now.Add(-access.Minute)) {
					inMinute++
				}
			}
			left, err := q.Left(context.Background(), token, l, at)
			if err != nil {
				r.Fatal(err)
			}
			if l.Total > 0 && left.Total != l.Total-int64(len(kept)) || l.PerMinute > 0 && left.Minute != l.PerMinute-inMinute {
				r.Fatalf("%+v at %s after %v: left %+v", l, at, kept, left)
			}
			want := (l.Total == 0 || int64(len(kept)) < l.Total) && (l.PerMinute == 0 || inMinute < l.PerMinute)
			err = q.Take(context.Background(), token, l, at)
			if got := err == nil; got != want {
				r.Fatalf("%+v at %s after %v: taken %v, want %v", l, at, kept, got, want)
			}
			if refusal := left.Refusal(); !sameRefusal(refusal, err) {
				r.Fatalf("%+v at %s after %v: the look said %v, and it was %v", l, at, kept, refusal, err)
			}
			if want {
				kept = append(kept, now)
			}
		}
	})
}

func sameRefusal(a, b error) bool {
	var x, y *access.QuotaError
	if !errors.As(a, &x) || !errors.As(b, &y) {
		return a == nil && b == nil
	}
	return *x == *y
}

func looking(t *testing.T, q access.Quota) {
	l := access.Limits{PerMinute: 2, Total: 3}
	for range 5 {
		left, err := q.Left(t.Context(), "tok_1", l, epoch)
		if err != nil || left.Total != 3 || left.Minute != 2 || left.Refusal() != nil {
			t.Errorf("%+v, %v", left, err)
		}
	}
	took(t, q.Take(t.Context(), "tok_1", l, epoch), "", 0)
	took(t, q.Take(t.Context(), "tok_1", l, epoch.Add(time.Second)), "", 0)
	left, err := q.Left(t.Context(), "tok_1", l, epoch.Add(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	took(t, left.Refusal(), access.BucketMinute, 58*time.Second)
	left, err = q.Left(t.Context(), "tok_1", l, epoch.Add(-time.Hour)) // set back
	if err != nil {
		t.Fatal(err)
	}
	took(t, left.Refusal(), access.BucketMinute, time.Hour+time.Minute)
	for name, bad := range map[string]access.Limits{"negative": {Total: -1}, "negative too": {PerMinute: -1}} {
		if _, err := q.Left(t.Context(), "tok_1", bad, epoch); err == nil {
			t.Errorf("%s: looked", name)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := q.Left(ctx, "tok_1", l, epoch); err == nil {
		t.Error("a context that has ended: looked")
	}
}
