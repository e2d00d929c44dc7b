package agent

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/journal"
)

// Models that call tools by the API sometimes write a call into their text, in the form of their chat
// template, and the server does not recognize it. A notice reports that. The call is made only if the
// text can mean nothing else: text from another source must not run.

// NoticeCallAsText reports that a reply has a call in its text, which was not run.
const NoticeCallAsText = "call_as_text"

// template is the form in which some models write a call.
type template struct {
	models *lazyregexp.Regexp // matches the names of the models
	form   *lazyregexp.Regexp // matches a whole reply; its groups are the name, if it is outside the JSON, and the JSON
}

var templates = [...]template{
	{lazyregexp.New(`qwen|qwq|hermes`), lazyregexp.New(`(?s)^<tool_call>()\s*(\{.*\})\s*</tool_call>$`)},
	{lazyregexp.New(`llama`), lazyregexp.New(`(?s)^(?:<\|python_tag\|>)?()\s*(\{.*\})\s*(?:<\|eo[mt]_id\|>)?$`)},
	{
		lazyregexp.New(`(?:mi|mini|magi|code|dev)stral|(?:mi|pi)xtral`),
		lazyregexp.New(`(?s)^\[TOOL_CALLS\]\s*(?:([\w-]+)(?:\[ARGS\])?(\{.*\})|\[\s*(\{.*\})\s*\])$`),
	},
	{
		lazyregexp.New(`gpt-oss`),
		lazyregexp.New(`(?s)^<\|channel\|>commentary to=functions\.([\w-]+) ?(?:<\|constrain\|>json)?<\|message\|>(\{.*\})(?:<\|call\|>)?$`),
	},
}

// textCall parses a reply that is exactly one call, in the template of the model.
func textCall(model, text string) (call toolcrib.ToolCall, ok bool) {
	for _, t := range templates {
		if !t.models.MatchString(strings.ToLower(model)) {
			continue
		}
		m := t.form.FindStringSubmatch(text)
		if m == nil {
			return call, false
		}
		if call.Name, call.Arguments = m[1], json.RawMessage(strings.Join(m[2:], "")); call.Name != "" {
			return call, true
		}
		return namedCall(call.Arguments)
	}
	return call, false
}

// namedCall parses {"name": …, "arguments": {…}}.
func namedCall(raw []byte) (call toolcrib.ToolCall, ok bool) {
	canonical, err := guard.Arguments(raw)
	var members map[string]json.RawMessage
	if err != nil || json.Unmarshal(canonical, &members) != nil {
		return call, false
	}
	for key, value := range members {
		switch key {
		case "name":
			ok = json.Unmarshal(value, &call.Name) == nil
		case "arguments", "parameters":
			call.Arguments = value
		case "type":
		default:
			return call, false
		}
	}
	return call, ok && len(call.Arguments) > 0 && call.Arguments[0] == '{'
}

// marks matches the beginnings of calls in a text, which all have one of the characters <[{=`.
var marks = lazyregexp.New(`<tool_call>|<function=|<\|?tool▁?_?call|<｜tool|\[TOOL_CALLS\]|<\|python_tag\|>|to=functions\.|` +
	"```tool_code|" + `(?s)^\s*(?:` + "```(?:json)?\\s*" + `)?\[?\s*\{\s*"(?:name|type)"\s*:.*"(?:arguments|parameters)"\s*:`)

// calledInText checks a reply without calls. If its text is a call, it becomes one; if it contains a
// call, a notice is returned.
func (d *driver) calledInText(sent *journal.ModelRequest, reply *toolcrib.Reply) (notices []toolcrib.Body) {
	text, offered := reply.Message.Text(), d.s.Offering()
	tools := d.modelInfo(sent.Model).Tools
	if tools == journal.ToolsText || tools == journal.ToolsNone || len(offered) == 0 ||
		len(reply.Message.ToolCalls()) > 0 || !strings.ContainsAny(text, "<[{=`") || !marks.MatchString(text) {
		return nil
	}
	trimmed := strings.TrimSpace(text)
	call, ok := textCall(d.s.Models[sent.Model].ID, trimmed)
	if ok && reply.Finish.Reason == toolcrib.FinishStop && offered[call.Name] && len(d.s.Taint) == 0 &&
		d.r.Gate.Read(scopeOf(d.s.Start), call.Name, call.Arguments, false).Valid() &&
		!heldBefore(d.s, trimmed, string(call.Arguments)) {
		reply.Message.Parts = slices.DeleteFunc(reply.Message.Parts, func(p toolcrib.Part) bool {
			return p.Text != "" && p.Thinking == nil
		})
		reply.Message.Parts = append(reply.Message.Parts, toolcrib.Part{ToolCall: &call})
		return []toolcrib.Body{journal.Noticef(toolcrib.NoticeToolCallRepaired,
			"the model wrote its call of %s as text, in its own template; it is judged as a call", call.Name)}
	}
	for _, name := range slices.Sorted(maps.Keys(offered)) {
		if offered[name] && strings.Contains(text, name) {
			return []toolcrib.Body{journal.Noticef(NoticeCallAsText, "the model wrote a call of %s as text; it was not run. "+
				"`tools: text` is for models and servers that cannot call tools otherwise", name)}
		}
	}
	return nil
}

// heldBefore reports whether a text that the model has read contains one of texts, ignoring space and
// escapes.
func heldBefore(s *State, texts ...string) bool {
	unescaped := strings.NewReplacer(`\n`, "", `\r`, "", `\t`, "", `\"`, `"`, `\/`, "/", `\\`, "")
	bare := func(text string) string { return strings.Join(strings.Fields(text), "") }
	holds := func(text string) bool {
		read := bare(text) + "\n" + bare(unescaped.Replace(text))
		return slices.ContainsFunc(texts, func(t string) bool { return len(bare(t)) > 2 && strings.Contains(read, bare(t)) })
	}
	return holds(s.Start.System) || slices.ContainsFunc(s.Messages, func(m toolcrib.Message) bool {
		return slices.ContainsFunc(m.Parts, func(p toolcrib.Part) bool {
			return holds(p.Text) || p.ToolResult != nil && holds(p.ToolResult.Content)
		})
	})
}
