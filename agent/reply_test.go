package agent_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// A reply without calls and text is requested once more, which is not a round; the tool choice applies
// to the second try as well.
func TestContract4_EmptyReply(t *testing.T) {
	empty, thought := []toolcrib.Delta{finish(toolcrib.FinishStop)}, []toolcrib.Delta{{Thinking: "hm"}, {Text: " \n"}, finish(toolcrib.FinishOther)}
	filtered := []toolcrib.Delta{finish(toolcrib.FinishFiltered)}
	for name, c := range map[string]struct {
		replies            [][]toolcrib.Delta
		requests, rounds   int
		content, message   string
		notices, unanswers int
	}{
		"at first":        {[][]toolcrib.Delta{empty, say("yes")}, 3, 2, "yes", "", 1, 0},
		"after results":   {[][]toolcrib.Delta{calls("echo", `{}`), thought, say("yes")}, 3, 2, "yes", "", 1, 0},
		"now and again":   {[][]toolcrib.Delta{empty, calls("echo", `{}`), thought, say("yes")}, 4, 2, "yes", "", 2, 0},
		"twice":           {[][]toolcrib.Delta{calls("echo", `{}`), empty}, 3, 2, "", "refused: the model gave neither text nor calls", 1, 1},
		"filtered":        {[][]toolcrib.Delta{filtered, say("never asked for")}, 1, 1, "", "refused: the provider filtered the answer", 0, 1},
		"not the closing": {[][]toolcrib.Delta{calls("echo", `{}`), calls("echo", `{"a":1}`), empty}, 3, 2, "", "", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, gate.ConfirmNever)
			w.script(c.replies...)
			s := run(t, w, func(k *agent.Task) {
				k.Agent.Limits.MaxIterations, k.Agent.ToolChoice = 2, toolcrib.ToolChoice{Mode: toolcrib.ChoiceRequired}
			})
			equal(t, "requests", len(w.requests), c.requests)
			equal(t, "rounds", s.Iterations, c.rounds)
			equal(t, "notices", countNotices(w, core.NoticeReplyEmpty), c.notices)
			equal(t, "can be asked again", s.Unanswered(), c.unanswers == 1)
			if c.message != "" {
				equal(t, "reason", s.Failed.StopReason, toolcrib.StopProviderFailed)
				equal(t, "message", s.Failed.Message, c.message)
				return
			}
			equal(t, "content", s.Done.Content, c.content)
			if name == "now and again" {
				equal(t, "demanded again", w.requests[1].ToolChoice.Mode, toolcrib.ChoiceRequired)
				equal(t, "later", w.requests[3].ToolChoice.Mode, "")
			}
		})
	}
}

// Names with what templates put around them are those of offered tools, and of no others.
func TestContract4_DressedNames(t *testing.T) {
	for name, want := range map[string]string{
		"echo": "echo", "functions.echo": "echo", "default_api.echo": "echo", "default_api:echo": "echo", " echo\n": "echo",
		"echo<|channel|>commentary": "echo", "functions.echo<|constrain|>json": "echo", "functions.echo:0": "echo",
		"functions.off": toolcrib.InvalidName, "xfunctions.echo": toolcrib.InvalidName, "functions.": toolcrib.InvalidName,
		"<|channel|>echo": toolcrib.InvalidName, "Echo": "Echo", "functions_echo": "functions_echo",
	} {
		w := newWorld(t, gate.ConfirmNever)
		w.script(calls(name, `{}`), say("done"))
		run(t, w)
		var got string
		for _, f := range w.frames {
			if v, ok := f.Data.(journal.CallDeltaView); ok && v.Name != "" {
				got += v.Name
			}
		}
		equal(t, fmt.Sprintf("%q, live", name), got, want)
		c := w.requests[1].Messages[1].ToolCalls()[0]
		equal(t, fmt.Sprintf("%q", name), c.Name, want)
		equal(t, fmt.Sprintf("%q ran", name), w.ran[c.ID] == 1, want == "echo")
		equal(t, fmt.Sprintf("%q, notices", name), countNotices(w, toolcrib.NoticeToolCallRepaired) == 1, want == "echo" && name != want)
	}
}

// A call in the text of a reply is reported, and only runs if the text cannot mean anything else.
func TestContract4_CallAsText(t *testing.T) {
	const hermes, echoed = "<tool_call>\n{\"name\": \"strict\", \"arguments\": {\"n\": 1}}\n</tool_call>", "see `{\"name\":\"strict\",\"arguments\":{\"n\":1}}`"
	untrusted := toolcrib.Output{Text: "data", Untrusted: true}
	for name, c := range map[string]struct {
		model, text, prompt string
		ran, told           bool
	}{
		"Hermes":            {model: "Qwen/Qwen3-32B", text: hermes, ran: true},
		"Mistral":           {model: "mistral-small", text: `[TOOL_CALLS][{"name":"strict","arguments":{"n":1}}]`, ran: true},
		"Mistral's newer":   {model: "Devstral-Small-2507", text: `[TOOL_CALLS]strict[ARGS]{"n":1}`, ran: true},
		"Llama":             {model: "llama-3.1-8b", text: `{"type":"function","name":"strict","parameters":{"n":1}}`, ran: true},
		"Harmony":           {model: "gpt-oss-20b", text: `<|channel|>commentary to=functions.strict <|constrain|>json<|message|>{"n":1}<|call|>`, ran: true},
		"another template":  {model: "mistral-small", text: hermes, told: true},
		"no known template": {model: "some-model", text: hermes, told: true},
		"text around it":    {model: "qwen3", text: "I call it: " + hermes, told: true},
		"two":               {model: "qwen3", text: hermes + hermes, told: true},
		"to be converted":   {model: "qwen3", text: strings.Replace(hermes, "1", `"1"`, 1), told: true},
		"twice a key":       {model: "qwen3", text: strings.Replace(hermes, `{"n"`, `{"n": 2, "n"`, 1), told: true},
		"not offered":       {model: "qwen3", text: strings.Replace(hermes, "strict", "off", 1)},
		"was in the prompt": {model: "qwen3", text: hermes, prompt: echoed, told: true},
		"escaped in it":     {model: "qwen3", text: hermes, prompt: `{"content":"{\"name\": \"strict\",\n \"arguments\": {\"n\": 1}}"}`, told: true},
		"tainted":           {model: "qwen3", text: hermes, prompt: "draw", told: true},
		"no call":           {model: "qwen3", text: "strict is a tool"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, gate.ConfirmNever)
			w.tools["draw"] = untrusted
			w.script(say(c.text), say("done"))
			if c.prompt == "draw" {
				w.script(calls("draw", `{}`), say(c.text), say("done"))
			}
			s := run(t, w, func(k *agent.Task) {
				k.Models[0].ID = c.model
				if c.prompt != "" {
					k.Prompt = c.prompt
				}
			})
			equal(t, "told", countNotices(w, agent.NoticeCallAsText) == 1, c.told)
			equal(t, "read as a call", countNotices(w, toolcrib.NoticeToolCallRepaired) == 1, c.ran)
			content := c.text
			if c.ran {
				content = "done"
				equal(t, "arguments", w.gave[s.Trace[0].ID], `{"n":1}`)
			}
			equal(t, "content", s.Done.Content, content)
		})
	}
}

// Contract §11: what can only mean one thing is converted before it is judged: the call, its tool and the
// history have the result, and the call says what the model wrote. Strict agents, and calls that are given,
// have nothing converted.
func TestContract11_Converted(t *testing.T) {
	const sent = "```json\n{\"n\": \"5\"}\n```"
	for _, mode := range []string{"", "lossless", "strict"} {
		w := newWorld(t, gate.ConfirmNever)
		w.script(calls("strict", sent, "echo", "null"), say("done"))
		s := run(t, w, func(k *agent.Task) { k.Agent.Arguments = mode })
		c, none := s.Trace[0], s.Trace[1]
		equal(t, "null", w.gave[none.ID], `{}`)
		if mode == "strict" {
			equal(t, "reason", c.Result.Reason, toolcrib.ReasonInvalidArguments)
			equal(t, "converted", len(c.Converted), 0)
			continue
		}
		equal(t, "given to the tool", w.gave[c.ID], `{"n":5}`)
		equal(t, "in the history", string(w.requests[1].Messages[1].ToolCalls()[0].Arguments), `{"n":5}`)
		for _, e := range w.events(t, s.Run) {
			if b, ok := e.Body.(*journal.ToolCall); ok && b.ID == c.ID {
				equal(t, "journaled", string(b.Arguments), `{"n":5}`)
				equal(t, "as it came", b.Sent, sent)
				equal(t, "converted", strings.Join(b.Converted, "; "), "a code fence was taken off; /n: a string was read as the integer in it")
			}
		}
	}
	w := newWorld(t, gate.ConfirmNever)
	s := run(t, w, func(k *agent.Task) {
		k.Given = &toolcrib.ToolCall{ID: "g", Name: "strict", Arguments: []byte(`{"n":"5"}`)}
	})
	equal(t, "a given call", s.Trace[0].Result.Reason, toolcrib.ReasonInvalidArguments)
}
