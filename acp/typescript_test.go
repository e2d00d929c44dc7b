package acp_test

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/internal/npmtest"
)

// step has the observations of the official client in one step.
type step struct {
	Step  string
	Asked []struct {
		ToolCall struct {
			Title, Kind string
			Content     []struct{ Type, OldText, NewText string }
			Locations   []struct{ Path string }
		}
		Options []struct{ OptionID, Name, Kind string }
		Meta    map[string]string `json:"_meta"`
	}
	Updates []map[string]any
	Result  json.RawMessage
	Error   *struct {
		Code    int
		Message string
	}
}

// text joins the updates of a kind.
func (s *step) text(kind string) string {
	var b strings.Builder
	for _, u := range s.Updates {
		if c, ok := u["content"].(map[string]any); ok && u["sessionUpdate"] == kind {
			b.WriteString(c["text"].(string))
		}
	}
	return b.String()
}

// The official client fixes a bug with its tests run, denies and cancels, and loads a session after kill -9.
func TestACP_OfficialClient(t *testing.T) {
	t.Parallel()
	d := newDesk(t, `
- {thinking: "I look first.", text: "Let me look.", tool_calls: [
    {name: update_plan, arguments: {steps: [{step: read, status: in_progress}, {step: fix}]}},
    {name: read_file, arguments: {path: sum.txt}}]}
- {tool_calls: [{name: edit_file, arguments: {path: sum.txt, old_text: "a - b", new_text: "a + b"}}]}
- {tool_calls: [{name: exec_shell, arguments: {command: sh check.sh, write: true}}]}
- {text: "Fixed."}
- {tool_calls: [{name: write_file, arguments: {path: other.txt, content: x}}]}
- {text: "Not written."}
- {tool_calls: [{name: exec_shell, arguments: {command: sh wait.sh, timeout: 120, write: true}}]}
- {text: "Continued."}
`)
	d.write(filepath.Join(d.work, "check.sh"), "read line <sum.txt; test \"$line\" = 'a + b' && echo PASS\n")
	d.write(filepath.Join(d.work, "wait.sh"), "sleep 100\n")
	prompt := func(text string) []any {
		return []any{
			map[string]any{"type": "text", "text": text},
			map[string]any{"type": "resource_link", "name": "sum.txt", "uri": "file://" + filepath.Join(d.work, "sum.txt")},
			map[string]any{"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="},
			map[string]any{"type": "resource", "resource": map[string]any{"uri": "file:///elsewhere/notes.md", "text": "some notes"}},
		}
	}
	words := func(text string) []any { return []any{map[string]any{"type": "text", "text": text}} }
	command := d.command("acp")
	input, err := json.Marshal(map[string]any{
		"sdk":    npmtest.Package(t, "@agentclientprotocol/sdk@2.4.0 zod@4.1.12"),
		"folder": d.work, "command": command.Args,
		"steps": []map[string]any{
			{"do": "start"},
			{"do": "new"},
			{"do": "cancel", "prompt": words("cancelled")},
			{"do": "new"},
			{"do": "prompt", "prompt": prompt("fix "), "answers": []string{"yes", "yes"}},
			{"do": "prompt", "prompt": words("write"), "answers": []string{"no"}},
			{"do": "mode", "value": "accept-edits"},
			{"do": "option", "option": "model", "value": "second"},
			{"do": "prompt", "prompt": words("/model")},
			{"do": "kill", "prompt": words("wait"), "answers": []string{"yes"}},
			{"do": "start"},
			{"do": "list"},
			{"do": "load"},
			{"do": "prompt", "prompt": words("/decide"), "answers": []string{"not_happened"}},
			{"do": "end"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	node := exec.Command(npmtest.Node(t), "testdata/editor.mjs")
	var stderr bytes.Buffer
	node.Env, node.Stdin, node.Stderr = d.environment(), bytes.NewReader(input), &stderr
	out, err := node.Output()
	var steps []step
	if err == nil {
		err = json.Unmarshal(out, &steps)
	}
	if err != nil {
		t.Fatalf("%v: %s%s", err, out, &stderr)
	}
	for i := range steps {
		if steps[i].Error != nil {
			t.Errorf("step %d (%s): %+v", i, steps[i].Step, steps[i].Error)
		}
	}
	want := func(i int, ok bool) {
		t.Helper()
		if !ok {
			whole, _ := json.MarshalIndent(steps[i], "", " ")
			t.Errorf("step %d (%s): %s", i, steps[i].Step, whole)
		}
	}
	stopped := func(i int) (reason string) {
		var r struct{ StopReason string }
		_ = json.Unmarshal(steps[i].Result, &r) // "" differs from every reason
		return r.StopReason
	}
	want(1, strings.Contains(string(steps[1].Result), `"currentModeId":"ask"`) && steps[1].Updates[0]["sessionUpdate"] == "available_commands_update")
	want(2, stopped(2) == "cancelled")

	fix := &steps[4]
	want(4, stopped(4) == "end_turn" && d.read("sum.txt") == "a + b\n" && len(fix.Asked) == 2)
	want(4, fix.text("agent_thought_chunk") != "" && strings.Contains(fix.text("agent_message_chunk"), "Let me look.") &&
		strings.Contains(fix.text("agent_message_chunk"), "Fixed."))
	edit := &fix.Asked[0]
	want(4, edit.ToolCall.Kind == "edit" && edit.ToolCall.Content[0].OldText == "a - b\n" &&
		edit.ToolCall.Content[0].NewText == "a + b\n" && edit.ToolCall.Locations[0].Path == filepath.Join(d.work, "sum.txt") &&
		edit.Options[0].Kind == "allow_once" && edit.Options[1].Kind == "allow_always" && edit.Options[2].Kind == "allow_always" &&
		edit.Options[3].Kind == "reject_once" &&
		len(edit.Meta["toolcrib/digest"]) == 64)
	want(4, fix.Asked[1].ToolCall.Title == "sh check.sh" && fix.Asked[1].ToolCall.Kind == "execute")
	whole, _ := json.Marshal(fix.Updates)
	for _, part := range []string{`"sessionUpdate":"plan"`, `PASS`, `"status":"completed"`, `"oldText":"a - b"`} {
		want(4, strings.Contains(string(whole), part))
	}

	want(5, stopped(5) == "end_turn" && d.read("other.txt") == "" && strings.Contains(steps[5].text("agent_message_chunk"), "Not written."))
	want(8, strings.Contains(steps[8].text("agent_message_chunk"), "model: second"))
	want(9, string(steps[9].Result) == `"SIGKILL"`)
	want(11, strings.Contains(string(steps[11].Result), `"title":"fix `))
	load := &steps[12]
	want(12, strings.Contains(load.text("user_message_chunk"), "fix") && strings.Contains(load.text("agent_message_chunk"), "Fixed.") &&
		strings.Contains(load.text("agent_message_chunk"), "/decide continues it"))
	want(13, stopped(13) == "end_turn" && len(steps[13].Asked) == 1 && steps[13].Asked[0].Options[0].OptionID == "retry" &&
		strings.Contains(steps[13].text("agent_message_chunk"), "Continued."))
	want(14, string(steps[14].Result) == "0")
}
