package journal_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/toolcribtest/journaltest"
)

var update = flag.Bool("update", false, "write testdata/view.ndjson again; review the difference")

// fields are the least members of the data of each event. Kinds that are not listed are
// internal to the journal and have no frame.
var fields = map[toolcrib.Kind]string{
	journal.KindRunStarted:           "run_id agent model principal session_id offered",
	journal.KindMessage:              "iteration text thinking finish_reason",
	journal.KindToolCall:             "id name arguments",
	journal.KindConfirmationRequired: "approval_id digest kind calls reason",
	journal.KindConfirmationResolved: "approval_id decision by",
	journal.KindToolStarted:          "id name",
	journal.KindToolResult:           "tool_call_id name status is_error content reason duration_ms truncated untrusted",
	journal.KindSaid:                 "text by", // shown as user_message
	journal.KindUsage:                "input_tokens cached_input_tokens output_tokens total_tokens requests cost_usd estimated",
	journal.KindNotice:               "code message",
	journal.KindChildStarted:         "id run_id agent",
	journal.KindChildParked:          "approval_id digest kind calls reason", // shown as confirmation_required
	journal.KindChildResumed:         "id run_id",
	journal.KindChildEnded:           "id run_id status stop_reason usage",
	journal.KindPaused:               "status pending",
	journal.KindDone:                 "run_id status stop_reason content truncated iterations usage",
	journal.KindError:                "error message run_id status stop_reason usage",
}

// frames returns the frames of events as lines of JSON.
func frames(t *testing.T, events []toolcrib.Event) []byte {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for _, e := range events {
		if f, ok := journal.View("run_a", e); ok {
			if err := enc.Encode(f); err != nil {
				t.Fatal(err)
			}
		}
	}
	return b.Bytes()
}

func sample() []toolcrib.Event {
	events := journaltest.Events(journaltest.Bodies()...)
	for i := range events {
		events[i].Seq = toolcrib.Seq(i + 1)
	}
	return events
}

func TestViewGolden(t *testing.T) {
	got := frames(t, sample())
	const name = "testdata/view.ndjson"
	if *update {
		if err := os.WriteFile(name, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")); diff != "" {
		t.Errorf("frames (-golden +now)\n%s", diff)
	}
}

// A client decodes each frame unchanged: its data has the same type and the same JSON.
func TestReadFrame(t *testing.T) {
	for _, e := range sample() {
		f, ok := journal.View("run_a", e)
		if !ok {
			continue
		}
		want, err := json.Marshal(f.Data)
		if err != nil {
			t.Fatal(err)
		}
		read, err := journal.ReadFrame(f.Seq, f.Event, want)
		if err != nil || reflect.TypeOf(read.Data) != reflect.TypeOf(f.Data) || read.Seq != f.Seq {
			t.Fatalf("%s is read as %T, %v", f.Event, read.Data, err)
		}
		if got, err := json.Marshal(read.Data); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %s, %v; want %s", f.Event, got, err, want)
		}
	}
	if f, err := journal.ReadFrame(0, "later", []byte(`{"a":1}`)); err != nil || f.Event != "later" {
		t.Errorf("a kind of a later version: %+v, %v", f, err)
	}
	if _, err := journal.ReadFrame(1, "done", []byte(`{"content":7}`)); err == nil {
		t.Error("data of another type are read")
	}
}

// Each event has one frame or none, with its number and name, and with the
// documented members, whether all fields of the event are set or none.
func TestViewShapes(t *testing.T) {
	events := sample()
	for _, k := range kinds(t) {
		zero, err := journal.Decode(k, []byte("{}"))
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, toolcrib.Event{Seq: toolcrib.Seq(len(events) + 1), Body: zero})
	}
	for _, e := range events {
		kind := e.Body.EventKind()
		frame, ok := journal.View("run_a", e)
		names, public := fields[kind]
		if ok != public {
			t.Errorf("%s: has a frame %v, want %v", kind, ok, public)
		}
		if !ok {
			continue
		}
		if kind == journal.KindChildParked {
			kind = journal.KindConfirmationRequired
		}
		if kind == journal.KindSaid {
			kind = journal.FrameUserMessage
		}
		if frame.Seq != e.Seq || frame.Event != string(kind) {
			t.Errorf("event %d (%s) has frame %d (%s)", e.Seq, kind, frame.Seq, frame.Event)
		}
		raw, err := json.Marshal(frame.Data)
		if err != nil {
			t.Fatal(err)
		}
		data, ok := generic(t, raw).(map[string]any)
		for _, name := range strings.Fields(names) {
			if v, there := data[name]; !ok || !there || v == nil {
				t.Errorf("%s has no %s: %s", kind, name, raw)
			}
		}
	}
}

// No frame contains data for operators or opaque data.
func TestViewKeepsToItself(t *testing.T) {
	shown := string(frames(t, []toolcrib.Event{
		{Seq: 1, Body: &journal.RunStarted{System: "SECRET", Workspace: "SECRET", Input: []toolcrib.Message{toolcrib.TextMessage(toolcrib.RoleUser, "SECRET")}}},
		{Seq: 2, Body: &journal.Verdicts{Verdicts: []journal.Verdict{{Position: "SECRET", Detail: "SECRET"}}}},
		{Seq: 3, Body: &journal.ModelFailed{Detail: "SECRET"}},
		{Seq: 4, Body: &journal.ToolStarted{Prepared: json.RawMessage(`"SECRET"`)}},
		{Seq: 5, Body: &journal.ToolResult{Fault: "SECRET"}},
		{Seq: 6, Body: &journal.Message{Parts: []toolcrib.Part{{Thinking: &toolcrib.Thinking{Signature: "SECRET", Redacted: "SECRET"}}}}},
		{Seq: 7, Body: &journal.ToolResult{Source: "SECRET", Sources: []string{"SECRET"}}},
	}))
	if strings.Contains(shown, "SECRET") {
		t.Errorf("shown to clients:\n%s", shown)
	}
}

// The run and its parent describe in the same words whose decision a run waits for.
func TestViewPendingBelow(t *testing.T) {
	pending := journal.Pending{Kind: "approval", Run: "run_c", ApprovalID: "apr_1"}
	shown := string(frames(t, []toolcrib.Event{
		{Seq: 1, Body: &journal.ChildParked{ID: "call_1", Run: "run_b", Status: toolcrib.StatusWaitingForApproval, Pending: pending}},
		{Seq: 2, Body: &journal.Paused{Status: toolcrib.StatusWaitingForApproval, Pending: pending}},
		{Seq: 3, Body: &journal.Paused{Status: toolcrib.StatusWaitingForApproval, Pending: journal.Pending{Kind: "approval", ApprovalID: "apr_1"}}},
	}))
	want := `{"seq":1,"event":"confirmation_required","data":{"approval_id":"apr_1","digest":"","kind":"approval","calls":[],"reason":"","run_id":"run_c","call_id":"call_1"}}
{"seq":2,"event":"paused","data":{"status":"waiting_for_approval","pending":{"kind":"approval","run_id":"run_c","approval_id":"apr_1"}}}
{"seq":3,"event":"paused","data":{"status":"waiting_for_approval","pending":{"kind":"approval","approval_id":"apr_1"}}}
`
	if diff := cmp.Diff(want, shown); diff != "" {
		t.Error(diff)
	}
}

func TestViewArguments(t *testing.T) {
	for _, c := range []struct {
		call toolcrib.ToolCall
		want string
	}{
		{toolcrib.ToolCall{Arguments: json.RawMessage(`{"a":[1]}`)}, `{"a":[1]}`},
		{toolcrib.ToolCall{}, `{}`},
		{toolcrib.ToolCall{Arguments: json.RawMessage(`{}`), Broken: `{"a":`}, `"{\"a\":"`},
	} {
		frame, _ := journal.View("run_a", toolcrib.Event{Body: &journal.ToolCall{ToolCall: c.call}})
		raw, err := json.Marshal(frame)
		if err != nil {
			t.Fatal(err)
		}
		if want := `"arguments":` + c.want + `}`; !strings.Contains(string(raw), want) {
			t.Errorf("%+v is shown as %s, want %s", c.call, raw, want)
		}
	}
}

func TestResolvedOf(t *testing.T) {
	approve, deny := journal.CallDecision{Decision: journal.DecisionApprove}, journal.CallDecision{Decision: journal.DecisionDeny}
	named := map[string]journal.CallDecision{"a": deny}
	for name, c := range map[string]struct {
		resolved journal.ConfirmationResolved
		id       string
		want     journal.CallDecision
	}{
		"all":           {journal.ConfirmationResolved{Decision: journal.DecisionApprove}, "a", approve},
		"named":         {journal.ConfirmationResolved{Decision: journal.DecisionApprove, Calls: named}, "a", deny},
		"not named":     {journal.ConfirmationResolved{Decision: journal.DecisionApprove, Calls: named}, "b", approve},
		"mixed":         {journal.ConfirmationResolved{Decision: journal.DecisionMixed, Calls: named}, "b", journal.CallDecision{}},
		"open":          {journal.ConfirmationResolved{Decision: journal.DecisionApprove, Calls: named, Open: true}, "b", journal.CallDecision{}},
		"open, decided": {journal.ConfirmationResolved{Decision: journal.DecisionApprove, Calls: named, Open: true}, "a", deny},
		"nothing":       {journal.ConfirmationResolved{}, "a", journal.CallDecision{}},
	} {
		if diff := cmp.Diff(c.want, c.resolved.Of(c.id)); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}
