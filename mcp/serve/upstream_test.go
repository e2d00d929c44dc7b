package serve_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/mcp/serve"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/mcpset"
	"github.com/toolcrib/toolcrib/store"
)

// upstream has an MCP server behind toolcrib, which was reviewed.
func upstream(t *testing.T, server *sdk.Server, settings, yaml string) (*crib, *mcpset.Review) {
	t.Helper()
	h := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil))
	t.Cleanup(h.Close)
	c := stock(t, yaml+"mcpServers: {up: {url: '"+h.URL+"'"+settings+"}}\n")
	review, err := c.s.MCP.Review(t.Context(), c.who, "up")
	if err == nil {
		err = c.s.MCP.Accept(t.Context(), c.who, review, review.Digest)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c, review
}

// If a server behind toolcrib asks something in the middle of a call, the client is asked: at once, or by the answer to
// its call, which it makes again, as the protocol has it.
func TestServe_AskedByAServerBehind(t *testing.T) {
	for name, tt := range map[string]struct {
		version string
		answers []any // of the client; it declines after the last
		want    string
		asked   int
	}{
		"answered":              {"2025-11-25", []any{"Ann", "7"}, `accept {"age":7,"name":"Ann"}`, 2},
		"left out":              {"2025-11-25", []any{"Ann", "-"}, `accept {"name":"Ann"}`, 2},
		"asked again":           {"2025-11-25", []any{"Ann", "seven", "7"}, `accept {"age":7,"name":"Ann"}`, 3},
		"declined":              {"2025-11-25", nil, "decline null", 1},
		"never fits":            {"2025-11-25", []any{"Ann", "x", "y", "z", "7"}, "cancel null", 4},
		"answered in rounds":    {"2026-07-28", []any{"Ann", "7"}, `accept {"age":7,"name":"Ann"}`, 2},
		"asked again in rounds": {"2026-07-28", []any{"Ann", "seven", "7"}, `accept {"age":7,"name":"Ann"}`, 3},
		"declined in rounds":    {"2026-07-28", nil, "decline null", 1},
		"never fits in rounds":  {"2026-07-28", []any{"Ann", "x", "y", "z", "7"}, "cancel null", 4},
	} {
		t.Run(name, func(t *testing.T) {
			server := sdk.NewServer(&sdk.Implementation{Name: "up", Version: "1"}, nil)
			form := json.RawMessage(`{"type":"object","required":["name"],"properties":{` +
				`"name":{"type":"string"},"age":{"type":"integer"}}}`)
			server.AddTool(&sdk.Tool{Name: "ask", InputSchema: json.RawMessage(`{"type":"object"}`)},
				func(ctx context.Context, q *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
					said, ok := q.Params.InputResponses["who"].(*sdk.ElicitResult)
					if !ok {
						return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{
							"who": &sdk.ElicitParams{Message: "Who are you?", RequestedSchema: form},
						}}, nil
					}
					content, err := json.Marshal(said.Content)
					text := said.Action + " " + string(content)
					return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}, err
				})
			c, _ := upstream(t, server, "", "rules: [{name: runs, tools: [\"up__*\"], then: allow}]\n")
			asked := 0
			client := c.client(service.StartRequest{}, func(p *sdk.ElicitParams) *sdk.ElicitResult {
				asked++
				if !strings.Contains(p.Message, "The MCP server up asks: Who are you?") || asked > len(tt.answers) {
					return &sdk.ElicitResult{Action: "decline"}
				}
				return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"answer": tt.answers[asked-1]}}
			}, versions[tt.version])
			r := call(t, client, "up__ask", map[string]any{})
			if !strings.Contains(textOf(r), tt.want) || asked != tt.asked {
				t.Errorf("asked %d times, want %d: %s, want %s", asked, tt.asked, textOf(r), tt.want)
			}
			runs, _, err := c.s.Runs(t.Context(), c.who, service.RunsQuery{})
			if err != nil {
				t.Fatal(err)
			}
			one, err := c.s.Run(t.Context(), c.who, string(runs[0].ID))
			if err != nil || len(one.Trace) != 1 || one.Trace[0].Name != "ask_user" {
				t.Errorf("%+v, %v", one, err)
			}
		})
	}
}

// A tool of an MCP server that its server renames, defines in another way or takes away after a person
// has approved a call of it does not run.
func TestServe_RenamedAfterTheApproval(t *testing.T) {
	for name, change := range map[string]func(*sdk.Server, func(name, about string)){
		"renamed":     func(s *sdk.Server, add func(string, string)) { s.RemoveTools("put"); add("put_more", "puts") },
		"redefined":   func(_ *sdk.Server, add func(string, string)) { add("put", "puts everything") },
		"taken away":  func(s *sdk.Server, _ func(string, string)) { s.RemoveTools("put") },
		"not changed": func(*sdk.Server, func(string, string)) {},
	} {
		t.Run(name, func(t *testing.T) {
			var effects atomic.Int64
			server := sdk.NewServer(&sdk.Implementation{Name: "up", Version: "1"}, nil)
			add := func(name, about string) {
				server.AddTool(&sdk.Tool{Name: name, Description: about, InputSchema: json.RawMessage(`{"type":"object"}`)},
					func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
						effects.Add(1)
						return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "put"}}}, nil
					})
			}
			add("put", "puts")
			add("other", "does something else")
			c, review := upstream(t, server, "", "")
			client := c.client(service.StartRequest{}, nil, nil)
			id := approvalOf(t, call(t, client, "up__put", map[string]any{}))
			c.decide(id, "approve")
			change(server, add)
			if name != "not changed" {
				until(t, "toolcrib has heard of it", func() bool {
					r, err := c.s.MCP.Review(t.Context(), c.who, "up")
					return err == nil && r.Digest != review.Digest
				})
			}
			r := call(t, client, "collect_result", map[string]any{"approval_id": id})
			if name == "not changed" {
				if r.IsError || effects.Load() != 1 {
					t.Errorf("%s, %d effects", textOf(r), effects.Load())
				}
				return
			}
			if !r.IsError || effects.Load() != 0 {
				t.Errorf("%d effects: %s", effects.Load(), textOf(r))
			}
			if r, err := client.CallTool(t.Context(), &sdk.CallToolParams{Name: "up__put_more"}); err == nil && !r.IsError {
				t.Errorf("the new name is offered: %s", textOf(r))
			}
			if strings.Contains(textOf(r), "untrusted_input") {
				t.Errorf("the server was asked: %s", textOf(r))
			}
		})
	}
}

// asking returns a server behind toolcrib whose tool asks for a name, optionally without end.
func asking(t *testing.T) (c *crib, answered *atomic.Int64) {
	t.Helper()
	server := sdk.NewServer(&sdk.Implementation{Name: "up", Version: "1"}, nil)
	form := json.RawMessage(`{"type":"object","required":["name"],"properties":{"name":{"type":"string"}}}`)
	answered = new(atomic.Int64)
	server.AddTool(&sdk.Tool{Name: "ask", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(ctx context.Context, q *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			for {
				said, err := q.Session.Elicit(ctx, &sdk.ElicitParams{Message: "Who are you?", RequestedSchema: form})
				if err != nil || said.Action == "accept" {
					answered.Add(1)
				}
				if err != nil || said.Action != "accept" || !strings.Contains(string(q.Params.Arguments), "endless") {
					return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "asked"}}}, err
				}
			}
		})
	c, _ = upstream(t, server, ", trusted: true", "rules: [{name: runs, tools: [\"up__*\"], then: allow}]\n")
	return c, answered
}

// If a client disconnects while it is asked, the call ends by itself, because there is no answer.
func TestServe_RoundsGone(t *testing.T) {
	defer serve.Patient(patience)()
	c, answered := asking(t)
	in, out, stop, ended := c.run(service.StartRequest{})
	defer stop()
	client := sdk.NewClient(&sdk.Implementation{Name: "x", Version: "1"}, &sdk.ClientOptions{
		Capabilities:   &sdk.ClientCapabilities{Elicitation: &sdk.ElicitationCapabilities{}},
		MultiRoundTrip: &sdk.MultiRoundTripOptions{Disabled: true},
	})
	session, err := client.Connect(t.Context(), &sdk.IOTransport{Reader: out, Writer: in}, versions["2026-07-28"])
	if err != nil {
		t.Fatal(err)
	}
	if r := call(t, session, "up__ask", map[string]any{}); len(r.InputRequests) != 1 {
		t.Fatalf("%+v", r)
	}
	_ = in.Close()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("the server has not ended")
	}
	_ = session.Close()
	runs, _, err := c.s.Runs(t.Context(), c.who, service.RunsQuery{Filter: store.Filter{TopLevel: true}})
	if err != nil || len(runs) != 1 || runs[0].Status != toolcrib.StatusCompleted || answered.Load() != 0 {
		t.Errorf("%+v %v", runs, err)
	}
}

// The question of a call that is under way is answered once, by the same call, and ends with its client.
func TestServe_RoundsHostile(t *testing.T) {
	c, answered := asking(t)
	p := c.porch()
	meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":` +
		`{"name":"x","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}`
	type result struct {
		RequestState  string
		InputRequests map[string]any
		Content       []struct{ Text string }
		IsError       bool
	}
	const ann = `{"toolcrib":{"action":"accept","content":{"answer":"Ann"}}}`
	ask := func(tool, arguments, state, said string) (r result, refused string) {
		t.Helper()
		more := ""
		if state != "" {
			more = `,"requestState":"` + state + `"`
		}
		if said != "" {
			more += `,"inputResponses":` + said
		}
		text := p.stateless("tools/call", tool, `{"name":"`+tool+`","arguments":`+arguments+more+`,`+meta+`}`)
		var answer struct {
			Result result
			Error  struct{ Message string }
		}
		if err := json.Unmarshal([]byte(text), &answer); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return answer.Result, answer.Error.Message
	}
	first, _ := ask("up__ask", `{}`, "", "")
	if first.RequestState == "" || len(first.InputRequests) != 1 {
		t.Fatalf("%+v", first)
	}
	for name, tt := range map[string]struct{ tool, arguments, state string }{
		"another tool":     {"read_file", `{"path":"a.txt"}`, first.RequestState},
		"other arguments":  {"up__ask", `{"x":1}`, first.RequestState},
		"another state":    {"up__ask", `{}`, first.RequestState + "A"},
		"no arguments":     {"up__ask", `null`, first.RequestState},
		"no state of ours": {"up__ask", `{}`, "round."},
	} {
		if r, refused := ask(tt.tool, tt.arguments, tt.state, ann); !strings.Contains(refused, "requestState") {
			t.Errorf("%s: %q %+v", name, refused, r)
		}
	}
	if again, _ := ask("up__ask", ` { } `, first.RequestState, ""); again.RequestState != first.RequestState {
		t.Errorf("without an answer: %+v", again)
	}
	if answered.Load() != 0 {
		t.Fatal("answered")
	}
	if r, refused := ask("up__ask", `{}`, first.RequestState, ann); refused != "" || r.IsError || answered.Load() != 1 {
		t.Fatalf("%q %+v", refused, r)
	}
	if r, refused := ask("up__ask", `{}`, first.RequestState, ann); !strings.Contains(refused, "requestState") {
		t.Errorf("twice: %q %+v", refused, r)
	}

	// One that asks without end is ended before its client gives up, after as many calls as clients make.
	r, refused := ask("up__ask", `{"endless":true}`, "", "")
	n := 0
	for ; r.RequestState != ""; n++ {
		r, refused = ask("up__ask", `{"endless":true}`, r.RequestState, ann)
	}
	if refused != "" || n != 9 || answered.Load() != 10 ||
		!strings.Contains(fmt.Sprint(r.Content), "nobody could be asked") {
		t.Errorf("%d questions, %q %+v", n, refused, r)
	}

	// Nobody answers: what is under way ends with the server, and stays to be resumed.
	if r, _ := ask("up__ask", `{}`, "", ""); r.RequestState == "" {
		t.Fatalf("%+v", r)
	}
	p.http.Sweep(time.Hour)
	if p.http.Endpoints() != 1 {
		t.Error("a client that is asked is taken for idle")
	}
	if err := p.http.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	runs, _, err := c.s.Runs(t.Context(), c.who, service.RunsQuery{Filter: store.Filter{TopLevel: true}})
	if err != nil || !runs[0].Interrupted {
		t.Errorf("%+v %v", runs[0], err)
	}
}
