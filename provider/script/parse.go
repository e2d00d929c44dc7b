package script

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/deltas"
)

const (
	maxBytes = 1 << 20   // of a script
	maxDepth = 64        // of nested objects and lists in arguments
	maxDelay = time.Hour // of delay and retry_after
)

// reply is one entry of a script.
type reply struct {
	number     int // from 1
	message    toolcrib.Message
	finish     toolcrib.Finish
	delay      time.Duration
	failure    toolcrib.ErrorClass // "" = none
	retryAfter time.Duration
}

// document reads the nodes of one script; its errors name file, line and key.
type document struct{ file string }

func (d document) errorf(n ast.Node, key, format string, args ...any) error {
	at := d.file
	if n != nil && n.GetToken() != nil {
		at = fmt.Sprintf("%s:%d", d.file, n.GetToken().Position.Line)
	}
	if key != "" {
		at += ": " + key
	}
	return fmt.Errorf("%s: %s", at, fmt.Sprintf(format, args...))
}

// parse reads a script. file is the name that its errors use.
func parse(file string, source []byte) ([]reply, error) {
	d := document{file}
	if line := tooDeep(source); line > 0 {
		return nil, fmt.Errorf("%s:%d: nested deeper than %d levels", file, line, maxDepth)
	}
	f, err := parser.ParseBytes(source, 0)
	if err != nil {
		return nil, d.syntax(err)
	}
	switch {
	case len(f.Docs) > 1:
		return nil, d.errorf(f.Docs[1].Body, "", "a script is one YAML document, not several")
	case len(f.Docs) == 0 || f.Docs[0].Body == nil:
		return nil, fmt.Errorf("%s: a script is a list of replies; this one is empty", file)
	}
	list, ok := f.Docs[0].Body.(*ast.SequenceNode)
	if !ok {
		return nil, d.errorf(f.Docs[0].Body, "", "a script is a list of replies, not %s", kind(f.Docs[0].Body))
	}
	replies := make([]reply, 0, len(list.Values))
	for i, n := range list.Values {
		r, err := d.reply(n)
		if err != nil {
			return nil, err
		}
		r.number = i + 1
		replies = append(replies, r)
	}
	return replies, nil
}

// syntax turns an error of the YAML parser into one line with file and line.
func (d document) syntax(err error) error {
	var at yaml.Error
	if errors.As(err, &at) && at.GetToken() != nil {
		return fmt.Errorf("%s:%d: %s", d.file, at.GetToken().Position.Line, at.GetMessage())
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return fmt.Errorf("%s: %s", d.file, text)
}

// reply reads one entry of the list.
func (d document) reply(n ast.Node) (reply, error) {
	var (
		r              reply
		text, thinking string
		calls          []toolcrib.Part
	)
	err := d.fields(n, "reply", map[string]func(string, ast.Node) error{
		"text":        d.text(&text),
		"thinking":    d.text(&thinking),
		"tool_calls":  func(key string, n ast.Node) (err error) { calls, err = d.calls(key, n); return err },
		"usage":       func(key string, n ast.Node) error { return d.usage(key, n, &r.finish.Usage) },
		"delay":       d.duration(&r.delay),
		"retry_after": d.duration(&r.retryAfter),
		"error":       func(key string, n ast.Node) (err error) { r.failure, err = d.class(key, n); return err },
		"finish":      func(key string, n ast.Node) (err error) { r.finish.Reason, err = d.reason(key, n); return err },
	})
	if err != nil {
		return reply{}, err
	}
	switch {
	case r.failure != "" && r.finish.Reason != "":
		return reply{}, d.errorf(n, "finish", "a reply ends with finish or with error, not with both")
	case r.retryAfter != 0 && r.failure == "":
		return reply{}, d.errorf(n, "retry_after", "goes with error only")
	}
	r.message.Role = toolcrib.RoleAssistant
	if thinking != "" {
		r.message.Parts = append(r.message.Parts, toolcrib.Part{Thinking: &toolcrib.Thinking{Text: thinking}})
	}
	if text != "" {
		r.message.Parts = append(r.message.Parts, toolcrib.Part{Text: text})
	}
	r.message.Parts = append(r.message.Parts, calls...)
	if r.finish.Reason == "" {
		r.finish.Reason = deltas.Reason(r.message)
	}
	return r, nil
}

func (d document) calls(key string, n ast.Node) ([]toolcrib.Part, error) {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		return nil, d.errorf(n, key, "must be a list of calls, not %s", kind(n))
	}
	var parts []toolcrib.Part
	for i, n := range list.Values {
		call := toolcrib.ToolCall{Arguments: []byte("{}")}
		item := fmt.Sprintf("%s[%d]", key, i)
		err := d.fields(n, item, map[string]func(string, ast.Node) error{
			"name":      d.text(&call.Name),
			"id":        d.text(&call.ID),
			"arguments": func(key string, n ast.Node) (err error) { call.Arguments, err = d.arguments(key, n); return err },
		})
		if err != nil {
			return nil, err
		}
		if call.Name == "" {
			return nil, d.errorf(n, item+".name", "missing: which tool is called?")
		}
		parts = append(parts, toolcrib.Part{ToolCall: &call})
	}
	return parts, nil
}

// arguments reads an object as JSON and a string as it is.
func (d document) arguments(key string, n ast.Node) ([]byte, error) {
	if text, ok := text(n); ok {
		return []byte(text), nil
	}
	if _, ok := entries(n); !ok {
		return nil, d.errorf(n, key, "must be an object, or a string that is sent as it is, not %s", kind(n))
	}
	var b bytes.Buffer
	if err := d.json(&b, key, n, 0); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func (d document) usage(key string, n ast.Node, u *toolcrib.TokenUsage) error {
	err := d.fields(n, key, map[string]func(string, ast.Node) error{
		"input":        d.number(&u.InputTokens),
		"cached_input": d.number(&u.CachedInputTokens),
		"output":       d.number(&u.OutputTokens),
	})
	if err != nil {
		return err
	}
	if u.CachedInputTokens > u.InputTokens {
		return d.errorf(n, key+".cached_input", "%d is more than input (%d), of which it is a part", u.CachedInputTokens, u.InputTokens)
	}
	u.Reported = true
	return nil
}

func (d document) class(key string, n ast.Node) (toolcrib.ErrorClass, error) {
	name, _ := text(n)
	switch c := toolcrib.ErrorClass(name); c {
	case toolcrib.ErrAuth, toolcrib.ErrRateLimit, toolcrib.ErrOverloaded, toolcrib.ErrContextLength,
		toolcrib.ErrBadRequest, toolcrib.ErrTimeout, toolcrib.ErrNetwork, toolcrib.ErrRefused, toolcrib.ErrOther:
		return c, nil
	}
	return "", d.errorf(n, key, "unknown class %s; known are auth, rate_limit, overloaded, context_length, "+
		"bad_request, timeout, network, refused, other", shown(n))
}

func (d document) reason(key string, n ast.Node) (toolcrib.FinishReason, error) {
	name, _ := text(n)
	switch r := toolcrib.FinishReason(name); r {
	case toolcrib.FinishStop, toolcrib.FinishToolCalls, toolcrib.FinishLength, toolcrib.FinishFiltered, toolcrib.FinishOther:
		return r, nil
	}
	return "", d.errorf(n, key, "unknown reason %s; known are stop, tool_calls, length, filtered, other", shown(n))
}

// tooDeep returns the first line on which brackets or list dashes nest so deeply
// that the YAML parser would take very long over them; 0 = none. It only counts,
// so brackets inside of texts count too; hence the wide margin.
func tooDeep(source []byte) int {
	const margin = 16
	line, open, dashes, dashed := 1, 0, 0, true
	for i, c := range source {
		switch c {
		case '\n':
			line, dashes, dashed = line+1, 0, true
			continue
		case '[', '{':
			open++
		case ']', '}':
			open = max(open-1, 0)
		case '-', '?':
			if dashed && i+1 < len(source) && source[i+1] == ' ' {
				dashes++
			}
		}
		if open > maxDepth*margin || dashes > maxDepth {
			return line
		}
		dashed = dashed && (c == ' ' || c == '-' || c == '?')
	}
	return 0
}
