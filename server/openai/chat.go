package openai

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// ChatRequest is the body of POST /v1/chat/completions.
type ChatRequest map[string]json.RawMessage

const (
	unsupported = "400"
	asUsual     = "accepted and ignored"
)

// bothHave has the fields of both APIs.
var bothHave = []Field{
	{"parallel_tool_calls", "`false`: only the first call of a turn runs, others are refused", parallel},
	{"temperature", "instead of the agent's", temperature},
	{"stream", "stream the answer", to(func(a *Ask) *bool { return &a.Stream })},
	{"top_p", "1", number(1)},
	{"top_logprobs", "0", number(0)},
	{"service_tier", asUsual, ignored[string]},
	{"user", asUsual, ignored[string]},
	{"safety_identifier", asUsual, ignored[string]},
	{"prompt_cache_key", asUsual, ignored[string]},
	{"prompt_cache_retention", asUsual, ignored[string]},
	{"prompt_cache_options", asUsual, ignored[map[string]any]},
	{"moderation", unsupported, only()},
}

// ChatFields are the fields of a [ChatRequest].
var ChatFields = append([]Field{
	{"model", "the agent: `agent/NAME`, or its name", to(func(a *Ask) *string { return &a.Model })},
	{"messages", "the whole conversation; texts, images and files as `data:` URLs", chatMessages},
	{"tools", "functions that the client runs", chatTools},
	{"tool_choice", "`auto`, `none`, `required` or a function; for the first reply of the run", chatChoice},
	{"response_format", "`text`, `json_object` or `json_schema`, if the agent has no schema of its own", chatFormat},
	{"max_completion_tokens", "per reply; the smaller of this and the agent's limit applies", maxTokens},
	{"max_tokens", "the same", maxTokens},
	{"stream_options", "`include_usage`; `include_obfuscation` is ignored", chatStreamOptions},
	{"n", "1", number(1)},
	{"presence_penalty", "0", number(0)},
	{"frequency_penalty", "0", number(0)},
	{"logprobs", "`false`", only("false")},
	{"logit_bias", "`{}`", only("{}")},
	{"stop", "texts; the answer ends before the first of them, although the model may write more", stops},
	{"modalities", "`[\"text\"]`", only(`["text"]`)},
	{"verbosity", asUsual, ignored[string]},
	{"metadata", asUsual, ignored[map[string]string]},
	{"store", "ignored: every run is stored", ignored[bool]},
	{"seed", "accepted and ignored: answers are not reproducible", ignored[float64]},
	{"reasoning_effort", "instead of the model's: `none`, `minimal`, `low`, `medium`, `high`, `xhigh`, `max`", effort},
	{"prediction", asUsual, ignored[map[string]any]},
	{"functions", unsupported + "; use `tools`", only()},
	{"function_call", unsupported + "; use `tool_choice`", only()},
	{"audio", unsupported, only()},
	{"web_search_options", unsupported, only()},
}, bothHave...)

// ReadChat reads a request.
func ReadChat(body ChatRequest) (*Ask, error) { return read(ChatFields, body, nil) }

type chatMessage struct {
	Role         string          `json:"role"`
	Content      json.RawMessage `json:"content"`
	Refusal      *string         `json:"refusal"`
	Calls        []chatCall      `json:"tool_calls"`
	CallID       string          `json:"tool_call_id"`
	FunctionCall json.RawMessage `json:"function_call"`
	Audio        json.RawMessage `json:"audio"`
}

type chatCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

func chatMessages(a *Ask, param string, raw json.RawMessage) error {
	t := &transcript{Ask: a}
	if err := each(param, raw, t.chatMessage); err != nil {
		return err
	}
	return t.end(param)
}

func (t *transcript) chatMessage(param string, m *chatMessage) error {
	for name, raw := range map[string]json.RawMessage{"function_call": m.FunctionCall, "audio": m.Audio} {
		if !isNull(raw) {
			return bad(param+"."+name, "is not supported")
		}
	}
	if len(m.Calls) > 0 && m.Role != "assistant" {
		return bad(param+".tool_calls", "are allowed only for role assistant")
	}
	pieces, err := content(param+".content", m.Content)
	if err != nil {
		return err
	}
	switch m.Role {
	case "assistant":
		if m.Refusal != nil {
			pieces = append(pieces, piece{text: *m.Refusal})
		}
		if err := t.said(param, m.Role, pieces); err != nil {
			return err
		}
		for i, c := range m.Calls {
			at := param + ".tool_calls[" + strconv.Itoa(i) + "]"
			if c.Type != "" && c.Type != "function" {
				return bad(at+".type", "must be function")
			}
			if err := t.reply(at, "", call(c.ID, c.Function.Name, c.Function.Arguments)); err != nil {
				return err
			}
		}
		return nil
	case "tool":
		return t.result(param+".tool_call_id", m.CallID, resultText(pieces))
	}
	return t.said(param, m.Role, pieces)
}

// said adds a message with a role of both APIs.
func (t *transcript) said(param, role string, pieces []piece) error {
	switch role {
	case "system", "developer":
		return t.system(param+".content", pieces)
	case "user":
		return t.user(param+".content", pieces)
	case "assistant":
		text, err := texts(param+".content", pieces)
		if err != nil {
			return err
		}
		return t.reply(param, text)
	}
	return bad(param+".role", "must be system, developer, user, assistant or, in Chat Completions, tool; not %s",
		strconv.Quote(role))
}

// part is an element of a content list, in either API.
type part struct {
	Type    string          `json:"type"`
	Text    string          `json:"text"`
	Refusal string          `json:"refusal"`
	Image   json.RawMessage `json:"image_url"` // a URL, or an object with one
	File    *filePart       `json:"file"`
	filePart
}

type filePart struct {
	Data string `json:"file_data"`
	Name string `json:"filename"`
	ID   string `json:"file_id"`
	URL  string `json:"file_url"`
}

// content reads the content of a message: a text, or a list of parts.
func content(param string, raw json.RawMessage) ([]piece, error) {
	switch {
	case isNull(raw):
		return nil, nil
	case raw[0] == '"':
		var text string
		err := into(param, raw, &text)
		return []piece{{text: text}}, err
	}
	var pieces []piece
	err := each(param, raw, func(at string, p *part) error {
		one, err := p.piece(at)
		pieces = append(pieces, one)
		return err
	})
	return pieces, err
}

func (p *part) piece(param string) (one piece, err error) {
	switch p.Type {
	case "text", "input_text", "output_text":
		return piece{text: p.Text}, nil
	case "refusal":
		return piece{text: p.Refusal}, nil
	case "image_url", "input_image":
		var image struct {
			URL string `json:"url"`
		}
		param += ".image_url"
		if isNull(p.Image) {
			return one, bad(param, "is missing; give images as data: URLs")
		}
		if p.Image[0] == '"' {
			err = into(param, p.Image, &image.URL)
		} else {
			err = into(param, p.Image, &image)
		}
		if err == nil {
			one.file, err = inline(param, image.URL, "")
		}
		return one, err
	case "file", "input_file":
		f := p.filePart
		if p.File != nil {
			f = *p.File
		}
		if f.ID != "" || f.URL != "" {
			return one, bad(param, "give files as file_data, a data: URL")
		}
		one.file, err = inline(param+".file_data", f.Data, f.Name)
		return one, err
	}
	return one, bad(param+".type", "%s is not supported", strconv.Quote(p.Type))
}

// resultText returns the result of a client's tool, which is text. Files become a note.
func resultText(pieces []piece) (text string) {
	for _, p := range pieces {
		if p.file != nil {
			p.text = fmt.Sprintf("(A file, %s, %d bytes, which is not shown here: results of the client's tools are text.)",
				p.file.MediaType, len(p.file.Data))
		}
		text += p.text
	}
	return text
}

// texts joins pieces, which must be texts.
func texts(param string, pieces []piece) (text string, err error) {
	for _, p := range pieces {
		if p.file != nil {
			return "", bad(param, "must be text")
		}
		text += p.text
	}
	return text, nil
}

type chatTool struct {
	Type     string `json:"type"`
	Function tool   `json:"function"`
}

func chatTools(a *Ask, param string, raw json.RawMessage) error {
	return each(param, raw, func(at string, t *chatTool) error {
		if t.Type != "function" {
			return bad(at+".type", "must be function")
		}
		return a.tool(at+".function", &t.Function)
	})
}

func chatChoice(a *Ask, param string, raw json.RawMessage) error {
	return a.choice(param, raw, func() (string, string, error) {
		var named struct {
			Type     string `json:"type"`
			Function struct {
				Name string `json:"name"`
			} `json:"function"`
		}
		err := into(param, raw, &named)
		return named.Type, named.Function.Name, err
	})
}

func chatFormat(a *Ask, param string, raw json.RawMessage) error {
	var f struct {
		Type   string `json:"type"`
		Schema struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"json_schema"`
	}
	if err := into(param, raw, &f); err != nil {
		return err
	}
	return a.answerSchema(param, f.Type, f.Schema.Schema)
}

func chatStreamOptions(a *Ask, param string, raw json.RawMessage) error {
	var o struct {
		Usage       bool `json:"include_usage"`
		Obfuscation bool `json:"include_obfuscation"`
	}
	err := into(param, raw, &o)
	a.Usage = o.Usage
	return err
}
