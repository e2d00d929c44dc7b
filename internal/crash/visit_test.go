//go:build unix

package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/client"
	"github.com/toolcrib/toolcrib/journal"
)

// tools is the MCP server of a town. Its tool has an effect, which is counted.
func (w *town) tools() http.Handler {
	s := sdk.NewServer(&sdk.Implementation{Name: "town", Version: "1"}, nil)
	schema := json.RawMessage(`{"type":"object","properties":{"key":{"type":"string"}},"required":["key"]}`)
	s.AddTool(&sdk.Tool{Name: "look", InputSchema: schema, Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true}},
		func(_ context.Context, q *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			var in keyed
			if err := json.Unmarshal(q.Params.Arguments, &in); err != nil {
				return nil, err
			}
			w.passes("look/" + in.Key)
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: in.Key}}}, nil
		})
	s.AddTool(&sdk.Tool{Name: "ring", InputSchema: schema},
		func(_ context.Context, q *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			var in keyed
			if err := json.Unmarshal(q.Params.Arguments, &in); err != nil {
				return nil, err
			}
			w.passes("ring/" + in.Key + "/before")
			w.mu.Lock()
			w.effects[in.Key]++
			w.mu.Unlock()
			w.passes("ring/" + in.Key + "/after")
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: in.Key}}}, nil
		})
	return sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, nil)
}

// passes calls pass.
func (w *town) passes(label string) {
	if w.pass != nil {
		w.pass(label)
	}
}

// model answers as OpenAI's API does. Each run has a key, its prompt, which is in the IDs and arguments of
// its calls: two with effects around one for the client, then two child runs at once, a file, and the answer.
// A child run has one call with an effect, between two that read.
func (w *town) model(rw http.ResponseWriter, r *http.Request) {
	var q struct {
		Messages []struct {
			Role    string
			Content any
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	key, turn := "", 0
	for _, m := range q.Messages {
		if text, ok := m.Content.(string); ok && m.Role == "user" && key == "" {
			key = keyOf(text)
		}
		if m.Role == "assistant" {
			turn++
		}
	}
	w.mu.Lock()
	w.asked[fmt.Sprint(key, "/", turn)]++
	w.sending++
	w.most = max(w.most, w.sending)
	hold := w.hold
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.sending--
	}()
	if hold != nil {
		select {
		case <-hold(key, turn):
		case <-r.Context().Done():
			return
		}
	}
	id := fmt.Sprint(key, "-", turn)
	out := reply{text: "bye " + key}
	switch below := strings.Trim(key, childSuffixes) != key; {
	case below && turn%2 == 0 && turn < 4:
		out.call(id, "list_directory", map[string]string{"path": "."})
	case turn == 0, turn == 2, below && turn == 1:
		out.call(id, "town__ring", map[string]string{"key": id})
	case below:
	case turn == 1:
		out.call(id, "pick_card", map[string]string{"suit": key})
	case turn == 3:
		for _, suffix := range childSuffixes {
			out.call(id+string(suffix), "spawn", map[string]string{"agent": "helper", "task": key + string(suffix)})
		}
	case turn == 4:
		out.call(id, "write_file", map[string]string{"path": key + ".txt", "content": key})
	}
	out.send(rw, func() {})
}

// reply is a reply of a model: calls, or else a text.
type reply struct {
	text  string
	calls []any
}

func (o *reply) call(id, name string, arguments map[string]string) {
	text, _ := json.Marshal(arguments)
	o.calls = append(o.calls, map[string]any{
		"index": len(o.calls), "id": id, "type": "function", "function": map[string]any{"name": name, "arguments": string(text)},
	})
}

// send sends the reply as a stream. It calls late before the end.
func (o *reply) send(rw http.ResponseWriter, late func()) {
	delta, finish := map[string]any{"content": o.text}, "stop"
	if len(o.calls) > 0 {
		delta, finish = map[string]any{"tool_calls": o.calls}, "tool_calls"
	}
	rw.Header().Set("Content-Type", "text/event-stream")
	for _, piece := range []map[string]any{
		{"choices": []any{map[string]any{"index": 0, "delta": delta}}},
		{"choices": []any{map[string]any{"index": 0, "delta": map[string]any{}, "finish_reason": finish}}},
		{"choices": []any{}, "usage": map[string]int{"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}},
	} {
		text, _ := json.Marshal(piece)
		fmt.Fprintf(rw, "data: %s\n\n", text)
	}
	late()
	fmt.Fprint(rw, "data: [DONE]\n\n")
}

// childSuffixes are the letters at the end of the keys of child runs; the rest is that of their parent.
const childSuffixes = "ab"

// keyOf returns the key of a run with this prompt.
func keyOf(prompt string) string {
	if !strings.HasPrefix(prompt, "visit-") {
		return ""
	}
	return prompt
}

// visit is a client with one run.
type visit struct {
	*town
	c     *client.Client
	key   string
	run   toolcrib.RunID
	after toolcrib.Seq
	seen  []client.Event // those that are kept
	said  map[string]int // how often what it said is in the run: 1, or -1 if nobody knows
}

func (w *town) visit(key string) (*visit, error) { return w.visitAs("", key) }

// visitAs is a visit with an access token.
func (w *town) visitAs(token, key string) (*visit, error) {
	c, err := client.New(client.Options{URL: "http://localhost", Token: token, Transport: w, Patience: 3 * time.Minute})
	return &visit{town: w, c: c, key: key, said: map[string]int{}}, err
}

func (v *visit) see(e client.Event) error {
	if e.Seq > 0 {
		v.after, v.seen = e.Seq, append(v.seen, e)
	}
	if v.saw != nil {
		v.saw(e)
	}
	v.operation()
	return nil
}

// lost reports whether a request failed because its server did.
func lost(err error) bool {
	var away *client.UnreachableError
	return errors.As(err, &away) || toolcrib.CodeOf(err) == toolcrib.CodeOverloaded
}

// insist does something that may be done twice, until a server answers.
func (v *visit) insist(do func() error) error {
	for {
		err := do()
		if !lost(err) || v.patient.Err() != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// begin starts the run, and follows it to its first pause.
func (v *visit) begin() error {
	body := map[string]any{"input": v.key, "client_tools": []any{map[string]any{
		"name": "pick_card", "parameters": map[string]any{
			"type": "object", "properties": map[string]any{"suit": map[string]any{"type": "string"}},
		},
	}}}
	return v.insist(func() (err error) {
		if v.run != "" { // it has begun; what is left comes below
			return nil
		}
		v.run, err = v.c.Begin(v.patient, "/api/runs", body, "", 0, v.see)
		return err
	})
}

// stay does what the run asks for, until it ends.
func (v *visit) stay() (run api.Run, err error) {
	for {
		err = v.insist(func() (err error) { run, err = v.c.Run(v.patient, string(v.run)); return err })
		if err != nil {
			return run, err
		}
		v.operation()
		switch {
		case run.Status.Ended():
			return run, v.insist(func() error { return v.c.Follow(v.patient, v.run, v.after, client.UntilEnd, v.see) })
		case run.Status == toolcrib.StatusWaitingForTool:
			err = v.carryOut(run)
		case run.Pending != nil && run.Pending.ApprovalID != "":
			err = v.decide(run)
		default:
			err = v.insist(func() error { return v.c.Follow(v.patient, v.run, v.after, client.UntilPause, v.see) })
		}
		if err != nil && toolcrib.CodeOf(err) != toolcrib.CodeConflict {
			return run, err
		}
	}
}

// decide approves what the run asks about. Of a call in doubt it says what has happened.
func (v *visit) decide(run api.Run) error {
	var a struct {
		Kind   journal.ApprovalKind
		Digest string
		Calls  []struct{ ID, Decision string }
	}
	path := client.Path("approvals", run.Pending.ApprovalID)
	if err := v.insist(func() error { return v.c.Get(v.patient, path, nil, &a) }); err != nil {
		return err
	}
	body := map[string]any{"digest": a.Digest, "decision": "approve"}
	if a.Kind == journal.ApprovalInDoubt {
		calls := map[string]any{}
		for _, c := range a.Calls {
			switch {
			case c.Decision != "":
			case v.tookEffect(&run, c.ID):
				calls[c.ID] = map[string]any{"decision": "happened", "result": c.ID}
			default:
				calls[c.ID] = map[string]any{"decision": "retry"}
			}
		}
		if len(calls) == 0 {
			return nil // it is decided, and the run above does not know yet
		}
		delete(body, "decision")
		body["calls"] = calls
	}
	v.say()
	return v.insist(func() error { return v.c.Send(v.patient, http.MethodPost, path, body, nil) })
}

// tookEffect reports whether a call has had its effect.
func (v *visit) tookEffect(run *api.Run, id string) bool {
	for _, c := range run.Trace {
		if c.ID == id && v.happened != nil {
			return v.happened(c.Arguments)
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.effects[id] > 0
}

// carryOut answers the calls that are the client's.
func (v *visit) carryOut(run api.Run) error {
	var results []any
	for _, c := range run.Trace {
		if c.Name == "pick_card" && c.Status == "" {
			results = append(results, map[string]any{"tool_call_id": c.ID, "body": map[string]string{"card": v.key}})
		}
	}
	v.say()
	path := client.Path("runs", string(v.run), "tool_results")
	return v.insist(func() error {
		return v.c.Send(v.patient, http.MethodPost, path, map[string]any{"results": results}, nil)
	})
}

// say sends a message, once.
func (v *visit) say() {
	text := fmt.Sprintf("%s says %d", v.key, len(v.said))
	err := v.c.Send(v.patient, http.MethodPost, client.Path("runs", string(v.run), "message"), map[string]string{"text": text}, nil)
	switch {
	case err == nil:
		v.said[text] = 1
	case lost(err):
		v.said[text] = -1
	default: // it was refused
		v.said[text] = 0
	}
}

// check returns what is wrong with the run, and with what the client has seen of it.
func (v *visit) check(run api.Run) (problems []string) {
	problemf := func(format string, args ...any) {
		problems = append(problems, v.key+" ("+string(v.run)+"): "+fmt.Sprintf(format, args...))
	}
	// Servers that die three times in the same call are no progress.
	gaveUp := run.StopReason == toolcrib.StopWorkerLost
	if gaveUp {
		v.mu.Lock()
		v.lost++
		v.mu.Unlock()
	}
	if !gaveUp && (run.Status != toolcrib.StatusCompleted || run.Content != "bye "+v.key) {
		problemf("%s %q %+v", run.Status, run.Content, run.Error)
	}
	v.mu.Lock()
	for _, c := range run.Trace {
		// Its server is always there, so only a run that gave up has a call that did not run.
		n, ran := v.effects[c.ID], c.Status == toolcrib.ResultOK
		if c.Name == "town__ring" && (n > 1 || ran && n == 0 || !ran && !gaveUp) {
			problemf("call %s (%s) had its effect %d times", c.ID, c.Status, n)
		}
	}
	v.mu.Unlock()
	var all []client.Event
	err := v.insist(func() error {
		all = nil
		return v.c.Follow(v.patient, v.run, 0, client.UntilNow, func(e client.Event) error { all = append(all, e); return nil })
	})
	if err != nil {
		problemf("its events: %v", err)
	}
	same := func(a, b client.Event) bool {
		return a.Seq == b.Seq && a.Name == b.Name && string(a.Data) == string(b.Data)
	}
	if !slices.EqualFunc(all, v.seen, same) {
		problemf("the stream was not whole: seen %s, kept %s", brief(v.seen), brief(all))
	}
	said, cards := map[string]int{}, 0
	for _, e := range all {
		switch {
		case e.Name == journal.FrameUserMessage:
			var b struct{ Text string }
			_ = json.Unmarshal(e.Data, &b)
			said[b.Text]++
		case e.Name == string(journal.KindToolResult) && strings.Contains(string(e.Data), `"pick_card"`):
			cards++
		}
	}
	for text, want := range v.said {
		if n := said[text]; n != want && (want >= 0 || n > 1) && (!gaveUp || n > 1) {
			problemf("%q is read %d times, want %d", text, n, want)
		}
	}
	if cards != 1 && (!gaveUp || cards > 1) {
		problemf("%d results of the client's call", cards)
	}
	return problems
}

func brief(all []client.Event) string {
	var b strings.Builder
	for _, e := range all {
		fmt.Fprintf(&b, "%d %s, ", e.Seq, e.Name)
	}
	return b.String()
}
