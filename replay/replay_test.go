package replay_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/journal/inmemory"
	"github.com/toolcrib/toolcrib/replay"
	"github.com/toolcrib/toolcrib/toolcribtest"
)

// However long what is compared is, a difference at its very end is found, and shown.
func TestReplay_LongTextsAreComparedWhole(t *testing.T) {
	long := strings.Repeat("all work and no play ", 100)
	model := toolcribtest.NewModel(toolcribtest.Say(long + "end"))
	g, err := gate.New(gate.Options{Availability: noOverrides{}})
	if err != nil {
		t.Fatal(err)
	}
	j := &inmemory.Journal{}
	r, err := agent.New(agent.Options{Journal: j, Contents: j, Gate: g, Models: func(context.Context, journal.ModelInfo) (toolcrib.Model, error) { return model, nil }})
	if err != nil {
		t.Fatal(err)
	}
	s, err := r.Run(t.Context(), taskOf("boss", "go"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := replay.Run(t.Context(), j, s.Run); err != nil {
		t.Fatal(err)
	}
	for end, change := range map[string]string{"other": long + "other", "": strings.TrimSpace(long), "ends": long + "ends"} {
		_, err = replay.Run(t.Context(), tampered(t, j, s.Run, each(t, func(b *journal.Done) { b.Content = change })), s.Run)
		var found *replay.DifferenceError
		if !errors.As(err, &found) || found.What != "content" || !strings.HasSuffix(found.Want, end+`"`) || !strings.HasSuffix(found.Found, `end"`) || len(found.Want) > 250 {
			t.Errorf("%q: %v", end, err)
		}
	}
}
