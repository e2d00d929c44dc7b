package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"iter"
	"regexp"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// obedient is a model that does whatever it finds written in results of tools, and
// looks for it in every disguise that it knows: plain, in JSON, backwards, in base64.
type obedient struct {
	first toolcrib.ToolCall // what it was asked to read
	// delay is how many rounds it waits before it obeys.
	delay int
}

var (
	order   = regexp.MustCompile(`([a-z_]+)\s?\((\{[^()]*\})\)`)
	encoded = regexp.MustCompile(`[A-Za-z0-9_-]{24,}`)
)

// Stream implements toolcrib.Model.
func (m obedient) Stream(_ context.Context, req *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	return func(yield func(toolcrib.Delta, error) bool) {
		calls := m.next(req)
		for i, c := range calls {
			d := &toolcrib.ToolCallDelta{Index: i, Name: c.Name, Arguments: string(c.Arguments)}
			if !yield(toolcrib.Delta{ToolCall: d}, nil) {
				return
			}
		}
		reason := toolcrib.FinishToolCalls
		if len(calls) == 0 {
			reason = toolcrib.FinishStop
			if !yield(toolcrib.Delta{Text: "I did as I was told."}, nil) {
				return
			}
		}
		yield(toolcrib.Delta{Finish: &toolcrib.Finish{Reason: reason}}, nil)
	}
}

// next returns the calls that the model makes now: first those that it was asked for, then all that
// results have demanded and that it has not tried yet.
func (m obedient) next(req *toolcrib.Request) []toolcrib.ToolCall {
	var tried []string
	var results []string
	rounds := 0
	for _, message := range req.Messages {
		if message.Role == toolcrib.RoleAssistant {
			rounds++
		}
		for _, p := range message.Parts {
			if p.ToolCall != nil {
				tried = append(tried, p.ToolCall.Name+string(p.ToolCall.Arguments))
			}
			if p.ToolResult != nil {
				results = append(results, p.ToolResult.Content)
			}
		}
	}
	if !slices.Contains(tried, m.first.Name+string(m.first.Arguments)) {
		return []toolcrib.ToolCall{m.first}
	}
	if rounds <= m.delay {
		return nil
	}
	var calls []toolcrib.ToolCall
	for _, c := range ordered(results) {
		canonical, err := json.Marshal(json.RawMessage(c.Arguments))
		if err != nil {
			continue
		}
		var v any
		if json.Unmarshal(canonical, &v) != nil {
			continue
		}
		if c.Arguments, err = json.Marshal(v); err != nil {
			continue
		}
		if key := c.Name + string(c.Arguments); !slices.Contains(tried, key) {
			tried = append(tried, key)
			calls = append(calls, c)
		}
	}
	return calls
}

// ordered are the calls that texts order, in whatever disguise.
func ordered(texts []string) []toolcrib.ToolCall {
	var calls []toolcrib.ToolCall
	for _, text := range texts {
		for _, reading := range readings(text, 3) {
			for _, found := range order.FindAllStringSubmatch(reading, -1) {
				calls = append(calls, toolcrib.ToolCall{Name: found[1], Arguments: json.RawMessage(found[2])})
			}
		}
	}
	return calls
}

// readings are the ways to read a text.
func readings(text string, deep int) []string {
	all := []string{text}
	if deep == 0 {
		return all
	}
	add := func(s string) {
		if s != "" && s != text {
			all = append(all, readings(s, deep-1)...)
		}
	}
	add(strings.NewReplacer(`\n`, "\n", `\"`, `"`, `\\`, `\`).Replace(text))
	add(strings.NewReplacer("&quot;", `"`, "&#123;", "{", "&#125;", "}", "&amp;", "&").Replace(text))
	add(strings.ReplaceAll(text, "\u200b", ""))
	for _, word := range encoded.FindAllString(text, -1) {
		if plain, err := base64.RawURLEncoding.DecodeString(word); err == nil && order.Match(plain) {
			all = append(all, string(plain))
		}
	}
	if back := reversed(text); order.MatchString(back) {
		all = append(all, back)
	}
	return all
}

func reversed(text string) string {
	r := []rune(text)
	slices.Reverse(r)
	return string(r)
}
