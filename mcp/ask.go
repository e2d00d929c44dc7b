package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// Bounds of the questions that a server may ask while a call runs.
const (
	askTool      = "ask_user"
	maxRounds    = 10 // repetitions of one call with the answers
	maxQuestions = 20 // questions of one call
	maxAsked     = 2000
	busyPause    = time.Second
)

// A server's question (elicitation) becomes calls of ask_user that the running call makes, so that it passes the
// gate, and the run's journal has the question and the answer. If no person can answer, or the agent may not ask,
// the server and the model get that answer immediately.

// asker is an in-flight call on whose behalf a server may ask.
type asker struct {
	server string
	call   toolcrib.Call
	number int64           // number of the call
	ctx    context.Context // context of the call: a question ends with it

	mu    sync.Mutex
	asked int
	notes []string // notes for the model
}

// elicit asks the person the questions of a server.
func (a *asker) elicit(ctx context.Context, p *sdk.ElicitParams) *sdk.ElicitResult {
	result := &sdk.ElicitResult{Action: "cancel"}
	if p == nil || a.call.Invoke == nil {
		a.note("the server asked something, and nobody could be asked")
		return result
	}
	var answers map[string]any
	if p.Mode == "url" || p.Mode == "" && p.URL != "" {
		result.Action = a.visit(ctx, p)
	} else {
		answers, result.Action = a.form(ctx, p)
	}
	said := map[string]string{
		"accept": "the person answered", "decline": "the person declined to answer", "cancel": "nobody could be asked",
	}
	a.note(fmt.Sprintf("the server asked %q: %s", oneLine(errors.New(p.Message)), said[result.Action]))
	if result.Action == "accept" {
		result.Content = answers
	}
	return result
}

func (a *asker) note(text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.notes) < maxQuestions {
		a.notes = append(a.notes, "["+text+"]")
	}
}

// told returns the notes for the model about the questions.
func (a *asker) told() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.notes)
}

// visit asks the person to open an address. toolcrib never opens it itself.
func (a *asker) visit(ctx context.Context, p *sdk.ElicitParams) string {
	to, err := url.Parse(p.URL)
	if err != nil || to.Host == "" || to.Scheme != "http" && to.Scheme != "https" || len(p.URL) > maxAsked {
		return "cancel"
	}
	answer, action := a.ask(ctx, p.Message, fmt.Sprintf("It asks you to open this address of %s in your browser:\n%s\n"+
		"Open it only if you expect this. Have you opened it?", to.Hostname(), to), `{"type":"boolean"}`)
	if action == "accept" && answer != true {
		return "decline"
	}
	return action
}

// form asks for each field of a form.
func (a *asker) form(ctx context.Context, p *sdk.ElicitParams) (map[string]any, string) {
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	text, err := json.Marshal(p.RequestedSchema)
	if err != nil || json.Unmarshal(text, &schema) != nil || len(schema.Properties) > maxQuestions {
		return nil, "cancel"
	}
	answers := map[string]any{}
	if len(schema.Properties) == 0 {
		answer, action := a.ask(ctx, p.Message, "Do you agree?", `{"type":"boolean"}`)
		if action == "accept" && answer != true {
			action = "decline"
		}
		return answers, action
	}
	names := make([]string, 0, len(schema.Properties))
	for name := range schema.Properties {
		names = append(names, name)
	}
	needed := func(name string) bool { return slices.Contains(schema.Required, name) }
	slices.SortFunc(names, func(x, y string) int {
		if needed(x) != needed(y) {
			if needed(x) {
				return -1
			}
			return 1
		}
		return strings.Compare(x, y)
	})
	secret := secretFields(p.Message, schema.Properties)
	for _, name := range names {
		var field struct {
			Title       string `json:"title"`
			Description string `json:"description"`
			Default     any    `json:"default"`
			OneOf       []struct {
				Const any    `json:"const"`
				Title string `json:"title"`
			} `json:"oneOf"`
		}
		if json.Unmarshal(schema.Properties[name], &field) != nil {
			return nil, "cancel"
		}
		question, answerSchema := name, string(schema.Properties[name])
		for _, more := range []string{field.Title, field.Description} {
			if more != "" && more != question {
				question += ": " + more
			}
		}
		for _, choice := range field.OneOf {
			if len(question) > maxAsked {
				break // no more is shown
			}
			question += fmt.Sprintf("\n%v: %s", choice.Const, choice.Title)
		}
		if !needed(name) {
			question += " (- leaves it out"
			if field.Default != nil {
				question += fmt.Sprintf("; usual: %v", field.Default)
			}
			question, answerSchema = question+")", `{"anyOf":[`+answerSchema+`,{"const":"-"}]}`
		}
		if secret[name] {
			question, answerSchema = secretWarning+"\n"+question, asSecret(answerSchema)
		}
		answer, action := a.ask(ctx, p.Message, question, answerSchema)
		switch {
		case action != "accept":
			return nil, action
		case needed(name) || answer != "-":
			answers[name] = answer
		}
	}
	return answers, "accept"
}

// ask asks one question. action is the answer for the server.
func (a *asker) ask(ctx context.Context, message, question, schema string) (answer any, action string) {
	a.mu.Lock()
	a.asked++
	enough := a.asked > maxQuestions
	a.mu.Unlock()
	if enough {
		return nil, "cancel"
	}
	a.call.Progress("waits for an answer of the person", -1)
	text := fmt.Sprintf("The MCP server %s asks: %s\n%s", a.server, guard.Clip(guard.Clean(message), maxAsked),
		guard.Clip(guard.Clean(question), maxAsked))
	arguments, err := json.Marshal(map[string]any{"question": text, "schema": guard.CleanJSON(json.RawMessage(schema))})
	if err != nil {
		return nil, "cancel"
	}
	out, err := a.call.Invoke(ctx, askTool, arguments)
	var said struct {
		Answer any `json:"answer"`
	}
	switch {
	case err != nil:
	case out.Status == toolcrib.ResultError, out.Reason == toolcrib.ReasonApprovalDenied:
		return nil, "decline"
	case out.Status == toolcrib.ResultOK && json.Unmarshal([]byte(out.Content), &said) == nil:
		return said.Answer, "accept"
	}
	return nil, "cancel"
}

// elicitation answers a question that a server asks outside its answers, as older servers do. The question belongs
// to the newest in-flight call. If calls of several runs are in flight, it is not known which of them it belongs to,
// and no person is asked.
func (c *Client) elicitation(ctx context.Context, q *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
	var of *asker
	several := false
	c.flights.Range(func(_, v any) bool {
		a := v.(*flight).asker
		several = several || of != nil && of.call.Run != a.call.Run
		if of == nil || a.number > of.number {
			of = a
		}
		return true
	})
	if of == nil || several {
		return &sdk.ElicitResult{Action: "cancel"}, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer context.AfterFunc(of.ctx, func() { cancel(context.Cause(of.ctx)) })()
	defer cancel(nil)
	return of.elicit(ctx, q.Params), nil
}

// rounds makes a call, and repeats it with the answers as long as the server asks for some.
func (a *asker) rounds(ctx context.Context, session *sdk.ClientSession, params *sdk.CallToolParams) (
	*sdk.CallToolResult, error,
) {
	for range maxRounds {
		result, err := session.CallTool(ctx, params)
		next := *params
		next.InputResponses = sdk.InputResponseMap{}
		var rpc *jsonrpc.Error
		switch {
		case errors.As(err, &rpc) && rpc.Code == sdk.CodeURLElicitationRequired:
			var data struct {
				Elicitations []*sdk.ElicitParams `json:"elicitations"`
			}
			if json.Unmarshal(rpc.Data, &data) != nil || len(data.Elicitations) == 0 {
				return nil, err
			}
			for _, p := range data.Elicitations {
				if p == nil || a.elicit(ctx, &sdk.ElicitParams{Mode: "url", Message: p.Message, URL: p.URL}).Action != "accept" {
					return nil, err
				}
			}
			next.InputResponses = nil
		case err != nil || !result.NeedsInput():
			return result, err
		default:
			next.RequestState = result.RequestState
			for id, request := range result.InputRequests {
				p, ok := request.(*sdk.ElicitParams)
				if !ok {
					return nil, errAsksOther
				}
				next.InputResponses[id] = a.elicit(ctx, p)
			}
			if len(result.InputRequests) == 0 { // the server is busy
				select {
				case <-time.After(busyPause):
				case <-ctx.Done():
				}
			}
		}
		if params = &next; ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return nil, errAsksOther
}

var errAsksOther = errors.New("it asks for something that it is not given")
