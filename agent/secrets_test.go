package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

const (
	apiKey    = "s3cr3t-value-1234"
	apiMark   = "[secret:api]"
	shortWord = "hunter2"
)

// knowing makes the runner of a world know the secrets api and pin.
func (w *world) knowing(t testing.TB) *guard.Masker {
	t.Helper()
	o := w.runner.Options
	o.Mask = guard.NewMasker(guard.Secret{Name: "api", Value: apiKey}, guard.Secret{Name: "pin", Value: shortWord})
	var err error
	if w.runner, err = agent.New(o); err != nil {
		t.Fatal(err)
	}
	return o.Mask
}

// shows fails the test if the journal of a run, or what was shown live, holds the text.
func (w *world) shows(t *testing.T, run toolcrib.RunID, text string) {
	t.Helper()
	for _, e := range w.events(t, run) {
		b, err := journal.Encode(e.Body)
		if err != nil || strings.Contains(string(b), text) {
			t.Errorf("event %d %s: %s %v", e.Seq, e.Body.EventKind(), b, err)
		}
	}
	for _, f := range w.frames {
		if b := fmt.Sprintf("%+v", f.Data); strings.Contains(b, text) {
			t.Errorf("frame %s: %s", f.Event, b)
		}
	}
}

// A person who gives a call a secret while the run is driven has given no word: nothing of it is
// written down.
func TestEditWithSecret(t *testing.T) {
	w := newWorld(t, gate.ConfirmWrites)
	w.knowing(t)
	w.runner.Approver = person(func(ask *journal.ConfirmationRequired) (journal.ConfirmationResolved, bool) {
		return journal.ConfirmationResolved{Decision: journal.DecisionApprove, Calls: map[string]journal.CallDecision{
			ask.Calls[0].ID: {Decision: journal.DecisionApprove, Arguments: json.RawMessage(`{"x":"` + apiKey + `"}`)},
		}}, true
	})
	w.script(calls("put", `{"n":1}`), say("ok"))
	s := run(t, w, func(k *agent.Task) { k.Approve = agent.ApproveAsk })
	equal(t, "status", s.Status, toolcrib.StatusWaitingForApproval)
	equal(t, "writes", w.writes, 0)
	w.shows(t, s.Run, apiKey)
}

// A call whose arguments hold a secret never runs; what is kept and shown of it has the
// mark, and the deltas joined are what is kept.
func TestCallsWithSecretsNeverRun(t *testing.T) {
	for _, c := range []struct{ name, arguments, kept, secret string }{
		{"value", `{"x":"a s3cr3t-value-1234 b"}`, `{"x":"a [secret:api] b"}`, "api"},
		{"value, escaped", `{"x":"\u0073\u0033cr3t\u002dvalue-1234"}`, `{"x":"[secret:api]"}`, "api"},
		{"value, a key", `{"s3cr3t-value-1234":1}`, `{"[secret:api]":1}`, "api"},
		{"value, JSON in JSON", `{"x":"{\"y\":\"s3cr3t-value-1234\"}"}`, `{"x":"{\"y\":\"[secret:api]\"}"}`, "api"},
		{"mark", `{"x":"[secret:api]"}`, `{"x":"[secret:api]"}`, "api"},
		{"mark, escaped", `{"x":"\u005bsecret:\u0061pi]"}`, `{"x":"[secret:api]"}`, "api"},
		{"mark of a short one", `{"x":["y","[secret:pin]"]}`, `{"x":["y","[secret:pin]"]}`, "pin"},
		{"short value", `{"x":"hunter2"}`, `{"x":"hunter2"}`, ""},
		{"mark in words", `{"x":"an [unknown secret:x] of [secret]"}`, `{"x":"an [unknown secret:x] of [secret]"}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, gate.ConfirmNever)
			w.knowing(t)
			var deltas []toolcrib.Delta
			for i := 0; i < len(c.arguments); i += 3 { // a secret is split over several
				d := &toolcrib.ToolCallDelta{Arguments: c.arguments[i:min(i+3, len(c.arguments))]}
				if i == 0 {
					d.Name = "put"
				}
				deltas = append(deltas, toolcrib.Delta{ToolCall: d})
			}
			w.script(append(deltas, finish(toolcrib.FinishToolCalls)), say("done"))
			s := run(t, w)
			call := s.Trace[0]
			equal(t, "kept", string(call.Arguments), c.kept)
			equal(t, "secret", call.Secret, c.secret)
			live := ""
			for _, f := range w.frames {
				if f.Event == journal.FrameToolCallDelta {
					live += frameText(t, f)
				}
			}
			var shown, kept any
			mustDecode(json.RawMessage(live), &shown)
			mustDecode(call.Arguments, &kept)
			if !reflect.DeepEqual(shown, kept) {
				t.Errorf("shown %s, kept %s", live, call.Arguments)
			}
			w.shows(t, s.Run, apiKey)
			if c.secret == "" {
				equal(t, "ran with", w.gave[call.ID], c.arguments)
				return
			}
			equal(t, "writes", w.writes, 0)
			equal(t, "reason", call.Result.Reason, toolcrib.ReasonToolPolicy)
			if !strings.Contains(call.Result.Content, guard.Mark(c.secret)) || !strings.Contains(call.Result.Content, "edit_file") {
				t.Errorf("the model is not told which, and what to do: %s", call.Result.Content)
			}
			var refusal struct {
				Refused bool            `json:"refused"`
				Reason  toolcrib.Reason `json:"reason"`
			}
			mustDecode(json.RawMessage(call.Result.Content), &refusal)
			if !refusal.Refused || refusal.Reason != toolcrib.ReasonToolPolicy {
				t.Errorf("read: %s", call.Result.Content)
			}
			messages := w.requests[1].Messages
			if sent := messages[len(messages)-2].ToolCalls()[0]; string(sent.Arguments) != c.kept {
				t.Errorf("the model reads %s of its call", sent.Arguments)
			}
		})
	}
}

// A mark stops a call whether or not its secret is known: by the next run it may not be.
func TestMarksOfUnknownSecretsNeverRun(t *testing.T) {
	for _, arguments := range []string{
		`{"x":"[secret:gone]"}`, `{"x":"KEY=[secret:gone]\nPORT=81"}`, `{"[secret:gone]":1}`, `{"x":["y",{"z":"[Secret: gone]"}]}`,
	} {
		for _, knows := range []bool{true, false} {
			w := newWorld(t, gate.ConfirmNever)
			if knows {
				w.knowing(t)
			}
			w.script(calls("put", arguments), say("done"))
			s := run(t, w)
			equal(t, "writes", w.writes, 0)
			equal(t, "kept", string(s.Trace[0].Arguments), arguments)
			equal(t, "reason", s.Trace[0].Result.Reason, toolcrib.ReasonToolPolicy)
			if got := s.Trace[0].Result.Content; !strings.Contains(got, "[secret:gone]") || !strings.Contains(got, "edit_file") {
				t.Errorf("the model is not told which, and what to do: %s", got)
			}
		}
	}
}

// Arguments that cannot be parsed are stored and shown without secrets, and so is a name.
func TestBrokenCallsShowNoSecret(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	w.knowing(t)
	w.script(calls(
		"echo", `{"x":"s3cr3t-value-1234","x":1}`, "echo", `["s3cr3t-value-1234"]`, "echo", `{"x":"\u0073\u0033cr3t-value-1234" oops`,
		"echo", `{"s3cr3t-value-1234":1,"s3cr3t-value-1234":2}`, apiKey, `{}`, "x "+apiKey, `{}`,
	), say("done"))
	s := run(t, w)
	w.shows(t, s.Run, apiKey)
	w.shows(t, s.Run, `3cr3t-value`)
	for i, want := range []toolcrib.Reason{
		toolcrib.ReasonInvalidArguments, toolcrib.ReasonInvalidArguments, toolcrib.ReasonInvalidArguments, toolcrib.ReasonInvalidArguments,
		toolcrib.ReasonNotRegistered, toolcrib.ReasonNotRegistered,
	} {
		equal(t, fmt.Sprint("reason ", i), s.Trace[i].Result.Reason, want)
	}
}

// A secret that becomes known while its call waits for a person keeps it from running.
func TestSecretLearnedWhileACallWaits(t *testing.T) {
	w := newWorld(t, gate.ConfirmWrites)
	mask := w.knowing(t)
	w.script(calls("put", `{"x":"a-later-secret"}`), say("done"))
	s := run(t, w)
	equal(t, "status", s.Status, toolcrib.StatusWaitingForApproval)
	mask.Learn(guard.Secret{Name: "later", Value: "a-later-secret"})
	if _, err := w.runner.Decide(t.Context(), s.Run, agent.Decision{ApprovalID: s.Approval.ApprovalID, Decision: journal.DecisionApprove, Who: me}); err != nil {
		t.Fatal(err)
	}
	s, err := w.runner.Resume(t.Context(), s.Run)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "writes", w.writes, 0)
	equal(t, "reason", s.Trace[0].Result.Reason, toolcrib.ReasonToolPolicy)
}

// A tool that calls another passes on no secret.
func TestNestedCallsWithSecretsNeverRun(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	nest := &fn{w: w, spec: toolcrib.Spec{Name: "nest", Effect: toolcrib.EffectReadOnly, EnabledByDefault: true, Nested: true}}
	nest.call = func(ctx context.Context, c toolcrib.Call) (toolcrib.Output, error) {
		var text string
		for _, x := range []string{apiKey, "[secret:gone]"} {
			got, err := c.Invoke(ctx, "inner", json.RawMessage(`{"x":"`+x+`"}`))
			if err != nil {
				return toolcrib.Output{}, err
			}
			text += string(got.Status) + " " + string(got.Reason) + "; "
		}
		return toolcrib.Output{Text: text}, nil
	}
	inner := &fn{w: w, spec: toolcrib.Spec{Name: "inner", Effect: toolcrib.EffectReadOnly, EnabledByDefault: true}, call: newEcho}
	withTools(t, w, nil, nest, inner)
	w.knowing(t)
	w.script(calls("nest", `{}`), say("done"))
	s := run(t, w)
	equal(t, "result", s.Trace[0].Result.Content, "refused tool_policy; refused tool_policy; ")
	equal(t, "ran", len(w.ran), 1)
}

// Whatever a model or a person reads is cleaned and masked where it enters: prompt,
// system text, attachments, earlier messages, answers; and live what is shown is what is kept.
func TestC14_WhatEntersIsClean(t *testing.T) {
	const dirty = "a\x1b[31m\u009b\u202e\U000e0041 s3cr3t\x00-value-1234 \ufe00\ufe01 می\u200cخواهم ❤\ufe0f hunter2"
	const clean = "a[31m[U+202E] [secret:api]  می\u200cخواهم ❤\ufe0f [secret:pin]"
	w := newWorld(t, gate.ConfirmNever)
	w.knowing(t)
	reply := []toolcrib.Delta{{Thinking: dirty}}
	for i := range len(dirty) {
		reply = append(reply, toolcrib.Delta{Text: dirty[i : i+1]})
	}
	w.script(append(reply, finish(toolcrib.FinishStop)))
	history := []toolcrib.Message{
		toolcrib.TextMessage(toolcrib.RoleUser, dirty),
		{Role: toolcrib.RoleAssistant, Parts: []toolcrib.Part{
			{Thinking: &toolcrib.Thinking{Text: dirty, Signature: "over the text"}},
			{ToolCall: &toolcrib.ToolCall{ID: "old", Name: "echo", Arguments: json.RawMessage(`{"x":"hunter2"}`)}},
		}},
		{Role: toolcrib.RoleTool, Parts: []toolcrib.Part{{ToolResult: &toolcrib.ToolResult{CallID: "old", Content: dirty}}}},
	}
	s := run(t, w, func(k *agent.Task) {
		k.Prompt, k.Agent.System, k.History = dirty, dirty, history
		k.Files = []toolcrib.OutputFile{{MediaType: "application/json; charset=utf-8", Name: "f", Data: []byte(dirty)}}
	})
	req := w.requests[0]
	equal(t, "system", req.System, clean)
	equal(t, "history", req.Messages[0].Text(), clean)
	equal(t, "thinking", *req.Messages[1].Parts[0].Thinking, toolcrib.Thinking{Text: clean})
	equal(t, "arguments", string(req.Messages[1].Parts[1].ToolCall.Arguments), `{"x":"[secret:pin]"}`)
	equal(t, "result", req.Messages[2].Parts[0].ToolResult.Content, clean)
	equal(t, "prompt", req.Messages[3].Text(), clean)
	file, err := req.Files(t.Context(), req.Messages[3].Parts[1].File.Ref)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "file", string(file), clean)
	equal(t, "answer", s.Done.Content, clean)
	equal(t, "thought", s.Last.Parts[0].Thinking.Text, clean)
	shown := map[string]string{}
	for _, f := range w.frames {
		shown[f.Event] += frameText(t, f)
	}
	equal(t, "text as it came", shown[journal.FrameToken], clean)
	equal(t, "thoughts as they came", shown[journal.FrameThinking], clean)
	if got := history[1].Parts[0].Thinking.Signature; got != "over the text" {
		t.Errorf("the caller's history was changed: %q", got)
	}
}

// An answer that must fit a schema is masked as it is meant.
func TestStructuredAnswerShowsNoSecret(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	w.knowing(t)
	w.script(say(`{"x":"\u0073\u0033cr3t-value-1234\u202e"}`))
	s := run(t, w, func(k *agent.Task) { k.Agent.OutputSchema = json.RawMessage(`{"type":"object"}`) })
	equal(t, "content", s.Done.Content, `{"x":"[secret:api][U+202E]"}`)
}

// A provider's texts are shown without anything that looks like a secret.
func TestN21_ProviderTextsAreRedacted(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	w.knowing(t)
	w.reply = func(context.Context, int, *toolcrib.Request) ([]toolcrib.Delta, error) {
		return nil, &toolcrib.ModelError{
			Class: toolcrib.ErrBadRequest, Message: "no\x1b access with password=letmein and " + apiKey, Detail: "key sk-abcdefghijklmnop0123, " + apiKey,
		}
	}
	s := run(t, w)
	for _, text := range []string{"letmein", "sk-abc", apiKey, "\x1b"} {
		w.shows(t, s.Run, text)
		if strings.Contains(s.Failed.Message, text) {
			t.Errorf("message: %q", s.Failed.Message)
		}
	}
	if !strings.Contains(s.Failed.Message, "no access with password="+guard.Redacted+" and "+apiMark) {
		t.Errorf("message: %q", s.Failed.Message)
	}
}

// What a tool says goes the same way where it fails, and where it names its source: it is
// cleaned before it is masked, so that nothing hidden keeps a secret apart.
func TestC14_FailuresAndSourcesAreClean(t *testing.T) {
	const parted = "s3cr3t\x00-value-\u200b\u200c1234"
	w := newWorld(t, gate.ConfirmNever)
	read := toolcrib.Spec{Effect: toolcrib.EffectReadOnly, EnabledByDefault: true}
	fails, faulty, draws := read, read, read
	fails.Name, faulty.Name, draws.Name = "fails", "faulty", "draws"
	withTools(t, w, nil,
		&fn{w: w, spec: fails, call: func(context.Context, toolcrib.Call) (toolcrib.Output, error) {
			return toolcrib.Output{}, toolcrib.Failf(toolcrib.NotFound, "%s", parted)
		}},
		&fn{w: w, spec: faulty, call: func(context.Context, toolcrib.Call) (toolcrib.Output, error) {
			return toolcrib.Output{}, errors.New(parted)
		}},
		&fn{w: w, spec: draws, call: func(context.Context, toolcrib.Call) (toolcrib.Output, error) {
			return toolcrib.Output{Text: "x", Untrusted: true, Source: "https://example.org/?key=" + parted}, nil
		}})
	w.knowing(t)
	w.script(calls("fails", `{}`, "faulty", `{}`, "draws", `{}`), say("done"))
	s := run(t, w)
	w.shows(t, s.Run, apiKey)
	equal(t, "error", s.Trace[0].Result.Content, `{"error":"not found: [secret:api]"}`)
	equal(t, "fault", s.Trace[1].Result.Fault, apiMark)
	equal(t, "source", s.Trace[2].Result.Source, "https://example.org/?key="+apiMark)
}

// showing is a write that shows a preview.
type showing struct {
	*fn
	text string
}

func (s showing) Plan(_ context.Context, c toolcrib.Call) (*toolcrib.Plan, error) {
	plan := planOf(s.fn, c)
	plan.Preview = func(context.Context) (toolcrib.Preview, error) {
		return toolcrib.Preview{Kind: "diff", Text: s.text}, nil
	}
	return plan, nil
}

// A preview is masked before it is cut: neither the end of a long line nor lines that are
// left out part a secret.
func TestPreviewsPartNoSecret(t *testing.T) {
	long := strings.Repeat("k3y-", 200)
	lines := strings.Repeat("a-long-line-of-a-secret-key\n", 40)
	w := newWorld(t, gate.ConfirmWrites)
	put := &fn{w: w, spec: toolcrib.Spec{Name: "put", EnabledByDefault: true}, call: newEcho}
	g, err := gate.New(gate.Options{Tools: []toolcrib.Tool{showing{put, " KEY=" + long + "\n+x\n" + lines}}, Availability: noOverrides{}, Confirm: gate.ConfirmWrites})
	if err != nil {
		t.Fatal(err)
	}
	o := w.runner.Options
	o.Gate, o.Mask = g, guard.NewMasker(guard.Secret{Name: "long", Value: long}, guard.Secret{Name: "lines", Value: lines})
	if w.runner, err = agent.New(o); err != nil {
		t.Fatal(err)
	}
	w.script(calls("put", `{}`), say("done"))
	s := run(t, w)
	w.shows(t, s.Run, "k3y-")
	w.shows(t, s.Run, "a-long-line")
	equal(t, "preview", s.Approval.Calls[0].Preview.Text, " KEY=[secret:long]\n+x\n[secret:lines]")
}

// A watcher that joins in the middle of a reply gets it from its beginning; without watchers, no piece
// is sent.
func TestPiecesOfAReplyForWhoComesLate(t *testing.T) {
	for from := range 12 {
		w := newWorld(t, gate.ConfirmNever)
		asked := 0
		w.runner.Watched = func(toolcrib.RunID) bool { asked++; return asked > from }
		var reply []toolcrib.Delta
		for piece := range strings.SplitAfterSeq("one two three four", " ") {
			reply = append(reply, toolcrib.Delta{Text: piece})
		}
		call := toolcrib.ToolCallDelta{ID: "c", Name: "echo", Arguments: `{"x":`}
		w.reply = func(_ context.Context, n int, _ *toolcrib.Request) ([]toolcrib.Delta, error) {
			if n > 0 {
				return []toolcrib.Delta{finish(toolcrib.FinishStop)}, nil
			}
			rest := toolcrib.ToolCallDelta{Arguments: `1}`}
			return append(reply, toolcrib.Delta{ToolCall: &call}, toolcrib.Delta{ToolCall: &rest}, finish(toolcrib.FinishToolCalls)), nil
		}
		run(t, w)
		shown := map[string]string{}
		for _, f := range w.frames {
			shown[f.Event] += frameText(t, f)
		}
		want, args := "one two three four", `{"x":1}`
		if from > 7 { // asked for each of six pieces, for the finish, and at the end
			want, args = "", ""
		}
		equal(t, fmt.Sprint("text from piece ", from), shown[journal.FrameToken], want)
		equal(t, fmt.Sprint("arguments from piece ", from), shown[journal.FrameToolCallDelta], args)
	}
}

// What is shown live of a thought ends before the text of the reply begins, and a text before a call does, also where
// a secret could begin at their end. No part of a secret that is cut in two there is shown.
func TestLive_OneAfterTheOther(t *testing.T) {
	for _, cut := range []bool{false, true} {
		w := newWorld(t, gate.ConfirmNever)
		w.knowing(t)
		half := len(apiKey) / 2
		reply := []toolcrib.Delta{{Thinking: "So it is "}, {Thinking: apiKey[:half]}, {Text: "I see "}, {Text: apiKey[:half]}}
		if cut {
			reply = append(reply, toolcrib.Delta{Thinking: apiKey[half:]}, toolcrib.Delta{Text: apiKey[half:]})
		}
		w.script(append(reply, calls("echo", `{"x":"1"}`)...), say("done"))
		run(t, w)
		order, shown := "", map[string]string{}
		for _, f := range w.frames {
			if f.Event == string(journal.KindMessage) {
				break
			}
			switch f.Event {
			case journal.FrameThinking, journal.FrameToken, journal.FrameToolCallDelta:
				if !strings.HasSuffix(order, f.Event+" ") {
					order += f.Event + " "
				}
			}
			if f.Event != journal.FrameToolCallDelta {
				shown[f.Event] += frameText(t, f)
			}
		}
		equal(t, "order", order, journal.FrameThinking+" "+journal.FrameToken+" "+journal.FrameToolCallDelta+" ")
		equal(t, "thought", shown[journal.FrameThinking], "So it is "+apiKey[:half])
		equal(t, "text", shown[journal.FrameToken], "I see "+apiKey[:half])
	}
}
