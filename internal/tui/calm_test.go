package tui

import (
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib/journal"
)

// What a person was typing when a question appeared is no answer to it: it goes on
// into the message, and the question waits until nobody has typed for a moment.
func TestIssue5_8_TypedAheadIsNoApproval(t *testing.T) {
	d := newDesk(t, 80, Look{})
	d.calm = calm
	clock := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	d.now = func() time.Time { return clock }
	d.work()
	d.keys("s", "a")
	reply := make(chan Answer, 1)
	d.show(questionItem{Question{Ask: approval(item("a"))}, reply})
	for _, key := range []string{"y", "a", "n", "e", "l", "enter"} {
		clock = clock.Add(calm - time.Millisecond)
		d.keys(key)
	}
	select {
	case a := <-reply:
		t.Fatalf("what was typed ahead answered: %+v", a)
	default:
	}
	if got := d.input.Value(); got != "sayanel" {
		t.Errorf("the message is %q", got)
	}
	if text := d.screenText(); strings.Contains(text, "y yes") {
		t.Errorf("keys are shown that do not answer yet:\n%s", text)
	}
	clock = clock.Add(calm)
	if text := d.screenText(); !strings.Contains(text, "y yes") {
		t.Errorf("no keys are shown:\n%s", text)
	}
	d.keys("y")
	select {
	case a := <-reply:
		if a.Decision != journal.DecisionApprove {
			t.Errorf("%+v", a)
		}
	default:
		t.Error("the key did not answer")
	}
}
