package sqlstore_test

import (
	"errors"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/toolcribtest/journaltest"
)

// What was looked at before is looked at again in the transaction that prunes, in whichever
// order a run and the one below it were stored.
func TestPruneRun_LooksAgain(t *testing.T) {
	for _, order := range [][]toolcrib.RunID{{"run_p", "run_c"}, {"run_c", "run_p"}} {
		t.Run(string(order[0]+" first"), func(t *testing.T) { testLooksAgain(t, order) })
	}
}

func testLooksAgain(t *testing.T, order []toolcrib.RunID) {
	s := openTest(t)
	start := func(parent toolcrib.RunID) *journal.RunStarted {
		return &journal.RunStarted{Format: journal.Format, Agent: toolcrib.Agent{Name: "a"}, Principal: toolcrib.Principal{User: "ann"}, Parent: parent}
	}
	done := &journal.Done{Status: toolcrib.StatusCompleted, StopReason: toolcrib.StopCompleted}
	bodies := map[toolcrib.RunID][]toolcrib.Body{"run_p": {start("")}, "run_c": {start("run_p"), done}}
	for _, run := range order {
		if err := s.Append(t.Context(), run, 0, journaltest.Events(bodies[run]...)...); err != nil {
			t.Fatal(err)
		}
	}
	for _, contentOnly := range []bool{true, false} {
		for _, run := range []toolcrib.RunID{"run_p", "run_c"} {
			o := store.PruneOptions{ContentOnly: contentOnly, By: "ann"}
			result, err := s.PruneEach(t.Context(), run, o)
			var refused *store.OpenRunError
			if !errors.As(err, &refused) || refused.Open != "run_p" || len(result.Runs) > 0 {
				t.Errorf("run %s, content only %v: %+v, error %v", run, contentOnly, result, err)
			}
		}
	}
}
