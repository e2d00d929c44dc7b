package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/mcp"
)

// person answers the questions of ask_user, in their order; "deny" denies, and what is over is
// refused.
type person struct {
	t       *testing.T
	answers []string
	asked   []string
}

func (p *person) invoke(_ context.Context, name string, arguments json.RawMessage) (toolcrib.Invoked, error) {
	var q struct {
		Question string          `json:"question"`
		Schema   json.RawMessage `json:"schema"`
	}
	if err := json.Unmarshal(arguments, &q); err != nil || name != "ask_user" {
		p.t.Errorf("%s(%s): %v", name, arguments, err)
	}
	p.asked = append(p.asked, q.Question+" "+string(q.Schema))
	if len(p.answers) == 0 {
		return toolcrib.Invoked{Status: toolcrib.ResultRefused, Reason: toolcrib.ReasonNeedsConfirmation}, nil
	}
	answer := p.answers[0]
	if p.answers = p.answers[1:]; answer == "deny" {
		return toolcrib.Invoked{Status: toolcrib.ResultRefused, Reason: toolcrib.ReasonApprovalDenied}, nil
	}
	return toolcrib.Invoked{Status: toolcrib.ResultOK, Content: `{"answer":` + answer + `}`}, nil
}

func TestElicitation_BecomesQuestionsToThePerson(t *testing.T) {
	clients := map[string]*mcp.Client{
		"new": start(t, program("server"), mcp.Options{}), "old": start(t, program("old"), mcp.Options{}),
	}
	for _, c := range []struct {
		server, tool string
		answers      []string
		want         string
		asked        []string
	}{
		{
			"new", "asks",
			[]string{"7", `"Ann"`, `"-"`},
			"[the server asked \"Who are you?\": the person answered]\nstate " +
				`{"action":"accept","content":{"age":7,"name":"Ann"}}`,
			[]string{
				"The MCP server srv asks: Who are you?\nage {\"minimum\":0,\"type\":\"integer\"}",
				"The MCP server srv asks: Who are you?\nname: Name {\"title\":\"Name\",\"type\":\"string\"}",
				"The MCP server srv asks: Who are you?\nnick (- leaves it out; usual: x) " +
					`{"anyOf":[{"default":"x","type":"string"},{"const":"-"}]}`,
			},
		},
		{
			"new", "asks",
			[]string{"7", "deny"},
			"[the server asked \"Who are you?\": the person declined to answer]\nstate {\"action\":\"decline\"}", nil,
		},
		{
			"new", "asks", nil,
			"[the server asked \"Who are you?\": nobody could be asked]\nstate {\"action\":\"cancel\"}", nil,
		},
		{
			"new", "sends",
			[]string{"true"},
			"[the server asked \"Sign in.\": the person answered]\nstate {\"action\":\"accept\"}",
			[]string{
				"The MCP server srv asks: Sign in.\nIt asks you to open this address of id.example in your browser:\n" +
					"https://id.example/x?y=1\nOpen it only if you expect this. Have you opened it? {\"type\":\"boolean\"}",
			},
		},
		{
			"new", "sends",
			[]string{"false"},
			"[the server asked \"Sign in.\": the person declined to answer]\nstate {\"action\":\"decline\"}", nil,
		},
		{
			"new", "agrees",
			[]string{"true"},
			"[the server asked \"Agree?\": the person answered]\nstate {\"action\":\"accept\"}", nil,
		},
		{
			"old", "asks",
			[]string{`"Ann"`},
			"[the server asked \"Who are you?\": the person answered]\n" + `{"action":"accept","content":{"name":"Ann"}}`, nil,
		},
		{
			"old", "asks", nil,
			"[the server asked \"Who are you?\": nobody could be asked]\n{\"action\":\"cancel\"}", nil,
		},
	} {
		tool, err := toolOf(clients[c.server], "srv__"+c.tool)
		if err != nil {
			t.Fatal(err)
		}
		p := &person{t: t, answers: c.answers}
		out, err := tool.Call(t.Context(), toolcrib.Call{Arguments: json.RawMessage(`{}`), Run: "run_1", Invoke: p.invoke})
		if err != nil || out.Text != c.want {
			t.Errorf("%s %s %q = %s, %v; want %s", c.server, c.tool, c.answers, out.Text, err, c.want)
		}
		if c.asked != nil && strings.Join(p.asked, "\n") != strings.Join(c.asked, "\n") {
			t.Errorf("%s: asked %q, want %q", c.tool, p.asked, c.asked)
		}
	}
}

// A server that asks without end, or for what it is not given, costs its call an error.
func TestElicitation_IsBounded(t *testing.T) {
	c := start(t, program("server"), mcp.Options{})
	for name, most := range map[string]int{"insists": 20, "samples": 0} {
		tool, err := toolOf(c, "srv__"+name)
		if err != nil {
			t.Fatal(err)
		}
		p := &person{t: t}
		for range 100 {
			p.answers = append(p.answers, `1`, `"Ann"`, `"-"`)
		}
		_, err = tool.Call(t.Context(), toolcrib.Call{Arguments: json.RawMessage(`{}`), Invoke: p.invoke})
		var failure *toolcrib.ToolError
		if !errors.As(err, &failure) || len(p.asked) > most {
			t.Errorf("%s: %v after %d questions", name, err, len(p.asked))
		}
	}
}

// A question with more choices than anybody reads takes no longer than it has bytes.
func TestElicitation_WithManyChoices(t *testing.T) {
	tool, err := toolOf(start(t, program("server"), mcp.Options{}), "srv__choices")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	p := &person{t: t, answers: []string{"1"}}
	out, err := tool.Call(ctx, toolcrib.Call{Arguments: json.RawMessage(`{}`), Invoke: p.invoke})
	if err != nil || !strings.HasSuffix(out.Text, `{"action":"accept","content":{"n":1}}`) {
		t.Errorf("%.200s, %v", out.Text, err)
	}
}

// A question ends with its call.
func TestElicitation_EndsWithItsCall(t *testing.T) {
	for _, mode := range []string{"server", "old"} {
		tool, err := toolOf(start(t, program(mode), mcp.Options{}), "srv__asks")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		stop := errors.New("enough")
		asked := make(chan struct{})
		ended := make(chan struct{})
		_, err = tool.Call(ctx, toolcrib.Call{
			Arguments: json.RawMessage(`{}`),
			Invoke: func(ctx context.Context, _ string, _ json.RawMessage) (toolcrib.Invoked, error) {
				close(asked)
				cancel(stop)
				<-ctx.Done()
				close(ended)
				return toolcrib.Invoked{}, ctx.Err()
			},
		})
		if !errors.Is(err, stop) {
			t.Errorf("%s: %v", mode, err)
		}
		<-asked
		select {
		case <-ended:
		case <-time.After(patience):
			t.Errorf("%s: the question did not end", mode)
		}
	}
}
