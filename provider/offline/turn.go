package offline

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// The tools that the rules know.
const (
	readFile      = "read_file"
	listDirectory = "list_directory"
	searchFiles   = "search_files"
	writeFile     = "write_file"
	editFile      = "edit_file"
	execShell     = "exec_shell"
)

const (
	maxPrompt = 8192 // bytes of a prompt that are read
	maxTasks  = 8    // clauses of a prompt that are answered
)

type arguments map[string]any

// turn is one exchange: the last prompt, and what tools have answered since. Its tasks
// are carried out from the beginning at each request, one after another; as they always
// make the same calls in the same order, the n-th result belongs to the n-th call.
type turn struct {
	Model
	prompt     string
	offered    map[string]toolcrib.Spec
	results    []*toolcrib.ToolResult
	taken      int // of results
	wanted     []toolcrib.ToolCall
	introduced bool // an earlier answer said what this model is
}

func newTurn(req *toolcrib.Request) *turn {
	t := &turn{offered: map[string]toolcrib.Spec{}}
	if req.ToolChoice.Mode != toolcrib.ChoiceNone {
		for _, spec := range req.Tools {
			t.offered[spec.Name] = spec
		}
	}
	for _, m := range req.Messages {
		switch text := strings.TrimSpace(m.Text()); {
		case m.Role == toolcrib.RoleUser && text != "":
			for strings.HasPrefix(text, "(") { // a note in brackets before a message is no request
				_, rest, ok := strings.Cut(text, ")\n\n")
				if !ok {
					break
				}
				text = rest
			}
			t.prompt, t.results = text[:min(len(text), maxPrompt)], nil
		case m.Role == toolcrib.RoleAssistant:
			t.introduced = t.introduced || strings.Contains(text, signature)
		}
		for _, p := range m.Parts {
			if p.ToolResult != nil {
				t.results = append(t.results, p.ToolResult)
			}
		}
	}
	return t
}

// answer carries out the tasks of the prompt. It counts only if no call is wanted.
func (t *turn) answer() string {
	var answers, unknown []string
	for i, clause := range clauses(t.prompt) {
		if i == maxTasks {
			answers = append(answers, fmt.Sprintf("I answer %d questions at a time; please ask the others again.", maxTasks))
			break
		}
		text, understood := t.do(clause)
		if len(t.wanted) > 0 {
			return ""
		}
		if understood {
			answers = append(answers, text)
		} else {
			unknown = append(unknown, fmt.Sprintf("I did not understand %q: I only know a few kinds of requests.",
				shorten(clause)))
		}
	}
	if len(answers) == 0 {
		return help(t)
	}
	text := strings.Join(append(answers, unknown...), "\n\n")
	if !t.introduced && !strings.HasSuffix(text, "not a language model") {
		text += "\n\n" + footer
	}
	return text
}

// errPending is the error of a call that has no result yet.
var errPending = errors.New("the call has no result yet")

// call returns the result of the next call in out, a pointer to what its JSON is read
// into. A call without a result becomes a part of the reply.
func (t *turn) call(tool string, a arguments, out any) (cut bool, err error) {
	if t.taken < len(t.results) {
		r := t.results[t.taken]
		t.taken++
		return read(r, out)
	}
	if _, ok := t.offered[tool]; !ok {
		return false, fmt.Errorf("the tool %s is not offered to me here; `toolcrib tools explain %s` says why", tool, tool)
	}
	t.want(tool, a)
	return false, errPending
}

func (t *turn) want(tool string, a arguments) {
	if raw, err := json.Marshal(a); err == nil {
		t.wanted = append(t.wanted, toolcrib.ToolCall{Name: tool, Arguments: raw})
	}
}

// read reads a result: the JSON of a tool, or of a refusal or an error (contract §6).
// It reports whether the result was cut.
func read(r *toolcrib.ToolResult, out any) (cut bool, err error) {
	content := unwrap(r.Content)
	if r.IsError {
		var told struct{ Error, Reason, Message string }
		if json.Unmarshal([]byte(content), &told) == nil {
			switch {
			case told.Message != "":
				return false, fmt.Errorf("the call was refused (%s): %s", told.Reason, shorten(told.Message))
			case told.Error != "":
				return false, errors.New(shorten(told.Error))
			}
		}
		return false, errors.New(shorten(content))
	}
	var short struct {
		JSON *string `json:"_truncated_json"`
	}
	if json.Unmarshal([]byte(content), &short) == nil && short.JSON != nil {
		// Of a long text its beginning is shown: what is in the first string.
		_, text, _ := strings.Cut(strings.TrimSuffix(*short.JSON, "..."), `:"`)
		if i := strings.LastIndex(text, `\n`); i >= 0 {
			text = text[:i]
		}
		if d, ok := out.(*document); ok && json.Unmarshal([]byte(`"`+text+`"`), &d.Content) == nil {
			return true, nil
		}
		return true, errors.New("the result is too long for me")
	}
	if json.Unmarshal([]byte(content), out) != nil {
		return false, errors.New("the result is not what I expected")
	}
	return false, nil
}

// unwrap takes off the mark of untrusted data.
func unwrap(s string) string {
	inner, ok := strings.CutSuffix(strings.TrimSpace(s), "\n</untrusted_input>")
	if !ok || !strings.HasPrefix(inner, "<untrusted_input") {
		return s
	}
	_, inner, _ = strings.Cut(inner, "\n")
	return guard.WithoutCanary(inner)
}

// shorten makes one line of at most 300 characters, without a full stop.
func shorten(s string) string {
	s = strings.TrimSuffix(strings.Join(strings.Fields(s), " "), ".")
	if r := []rune(s); len(r) > 300 {
		return string(r[:300]) + "…"
	}
	return s
}
