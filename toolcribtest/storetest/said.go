package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// saidBy returns messages of a model.
func saidBy(texts ...string) (all []toolcrib.Message) {
	for _, text := range texts {
		all = append(all, toolcrib.TextMessage(toolcrib.RoleAssistant, text))
	}
	return all
}

// said tests that the texts of a run and its results are recognized as long as the run is stored, along
// with whether it has read untrusted data.
func said(t *testing.T, database Database) {
	s := database(t, time.Now)()
	call := &journal.ToolCall{Iteration: 1, ToolCall: toolcrib.ToolCall{ID: "toolu_01234567", Name: "web_fetch"}}
	read := &journal.ToolResult{
		ToolCallID: call.ID, Name: call.Name, Status: toolcrib.ResultOK, Untrusted: true, Source: "web_fetch", Sources: []string{"a\nb"},
		Content: guard.Fit(toolcrib.Output{Text: "A page.", Untrusted: true}, guard.FitOptions{Source: "web_fetch", Canary: guard.CanaryPrefix + "0123456789ABCDEF"}).Content,
	}
	says := &journal.Message{Request: 1, Iteration: 1, Parts: []toolcrib.Part{
		{Thinking: &toolcrib.Thinking{Text: "Hm."}}, {Text: "First."}, {Text: "# Second\n\n* line"}, {ToolCall: &toolcrib.ToolCall{ID: call.ID, Name: call.Name}},
	}}
	start := begun("ann", "")
	start.Agent.Model = "m"
	add(t, s, "run_a", 0, start, says, call, read, done())
	clean := begun("ann", "")
	add(t, s, "run_b", 0, clean, &journal.Message{Parts: []toolcrib.Part{{Text: "Nothing."}}}, done())
	nested := begun("ann", "")
	nested.Parent, nested.Given = "run_a", &call.ToolCall
	add(t, s, "run_c", 0, nested, &journal.ToolResult{ToolCallID: call.ID, Name: call.Name, Status: toolcrib.ResultOK, Content: "Nested."}, done())

	retrace := func(s store.Store, user string, messages ...toolcrib.Message) (unknown bool, runs string) {
		t.Helper()
		found, err := store.Retrace(t.Context(), s, user, messages)
		must(t, err)
		for _, rec := range found.Tainted {
			runs += string(rec.ID) + " "
			if !slices.Equal(rec.Sources(), []string{"web_fetch", "a b"}) {
				t.Errorf("%q", rec.Taint)
			}
		}
		return found.Unknown, runs
	}
	for _, text := range []string{
		"hm", "First.", "Second line", "First.# Second\n\n* line", "First\n\nSecond line\n\nready", "\tA page", read.Content, "ready",
	} {
		if unknown, runs := retrace(s, "ann", saidBy(text)...); unknown || runs != "run_a " {
			t.Errorf("%q: unknown %v, %s", text, unknown, runs)
		}
		if unknown, runs := retrace(s, "bob", saidBy(text)...); !unknown || runs != "" {
			t.Errorf("%q, of bob: unknown %v, %s", text, unknown, runs)
		}
	}
	for text, want := range map[string]bool{"Nothing": false, "Nothing.\n\nNothing": false, "Nested.": true, "else": true, " ": false} {
		if unknown, runs := retrace(s, "ann", saidBy(text)...); unknown != want || runs != "" {
			t.Errorf("%q: unknown %v, %s", text, unknown, runs)
		}
	}
	byCall := toolcrib.Message{Role: toolcrib.RoleTool, Parts: []toolcrib.Part{{ToolResult: &toolcrib.ToolResult{CallID: call.ID, Content: "cut"}}}}
	if unknown, runs := retrace(s, "ann", byCall); unknown || runs != "run_a " {
		t.Errorf("by its call: unknown %v, %s", unknown, runs)
	}
	many := saidBy("First.")
	for len(many) < 5000 {
		many = append(many, toolcrib.TextMessage(toolcrib.RoleAssistant, "Nothing."))
	}
	if unknown, _ := retrace(s, "ann", many...); !unknown {
		t.Error("more than is looked up is known")
	}
	page, err := s.Runs(t.Context(), store.Filter{User: "ann", Tainted: true})
	if err != nil || len(page.Runs) != 1 || page.Runs[0].ID != "run_a" {
		t.Errorf("%+v, error %v", page, err)
	}
	elsewhere(t, database(t, time.Now)(), s, retrace)

	prune := func(content bool) {
		t.Helper()
		_, err := s.Prune(t.Context(), store.PruneOptions{Runs: []toolcrib.RunID{"run_a", "run_b"}, ContentOnly: content, By: "ann"})
		must(t, err)
		_, err = s.VerifyAll(t.Context())
		must(t, err)
	}
	prune(true)
	if unknown, runs := retrace(s, "ann", saidBy("First.", "Nothing.")...); unknown || runs != "run_a " {
		t.Errorf("without its content: unknown %v, %s", unknown, runs)
	}
	prune(false)
	if unknown, runs := retrace(s, "ann", saidBy("First.")...); !unknown || runs != "" {
		t.Errorf("removed: unknown %v, %s", unknown, runs)
	}
}

// elsewhere imports a run into another store, which recognizes its texts.
func elsewhere(
	t *testing.T, to, from store.Store, retrace func(store.Store, string, ...toolcrib.Message) (bool, string),
) {
	t.Helper()
	start := begun("ann", "")
	start.Taint = []string{"web_fetch", "a b"}
	add(t, from, "run_i", 0, start, &journal.Message{Parts: []toolcrib.Part{{Text: "Imported."}}}, done())
	in := store.Imported{Run: "run_i", By: "ann"}
	for e, err := range from.Read(t.Context(), in.Run, 0) {
		must(t, err)
		in.Events = append(in.Events, e)
	}
	must(t, to.Import(t.Context(), in))
	if unknown, runs := retrace(to, "ann", saidBy("Imported.")...); unknown || runs != "run_i " {
		t.Errorf("imported: unknown %v, %s", unknown, runs)
	}
	_, err := to.VerifyAll(t.Context())
	must(t, err)
	_, err = from.Prune(t.Context(), store.PruneOptions{Runs: []toolcrib.RunID{"run_i"}, By: "ann"})
	must(t, err)
}
