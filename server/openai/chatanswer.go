package openai

import "github.com/toolcrib/toolcrib"

// ChatCompletion is an answer of POST /v1/chat/completions.
type ChatCompletion struct {
	ID       string       `json:"id"`
	Object   string       `json:"object"`
	Created  int64        `json:"created"`
	Model    string       `json:"model"`
	Choices  []ChatChoice `json:"choices"`
	Usage    *ChatUsage   `json:"usage,omitempty"`
	Toolcrib *Extra       `json:"toolcrib,omitempty"`
}

// ChatChoice is the only choice of an answer, or a chunk of it.
type ChatChoice struct {
	Index   int        `json:"index"`
	Message *ChatMsg   `json:"message,omitempty"`
	Delta   *ChatDelta `json:"delta,omitempty"`
	Finish  *string    `json:"finish_reason"`
}

// ChatDelta is a chunk of a message.
type ChatDelta struct {
	Role      string     `json:"role,omitempty"`
	Content   *string    `json:"content,omitempty"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	Calls     []ChatCall `json:"tool_calls,omitempty"`
}

// ChatMsg is a message.
type ChatMsg struct {
	Role      string     `json:"role"`
	Content   *string    `json:"content"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	Calls     []ChatCall `json:"tool_calls,omitempty"`
}

// ChatCall is a call for the client.
type ChatCall struct {
	Index    *int         `json:"index,omitempty"`
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function ChatFunction `json:"function"`
}

// ChatFunction is the function of a call, with the text of its arguments.
type ChatFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// ChatUsage counts tokens.
type ChatUsage struct {
	Prompt        int64           `json:"prompt_tokens"`
	Completion    int64           `json:"completion_tokens"`
	Total         int64           `json:"total_tokens"`
	PromptDetails UsageOfInput    `json:"prompt_tokens_details"`
	Details       UsageOfThinking `json:"completion_tokens_details"`
}

// UsageOfInput counts cached tokens of the input.
type UsageOfInput struct {
	Cached int64 `json:"cached_tokens"`
}

// UsageOfThinking counts reasoning tokens of the output.
type UsageOfThinking struct {
	Reasoning int64 `json:"reasoning_tokens"`
}

func chatUsage(u *toolcrib.Usage) *ChatUsage {
	return &ChatUsage{
		Prompt: u.InputTokens, Completion: u.OutputTokens, Total: u.TotalTokens,
		PromptDetails: UsageOfInput{u.CachedInputTokens}, Details: UsageOfThinking{u.ReasoningTokens},
	}
}

func (o *Outcome) chatFinish() *string {
	word := "stop"
	switch {
	case len(o.Calls) > 0:
		word = "tool_calls"
	case o.Cut:
		word = "length"
	}
	return &word
}

func (o *Outcome) chatCalls() []ChatCall {
	calls := make([]ChatCall, len(o.Calls))
	for i, c := range o.Calls {
		calls[i] = ChatCall{ID: c.ID, Type: "function", Function: ChatFunction{c.Name, c.Arguments}}
	}
	return calls
}

// chat is an [Answer] of Chat Completions.
type chat struct {
	ChatCompletion
	write Write
	count bool // whether a stream ends with the usage

	begun, said, broke bool
	thought            string
}

// NewChat returns the answer to a request. id is its ID without the prefix chatcmpl-.
func NewChat(a *Ask, id string, created int64, write Write) Answer {
	return &chat{write: write, count: a.Usage, ChatCompletion: ChatCompletion{
		ID: "chatcmpl-" + id, Created: created, Model: a.Model,
	}}
}

// Whole implements [Answer].
func (c *chat) Whole() any { return c.ChatCompletion }

func (c *chat) piece(delta *ChatDelta, finish *string, extra *Extra) error {
	if !c.begun {
		c.begun = true
		empty := ""
		if err := c.piece(&ChatDelta{Role: "assistant", Content: &empty}, nil, nil); err != nil {
			return err
		}
	}
	chunk := c.ChatCompletion
	chunk.Object, chunk.Toolcrib = "chat.completion.chunk", extra
	chunk.Choices = []ChatChoice{{Delta: delta, Finish: finish}}
	if c.count {
		return c.write("", struct {
			ChatCompletion
			Usage *ChatUsage `json:"usage"` // null except in the last chunk
		}{ChatCompletion: chunk})
	}
	return c.write("", chunk)
}

// Think implements [Answer].
func (c *chat) Think(text string) error {
	if c.write == nil {
		c.thought += text
		return nil
	}
	return c.piece(&ChatDelta{Reasoning: text}, nil, nil)
}

// Say implements [Answer]. Replies are separated by an empty line.
func (c *chat) Say(text string) error {
	if c.write == nil {
		return nil
	}
	if c.broke && c.said {
		text = "\n\n" + text
	}
	c.said, c.broke = true, false
	return c.piece(&ChatDelta{Content: &text}, nil, nil)
}

// Break implements [Answer].
func (c *chat) Break() error {
	c.broke = true
	return nil
}

// End implements [Answer].
func (c *chat) End(o *Outcome) error {
	if c.write == nil {
		m := &ChatMsg{Role: "assistant", Content: &o.Text, Reasoning: c.thought, Calls: o.chatCalls()}
		if len(m.Calls) > 0 && o.Text == "" {
			m.Content = nil
		}
		c.Object, c.Choices = "chat.completion", []ChatChoice{{Message: m, Finish: o.chatFinish()}}
		c.Usage, c.Toolcrib = chatUsage(&o.Usage), &o.Extra
		return nil
	}
	for i, one := range o.chatCalls() {
		one.Index = &i
		if err := c.piece(&ChatDelta{Calls: []ChatCall{one}}, nil, nil); err != nil {
			return err
		}
	}
	if err := c.piece(&ChatDelta{}, o.chatFinish(), &o.Extra); err != nil {
		return err
	}
	if c.count {
		last := c.ChatCompletion
		last.Object, last.Choices, last.Usage = "chat.completion.chunk", []ChatChoice{}, chatUsage(&o.Usage)
		if err := c.write("", last); err != nil {
			return err
		}
	}
	return c.write("", Done)
}

// Fail implements [Answer].
func (c *chat) Fail(why ErrorDetail, _ toolcrib.Usage) error {
	return c.write("", map[string]any{"error": why})
}

// Done ends a stream of Chat Completions. It is written as it is, not as JSON.
const Done doneMark = "[DONE]"

type doneMark string
