package sqlite

import (
	"errors"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/toolcribtest/journaltest"
)

// What was looked at before is looked at again in the transaction that prunes.
func TestPruneRun_LooksAgain(t *testing.T) {
	s := openTest(t)
	start := func(parent toolcrib.RunID) *journal.RunStarted {
		return &journal.RunStarted{Format: journal.Format, Agent: toolcrib.Agent{Name: "a"}, Principal: toolcrib.Principal{User: "ann"}, Parent: parent}
	}
	done := &journal.Done{Status: toolcrib.StatusCompleted, StopReason: toolcrib.StopCompleted}
	for run, bodies := range map[toolcrib.RunID][]toolcrib.Body{"run_p": {start("")}, "run_c": {start("run_p"), done}} {
		if err := s.Append(t.Context(), run, 0, journaltest.Events(bodies...)...); err != nil {
			t.Fatal(err)
		}
	}
	for _, contentOnly := range []bool{true, false} {
		for run, above := range map[toolcrib.RunID]bool{"run_p": false, "run_c": true} {
			o := store.PruneOptions{ContentOnly: contentOnly, By: "ann"}
			result, _, err := s.pruneEach(t.Context(), []toolcrib.RunID{run}, s.now(), o, 1)
			var refused *store.RunAboveError
			if !errors.Is(err, toolcrib.ErrConflict) || errors.As(err, &refused) != above || len(result.Runs) > 0 {
				t.Errorf("run %s, content only %v: %+v, error %v", run, contentOnly, result, err)
			}
		}
	}
}
