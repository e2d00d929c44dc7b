package offline

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
)

const (
	maxCalls  = 16   // calls of one reply
	maxPrompt = 8192 // bytes of a prompt that are looked at
	maxTasks  = 8    // clauses of a prompt that are answered
)

// turn is what the model knows of one exchange: the last prompt, and what tools
// have answered since.
type turn struct {
	prompt  string
	clauses []clause
	offered map[string]toolcrib.Spec
	tools   []toolcrib.Spec
	known   map[string][]answered // by tool and arguments, in order
	wanted  []toolcrib.ToolCall

	// What was read before a write is not true any more after it: only answers later
	// than floor count. used is the latest answer that the current clause looked at.
	floor, used int

	introduced bool // an earlier answer said what this model is
}

type arguments map[string]any

// answered is the result of a call, with its place among all results, from 1.
type answered struct {
	at int
	result
}

func newTurn(req *toolcrib.Request) *turn {
	t := &turn{offered: map[string]toolcrib.Spec{}, known: map[string][]answered{}, tools: req.Tools}
	if req.ToolChoice.Mode != toolcrib.ChoiceNone {
		for _, spec := range req.Tools {
			t.offered[spec.Name] = spec
		}
	}
	last := -1
	var before []string // files that were spoken of, the latest last
	for i, m := range req.Messages {
		switch {
		case m.Role == toolcrib.RoleUser && strings.TrimSpace(m.Text()) != "":
			if last >= 0 {
				for _, c := range understand(req.Messages[last].Text(), before) {
					before = append(before, c.spoken()...)
				}
			}
			last = i
		case m.Role == toolcrib.RoleAssistant:
			t.introduced = t.introduced || strings.Contains(m.Text(), signature)
		}
	}
	if last < 0 {
		return t
	}
	t.prompt = strings.TrimSpace(req.Messages[last].Text())
	t.clauses = understand(t.prompt, before)
	t.learn(req.Messages[last:])
	return t
}

// learn reads the results of the calls since the prompt.
func (t *turn) learn(messages []toolcrib.Message) {
	asked := map[string]string{} // call ID -> key
	at := 0
	for _, m := range messages {
		for _, p := range m.Parts {
			switch {
			case p.ToolCall != nil:
				asked[p.ToolCall.ID] = key(p.ToolCall.Name, p.ToolCall.Arguments)
			case p.ToolResult != nil:
				if k, ok := asked[p.ToolResult.CallID]; ok {
					at++
					r := readResult(p.ToolResult)
					if tool, _, _ := strings.Cut(k, " "); r.withheld {
						r.problem += "; " + explain(tool)
					}
					t.known[k] = append(t.known[k], answered{at, r})
				}
			}
		}
	}
}

// key names a call by what it does; the order of keys in the arguments and their
// spelling do not count.
func key(tool string, raw []byte) string {
	var v any
	if json.Unmarshal(raw, &v) == nil {
		if canonical, err := json.Marshal(v); err == nil {
			raw = canonical
		}
	}
	return tool + " " + string(raw)
}

// call returns the result of a call if it is known. If it is not, the call is
// wanted, and done is false: the task must come back when it is.
func (t *turn) call(tool string, a arguments) (r result, done bool) {
	raw, err := json.Marshal(a)
	if err != nil {
		return result{problem: "the arguments cannot be written as JSON"}, true
	}
	for _, a := range t.known[key(tool, raw)] {
		if a.at > t.floor {
			t.used = max(t.used, a.at)
			return a.result, true
		}
	}
	if _, ok := t.offered[tool]; !ok {
		return result{problem: fmt.Sprintf("the tool %s is not offered to me here; %s", tool, explain(tool))}, true
	}
	t.want(tool, a)
	return result{}, false
}

// explain says how a person finds out why a tool may not be used.
func explain(tool string) string { return fmt.Sprintf("`toolcrib tools explain %s` says why.", tool) }

// want adds a call to the reply, once.
func (t *turn) want(tool string, a arguments) {
	raw, err := json.Marshal(a)
	if err != nil {
		return
	}
	if slices.ContainsFunc(t.wanted, func(c toolcrib.ToolCall) bool { return c.Name == tool && string(c.Arguments) == string(raw) }) {
		return
	}
	t.wanted = append(t.wanted, toolcrib.ToolCall{Name: tool, Arguments: raw})
}

// answer carries out the tasks of the prompt. It is good only if no call is wanted.
func (t *turn) answer() string {
	var answers, strange []string
	previous, understood, pending := "", false, false
	for i, c := range t.clauses {
		if i == maxTasks {
			answers = append(answers, fmt.Sprintf("I answer %d questions at a time; ask the rest again.", maxTasks))
			break
		}
		do := taskFor(c)
		if do == nil {
			strange = append(strange, c.raw)
			continue
		}
		understood = true
		// A write waits for what stands before it, and what stands after waits for it.
		if c.writes() && pending {
			break
		}
		text, done := do(t, c, previous)
		if done {
			answers, previous = append(answers, text), text
			if c.writes() {
				t.floor = t.used
			}
			continue
		}
		if pending = true; c.writes() {
			break
		}
	}
	if !understood {
		return help(t)
	}
	for _, raw := range strange {
		answers = append(answers, fmt.Sprintf("I did not understand %q: I only know a few kinds of questions.", raw))
	}
	text := strings.Join(answers, "\n\n")
	if !t.introduced && !strings.Contains(text, signature) {
		text += "\n\n" + footer
	}
	return text
}
