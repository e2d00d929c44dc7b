package serve

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
)

// inputName is the name of the input that a client is asked for.
const inputName = "toolcrib"

// multiRound is the first version of the protocol in which a call ends with its questions, and is made again with
// the answers. In older versions the server asks while the call is in flight.
const multiRound = "2026-07-28"

// askedFor is how long a client may take to answer. After that the call waits for a person at toolcrib.
const askedFor = 15 * time.Minute

// elicit asks the client while the call of ctx is in flight, and as long as its run is.
func (s *Server) elicit(ctx, run context.Context, to *sdk.ServerSession, ask *sdk.ElicitParams) (
	*sdk.ElicitResult, error,
) {
	ctx, cancel := context.WithTimeout(ctx, askedFor)
	defer cancel()
	defer context.AfterFunc(s.there, cancel)()
	defer context.AfterFunc(run, cancel)()
	return to.Elicit(ctx, ask)
}

// maxAsked bounds the text of a question to a client, in bytes. A longer text might not be shown whole.
const maxAsked = 16 << 10

// asks returns the question to the client about a call, or nil if only a person at toolcrib can answer it.
func (s *Server) asks(req *sdk.CallToolRequest, out *service.Served) *sdk.ElicitParams {
	if out.State == "" || !s.canAsk(req) {
		return nil
	}
	if out.Waits.Kind == journal.ApprovalInput {
		return asked(guard.Visible(out.Waits.Question), questionSchema(out.Waits.Schema))
	}
	return asked(approvalText(out.Waits), json.RawMessage(approvalSchema))
}

// canAsk reports whether the client's person can be asked.
func (s *Server) canAsk(req *sdk.CallToolRequest) bool {
	said, ok := req.Params.Meta[sdk.MetaKeyClientCapabilities].(map[string]any)
	if ok && said["elicitation"] == nil {
		return false // avoids decoding them again
	}
	caps := req.ClientCapabilities()
	return !s.NoElicit && caps != nil && caps.Elicitation != nil &&
		(caps.Elicitation.Form != nil || caps.Elicitation.URL == nil)
}

// asked returns a form, or nil if the client cannot show it.
func asked(message string, schema json.RawMessage) *sdk.ElicitParams {
	if schema == nil || len(message) > maxAsked {
		return nil
	}
	return &sdk.ElicitParams{Mode: "form", Message: message, RequestedSchema: schema}
}

// behind asks the client the questions that arise while a call is in flight, such as those of a server behind
// toolcrib. For a question that the call itself waits for, see [Server.asks].
type behind struct {
	ask  func(context.Context, *sdk.ElicitParams) (*sdk.ElicitResult, error)
	name string
	put  map[string]int // number of times, by approval
}

// maxPut is how many times a client is asked the same question if its answers are not valid.
const maxPut = 3

// Answer implements [service.Person].
func (b *behind) Answer(ctx context.Context, q service.Question) (a service.Answer, ok bool, err error) {
	if b.put[q.Ask.ApprovalID]++; !q.Nested || q.Ask.Kind != journal.ApprovalInput || b.put[q.Ask.ApprovalID] > maxPut {
		return a, false, nil
	}
	schema := questionSchema(q.Ask.Schema)
	if schema == nil {
		schema = questionSchema(nil) // any text, which is read as JSON if it is valid as such
	}
	ask := asked(guard.Visible(strings.TrimSpace(q.Ask.Question+"\n"+q.Problem)), schema)
	if ask == nil {
		return a, false, nil
	}
	said, err := b.ask(ctx, ask)
	if err != nil {
		return a, false, ctx.Err() // a client that does not answer does not decide
	}
	word := answerOf(said)
	a = service.Answer{Decision: word.Decision, Text: string(word.Value), Client: b.name}
	var text string
	if json.Unmarshal(word.Value, &text) == nil {
		a.Text = text
	}
	return a, word.Decision != "", nil
}

// round is a call that continues while its client is asked. The client makes the call again with the answer.
type round struct {
	s     *Server
	call  *service.ServedCall
	ctx   context.Context // context of the run
	end   context.CancelCauseFunc
	asks  chan *sdk.CallToolResult // questions for the request that waits
	said  chan *sdk.ElicitResult
	asked int
	done  chan struct{} // closed when out and err are set
	out   *service.Served
	err   error
}

// question is a question that a call waits for.
type question struct {
	*round
	put *sdk.CallToolResult
}

// rounds has the calls that ask in rounds.
type rounds struct {
	questions sync.Map // *question by its state
	open      atomic.Int64
	running   sync.WaitGroup
}

const (
	roundState = "round."
	// maxRounds is the maximum number of times that a call is made. Official clients make it up to ten times.
	maxRounds = 10
)

var errNoRound = toolcrib.Errorf(toolcrib.CodeBadRequest, "requestState: no call waits for this answer, or no longer")

// wait waits until no call is in flight, or until limit has passed.
func (r *rounds) wait(limit time.Duration) {
	none := make(chan struct{})
	go func() {
		r.running.Wait()
		close(none)
	}()
	select {
	case <-none:
	case <-time.After(limit):
	}
}

// round returns a call that asks in rounds.
func (s *Server) round(call *service.ServedCall) *round {
	r := &round{
		s: s, call: call, asks: make(chan *sdk.CallToolResult), said: make(chan *sdk.ElicitResult, 1),
		done: make(chan struct{}),
	}
	r.ctx, r.end = context.WithCancelCause(s.ctx)
	return r
}

// goes executes the call in the background.
func (r *round) goes(work func(context.Context) (*service.Served, error)) {
	r.s.rounds.running.Go(func() {
		defer close(r.done)
		r.out, r.err = work(r.ctx)
		r.end(nil)
	})
}

// underWay returns the question that a call answers or asks about again, or nil.
func (s *Server) underWay(state string, call *service.ServedCall) *question {
	v, _ := s.rounds.questions.Load(state)
	q, ok := v.(*question)
	if !ok || q.call.Name != call.Name {
		return nil
	}
	before, err := guard.Arguments(q.call.Arguments)
	now, wrong := guard.Arguments(call.Arguments)
	if err != nil || wrong != nil || !bytes.Equal(before, now) {
		return nil
	}
	return q
}

// puts answers the request that waits with the question, and waits for the request that has the answer.
func (r *round) puts(ctx context.Context, ask *sdk.ElicitParams) (*sdk.ElicitResult, error) {
	all := &r.s.rounds
	defer all.open.Add(-1)
	if r.asked++; all.open.Add(1) > MaxCalls || r.asked >= maxRounds {
		return nil, errGone
	}
	state := roundState + rand.Text()
	q := &question{r, &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{inputName: ask}, RequestState: state}}
	all.questions.Store(state, q)
	ctx, cancel := context.WithTimeout(ctx, askedFor)
	defer cancel()
	defer context.AfterFunc(r.s.there, cancel)()
	select {
	case r.asks <- q.put:
	case <-ctx.Done():
	}
	select {
	case said := <-r.said:
		return said, nil
	case <-ctx.Done():
	}
	if all.questions.CompareAndDelete(state, q) {
		r.asked = maxRounds // no request waits for the next question
		return nil, errGone
	}
	return <-r.said, nil // the answer has just come
}

// An approval requires a decision in the form, so that accepting the form is not enough.
const approvalSchema = `{"type":"object","properties":{"decision":{"type":"string","title":"Decision",` +
	`"description":"approve lets it run once","enum":["approve","deny"]},` +
	`"reason":{"type":"string","title":"Reason","description":"for the model, may be empty","maxLength":1000}},` +
	`"required":["decision"]}`

// approvalText returns the whole approval as the person at the client reads it.
func approvalText(ask *journal.ConfirmationRequired) string {
	var b strings.Builder
	b.WriteString("May this run?\n")
	for _, c := range ask.Calls {
		fmt.Fprintf(&b, "\n%s %s\n", c.Name, c.Arguments)
		if c.Reason != "" {
			fmt.Fprintf(&b, "why you are asked: %s\n", c.Reason)
		}
		if c.Changed != "" {
			fmt.Fprintf(&b, "changed since: %s\n", c.Changed)
		}
		if c.Preview != nil && c.Preview.Text != "" {
			fmt.Fprintf(&b, "\n%s\n", c.Preview.Text)
		}
	}
	return guard.Visible(b.String())
}

// questionSchema returns the schema of a form with one field for an answer, or nil if clients do not support such a
// field.
func questionSchema(schema json.RawMessage) json.RawMessage {
	field := map[string]json.RawMessage{"type": json.RawMessage(`"string"`)}
	if len(schema) > 0 {
		if json.Unmarshal(schema, &field) != nil {
			return nil
		}
		switch string(field["type"]) {
		case `"string"`, `"number"`, `"integer"`, `"boolean"`:
		default:
			return nil
		}
	}
	for name := range field {
		switch name {
		case "type", "title", "description", "enum", "minimum", "maximum", "minLength", "maxLength", "default":
		default:
			delete(field, name) // forms do not support it; the answer is checked against the whole schema
		}
	}
	field["title"] = json.RawMessage(`"Answer"`)
	form, err := json.Marshal(map[string]any{
		"type": "object", "properties": map[string]any{"answer": field}, "required": []string{"answer"},
	})
	if err != nil {
		return nil
	}
	return form
}

// answerOf returns the answer of the client. A form that was accepted without a decision, or was closed, has no
// decision.
func answerOf(r *sdk.ElicitResult) service.ServedAnswer {
	switch {
	case r == nil: // it has no answer, so the question is asked again
		return service.ServedAnswer{Again: true}
	case r.Action == "decline":
		return service.ServedAnswer{Decision: journal.DecisionDeny}
	case r.Action != "accept":
		return service.ServedAnswer{}
	}
	if value, ok := r.Content["answer"]; ok {
		text, err := json.Marshal(value)
		if err != nil {
			return service.ServedAnswer{}
		}
		return service.ServedAnswer{Decision: journal.DecisionAnswer, Value: text}
	}
	reason, _ := r.Content["reason"].(string) // it may be absent
	switch r.Content["decision"] {
	case journal.DecisionApprove, journal.DecisionDeny:
		return service.ServedAnswer{Decision: r.Content["decision"].(string), Reason: reason}
	}
	return service.ServedAnswer{}
}
