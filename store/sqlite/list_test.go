package sqlite_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/toolcribtest/journaltest"
)

// BenchmarkList20000 lists among 20,000 runs, by what matches few of them.
func BenchmarkList20000(b *testing.B) {
	s := open(b)
	failed := &journal.Error{Status: toolcrib.StatusFailed, Code: "internal_error"}
	var wg sync.WaitGroup
	for w := range 64 {
		wg.Go(func() {
			for i := w; i < 20000; i += 64 {
				start, last := started("ann", "default", "", ""), toolcrib.Body(completed)
				if i == 5 {
					start = started("bob", "coder", "ses_b", "")
					start.Principal.Token = "tok_b"
					last = failed
				}
				events := journaltest.Events(start, last)
				events[0].Time = events[0].Time.Add(-time.Duration(20000-i) * time.Minute)
				if err := s.Append(b.Context(), toolcrib.RunID(fmt.Sprintf("run_%05d", i)), 0, events...); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for name, f := range map[string]store.Filter{
		"all": {}, "user": {User: "bob"}, "token": {Token: "tok_b"}, "agent": {Agent: "coder"}, "session": {Session: "ses_b"},
		"failed": {Status: []toolcrib.Status{toolcrib.StatusFailed}}, "since": {Since: journaltest.At().Add(-time.Minute)},
		"deciding": {Deciding: true}, "1000": {Limit: store.MaxLimit},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := s.Runs(b.Context(), f); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("sessions", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Sessions(b.Context(), store.SessionFilter{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("verify", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.VerifyAll(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
}
