package openai

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// ResponsesRequest is the body of POST /v1/responses.
type ResponsesRequest map[string]json.RawMessage

const stateless = unsupported + "; `input` has the whole conversation"

// ResponsesFields are the fields of a [ResponsesRequest].
var ResponsesFields = append([]Field{
	{"model", "the agent: `agent/NAME`, or its name", to(func(a *Ask) *string { return &a.Model })},
	{"instructions", "added to the agent's own", to(func(a *Ask) *string { return &a.System })},
	{
		"input", "a text, or items: messages, `function_call`, `function_call_output`, `reasoning`, `item_reference`",
		responsesInput,
	},
	{
		"tools", "functions that the client runs, also in a `namespace`; `web_search` is ignored, other built-in tools: 400",
		responsesTools,
	},
	{"tool_choice", "`auto`, `none`, `required` or a function; for the first reply of the run", responsesChoice},
	{"text", "`format`: `text`, `json_object` or `json_schema`, if the agent has no schema of its own", responsesText},
	{"max_output_tokens", "per reply; the smaller of this and the agent's limit applies", maxTokens},
	{"stream_options", "`include_obfuscation` is ignored", chatStreamOptions},
	{"metadata", "returned with the answer", responsesMetadata},
	{"truncation", "`auto` or `disabled`; the agent's `context` decides", only(`"auto"`, `"disabled"`)},
	{"client_metadata", asUsual, ignored[map[string]json.RawMessage]},
	{"background", "`false`", only("false")},
	{"reasoning", "`effort`, instead of the model's; `summary` is ignored: answers have no reasoning", responsesReasoning},
	{"include", "`reasoning.encrypted_content`; answers have no reasoning", responsesInclude},
	{"store", "ignored: every run is stored, and cannot be retrieved by the ID of its response", ignored[bool]},
	{"previous_response_id", stateless, only()},
	{"conversation", stateless, only()},
	{"prompt", unsupported, only()},
	{"max_tool_calls", unsupported, only()},
	{"context_management", unsupported, only()},
}, bothHave...)

// ReadResponses reads a request. item finds referenced items.
func ReadResponses(body ResponsesRequest, item Lookup) (*Ask, error) {
	return read(ResponsesFields, body, item)
}

// item is an item of the input.
type item struct {
	ID        string          `json:"id"`
	Type      string          `json:"type"`
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Output    json.RawMessage `json:"output"`
}

func responsesInput(a *Ask, param string, raw json.RawMessage) error {
	t := &transcript{Ask: a}
	if raw[0] == '"' {
		pieces, err := content(param, raw)
		if err != nil {
			return err
		}
		return t.user(param, pieces)
	}
	if err := each(param, raw, t.item); err != nil {
		return err
	}
	return t.end(param)
}

func (t *transcript) item(param string, i *item) error {
	if i.Type == "" && i.Role == "" && i.ID != "" {
		i.Type = "item_reference"
	}
	switch i.Type {
	case "item_reference":
		return t.refers(param+".id", i.ID)
	case "", "message":
		pieces, err := content(param+".content", i.Content)
		if err != nil {
			return err
		}
		return t.said(param, i.Role, pieces)
	case "function_call":
		return t.reply(param, "", call(i.CallID, i.Name, i.Arguments))
	case "function_call_output":
		pieces, err := content(param+".output", i.Output)
		if err != nil {
			return err
		}
		return t.result(param+".call_id", i.CallID, resultText(pieces))
	case "reasoning": // from another server; models here keep their own
		return nil
	}
	return bad(param+".type", "%s is not supported", strconv.Quote(i.Type))
}

// Lookup finds an item of an earlier answer by its ID.
type Lookup func(id string) (*ResponseItem, error)

// refers adds an item of an earlier answer.
func (t *transcript) refers(param, id string) error {
	found, err := t.Ask.item(id)
	switch {
	case toolcrib.CodeOf(err) == toolcrib.CodeNotFound:
		return bad(param, "there is no item %s; send the item itself", strconv.Quote(id))
	case err != nil:
		return err
	case found.Arguments != nil:
		return t.reply(param, "", call(found.CallID, found.Name, *found.Arguments))
	}
	for _, part := range *found.Content {
		if err := t.reply(param, part.Text); err != nil {
			return err
		}
	}
	return nil
}

type responsesTool struct {
	Type string `json:"type"`
	tool
	Tools json.RawMessage `json:"tools"` // tools of a namespace
}

func responsesTools(a *Ask, param string, raw json.RawMessage) error {
	return a.tools(param, raw, "")
}

// tools reads a list of tools. namespace may be "".
func (a *Ask) tools(param string, raw json.RawMessage, namespace string) error {
	return each(param, raw, func(at string, t *responsesTool) error {
		switch {
		case t.Type == "function":
			if namespace != "" {
				a.Spaces[t.Name] = namespace
			}
			return a.tool(at, &t.tool)
		case t.Type == "namespace" && namespace == "" && t.Name != "":
			if a.Spaces == nil {
				a.Spaces = map[string]string{}
			}
			return a.tools(at+".tools", t.Tools, t.Name)
		case strings.HasPrefix(t.Type, "web_search") && namespace == "": // some command lines always send it
			return nil
		}
		return bad(at+".type", "must be function or namespace; the agent's configuration decides which tools the server has")
	})
}

func responsesChoice(a *Ask, param string, raw json.RawMessage) error {
	return a.choice(param, raw, func() (string, string, error) {
		var named struct{ Type, Name string }
		err := into(param, raw, &named)
		return named.Type, named.Name, err
	})
}

func responsesText(a *Ask, param string, raw json.RawMessage) error {
	var text struct {
		Format *struct {
			Type   string          `json:"type"`
			Schema json.RawMessage `json:"schema"`
		} `json:"format"`
		Verbosity string `json:"verbosity"` // accepted and ignored
	}
	if err := into(param, raw, &text); err != nil {
		return err
	}
	if text.Format == nil {
		return nil
	}
	return a.answerSchema(param+".format", text.Format.Type, text.Format.Schema)
}

func responsesMetadata(a *Ask, param string, raw json.RawMessage) error {
	a.Metadata = raw
	return ignored[map[string]string](a, param, raw)
}

func responsesReasoning(a *Ask, param string, raw json.RawMessage) error {
	var fields struct{ Effort json.RawMessage }
	if err := into(param, raw, &fields); err != nil || isNull(fields.Effort) {
		return err
	}
	return effort(a, param+".effort", fields.Effort)
}

func responsesInclude(_ *Ask, param string, raw json.RawMessage) error {
	var list []string
	if err := into(param, raw, &list); err != nil {
		return err
	}
	for _, what := range list {
		if what != "reasoning.encrypted_content" {
			return bad(param, "%s is not supported", strconv.Quote(what))
		}
	}
	return nil
}
