// Package script plays replies from a YAML file: a model for tests and
// demonstrations that needs no network.
//
// A script is a list of replies. The number of assistant messages in the request
// selects the reply, and nothing else, so that a resumed run
// gets the same reply again, and a request that is retried after an
// error gets the same error:
//
//   - thinking: "The person wants to see a file."
//     tool_calls:
//   - {name: read_file, arguments: {path: notes.txt}, id: call_a}
//     usage: {input: 120, cached_input: 100, output: 12}
//   - {text: "There are three notes.", delay: 50ms}
//   - {error: rate_limit, retry_after: 2s}
//   - {text: "cut off in the mid", finish: length}
//
// Every key is optional. arguments is an object, sent as JSON with its keys in
// their order in the file, or a string, sent unchanged, even if it
// is not JSON. delay passes before the first delta. error ends the reply after its
// text, thinking and tool calls, if it has any: with one of the classes auth,
// rate_limit, overloaded, context_length, bad_request, timeout, network, refused
// and other. finish is stop, tool_calls, length, filtered or other; the default is
// tool_calls if there are any, else stop. Without usage, none is reported.
//
// If a runtime removes messages from the history (condensing it), the number of
// assistant messages falls, and earlier replies are played again.
package script

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/deltas"
	"github.com/toolcrib/toolcrib/internal/safefile"
	"github.com/toolcrib/toolcrib/internal/yamltree"
)

// Options are the options of [New]: the script is in File or in Bytes, not both.
type Options struct {
	Name  string // name of the provider, for errors; if "", script
	File  string // path of a YAML file of at most 1 MiB
	Bytes []byte // the YAML itself, at most 1 MiB
}

// Model plays a script. It is safe for concurrent use.
type Model struct {
	name, file string

	mu     sync.Mutex
	source []byte // source of script
	script []reply
}

// New returns a model that plays the script of o. Bytes are parsed by New. A file is
// read for each request, so an edit takes effect with the next request; a
// missing or invalid one makes the request fail. [Model.Check] checks it beforehand.
func New(o Options) (*Model, error) {
	m := &Model{name: o.Name, file: o.File}
	if m.name == "" {
		m.name = "script"
	}
	switch {
	case o.File != "" && o.Bytes != nil:
		return nil, fmt.Errorf("provider %s: a script is a file or bytes, not both", m.name)
	case o.File != "":
		return m, nil
	case o.Bytes == nil:
		return nil, fmt.Errorf("provider %s: no script given: set file", m.name)
	}
	replies, err := parse(m.shown(), o.Bytes)
	if err != nil {
		return nil, fmt.Errorf("provider %s: %w", m.name, err)
	}
	m.script = replies
	return m, nil
}

// Check reads the script and returns an error, with file and line, if it is invalid.
func (m *Model) Check() error {
	_, err := m.load()
	return err
}

// shown returns the name of the script in errors, without its folder: its reader may be in another folder.
func (m *Model) shown() string {
	if m.file == "" {
		return "script"
	}
	return filepath.Base(m.file)
}

// load returns the current script. A source that has not changed is not parsed again: for a long script, that would
// cost more than the rest of a round.
func (m *Model) load() ([]reply, error) {
	if m.file == "" {
		return m.script, nil
	}
	source, err := safefile.Read(m.file, maxBytes)
	if err != nil {
		return nil, fmt.Errorf("the script %s %w", m.file, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.source == nil || !bytes.Equal(source, m.source) {
		replies, err := parse(m.file, source)
		if err != nil {
			return nil, err
		}
		m.source, m.script = source, replies
	}
	return m.script, nil
}

// Stream plays the reply to the request. It fails with class other if
// the script is invalid or has no such reply, and with ctx's error as soon as ctx
// ends.
func (m *Model) Stream(ctx context.Context, req *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	return func(yield func(toolcrib.Delta, error) bool) {
		r, err := m.due(req)
		if err == nil {
			err = wait(ctx, r.delay)
		}
		if err != nil {
			yield(toolcrib.Delta{}, err)
			return
		}
		for d := range deltas.Of(r.message) {
			if err := ctx.Err(); err != nil {
				yield(toolcrib.Delta{}, err)
				return
			}
			if !yield(d, nil) {
				return
			}
		}
		if r.failure != "" {
			yield(toolcrib.Delta{}, &toolcrib.ModelError{
				Class: r.failure, Provider: m.name, RetryAfter: r.retryAfter,
				Message: fmt.Sprintf("the script %s has this error as reply %d", m.shown(), r.number),
			})
			return
		}
		finish := r.finish
		finish.Model = req.Model
		yield(toolcrib.Delta{Finish: &finish}, nil)
	}
}

// due returns the reply to a request.
func (m *Model) due(req *toolcrib.Request) (reply, error) {
	replies, err := m.load()
	if err != nil {
		return reply{}, &toolcrib.ModelError{
			Class: toolcrib.ErrOther, Provider: m.name, Message: strings.ReplaceAll(err.Error(), m.file, m.shown()),
			Unsent: true, Err: err,
		}
	}
	n := req.Replaced
	for i := range req.Messages {
		if req.Messages[i].Role == toolcrib.RoleAssistant {
			n++
		}
	}
	if n >= len(replies) {
		return reply{}, &toolcrib.ModelError{
			Class: toolcrib.ErrOther, Provider: m.name, Unsent: true,
			Message: fmt.Sprintf("the script %s ends with reply %d; the request needs reply %d", m.shown(), len(replies), n+1),
		}
	}
	return replies[n], nil
}

func wait(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil || d <= 0 {
		return err
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

const maxBytes = 1 << 20 // bytes of a script

var limits = yamltree.Limits{Bytes: maxBytes, Tokens: 200_000, Depth: 64}

// reply is one entry of a script.
type reply struct {
	number     int // from 1
	message    toolcrib.Message
	finish     toolcrib.Finish
	delay      time.Duration
	failure    toolcrib.ErrorClass // "" if it does not fail
	retryAfter time.Duration
}

// written is a reply in the file. A key without a value is ignored.
type written struct {
	Text       string            `yaml:"text" null:"true"`
	Thinking   string            `yaml:"thinking" null:"true"`
	ToolCalls  []call            `yaml:"tool_calls" null:"true"`
	Usage      *usage            `yaml:"usage"`
	Delay      yamltree.Duration `yaml:"delay" null:"true" max:"1h"`
	RetryAfter yamltree.Duration `yaml:"retry_after" null:"true" max:"1h"`
	Error      string            `yaml:"error" null:"true" enum:"auth|rate_limit|overloaded|context_length|bad_request|timeout|network|refused|other"`
	Finish     string            `yaml:"finish" null:"true" enum:"stop|tool_calls|length|filtered|other"`
}

type call struct {
	Name      string    `yaml:"name" required:"true" format:"name"`
	ID        string    `yaml:"id" null:"true"`
	Arguments arguments `yaml:"arguments" null:"true"`
}

type usage struct {
	Input       int64 `yaml:"input" default:"0" min:"0"`
	CachedInput int64 `yaml:"cached_input" default:"0" min:"0"`
	Output      int64 `yaml:"output" default:"0" min:"0"`
}

// arguments are an object, as JSON, or a string, unchanged.
type arguments []byte

// DecodeYAML decodes arguments.
func (a *arguments) DecodeYAML(d *yamltree.Decoder, n *yamltree.Node, f yamltree.Field) {
	switch n.Kind {
	case yamltree.Text:
		*a = arguments(n.Text)
	case yamltree.Map:
		(*yamltree.JSON)(a).DecodeYAML(d, n, f)
	default:
		d.Errorf(n, "must be a mapping, or a text that is sent as it is, not %s", n.Kind)
	}
}

// check returns the problem of an invalid text, or "".
func check(f yamltree.Field, text string) string {
	if f.Format == "name" && text == "" {
		return "must not be empty"
	}
	return ""
}

// parse parses a script. file is its name in errors.
func parse(file string, source []byte) ([]reply, error) {
	root, errs := yamltree.Parse(source, limits)
	d := yamltree.Decoder{Check: check, Errors: errs}
	var replies []reply
	switch {
	case root == nil:
	case root.Kind == yamltree.Null:
		return nil, fmt.Errorf("%s: a script is a list of replies; this one is empty", file)
	case root.Kind != yamltree.List:
		d.Errorf(root, "a script is a list of replies, not %s", root.Kind)
	default:
		for i, n := range root.Items {
			r := read(&d, n)
			r.number = i + 1
			replies = append(replies, r)
		}
	}
	if len(d.Errors) == 0 {
		return replies, nil
	}
	first := d.Errors[0]
	_, key, _ := strings.Cut(first.Key, "]") // the line identifies the reply
	if key = strings.TrimPrefix(key, "."); key != "" {
		key += ": "
	}
	return nil, fmt.Errorf("%s:%d: %s%s", file, first.Line, key, first.Message)
}

func read(d *yamltree.Decoder, n *yamltree.Node) reply {
	var w written
	if d.Decode(n, &w); len(d.Errors) > 0 {
		return reply{}
	}
	r := reply{
		delay: w.Delay.Std(), failure: toolcrib.ErrorClass(w.Error), retryAfter: w.RetryAfter.Std(),
		finish: toolcrib.Finish{Reason: toolcrib.FinishReason(w.Finish)},
	}
	switch {
	case w.Error != "" && w.Finish != "":
		d.Errorf(n, "a reply ends with finish or with error, not with both")
	case w.RetryAfter != 0 && w.Error == "":
		d.Errorf(n, "retry_after goes with error only")
	case w.Usage != nil && w.Usage.CachedInput > w.Usage.Input:
		d.Errorf(n, "usage.cached_input: %d is more than input (%d), of which it is a part", w.Usage.CachedInput,
			w.Usage.Input)
	case w.Usage != nil:
		r.finish.Usage = toolcrib.TokenUsage{
			InputTokens: w.Usage.Input, CachedInputTokens: w.Usage.CachedInput, OutputTokens: w.Usage.Output, Reported: true,
		}
	}
	r.message.Role = toolcrib.RoleAssistant
	if w.Thinking != "" {
		r.message.Parts = append(r.message.Parts, toolcrib.Part{Thinking: &toolcrib.Thinking{Text: w.Thinking}})
	}
	if w.Text != "" {
		r.message.Parts = append(r.message.Parts, toolcrib.Part{Text: w.Text})
	}
	for _, c := range w.ToolCalls {
		made := &toolcrib.ToolCall{ID: c.ID, Name: c.Name, Arguments: []byte("{}")}
		if c.Arguments != nil {
			made.Arguments = json.RawMessage(c.Arguments)
		}
		r.message.Parts = append(r.message.Parts, toolcrib.Part{ToolCall: made})
	}
	if r.finish.Reason == "" {
		r.finish.Reason = deltas.Reason(r.message)
	}
	return r
}
