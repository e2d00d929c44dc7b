package modeltest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

type anthropicRequest struct {
	Model         string             `json:"model"`
	Messages      []anthropicMessage `json:"messages"`
	MaxTokens     *int64             `json:"max_tokens"`
	System        json.RawMessage    `json:"system"`
	Tools         *[]anthropicTool   `json:"tools"`
	ToolChoice    *anthropicChoice   `json:"tool_choice"`
	Thinking      *anthropicThinking `json:"thinking"`
	OutputConfig  *anthropicOutput   `json:"output_config"`
	Stream        *bool              `json:"stream"`
	Temperature   *float64           `json:"temperature"`
	TopP          *float64           `json:"top_p"`
	TopK          *int64             `json:"top_k"`
	StopSequences []string           `json:"stop_sequences"`
	Metadata      json.RawMessage    `json:"metadata"`
	ServiceTier   *string            `json:"service_tier"`
	CacheControl  *anthropicCache    `json:"cache_control"`
}

type anthropicCache struct {
	Type string `json:"type"`
	TTL  string `json:"ttl"`
}

type anthropicMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

type anthropicBlock struct {
	Type         string           `json:"type"`
	Text         *string          `json:"text"`
	ID           string           `json:"id"`
	Name         string           `json:"name"`
	Input        json.RawMessage  `json:"input"`
	ToolUseID    string           `json:"tool_use_id"`
	Content      *json.RawMessage `json:"content"`
	IsError      bool             `json:"is_error"`
	Thinking     *string          `json:"thinking"`
	Signature    string           `json:"signature"`
	Data         string           `json:"data"`
	Source       json.RawMessage  `json:"source"`
	Title        string           `json:"title"`
	CacheControl *anthropicCache  `json:"cache_control"`
}

type anthropicTool struct {
	Type         string          `json:"type"`
	Name         string          `json:"name"`
	Description  *string         `json:"description"`
	InputSchema  json.RawMessage `json:"input_schema"`
	CacheControl *anthropicCache `json:"cache_control"`
}

type anthropicChoice struct {
	Type                   string `json:"type"`
	Name                   string `json:"name"`
	DisableParallelToolUse bool   `json:"disable_parallel_tool_use"`
}

type anthropicThinking struct {
	Type         string `json:"type"`
	BudgetTokens *int64 `json:"budget_tokens"`
	Display      string `json:"display"`
}

type anthropicOutput struct {
	Effort string `json:"effort"`
	Format *struct {
		Type   string          `json:"type"`
		Schema json.RawMessage `json:"schema"`
	} `json:"format"`
}

// CheckAnthropicRequest tells what Anthropic's Messages API would refuse in a
// request body, and what requirements N8, N12 and N13 forbid; nil = nothing. It
// is stricter than the API in one thing: roles must alternate.
func CheckAnthropicRequest(body []byte) error {
	var r anthropicRequest
	if err := strict(body, &r); err != nil {
		return err
	}
	switch {
	case r.Model == "":
		return errors.New("model: is missing")
	case r.MaxTokens == nil || *r.MaxTokens < 1:
		return errors.New("max_tokens: must be at least 1")
	case r.Temperature != nil && (*r.Temperature < 0 || *r.Temperature > 1):
		return errors.New("temperature: must be 0 to 1")
	}
	marks := 0
	names, err := r.checkTools(&marks)
	if err != nil {
		return err
	}
	if err := r.checkChoice(names); err != nil {
		return err
	}
	if err := r.checkThinking(); err != nil {
		return err
	}
	if err := r.checkSystem(&marks); err != nil {
		return err
	}
	if err := r.checkMessages(&marks); err != nil {
		return err
	}
	if marks > 4 {
		return fmt.Errorf("cache_control: %d marks, at most 4", marks)
	}
	return nil
}

func (r *anthropicRequest) checkTools(marks *int) (names []string, err error) {
	if r.Tools == nil {
		return nil, nil
	}
	if len(*r.Tools) == 0 {
		return nil, errors.New("tools: must not be empty; leave it out (N8)")
	}
	for i, t := range *r.Tools {
		where := fmt.Sprintf("tools[%d]", i)
		switch {
		case t.Type != "" && t.Type != "custom":
			return nil, fmt.Errorf("%s.type: %q", where, t.Type)
		case !toolName.MatchString(t.Name):
			return nil, fmt.Errorf("%s.name: %q does not match %s", where, t.Name, toolName)
		case slices.Contains(names, t.Name):
			return nil, fmt.Errorf("%s.name: %q twice", where, t.Name)
		case t.Description != nil && blank(*t.Description):
			return nil, fmt.Errorf("%s.description: is blank", where)
		}
		if err := objectSchema(where+".input_schema", t.InputSchema); err != nil {
			return nil, err
		}
		if err := checkCache(t.CacheControl, marks); err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		names = append(names, t.Name)
	}
	if !slices.IsSorted(names) {
		return nil, errors.New("tools: not sorted by name (C5)")
	}
	return names, nil
}

func checkCache(c *anthropicCache, marks *int) error {
	if c == nil {
		return nil
	}
	*marks++
	if c.Type != "ephemeral" || c.TTL != "" && c.TTL != "5m" && c.TTL != "1h" {
		return fmt.Errorf("cache_control: %+v", *c)
	}
	return nil
}

func (r *anthropicRequest) checkChoice(names []string) error {
	if r.ToolChoice == nil {
		return nil
	}
	if len(names) == 0 {
		return errors.New("tool_choice: only allowed with tools")
	}
	switch c := r.ToolChoice; c.Type {
	case "auto", "none":
	case "any", "tool":
		if r.Thinking != nil && r.Thinking.Type != "disabled" {
			return errors.New("tool_choice: a forced tool does not go with thinking")
		}
		if c.Type == "tool" && !slices.Contains(names, c.Name) {
			return fmt.Errorf("tool_choice: %q is not in tools", c.Name)
		}
	default:
		return fmt.Errorf("tool_choice.type: %q", c.Type)
	}
	if r.ToolChoice.Type != "tool" && r.ToolChoice.Name != "" {
		return errors.New("tool_choice.name: only with type tool")
	}
	return nil
}

func (r *anthropicRequest) checkThinking() error {
	t := r.Thinking
	if t == nil {
		return nil
	}
	switch t.Type {
	case "adaptive", "disabled":
		if t.BudgetTokens != nil {
			return errors.New("thinking.budget_tokens: only with type enabled")
		}
	case "enabled":
		if t.BudgetTokens == nil || *t.BudgetTokens < 1024 || *t.BudgetTokens >= *r.MaxTokens {
			return errors.New("thinking.budget_tokens: must be at least 1024 and less than max_tokens")
		}
	default:
		return fmt.Errorf("thinking.type: %q", t.Type)
	}
	if t.Type != "disabled" && r.Temperature != nil && *r.Temperature != 1 {
		return errors.New("temperature: does not go with thinking")
	}
	return nil
}

func (r *anthropicRequest) checkSystem(marks *int) error {
	if r.System == nil {
		return nil
	}
	var text string
	if json.Unmarshal(r.System, &text) == nil {
		return nil
	}
	var blocks []anthropicBlock
	if err := strict(r.System, &blocks); err != nil {
		return fmt.Errorf("system: %w", err)
	}
	for i := range blocks {
		if blocks[i].Type != "text" {
			return fmt.Errorf("system[%d].type: must be text", i)
		}
		if err := blocks[i].check(marks); err != nil {
			return fmt.Errorf("system[%d]: %w", i, err)
		}
	}
	return nil
}

func (r *anthropicRequest) checkMessages(marks *int) error {
	if len(r.Messages) == 0 {
		return errors.New("messages: must not be empty")
	}
	var open, used []string
	role := "assistant"
	for i := range r.Messages {
		m := &r.Messages[i]
		where := fmt.Sprintf("messages[%d]", i)
		if m.Role != "user" && m.Role != "assistant" {
			return fmt.Errorf("%s.role: %q", where, m.Role)
		}
		if m.Role == role {
			return fmt.Errorf("%s.role: two turns of the %s in a row, or no user at the start", where, role)
		}
		role = m.Role
		blocks, err := m.blocks()
		if err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
		for j := range blocks {
			if err := blocks[j].check(marks); err != nil {
				return fmt.Errorf("%s.content[%d]: %w", where, j, err)
			}
		}
		if role == "assistant" {
			open, err = checkCalls(blocks, &used, r.needsThinking() && i == r.lastAssistant())
		} else {
			err = checkResults(blocks, open)
			open = nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
	}
	if role != "user" {
		return errors.New("messages: the last must be the user's (newer models take no prefill)")
	}
	return nil
}

func (r *anthropicRequest) needsThinking() bool {
	return r.Thinking != nil && r.Thinking.Type == "enabled"
}

// lastAssistant is the turn of the assistant that the last message answers with
// results; -1 if that is a plain question.
func (r *anthropicRequest) lastAssistant() int {
	i := len(r.Messages) - 2
	if i < 0 {
		return -1
	}
	last, err := r.Messages[i+1].blocks()
	if err != nil || len(last) == 0 || last[0].Type != "tool_result" {
		return -1
	}
	return i
}

func (m *anthropicMessage) blocks() ([]anthropicBlock, error) {
	var text string
	if json.Unmarshal(m.Content, &text) == nil {
		if blank(text) {
			return nil, errors.New("content: is blank")
		}
		return []anthropicBlock{{Type: "text", Text: &text}}, nil
	}
	var blocks []anthropicBlock
	if err := strict(m.Content, &blocks); err != nil {
		return nil, fmt.Errorf("content: %w", err)
	}
	if len(blocks) == 0 {
		return nil, errors.New("content: is empty")
	}
	return blocks, nil
}

func (b *anthropicBlock) check(marks *int) error {
	if err := checkCache(b.CacheControl, marks); err != nil {
		return err
	}
	switch b.Type {
	case "text":
		if b.Text == nil || blank(*b.Text) {
			return errors.New("text: must hold more than white space")
		}
	case "tool_use":
		switch {
		case !blockID.MatchString(b.ID):
			return fmt.Errorf("id: %q does not match %s", b.ID, blockID)
		case !toolName.MatchString(b.Name):
			return fmt.Errorf("name: %q does not match %s", b.Name, toolName)
		case !jsonObject(b.Input):
			return errors.New("input: must be an object (N13)")
		}
	case "tool_result":
		return b.checkResult()
	case "thinking":
		if b.Thinking == nil || b.Signature == "" {
			return errors.New("thinking: needs thinking and signature")
		}
		if b.CacheControl != nil {
			return errors.New("thinking: takes no cache_control")
		}
	case "redacted_thinking":
		if b.Data == "" {
			return errors.New("redacted_thinking: needs data")
		}
	case "image", "document":
		return b.checkSource()
	default:
		return fmt.Errorf("type: %q", b.Type)
	}
	return nil
}

func (b *anthropicBlock) checkSource() error {
	var source struct {
		Type      string `json:"type"`
		MediaType string `json:"media_type"`
		Data      string `json:"data"`
	}
	if err := strict(b.Source, &source); err != nil {
		return fmt.Errorf("source: %w", err)
	}
	isImage := slices.Contains([]string{"image/png", "image/jpeg", "image/gif", "image/webp"}, source.MediaType)
	switch {
	case source.Data == "":
		return errors.New("source.data: is empty")
	case b.Type == "image" && source.Type == "base64" && isImage:
	case b.Type == "document" && source.Type == "base64" && source.MediaType == "application/pdf":
	case b.Type == "document" && source.Type == "text" && source.MediaType == "text/plain":
	default:
		return fmt.Errorf("source: %s of type %s, media type %s", b.Type, source.Type, source.MediaType)
	}
	return nil
}

func (b *anthropicBlock) checkResult() error {
	if !blockID.MatchString(b.ToolUseID) {
		return fmt.Errorf("tool_use_id: %q", b.ToolUseID)
	}
	if b.Content == nil {
		if b.IsError {
			return errors.New("content: must not be empty with is_error")
		}
		return nil
	}
	var text string
	if json.Unmarshal(*b.Content, &text) == nil {
		if blank(text) {
			return errors.New("content: is blank; leave it out")
		}
		return nil
	}
	var inner []anthropicBlock
	if err := strict(*b.Content, &inner); err != nil {
		return fmt.Errorf("content: %w", err)
	}
	marks := 0
	for i := range inner {
		if b.IsError && inner[i].Type != "text" {
			return errors.New("content: must be text with is_error")
		}
		if err := inner[i].check(&marks); err != nil {
			return fmt.Errorf("content[%d]: %w", i, err)
		}
	}
	return nil
}

func checkCalls(blocks []anthropicBlock, used *[]string, needThinking bool) (open []string, err error) {
	for i := range blocks {
		b := &blocks[i]
		switch b.Type {
		case "tool_result":
			return nil, errors.New("tool_result in a turn of the assistant")
		case "tool_use":
			if slices.Contains(*used, b.ID) {
				return nil, fmt.Errorf("tool_use id %q twice", b.ID)
			}
			*used = append(*used, b.ID)
			open = append(open, b.ID)
		}
	}
	if needThinking && len(open) > 0 && blocks[0].Type != "thinking" && blocks[0].Type != "redacted_thinking" {
		return nil, errors.New("with thinking on, the turn must begin with thinking")
	}
	return open, nil
}

// checkResults wants the results of all calls of the turn before, in one
// message, before anything else in it.
func checkResults(blocks []anthropicBlock, open []string) error {
	text := false
	for i := range blocks {
		b := &blocks[i]
		switch b.Type {
		case "tool_result":
			if text {
				return errors.New("tool_result after other content")
			}
			if len(open) == 0 || open[0] != b.ToolUseID {
				return fmt.Errorf("tool_result for %q, waiting for %q (N12)", b.ToolUseID, open)
			}
			open = open[1:]
		case "tool_use", "thinking", "redacted_thinking":
			return fmt.Errorf("%s in a turn of the user", b.Type)
		default:
			text = true
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("tool_use %q without tool_result right after (N12)", open)
	}
	return nil
}
