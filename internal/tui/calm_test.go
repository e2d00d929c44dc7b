package tui

import (
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib/internal/terminal"
	"github.com/toolcrib/toolcrib/journal"
)

// What a person was typing when a question appeared is no answer to it: it continues
// into the message, and the question waits until nobody has typed for a moment.
func TestTypedAheadIsNoApproval(t *testing.T) {
	d := newFixture(t, 80, false)
	d.calm = terminal.Calm
	clock := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	d.now = func() time.Time { return clock }
	d.work()
	d.keys("s", "a")
	reply := make(chan Answer, 1)
	d.ask(Question{Ask: approval(item("a"))}, reply)
	clock = clock.Add(2 * terminal.Calm)
	d.keys("y") // the question is still being printed
	d.prints = nil
	d.Update(printedMsg{})
	for _, key := range []string{"y", "a", "n", "e", "l", "enter"} {
		clock = clock.Add(terminal.Calm - time.Millisecond)
		d.keys(key)
	}
	select {
	case a := <-reply:
		t.Fatalf("what was typed ahead answered: %+v", a)
	default:
	}
	if got := d.input.Value(); got != "sayyanel" {
		t.Errorf("the message is %q", got)
	}
	if text := d.screenText(); strings.Contains(text, "y yes") {
		t.Errorf("keys are shown that do not answer yet:\n%s", text)
	}
	clock = clock.Add(terminal.Calm)
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
