package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcrib/toolcrib"
)

// Tool returns a tool for a definition. A call fails if the server defines the tool differently by then.
func (c *Client) Tool(d Definition) toolcrib.Tool {
	t := &tool{client: c, def: d}
	if c.server.Confirm {
		return &asking{t}
	}
	return t
}

type tool struct {
	client *Client
	def    Definition
}

// flight is a call that the server has not answered yet.
type flight struct {
	tell  func(*sdk.ProgressNotificationParams)
	asker *asker
}

// asking is a tool of which a person is asked about each call.
type asking struct{ *tool }

// Spec returns the spec of the tool for the gate.
func (t *asking) Spec() toolcrib.Spec {
	spec := t.tool.Spec()
	spec.Plans.Concerns = true
	return spec
}

// Plan returns a plan with the concern that makes the gate ask.
func (t *asking) Plan(_ context.Context, call toolcrib.Call) (*toolcrib.Plan, error) {
	why := fmt.Sprintf("is a tool of the MCP server %s, of which each call is asked about", t.client.server.Name)
	return &toolcrib.Plan{
		Concerns: []toolcrib.Concern{{Reason: toolcrib.ReasonNeedsConfirmation, Why: why}},
		Run: func(ctx context.Context, c toolcrib.Call) (toolcrib.Output, error) {
			c.Arguments = call.Arguments
			return t.tool.Call(ctx, c)
		},
	}, nil
}

// Spec returns the spec of the tool for the gate. The server's own claims are used only if an administrator trusts
// it.
func (t *tool) Spec() toolcrib.Spec {
	s := &t.client.server
	spec := toolcrib.Spec{
		Name: t.def.Name, Description: t.def.Description, Parameters: t.def.Schema,
		Effect: toolcrib.EffectNonIdempotentWrite, Group: s.source(), Source: s.source(), EnabledByDefault: true,
		Untrusted: !s.Trusted, Sink: true, Timeout: s.Timeout,
	}
	if s.Trusted && t.def.ReadOnly {
		spec.Effect, spec.Sink = toolcrib.EffectReadOnly, !t.def.Closed
	}
	return spec
}

// Call sends the call to the server, and waits for its answer or the end of ctx, of which the server is notified. If
// the server has forgotten its session, the call is repeated in the next one, unless it may change something: such a
// call is never repeated unasked, whatever the server says that it did.
func (t *tool) Call(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	out, err := t.send(ctx, call)
	if !errors.Is(err, errForgotten) || ctx.Err() != nil || t.Spec().Effect == toolcrib.EffectNonIdempotentWrite {
		return out, err
	}
	if out, err = t.send(ctx, call); errors.Is(err, errForgotten) { // it is about the call, not about its session
		err = t.client.fails("refused the call in a new session, too; whether the call took effect is not known", err)
	}
	return out, err
}

func (t *tool) send(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	c := t.client
	session, err := c.current(ctx)
	if ctx.Err() != nil {
		return toolcrib.Output{}, context.Cause(ctx)
	}
	if err != nil {
		return toolcrib.Output{}, c.fails("does not run", err)
	}
	if !c.still(t.def) {
		return toolcrib.Output{}, c.fails("defines this tool in another way now, so it must be reviewed first", nil)
	}
	select {
	case c.calls <- struct{}{}:
	default:
		c.restart(session)
		return toolcrib.Output{}, c.fails("does not answer its calls, and is started again", nil)
	}
	if call.Progress == nil {
		call.Progress = func(string, float64) {}
	}
	asks := &asker{server: c.server.Name, call: call, number: c.tokens.Add(1), ctx: ctx}
	token := "call-" + strconv.FormatInt(asks.number, 10)
	if call.Alive == nil {
		call.Alive = func() {}
	}
	c.flights.Store(token, &flight{tell: tell(&call), asker: asks})
	defer c.flights.Delete(token)
	params := &sdk.CallToolParams{Name: t.def.Tool, Arguments: call.Arguments}
	params.SetProgressToken(token)
	result, err := within(ctx, func() (*sdk.CallToolResult, error) {
		defer func() { <-c.calls }()
		return asks.rounds(ctx, session, params)
	})
	var no *refused
	rpc := answered(err)
	long, isLong := tooLong(rpc)
	switch signIn := (*toolcrib.Error)(nil); {
	case ctx.Err() != nil:
		return toolcrib.Output{}, context.Cause(ctx)
	case errors.Is(err, errForgotten):
		c.restart(session)
		return toolcrib.Output{}, c.fails("says that it no longer knows its session, so it has not carried out the call; the next call begins a new one", err)
	case errors.Is(err, errAsksOther):
		return toolcrib.Output{}, c.fails("asks for something that it is not given", nil)
	case err == nil:
		return t.output(result, asks.told()), nil
	case errors.As(err, &no):
		return toolcrib.Output{}, c.fails(no.say(), err)
	case errors.As(err, &signIn):
		return toolcrib.Output{}, c.fails("was not used: "+signIn.Message, err)
	case isLong:
		return toolcrib.Output{}, c.fails(long+"; ask it for less", nil)
	case rpc != nil:
		// The text is the server's own, so it is a result, marked as such, and not an error of toolcrib.
		text := strings.Join(append(asks.told(), rpc.Message), "\n")
		return toolcrib.Output{Text: text, IsError: true, Source: c.server.source()}, nil
	}
	what := "gave an answer that cannot be read"
	var gone *jsonrpc.Error
	if errors.As(err, &gone) || errors.Is(err, sdk.ErrConnectionClosed) || errors.Is(err, io.EOF) {
		what = "ended before it answered"
	}
	return toolcrib.Output{}, c.fails(what+"; whether the call took effect is not known", err)
}

// answered returns the error that the server answered. It returns nil for an error of the SDK: the server was not
// reached, or its answer did not come.
func answered(err error) *jsonrpc.Error {
	switch e := err.(type) {
	case nil:
		return nil
	case *jsonrpc.Error:
		const closing, rejected = -32003, -32005
		if e.Code <= closing && e.Code >= rejected {
			return nil
		}
		return e
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			if found := answered(one); found != nil {
				return found
			}
		}
		return nil
	}
	return answered(errors.Unwrap(err))
}

// fails returns an error about the server. The server's own text is for the operator only.
func (c *Client) fails(what string, err error) error {
	failure := toolcrib.Failf(toolcrib.ExecutionFailed, "the MCP server %s %s", c.server.Name, what)
	failure.Err = err
	return failure
}

// still reports whether the server defines a tool as before.
func (c *Client) still(d Definition) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.defs {
		if c.defs[i].Name == d.Name {
			return bytes.Equal(c.defs[i].Text, d.Text)
		}
	}
	return false
}

// restart makes run begin another session in place of one that does not answer, or that the server has forgotten.
func (c *Client) restart(session *sdk.ClientSession) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == session { // calls wait for the next
		c.again()
		c.session, c.up = nil, make(chan struct{})
	}
}

// tell returns a function that passes progress on. The timeout begins again whenever the progress increases.
func tell(call *toolcrib.Call) func(*sdk.ProgressNotificationParams) {
	progress, alive, last := call.Progress, call.Alive, math.Inf(-1)
	var mu sync.Mutex
	return func(p *sdk.ProgressNotificationParams) {
		mu.Lock()
		defer mu.Unlock()
		if p.Progress > last { // it must increase (MCP, Progress)
			last = p.Progress
			alive()
		}
		fraction := -1.0
		if p.Total > 0 && p.Progress >= 0 {
			fraction = min(p.Progress/p.Total, 1)
		}
		progress(p.Message, fraction)
	}
}

// output returns the result of the server's answer. told are texts that precede it. A server may send the same data
// as text, for older clients, and as a value, for newer ones; the result has it once.
func (t *tool) output(r *sdk.CallToolResult, told []string) toolcrib.Output {
	out := toolcrib.Output{IsError: r.IsError, Source: t.client.server.source()}
	said := contents(&out, nil, r.Content)
	texts, value := append(told, said...), r.StructuredContent
	structured, err := json.Marshal(value)
	inText, inValue := repeated(said, value)
	if value == nil || err != nil || inText {
		out.Text = strings.Join(texts, "\n")
		return out
	}
	if text := strings.Join(said, "\n"); equalJSON(text, value) {
		structured = []byte(text) // the text keeps its numbers as they are; those of the value are floats
	}
	if inValue {
		texts = told
	}
	if out.JSON = structured; len(texts) > 0 {
		out.JSON, err = json.Marshal(map[string]any{
			"text": strings.Join(texts, "\n"), "structured": json.RawMessage(structured),
		})
		if err != nil {
			out.JSON, out.Text = nil, strings.Join(texts, "\n")
		}
	}
	return out
}

// repeated reports whether the texts contain all of a value, or the value all of the texts.
func repeated(texts []string, value any) (inText, inValue bool) {
	text := strings.TrimSpace(strings.Join(texts, "\n"))
	if text == "" || json.Valid([]byte(text)) { // the value in another form
		return false, true
	}
	var leaves []any
	var parts []any // parts of the value that a text may be equal to, as JSON
	var look func(v any, depth int)
	look = func(v any, depth int) {
		if depth <= 2 {
			parts = append(parts, v)
		}
		switch v := v.(type) {
		case map[string]any:
			for _, member := range v {
				look(member, depth+1)
			}
		case []any:
			for _, element := range v {
				look(element, depth+1)
			}
		default:
			leaves = append(leaves, v)
		}
	}
	look(value, 0)
	is := func(leaf any, text string) bool {
		said, ok := leaf.(string)
		return ok && strings.TrimSpace(said) == strings.TrimSpace(text)
	}
	known := func(text string) bool {
		if slices.ContainsFunc(leaves, func(leaf any) bool { return is(leaf, text) }) {
			return true
		}
		var read any
		return len(parts) <= maxParts && json.Unmarshal([]byte(text), &read) == nil &&
			slices.ContainsFunc(parts, func(part any) bool { return reflect.DeepEqual(read, part) })
	}
	if len(leaves) == 1 && is(leaves[0], text) {
		return true, false
	}
	if at := strings.IndexAny(text, "{["); at >= 0 && equalJSON(strings.TrimRight(text[at:], "` \n"), value) {
		return true, false
	}
	unknown := func(text string) bool { return !known(text) }
	return false, known(text) || len(texts) <= maxParts && !slices.ContainsFunc(texts, unknown)
}

// maxParts bounds the parts of a result that are compared.
const maxParts = 100

// equalJSON reports whether a text is the JSON of a value.
func equalJSON(text string, value any) bool {
	var read any
	return json.Unmarshal([]byte(text), &read) == nil && reflect.DeepEqual(read, value)
}

// contents adds the texts that a server sent to texts, and images and documents to the result.
func contents(out *toolcrib.Output, texts []string, list []sdk.Content) []string {
	for _, content := range list {
		switch c := content.(type) {
		case *sdk.TextContent:
			texts = append(texts, c.Text)
		case *sdk.ImageContent:
			texts = attach(out, texts, c.MIMEType, "", c.Data)
		case *sdk.AudioContent:
			texts = append(texts, fmt.Sprintf("[audio of %d bytes is left out]", len(c.Data)))
		case *sdk.ResourceLink:
			texts = append(texts, fmt.Sprintf("[resource %s: %s]", c.Name, c.URI))
		case *sdk.EmbeddedResource:
			if c.Resource == nil {
				continue
			}
			if c.Resource.Blob == nil {
				texts = append(texts, fmt.Sprintf("[resource %s]\n%s", c.Resource.URI, c.Resource.Text))
				continue
			}
			texts = attach(out, texts, c.Resource.MIMEType, c.Resource.URI, c.Resource.Blob)
		}
	}
	return texts
}

// attach adds an image or document to the result, or a line to texts which says that it is left out.
func attach(out *toolcrib.Output, texts []string, mediaType, name string, data []byte) []string {
	if !strings.HasPrefix(mediaType, "image/") && mediaType != "application/pdf" || len(data) > toolcrib.MaxFileBytes ||
		len(out.Files) >= toolcrib.MaxOutputFiles {
		return append(texts, fmt.Sprintf("[%q of %d bytes is left out]", mediaType, len(data)))
	}
	out.Files = append(out.Files, toolcrib.OutputFile{MediaType: mediaType, Name: name, Data: data})
	return texts
}
