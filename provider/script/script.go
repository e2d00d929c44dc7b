// Package script plays replies from a YAML file: a model for tests and
// demonstrations that needs no network (contract §4).
//
// A script is a list of replies. Which one is played follows from the number of
// assistant messages in the request and from nothing else, so a run that is
// resumed gets the same reply again, and a request that is sent again after an
// error meets the same error:
//
//   - thinking: "The person wants to see a file."
//     tool_calls:
//   - {name: read_file, arguments: {path: notes.txt}, id: call_a}
//     usage: {input: 120, cached_input: 100, output: 12}
//   - {text: "There are three notes.", delay: 50ms}
//   - {error: rate_limit, retry_after: 2s}
//   - {text: "cut off in the mid", finish: length}
//
// Every key may be left out. arguments is an object, sent as JSON with its keys in
// the order in which they are written, or a string, sent as it is, also where it
// is not JSON. delay passes before the first delta. error ends the reply after its
// text, thinking and tool calls, if it has any: with one of the classes auth,
// rate_limit, overloaded, context_length, bad_request, timeout, network, refused
// and other. finish is stop, tool_calls, length, filtered or other; without it
// tool_calls if there are any, else stop. Without usage nothing is reported.
//
// Where a runtime takes messages out of the history (condensing it), the count of
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

// Options says where the script is: in File or in Bytes, not both.
type Options struct {
	Name  string // of the provider, for error messages; "" = script
	File  string // path of a YAML file of at most 1 MiB
	Bytes []byte // the YAML itself, at most 1 MiB
}

// Model plays a script. It is safe for use by many runs at once.
type Model struct {
	name, file string

	mu     sync.Mutex
	source []byte // what script was read from
	script []reply
}

// New returns a model that plays the script of o. Bytes are read now. A file is
// read at each request, so an edit counts from the next request on; one that is
// missing or broken makes the request fail. [Model.Check] finds that out beforehand.
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

// Check reads the script and returns what is wrong with it, with file and line.
func (m *Model) Check() error {
	_, err := m.load()
	return err
}

// shown is what messages call the script, without its folder: its reader may be in another folder.
func (m *Model) shown() string {
	if m.file == "" {
		return "script"
	}
	return filepath.Base(m.file)
}

// load returns the script as it is now. One with the same bytes is not parsed again: where it is long, that would cost
// more than the rest of a round.
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

// Stream plays the reply that the request is due. It fails with class other if
// the script is broken or has no such reply, and with ctx's error as soon as ctx
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

// due returns the reply that a request gets.
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

const maxBytes = 1 << 20 // of a script

// limits of a script.
var limits = yamltree.Limits{Bytes: maxBytes, Tokens: 200_000, Depth: 64}

// reply is one entry of a script.
type reply struct {
	number     int // from 1
	message    toolcrib.Message
	finish     toolcrib.Finish
	delay      time.Duration
	failure    toolcrib.ErrorClass // "" = none
	retryAfter time.Duration
}

// written is a reply as the file has it. A key without a value counts as not given.
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

// arguments are an object, as JSON, or a string as it is.
type arguments []byte

// DecodeYAML reads arguments.
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

// check says what is wrong with a text.
func check(f yamltree.Field, text string) string {
	if f.Format == "name" && text == "" {
		return "must not be empty"
	}
	return ""
}

// parse reads a script. file is the name that its errors use.
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
	_, key, _ := strings.Cut(first.Key, "]") // its line says which reply
	if key = strings.TrimPrefix(key, "."); key != "" {
		key += ": "
	}
	return nil, fmt.Errorf("%s:%d: %s%s", file, first.Line, key, first.Message)
}

// read reads one entry of the list.
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
