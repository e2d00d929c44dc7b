package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

const answerSchema = `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}`

func structured(k *agent.Task) { k.Agent.OutputSchema = json.RawMessage(answerSchema) }

func TestOutputSchema(t *testing.T) {
	for _, c := range []struct {
		name    string
		replies [][]toolcrib.Delta
		content string // "" = the run fails
		asked   int
	}{
		{"fits", [][]toolcrib.Delta{say(`{"n": 1}`)}, `{"n":1}`, 1},
		{"in a fence", [][]toolcrib.Delta{say("```json\n{\"n\": 1}\n```\n")}, `{"n":1}`, 1},
		{"in prose", [][]toolcrib.Delta{say("Sure [1], {as asked}:\n\n{\"n\": 1}\n\nIs that {\"m\": 2} what you need?")}, `{"n":1}`, 1},
		{"in a fence in prose", [][]toolcrib.Delta{say("Here it is:\n```json\n{\"n\": 1}\n```\nI hope that helps.")}, `{"n":1}`, 1},
		{"in prose, then fixed", [][]toolcrib.Delta{say(`It is {"n":"one"}.`), say(`{"n":1}`)}, `{"n":1}`, 2},
		{"in a value that is cut off, then fixed", [][]toolcrib.Delta{say(`{"all": {"n":2}`), say(`{"n":1}`)}, `{"n":1}`, 2},
		{"after a call", [][]toolcrib.Delta{calls("echo", `{}`), say(`{"n":2}`)}, `{"n":2}`, 2},
		{"fixed", [][]toolcrib.Delta{say(`{"n":"one"}`), say(`{"n":1}`)}, `{"n":1}`, 2},
		{"prose, then fixed", [][]toolcrib.Delta{say(`The number is one.`), say(`{"n":1}`)}, `{"n":1}`, 2},
		{"fixed after a call", [][]toolcrib.Delta{say(`{}`), calls("echo", `{}`), say(`{"n":3}`)}, `{"n":3}`, 3},
		{"never fits", [][]toolcrib.Delta{say(`{"n":1.5}`), say(`{"m":1}`), say(`{"n":1}`)}, "", 2},
		{"two values", [][]toolcrib.Delta{say(`{"n":1} {"n":2}`), say(`{"n":1,"n":2}`)}, "", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, gate.ConfirmNever)
			w.script(c.replies...)
			s := run(t, w, structured)
			equal(t, "requests", len(w.requests), c.asked)
			for i, req := range w.requests {
				equal(t, "schema of the request", string(req.OutputSchema), answerSchema)
				if err := checkTranscript(req.Messages); err != nil {
					t.Errorf("request %d: %v", i, err)
				}
			}
			if c.content == "" {
				equal(t, "code", s.Failed.Code, core.CodeSchemaMismatch)
				equal(t, "reason", s.Failed.StopReason, toolcrib.StopProviderFailed)
				return
			}
			equal(t, "content", s.Done.Content, c.content)
			if c.asked > 1 && strings.Contains(c.name, "fixed") {
				again := w.requests[1].Messages
				if text := again[len(again)-1].Text(); !strings.Contains(text, "does not fit the JSON Schema") {
					t.Errorf("the model is not told what is wrong: %s", text)
				}
			}
		})
	}
}

func TestOutputSchema_Unusable(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	for _, schema := range []string{`{"type":"nonsense"}`, `{`, `[]`, `{"$ref":"http://example.com/s"}`} {
		k := task(structured)
		k.Agent.OutputSchema = json.RawMessage(schema)
		_, err := w.runner.Run(t.Context(), k)
		if toolcrib.CodeOf(err) != toolcrib.CodeBadRequest || !strings.Contains(err.Error(), "output_schema") {
			t.Errorf("%s: %v", schema, err)
		}
	}
}

// A model that turns out to take no tools is asked again by the text protocol,
// once, and stays with it.
func TestNoTools_AskedAgainAsText(t *testing.T) {
	for _, never := range []bool{false, true} {
		w := newWorld(t, gate.ConfirmNever)
		var opened []string
		w.runner.Models = func(_ context.Context, m journal.ModelInfo) (toolcrib.Model, error) {
			opened = append(opened, m.Tools)
			return w, nil
		}
		w.reply = func(_ context.Context, n int, _ *toolcrib.Request) ([]toolcrib.Delta, error) {
			switch {
			case n == 0 || never:
				return nil, &toolcrib.ModelError{Class: toolcrib.ErrBadRequest, Status: 400, Message: "takes no tools", NoTools: true}
			case n == 1:
				return calls("echo", `{}`), nil
			}
			return say("done"), nil
		}
		s := run(t, w)
		equal(t, "opened", strings.Join(opened, ","), ",text")
		equal(t, "notices", countNotices(w, core.NoticeToolsAsText), 1)
		if never {
			equal(t, "reason", s.Failed.StopReason, toolcrib.StopProviderFailed)
			equal(t, "requests", len(w.requests), 2)
			continue
		}
		equal(t, "content", s.Done.Content, "done")
	}
}

func TestFiles(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	w.tools["draw"] = toolcrib.Output{Text: "drawn", Files: []toolcrib.OutputFile{
		{MediaType: "image/png", Name: "a.png", Data: []byte("PNG")}, {MediaType: "nonsense", Data: []byte("x")},
	}}
	w.script(calls("draw", `{}`), say("seen"))
	s := run(t, w, func(k *agent.Task) {
		k.Files = []toolcrib.OutputFile{{MediaType: "image/jpeg", Name: "b.jpg", Data: []byte("JPEG")}}
	})
	equal(t, "content", s.Done.Content, "seen")
	first := w.requests[0].Messages[0]
	equal(t, "parts", len(first.Parts), 2)
	read := func(f toolcrib.File) string {
		data, err := w.requests[1].Files(t.Context(), f.Ref)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	equal(t, "attached", read(*first.Parts[1].File), "JPEG")
	result := w.requests[1].Messages[2].Parts[0].ToolResult
	equal(t, "files of the result", len(result.Files), 1)
	equal(t, "drawn", read(result.Files[0]), "PNG")
	if !strings.Contains(result.Content, "file 2 of this result was left out") {
		t.Errorf("the model is not told: %s", result.Content)
	}
	for _, ref := range []string{"", "x", "run_none/file_1", string(s.Run) + "/../file_1"} {
		if _, err := w.requests[1].Files(t.Context(), ref); err == nil {
			t.Errorf("%q could be opened", ref)
		}
	}
}

// Files of earlier messages stay with these, also of one without a text.
func TestFiles_OfHistory(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	w.script(say("seen"))
	file := func(text string) []toolcrib.OutputFile {
		return []toolcrib.OutputFile{{MediaType: "image/png", Data: []byte(text)}}
	}
	s := run(t, w, func(k *agent.Task) {
		answer := toolcrib.TextMessage(toolcrib.RoleAssistant, "A cat.")
		k.History = []toolcrib.Message{toolcrib.TextMessage(toolcrib.RoleUser, "What?"), answer, {Role: toolcrib.RoleUser}, answer}
		k.HistoryFiles, k.Files, k.FromClient = map[int][]toolcrib.OutputFile{0: file("one"), 2: file("two")}, file("three"), true
	})
	got := ""
	for i, m := range w.requests[0].Messages {
		for _, p := range m.Parts {
			if p.File == nil {
				continue
			}
			data, err := w.requests[0].Files(t.Context(), p.File.Ref)
			if err != nil {
				t.Fatal(err)
			}
			got += fmt.Sprintf("%d:%s ", i, data)
		}
	}
	equal(t, "files", got, "0:one 2:two 4:three ")
	check(t, w, s.Run)
	for what, files := range map[string]map[int][]toolcrib.OutputFile{
		"the assistant's": {1: file("x")}, "too many": {0: slices.Repeat(file("x"), 65)}, "no type": {0: {{Data: []byte("x")}}},
	} {
		_, err := w.runner.Run(t.Context(), task(func(k *agent.Task) {
			k.History = []toolcrib.Message{toolcrib.TextMessage(toolcrib.RoleUser, "a"), toolcrib.TextMessage(toolcrib.RoleAssistant, "b")}
			k.HistoryFiles, k.FromClient = files, true
		}))
		if toolcrib.CodeOf(err) != toolcrib.CodeBadRequest {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestFiles_Refused(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	for name, f := range map[string]toolcrib.OutputFile{
		"no type": {Data: []byte("x")}, "empty": {MediaType: "image/png"},
		"too large": {MediaType: "image/png", Data: make([]byte, toolcrib.MaxFileBytes+1)},
	} {
		_, err := w.runner.Run(t.Context(), task(func(k *agent.Task) { k.Files = []toolcrib.OutputFile{f} }))
		if toolcrib.CodeOf(err) != toolcrib.CodeBadRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A model that is known to take no files is shown none.
	w.script(say("blind"))
	run(t, w, func(k *agent.Task) {
		k.Models[0].Files = "none"
		k.Files = []toolcrib.OutputFile{{MediaType: "image/png", Data: []byte("PNG")}}
	})
	if w.requests[0].Files != nil {
		t.Error("files are opened for a model that takes none")
	}
}
