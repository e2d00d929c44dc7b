// Package offline is the built-in model that needs no network: a few rules over the
// last prompt, so that a new user sees a real run within a minute. It is
// not a language model, and says so.
//
// It calls the tools that it is offered, reads their real results in the messages of
// the request, and keeps nothing between two requests: the same messages always get
// the same reply.
package offline

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/deltas"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
)

// Name is the name of the model in [toolcrib.Finish].
const Name = "offline"

// Model is the offline model. It has no state; the zero value is ready to use.
type Model struct {
	Alone   bool   // no person can be asked during the run: the tour writes nothing
	Command string // how to run toolcrib, in the commands of an answer; if "", toolcrib
}

// New returns the offline model.
func New() Model { return Model{} }

// Stream answers the last user message of req, or calls the tools that the
// answer needs. It fails only if ctx ends.
func (m Model) Stream(ctx context.Context, req *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	return func(yield func(toolcrib.Delta, error) bool) {
		if err := ctx.Err(); err != nil {
			yield(toolcrib.Delta{}, err)
			return
		}
		message := m.reply(req)
		for d := range deltas.Of(message) {
			if err := ctx.Err(); err != nil {
				yield(toolcrib.Delta{}, err)
				return
			}
			if !yield(d, nil) {
				return
			}
		}
		yield(toolcrib.Delta{Finish: &toolcrib.Finish{
			Reason: deltas.Reason(message), Model: Name,
			Usage: toolcrib.TokenUsage{
				InputTokens: tokens(req), OutputTokens: tokens(message), CostUSD: new(float64), Reported: true,
			},
		}}, nil)
	}
}

// reply returns the whole reply: the calls that the next task needs, or the answer.
func (m Model) reply(req *toolcrib.Request) toolcrib.Message {
	t := newTurn(req)
	t.Model = m
	answer := t.answer()
	t.choose(req)
	if len(t.wanted) == 0 {
		return toolcrib.TextMessage(toolcrib.RoleAssistant, answer)
	}
	calls := toolcrib.Message{Role: toolcrib.RoleAssistant}
	for _, call := range t.wanted {
		calls.Parts = append(calls.Parts, toolcrib.Part{ToolCall: &call})
	}
	return calls
}

// choose adapts the calls to the tool choice of the request (H13).
func (t *turn) choose(req *toolcrib.Request) {
	name := req.ToolChoice.Name
	switch req.ToolChoice.Mode {
	case toolcrib.ChoiceRequired:
		if name = listDirectory; t.offered[name].Name == "" && len(req.Tools) > 0 {
			name = req.Tools[0].Name
		}
	case toolcrib.ChoiceName:
		t.wanted = slices.DeleteFunc(t.wanted, func(call toolcrib.ToolCall) bool { return call.Name != name })
	default:
		return
	}
	if spec, ok := t.offered[name]; ok && len(t.wanted) == 0 {
		t.want(name, t.fillRequired(&spec))
	}
}

// fillRequired fills the required parameters of a tool with the prompt, or the file that it names.
func (t *turn) fillRequired(spec *toolcrib.Spec) arguments {
	var schema struct {
		Required []string `json:"required"`
	}
	made := arguments{}
	_ = json.Unmarshal(spec.Parameters, &schema) // the gate reports an invalid schema
	for _, name := range schema.Required {
		if made[name] = t.prompt; name == "path" {
			made[name] = cmp.Or(fileIn(t.prompt), "README.md")
		}
	}
	return made
}

// tokens estimates a token as four bytes of JSON.
func tokens(v any) int64 {
	raw, _ := json.Marshal(v) // a value that cannot be marshaled counts as empty
	return int64(len(raw)/4 + 1)
}

const (
	signature = "offline model"
	footer    = "(This is toolcrib's offline model: a few rules, not a language model. " + howToConfigure + ")"

	howToConfigure = "For a real one set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, or start Ollama."
	introduction   = "I am toolcrib's offline model: a few fixed rules, not a language model. " +
		"I cannot reason or write prose; I can drive the real tools for a few kinds of requests, " +
		"through the same loop, gate and journal that a real model gets."
)

// help explains this model, what can be asked, and how to set up a real one.
func help(t *turn) string {
	text := "Try:\n"
	for _, e := range []struct{ tool, prompt string }{
		{listDirectory, "Show me around and leave a note"},
		{listDirectory, "What files are here?"},
		{readFile, "Show me README.md"},
		{readFile, "How many lines has README.md?"},
		{searchFiles, "Which files are about testing?"},
		{writeFile, `Write "hello" to notes.txt`},
		{execShell, "Run `wc -l README.md`"},
	} {
		if _, ok := t.offered[e.tool]; ok {
			text += "- " + e.prompt + "\n"
		}
	}
	if !strings.Contains(text, "- ") {
		text = "None of the tools that I know is offered to me in this request.\n"
	}
	return introduction + "\n\n" + text + "\n" + howToConfigure
}

// rule answers the clauses that match its pattern; m has the pattern's groups.
type rule struct {
	pattern *regexp.Regexp
	do      func(t *turn, m []string) (string, error)
}

// quoted matches a text in quotes or backticks. Its three groups are the text in double
// quotes, in single quotes, and in backticks.
const quoted = "(?:[\"“]([^\"”]*)[\"”]|'([^']*)'|`([^`]*)`)"

// rules are tried in order; the first that matches answers the clause. They are compiled
// on first use, because most runs have another model.
var rules = sync.OnceValue(func() []rule {
	fits := func(pattern string, do func(*turn, []string) (string, error)) rule {
		return rule{regexp.MustCompile(`(?is)` + pattern), do}
	}
	return []rule{
		fits(`^show\s+me\s+around\b`, tour),
		fits(`^(?:write|save|put)\s+`+quoted+`\s+(?:to|in|into)\s+(.+)$`, writeText),
		fits(`^(?:run|execute)\s+`+quoted+`$`, runCommand),
		fits(`^(?:run|execute)\s+(?:the\s+|my\s+)?tests?$`, runTests),
		fits(`\bhow\s+many\s+lines\b(.*)$`, countIn),
		fits(`\bfiles?\b.*?\b(?:about|mention\w*|contain\w*|import\w*|with)\s+(.+)$`, filesAbout),
		fits(`^(?:ls|list)$|\bfiles?\b.*\bhere\b|\bwhat(?:'s|\s+is)\s+(?:here|in\s+this\s+folder)\b|^list\s+(?:the\s+)?files$`, list),
		fits(`\b(?:show|read|cat|open|print|says?|what(?:'s|\s+is)\s+in)\b|^\S+[./]\S+$`, show),
	}
})

// do runs a clause and reports whether a rule matches it. The answer is only used
// if the turn wants no call.
func (t *turn) do(clause string) (answer string, understood bool) {
	for _, r := range rules() {
		m := r.pattern.FindStringSubmatch(clause)
		if m == nil {
			continue
		}
		text, err := r.do(t, append([]string{clause}, m[1:]...))
		if err != nil {
			text = "I could not do that: " + err.Error() + "."
		}
		return text, true
	}
	return "", false
}

// cuts matches separators of requests, in its group, and quoted text.
var cuts = lazyregexp.New("\"[^\"]*\"|“[^”]*”|`[^`]*`|(?:^| )'[^']*'|(\n|;|[.?!] |, and |, then | and then )")

var polite = lazyregexp.New(`(?i)^(?:and |then |please |can you |could you )+`)

// clauses splits a prompt into requests, but not inside quotes.
func clauses(prompt string) (out []string) {
	start := 0
	for _, at := range append(cuts.FindAllStringSubmatchIndex(prompt, -1), []int{0, 0, len(prompt), len(prompt)}) {
		if at[2] < 0 {
			continue
		}
		clause := strings.TrimRight(strings.TrimSpace(prompt[start:at[2]]), ".?!,; ")
		if clause = polite.ReplaceAllString(clause, ""); clause != "" {
			out = append(out, clause)
		}
		start = at[3]
	}
	return out
}

// fileIn returns the file that a text names, in quotes or with a period or slash, or "".
func fileIn(text string) string {
	if i := strings.IndexAny(text, "\"`"); i >= 0 {
		if j := strings.IndexByte(text[i+1:], text[i]); j > 0 {
			return text[i+1 : i+1+j]
		}
	}
	for word := range strings.FieldsSeq(text) {
		word = strings.TrimRight(strings.Trim(word, "'()<>"), ".,;:?!")
		if strings.EqualFold(word, "readme") {
			return "README.md"
		}
		if len(word) > 1 && strings.ContainsAny(word[1:], "./") {
			return word
		}
	}
	return ""
}

// Tools that the rules call.
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

// turn is one exchange: the last prompt, and the results of tools since. Its tasks
// are run from the beginning at each request, one after another; as they always
// make the same calls in the same order, the n-th result belongs to the n-th call.
type turn struct {
	Model
	prompt     string
	offered    map[string]toolcrib.Spec
	results    []*toolcrib.ToolResult
	taken      int // number of results that were used
	wanted     []toolcrib.ToolCall
	introduced bool // an earlier answer introduced this model
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
			for strings.HasPrefix(text, "(") { // a note in parentheses before a message is not a request
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

// answer runs the tasks of the prompt. Its result is only used if no call is wanted.
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

// call decodes the result of the next call into out, a pointer.
// A call without a result becomes a part of the reply.
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

// read decodes a result: the JSON of a tool, or of a refusal or an error.
// It reports whether the result was cut.
func read(r *toolcrib.ToolResult, out any) (cut bool, err error) {
	content := r.Content
	if inner, ok := guard.Unfence(content); ok {
		content = guard.WithoutCanary(inner)
	}
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
		// Of a long text, the beginning is shown, which is in the first string.
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

// shorten returns s as one line of at most 300 bytes, without a period at its end.
func shorten(s string) string {
	return guard.Clip(strings.TrimSuffix(strings.Join(strings.Fields(s), " "), "."), 300)
}
