package mcp_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/mcp"
)

// rawServer speaks the protocol of 2025-06-18 by hand, so that it can do what no library lets
// it: tools are the tools that it lists, and call answers a call of one of them.
func rawServer(tools string, call func(id, name string), answered func(result string)) {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			os.Exit(1)
		}
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Result json.RawMessage `json:"result"`
			Params struct {
				Name string `json:"name"`
			} `json:"params"`
		}
		if json.Unmarshal(line, &m) != nil {
			os.Exit(1)
		}
		id := string(m.ID)
		switch m.Method {
		case "initialize":
			answer(id, `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"raw","version":"1"}}`)
		case "tools/list":
			answer(id, `{"tools":[`+tools+`]}`)
		case "tools/call":
			call(id, m.Params.Name)
		case "server/discover":
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"unknown"}}`+"\n", id)
		case "":
			answered(string(m.Result))
		}
	}
}

func answer(id, result string) { fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", id, result) }

func textResult(text string) string {
	quoted, _ := json.Marshal(text)
	return `{"content":[{"type":"text","text":` + string(quoted) + `}]}`
}

// oldServer asks beside its answers, as protocols before 2026-07-28 have it.
func oldServer() {
	var asked string
	rawServer(`{"name":"asks","inputSchema":{"type":"object"}}`, func(id, _ string) {
		asked = id
		fmt.Println(`{"jsonrpc":"2.0","id":99,"method":"elicitation/create","params":{"message":"Who are you?",` +
			`"requestedSchema":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}}}`)
	}, func(result string) { answer(asked, textResult(result)) })
}

// oddAnswers are what the tools of the odd server answer: instead of a result, or around one.
var oddAnswers = map[string]string{
	"null":     `null`,
	"list":     `[]`,
	"text":     `"text"`,
	"types":    `{"content":"text","isError":"no"}`,
	"unknown":  `{"content":[{"type":"hologram","data":1}]}`,
	"nothing":  `{}`,
	"deep":     `{"content":[],"structuredContent":` + strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000) + `}`,
	"twins":    `{"content":[{"type":"text","text":"a"}],"content":[{"type":"text","text":"b"}]}`,
	"image":    `{"content":[{"type":"image","data":"!!!","mimeType":"image/png"}]}`,
	"numbers":  `{"content":[{"type":"text","text":"{\"id\": 9007199254740993}"}],"structuredContent":{"id":9007199254740993}}`,
	"controls": textResult("a\x00\x1b[2Jb\u202ec\U000e0041"),
}

func oddServer() {
	names := []string{"utf8", "twice", "nobody", "late", "renamed"}
	for name := range oddAnswers {
		names = append(names, name)
	}
	var tools []string
	for _, name := range names {
		tools = append(tools, fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}}`, name))
	}
	late := ""
	rawServer(strings.Join(tools, ","), func(id, name string) {
		switch name {
		case "utf8":
			fmt.Println(`{"jsonrpc":"2.0","id":` + id + `,"result":{"content":[{"type":"text","text":"a` + "\xff\xfe" + `b"}]}}`)
		case "twice":
			answer(id, textResult("first"))
			answer(id, textResult("second"))
		case "nobody":
			answer("4711", textResult("wrong"))
			answer(`"call_1"`, textResult("wrong"))
			fmt.Println(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"call-99","progress":1}}`)
			answer(id, textResult("right"))
		case "late":
			if late != "" {
				answer(late, textResult("late"))
			}
			late = id
			time.AfterFunc(200*time.Millisecond, func() { answer(id, textResult("in time")) })
		default:
			answer(id, oddAnswers[name])
		}
	}, func(string) {})
}

// manyServer lists 100,000 tools.
func manyServer() {
	var b strings.Builder
	for i := range 100_000 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"name":"tool%d","inputSchema":{"type":"object"}}`, i)
	}
	rawServer(b.String(), func(id, name string) { answer(id, textResult(name)) }, func(string) {})
}

// Whatever a server answers is a result or an error of that call, and the next call works.
func TestServer_OddAnswers(t *testing.T) {
	c := start(t, program("odd"), mcp.Options{})
	for name := range oddAnswers {
		out, err := callOf(t.Context(), c, "srv__"+name, `{}`)
		if err == nil && len(out.JSON) > 0 && !json.Valid(out.JSON) {
			t.Errorf("%s: %+v", name, out)
		}
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) { // it may be started again
			out, err := callOf(t.Context(), c, "srv__nobody", `{}`)
			if err == nil && out.Text == "right" {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("after %s: %+v, %v", name, out, err)
			}
		}
	}
	for name, want := range map[string]string{"twice": "first", "nobody": "right"} {
		for range 3 {
			if out, err := callOf(t.Context(), c, "srv__"+name, `{}`); err != nil || out.Text != want {
				t.Errorf("%s: %+v, %v", name, out, err)
			}
		}
	}
	if out, err := callOf(t.Context(), c, "srv__utf8", `{}`); err == nil && !strings.HasPrefix(out.Text, "a") {
		t.Errorf("invalid UTF-8: %+v", out)
	}
	// A number that no float has is as the server wrote it.
	if out, err := callOf(t.Context(), c, "srv__numbers", `{}`); err != nil || string(out.JSON) != `{"id": 9007199254740993}` {
		t.Errorf("numbers: %s, %v", out.JSON, err)
	}
	// A call that is given up may be answered when the next one waits: each has its own answer.
	for range 3 {
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				if out, err := callOf(t.Context(), c, "srv__late", `{}`); err != nil || out.Text != "in time" && out.Text != "late" {
					t.Errorf("late: %+v, %v", out, err)
				}
			})
		}
		all.Wait()
	}
	if got := c.State(); !got.Running {
		t.Errorf("state = %+v", got)
	}
}

func TestServer_WithManyTools(t *testing.T) {
	c := start(t, program("many"), mcp.Options{})
	if n := len(c.Definitions()); n != 1000 || len(c.State().Problems) == 0 {
		t.Errorf("%d tools, %+v", n, c.State())
	}
	if out, err := callOf(t.Context(), c, "srv__tool7", `{}`); err != nil || out.Text != "tool7" {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestServer_ThatSleepsOnStart(t *testing.T) {
	c := start(t, program("slow"), mcp.Options{})
	if got := c.State(); !got.Running || got.Starts != 1 {
		t.Errorf("state = %+v", got)
	}
}

// listening is the address of a server that says when it is reached.
func listening(t *testing.T, reached chan<- struct{}) string {
	t.Helper()
	far := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached <- struct{}{} }))
	t.Cleanup(far.Close)
	return far.URL
}

// A schema that cannot be checked against makes its tool unusable, and nothing else: the others
// are offered, no schema is fetched from anywhere, and nothing hangs.
func TestDefinition_WithOddSchema(t *testing.T) {
	reached := make(chan struct{}, 1)
	far := listening(t, reached)
	server := mcp.Server{Name: "srv"}
	c, err := mcp.New(server, mcp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	usable := map[string]bool{
		`{"type":"object"}`: true,
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}}}}}`:              true,
		`{"$schema":"http://json-schema.org/draft-04/schema#","type":"object","properties":{"n":{"type":"number","minimum":0,"exclusiveMinimum":true}}}`: true,
		`{"$ref":"` + far + `"}`: false,
		`{"type":"object","properties":{"a":{"$ref":"` + far + `/schema.json"}}}`: false,
		`{"type":"object","properties":{"a":{"$ref":"file:///etc/passwd"}}}`:      false,
		`{"$ref":"#"}`: true,
		`{"type":"object","allOf":[{"$ref":"#"}]}`: true,
		`{"type":"array"}`:                         false,
		`{"type":5}`:                               false,
		`[]`:                                       false,
		`true`:                                     false,
		`null`:                                     true,
		`{"type":"object","properties":{"a":{"pattern":"("}}}`:                                                                   false,
		`{"type":"object","properties":` + strings.Repeat(`{"a":{"properties":`, 2000) + `{}` + strings.Repeat(`}}`, 2000) + `}`: false,
	}
	for schema, want := range usable {
		text, err := json.MarshalIndent(map[string]any{"name": "odd"}, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		d := mcp.Definition{Name: "srv__odd", Tool: "odd", Schema: json.RawMessage(schema), Text: text}
		good := mcp.Definition{Name: "srv__good", Tool: "good", Schema: json.RawMessage(`{"type":"object"}`), Text: text}
		g, err := gate.New(gate.Options{Tools: []toolcrib.Tool{c.Tool(d), c.Tool(good)}, Availability: gate.Overrides{}})
		if err != nil {
			t.Errorf("%.100s: %v", schema, err)
			continue
		}
		states, err := g.States(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// Arguments are checked against it, too, and that ends.
		who := toolcrib.Principal{User: "ann", Admin: true}
		call := toolcrib.ToolCall{ID: "call_1", Name: "srv__odd", Arguments: json.RawMessage(`{"a":{"a":{}}}`)}
		if v := g.Judge(t.Context(), who, gate.Scope{Workspace: "/"}, gate.Facts{}, []toolcrib.ToolCall{call}); len(v) != 1 {
			t.Errorf("%.100s: %d verdicts", schema, len(v))
		}
		for _, s := range states {
			if s.Name == "srv__good" && s.Unusable != "" || s.Name == "srv__odd" && (s.Unusable == "") != want {
				t.Errorf("%.100s: %s is unusable: %q", schema, s.Name, s.Unusable)
			}
		}
	}
	select {
	case <-reached:
		t.Error("a schema was fetched")
	default:
	}
}
