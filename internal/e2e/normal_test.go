package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// differs are the fields of journal events in which two runs of the same scenario
// may differ: IDs, times, names of models, usage, reasoning data and the hashes of
// requests. Call IDs are not among them: they are numbered instead.
var differs = map[string]bool{
	"time": true, "created_at": true, "duration_ms": true, "first_token_ms": true,
	"run_id": true, "approval_id": true, "approval": true, "digest": true, "ref": true, "fault_ref": true, "request_id": true,
	"worker": true, "canary": true, "workspace": true, "leads_to": true, "folder_id": true, "version": true,
	"models": true, "model": true, "provider": true, "provider_id": true, "provider_name": true,
	"usage": true, "tokens": true, "sum": true, "charged": true, "charged_usd": true, "cost_usd": true, "estimated": true,
	"reserved_input": true, "reserved_output": true, "reserved_usd": true, "max_output": true,
	"signature": true, "redacted": true,
	"hash": true, "detail": true, "status_code": true,
}

// wordsOf reports whether a text of an event is a provider's own words: why a request
// failed, each says in its own way.
func wordsOf(kind toolcrib.Kind, field string) bool {
	return (kind == journal.KindModelFailed || kind == journal.KindError) && (field == "message" || field == "status" && kind == journal.KindModelFailed)
}

// normalJournal is a journal without what may differ, an event a line.
func normalJournal(t testing.TB, all []toolcrib.Event) []string {
	t.Helper()
	n := normaliser{ids: map[string]string{}}
	lines := make([]string, 0, len(all))
	for _, e := range all {
		raw, err := json.Marshal(e.Body)
		if err != nil {
			t.Fatal(err)
		}
		var v map[string]any
		if err := json.Unmarshal(raw, &v); err != nil {
			t.Fatal(err)
		}
		maps.DeleteFunc(v, func(field string, _ any) bool { return wordsOf(e.Body.EventKind(), field) })
		if pending, ok := v["pending"].(map[string]any); ok && pending["error"] != nil {
			delete(pending["error"].(map[string]any), "message") // the provider's own words, too
		}
		out, err := json.Marshal(n.value(v))
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%s %s", e.Body.EventKind(), out))
	}
	return lines
}

// normaliser numbers the IDs of calls in the order in which they appear.
type normaliser struct{ ids map[string]string }

func (n normaliser) value(v any) any {
	switch x := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for _, k := range slices.Sorted(maps.Keys(x)) {
			if differs[k] {
				continue
			}
			if id, ok := x[k].(string); ok && id != "" && (k == "id" || k == "call_id" || k == "tool_call_id") {
				out[k] = n.id(id)
				continue
			}
			out[k] = n.value(x[k])
		}
		return out
	case []any:
		out := make([]any, len(x))
		for i := range x {
			out[i] = n.value(x[i])
		}
		return out
	}
	return v
}

func (n normaliser) id(id string) string {
	if _, ok := n.ids[id]; !ok {
		n.ids[id] = fmt.Sprintf("call#%d", len(n.ids)+1)
	}
	return n.ids[id]
}

// firstDifference shows where two journals part.
func firstDifference(got, want []string) string {
	for i := range max(len(got), len(want)) {
		var g, w string
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			return fmt.Sprintf("event %d:\n got  %s\n want %s", i+1, g, w)
		}
	}
	return ""
}
