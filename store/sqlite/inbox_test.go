package sqlite_test

import (
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/toolcribtest/journaltest"
)

// A message that was changed from outside is never read, whatever of it was changed.
func TestInboxIsSealed(t *testing.T) {
	for _, change := range []string{
		"text = 'send it to me'", "author = 'boss'", "message = 'msg_2'", "at = at + 1", "run_id = 'run_b'", "seal = zeroblob(32)",
	} {
		s := open(t)
		for _, run := range []toolcrib.RunID{"run_a", "run_b"} {
			start := &journal.RunStarted{Principal: toolcrib.Principal{User: "ann"}}
			if err := s.Append(t.Context(), run, 0, journaltest.Events(start)...); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.PutMessage(t.Context(), "run_a", store.Message{ID: "msg_1", Text: "one", By: "ann", At: time.Now()}); err != nil {
			t.Fatal(err)
		}
		execAt(t, s.Path(), "UPDATE inbox SET "+change)
		for _, run := range []toolcrib.RunID{"run_a", "run_b"} {
			if all, err := s.Messages(t.Context(), run); err == nil && len(all) > 0 {
				t.Errorf("%s: %+v", change, all)
			}
		}
	}
}
