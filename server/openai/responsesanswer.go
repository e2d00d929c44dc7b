package openai

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// Response is an answer of POST /v1/responses.
type Response struct {
	ID         string          `json:"id"`
	Object     string          `json:"object"`
	Created    int64           `json:"created_at"`
	Status     string          `json:"status"`
	Error      *ResponseError  `json:"error"`
	Incomplete *WhyIncomplete  `json:"incomplete_details"`
	System     *string         `json:"instructions"`
	MaxOutput  *int            `json:"max_output_tokens"`
	Metadata   json.RawMessage `json:"metadata"`
	Model      string          `json:"model"`
	Output     []ResponseItem  `json:"output"`
	Parallel   bool            `json:"parallel_tool_calls"`
	Previous   *string         `json:"previous_response_id"`
	Heat       *float64        `json:"temperature"`
	Text       ResponseText    `json:"text"`
	Choice     json.RawMessage `json:"tool_choice"`
	Tools      []ResponseTool  `json:"tools"`
	TopP       *float64        `json:"top_p"`
	Truncation string          `json:"truncation"`
	Usage      *ResponseUsage  `json:"usage"`
	Toolcrib   *Extra          `json:"toolcrib,omitempty"`
}

// ResponseError is the reason for a failed answer.
type ResponseError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// WhyIncomplete is the reason for an incomplete answer.
type WhyIncomplete struct {
	Reason string `json:"reason"`
}

// ResponseText is the form of the answer.
type ResponseText struct {
	Format ResponseFormat `json:"format"`
}

// ResponseFormat is text or JSON of a schema.
type ResponseFormat struct {
	Type   string          `json:"type"`
	Name   string          `json:"name,omitempty"`
	Schema json.RawMessage `json:"schema,omitempty"`
}

// ResponseTool is a tool of the request.
type ResponseTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      bool            `json:"strict"`
}

// ResponseItem is an item of the output: a message or a function_call.
type ResponseItem struct {
	ID        string          `json:"id"`
	Type      string          `json:"type"`
	Status    string          `json:"status"`
	Role      string          `json:"role,omitempty"`
	Content   *[]ResponsePart `json:"content,omitempty"`
	CallID    string          `json:"call_id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Namespace string          `json:"namespace,omitempty"` // namespace of the tool in the request
	Arguments *string         `json:"arguments,omitempty"`
}

// ResponsePart is a text part.
type ResponsePart struct {
	Type        string `json:"type"`
	Text        string `json:"text"`
	Annotations []any  `json:"annotations"`
	LogProbs    []any  `json:"logprobs"`
}

// ResponseUsage counts tokens.
type ResponseUsage struct {
	Input        int64           `json:"input_tokens"`
	InputDetails UsageOfInput    `json:"input_tokens_details"`
	Output       int64           `json:"output_tokens"`
	Details      UsageOfThinking `json:"output_tokens_details"`
	Total        int64           `json:"total_tokens"`
}

// responseEvent is an event of a stream.
type responseEvent struct {
	Type     string        `json:"type"`
	Sequence int           `json:"sequence_number"`
	Response *Response     `json:"response,omitempty"`
	Output   *int          `json:"output_index,omitempty"`
	Item     *ResponseItem `json:"item,omitempty"`
	ItemID   string        `json:"item_id,omitempty"`
	Content  *int          `json:"content_index,omitempty"`
	Part     *ResponsePart `json:"part,omitempty"`
	Delta    *string       `json:"delta,omitempty"`
	Text     *string       `json:"text,omitempty"`
	Call     *string       `json:"arguments,omitempty"`
	Name     string        `json:"name,omitempty"`
	LogProbs *[]any        `json:"logprobs,omitempty"`
}

// respond is an [Answer] of Responses.
type respond struct {
	Response
	write Write
	name  string // part of the IDs of items
	begun bool
	next  int // sequence number
	items int
	text  strings.Builder // text of the open message
	open  bool

	namespaces map[string]string // namespaces of tools
}

// NewRespond returns the answer to a request. id is its ID without the prefix resp_.
func NewRespond(a *Ask, id string, created int64, write Write) Answer {
	r := &respond{write: write, name: id, namespaces: a.Spaces, Response: Response{
		ID: "resp_" + id, Object: "response", Created: created, Status: "in_progress", Model: a.Model, Metadata: a.Metadata,
		Output: []ResponseItem{}, Parallel: !a.OneCall, Heat: a.Temperature, Tools: []ResponseTool{},
		Text: ResponseText{ResponseFormat{Type: "text"}}, Choice: json.RawMessage(`"auto"`), Truncation: "disabled",
	}}
	if a.Metadata == nil {
		r.Metadata = json.RawMessage("{}")
	}
	if a.System != "" {
		r.System = &a.System
	}
	if a.MaxOutputTokens > 0 {
		r.MaxOutput = &a.MaxOutputTokens
	}
	if a.Schema != nil {
		r.name += "j" // its items differ from those without a schema
		r.Response.Text.Format = ResponseFormat{Type: "json_schema", Name: "answer", Schema: a.Schema}
	}
	if a.Choice != nil && a.Choice.Mode == toolcrib.ChoiceName {
		r.Choice = json.RawMessage(compact(map[string]string{"type": "function", "name": a.Choice.Name}))
	} else if a.Choice != nil {
		r.Choice = json.RawMessage(compact(a.Choice.Mode))
	}
	for _, t := range a.Tools {
		r.Tools = append(r.Tools, ResponseTool{
			Type: "function", Name: t.Name, Description: t.Description, Parameters: t.Parameters, Strict: true,
		})
	}
	return r
}

// Whole implements [Answer].
func (r *respond) Whole() any { return r.Response }

// event sends an event, after the first events of a stream if it is the first.
func (r *respond) event(e responseEvent) error {
	if r.write == nil {
		return nil
	}
	if !r.begun {
		r.begun = true
		for _, kind := range []string{"response.created", "response.in_progress"} {
			if err := r.event(responseEvent{Type: kind, Response: &r.Response}); err != nil {
				return err
			}
		}
	}
	e.Sequence = r.next
	r.next++
	return r.write(e.Type, e)
}

// at returns an event about the next item.
func (r *respond) at(kind string, item *ResponseItem) responseEvent {
	index := len(r.Output)
	e := responseEvent{Type: "response." + kind, Output: &index}
	switch {
	case strings.HasPrefix(kind, "output_item."):
		e.Item = item
	default:
		e.ItemID = item.ID
	}
	return e
}

// inText returns an event about the text of the next message.
func (r *respond) inText(kind string, item *ResponseItem) responseEvent {
	e, first := r.at(kind, item), 0
	e.Content = &first
	if strings.HasPrefix(kind, "output_text.") {
		e.LogProbs = &[]any{}
	}
	return e
}

func (r *respond) message(status string, parts ...ResponsePart) *ResponseItem {
	parts = append([]ResponsePart{}, parts...)
	return &ResponseItem{
		ID: "msg_" + r.name + "_" + strconv.Itoa(r.items), Type: "message", Status: status, Role: "assistant",
		Content: &parts,
	}
}

func textPart(text string) ResponsePart {
	return ResponsePart{Type: "output_text", Text: text, Annotations: []any{}, LogProbs: []any{}}
}

// Think implements [Answer]. Reasoning is left out: a client would send it back.
func (r *respond) Think(string) error { return nil }

// Say implements [Answer].
func (r *respond) Say(text string) error {
	if !r.open {
		r.open = true
		r.items++
		item, empty := r.message("in_progress"), textPart("")
		begins := r.inText("content_part.added", item)
		begins.Part = &empty
		if err := r.all(r.at("output_item.added", item), begins); err != nil {
			return err
		}
	}
	r.text.WriteString(text)
	e := r.inText("output_text.delta", r.message("in_progress"))
	e.Delta = &text
	return r.event(e)
}

func (r *respond) all(events ...responseEvent) error {
	for _, e := range events {
		if err := r.event(e); err != nil {
			return err
		}
	}
	return nil
}

// Break implements [Answer]: each reply is a message.
func (r *respond) Break() error {
	if !r.open {
		return nil
	}
	r.open = false
	text := r.text.String()
	r.text.Reset()
	part := textPart(text)
	item := r.message("completed", part)
	said, ends := r.inText("output_text.done", item), r.inText("content_part.done", item)
	said.Text, ends.Part = &text, &part
	err := r.all(said, ends, r.at("output_item.done", item))
	r.Output = append(r.Output, *item)
	return err
}

// call adds a call for the client.
func (r *respond) call(c *Call) error {
	r.items++
	empty := ""
	item := ResponseItem{
		ID: "fc_" + r.name + "_" + strconv.Itoa(r.items), Type: "function_call", Status: "in_progress", CallID: c.ID,
		Name: c.Name, Namespace: r.namespaces[c.Name], Arguments: &empty,
	}
	done := item
	done.Status, done.Arguments = "completed", &c.Arguments
	delta, whole := r.at("function_call_arguments.delta", &item), r.at("function_call_arguments.done", &item)
	delta.Delta, whole.Call, whole.Name = &c.Arguments, &c.Arguments, c.Name
	err := r.all(r.at("output_item.added", &item), delta, whole, r.at("output_item.done", &done))
	r.Output = append(r.Output, done)
	return err
}

// End implements [Answer].
func (r *respond) End(o *Outcome) error {
	for i := range o.Calls {
		if err := r.call(&o.Calls[i]); err != nil {
			return err
		}
	}
	r.Status, r.Toolcrib = "completed", &o.Extra
	if o.Cut && (o.Text == "" || o.Extra.StopReason == toolcrib.StopCompleted) { // the model's limit, or no answer
		r.Status, r.Incomplete = "incomplete", &WhyIncomplete{"max_output_tokens"}
	}
	r.Usage = responseUsage(&o.Usage)
	return r.event(responseEvent{Type: "response." + r.Status, Response: &r.Response})
}

func responseUsage(u *toolcrib.Usage) *ResponseUsage {
	return &ResponseUsage{
		Input: u.InputTokens, InputDetails: UsageOfInput{u.CachedInputTokens}, Output: u.OutputTokens,
		Details: UsageOfThinking{u.ReasoningTokens}, Total: u.TotalTokens,
	}
}

// Fail implements [Answer].
func (r *respond) Fail(why ErrorDetail, used toolcrib.Usage) error {
	r.Status, r.Response.Error, r.Usage = "failed", &ResponseError{why.Code, why.Message}, responseUsage(&used)
	return r.event(responseEvent{Type: "response.failed", Response: &r.Response})
}
