package service

import (
	"slices"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// What another process writes of a parked run after this one has looked at it, and before this one writes
// itself, is in the stream of whoever resumes it, once and in order.
func TestResume_WrittenMeanwhile(t *testing.T) {
	h := poolOn(t, "", time.Minute, nil)
	run, err := h.s.Start(t.Context(), ann, h.request("asks"), Front{})
	if err != nil {
		t.Fatal(err)
	}
	says := func(text string) {
		e := toolcrib.Event{Seq: h.record(run.ID).LastSeq + 1, Time: time.Now(), Body: &journal.Said{Text: text, By: "ann"}}
		if err := h.s.Env.Store.Append(t.Context(), run.ID, e.Seq-1, e); err != nil {
			t.Error(err)
		}
	}
	says("earlier")
	v, err := h.s.Approval(t.Context(), ann, "last")
	if err != nil {
		t.Fatal(err)
	}
	yes := Decision{Word: journal.CallDecision{Decision: journal.DecisionApprove}, Digest: v.Digest}
	if _, err := h.s.Decide(t.Context(), ann, v, yes); err != nil {
		t.Fatal(err)
	}
	var seqs []toolcrib.Seq
	var kinds []string
	_, err = h.s.Resume(t.Context(), ann, ResumeRequest{Run: string(run.ID)}, Front{SincePause: true, Watch: func(f journal.Frame) {
		if f.Seq == 0 {
			return
		}
		seqs, kinds = append(seqs, f.Seq), append(kinds, f.Event)
		if f.Event == string(journal.KindConfirmationResolved) {
			says("meanwhile") // the run was looked at, and is not resumed yet
		}
	}})
	want := []string{"user_message", "confirmation_resolved", "user_message", "tool_started"}
	if err != nil || len(kinds) < 5 || !slices.Equal(kinds[:4], want) || kinds[len(kinds)-1] != "done" ||
		!slices.IsSorted(seqs) || len(slices.Compact(slices.Clone(seqs))) != len(seqs) {
		t.Errorf("%q %v, %v; want first %q", kinds, seqs, err, want)
	}
}
