package mcp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/internal/waittest"
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
			switch os.Getenv("DISCOVER") {
			case "ends":
				os.Exit(1)
			case "ignores":
			case "nobody":
				fmt.Println(`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Request"}}`)
			case "empty":
				answer(id, `{}`)
			case "other error":
				fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"not initialized"}}`+"\n", id)
			default:
				fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"unknown"}}`+"\n", id)
			}
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

// oldServer asks alongside its answers, as protocols before 2026-07-28 do.
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
	"null":    `null`,
	"list":    `[]`,
	"text":    `"text"`,
	"types":   `{"content":"text","isError":"no"}`,
	"unknown": `{"content":[{"type":"hologram","data":1}]}`,
	"nothing": `{}`,
	"deep":    `{"content":[],"structuredContent":` + strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000) + `}`,
	"twins":   `{"content":[{"type":"text","text":"a"}],"content":[{"type":"text","text":"b"}]}`,
	"image":   `{"content":[{"type":"image","data":"!!!","mimeType":"image/png"}]}`,
	"numbers": `{"content":[{"type":"text","text":"{\"id\": 9007199254740993}"}],"structuredContent":{"id":9007199254740993}}`,
	// The same as text and as a value (see TestTool_SaysTheSameOnce).
	"same_file":  `{"content":[{"type":"text","text":"line 1\n\"line\" 2\n"}],"structuredContent":{"content":"line 1\n\"line\" 2\n"}}`,
	"same_more":  `{"content":[{"type":"text","text":"line 1\nline 2"}],"structuredContent":{"content":"line 1\nline 2","size":13}}`,
	"same_list":  `{"content":[{"type":"text","text":"one"},{"type":"text","text":"{\"n\": 2}"}],"structuredContent":{"result":["one",{"n":2}]}}`,
	"same_words": `{"content":[{"type":"text","text":"Result: {\"n\": 2}"}],"structuredContent":{"n":2}}`,
	"not_same":   `{"content":[{"type":"text","text":"It rains."}],"structuredContent":{"rain":true}}`,
	"controls":   textResult("a\x00\x1b[2Jb\u202ec\U000e0041"),
}

const newer = `{"content":[{"type":"text","text":"seen"},{"type":"video","data":"AAAA"}]}`

func oddServer() {
	names := []string{"utf8", "twice", "nobody", "late", "renamed", "logs", "newer", "newers"}
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
		case "newer":
			answer(id, newer)
		case "newers": // in a batch
			fmt.Printf("[{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}]\n", id, newer)
		case "logs":
			fmt.Println("listening on port 7")
			fmt.Println(`{"level":"info","id":` + id + `,"method":"tools/call","msg":"a structured line"}`)
			answer(id, textResult("logged"))
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
		waittest.Until(t, "it answers after "+name, func() bool { // it may be started again
			out, err := callOf(t.Context(), c, "srv__nobody", `{}`)
			return err == nil && out.Text == "right"
		})
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
	// A block of a type that is not known is left out, and said.
	for _, tool := range []string{"srv__newer", "srv__newers"} {
		out, err := callOf(t.Context(), c, tool, `{}`)
		if err != nil || out.Text != "seen\n[content of type \"video\" was left out: it is not supported]" {
			t.Errorf("%s: %+v, %v", tool, out, err)
		}
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

// What a program writes to its output by mistake goes to the log, a line of JSON too, and its
// connection stays.
func TestServer_LogsOnItsOutput(t *testing.T) {
	lines := make(chan string, 10)
	c := start(t, program("odd"), mcp.Options{Log: func(_, line string) { lines <- line }})
	if out, err := callOf(t.Context(), c, "srv__logs", `{}`); err != nil || out.Text != "logged" {
		t.Fatalf("%+v, %v", out, err)
	}
	if plain, structured := <-lines, <-lines; plain != "listening on port 7" || !strings.Contains(structured, "a structured line") {
		t.Errorf("the log has %q and %q", plain, structured)
	}
	if got := c.State(); !got.Running || got.Starts != 1 {
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
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	woken := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			err = conn.Close()
		}
		woken <- err
	}()
	s := program("slow")
	s.Env["WAKE"] = l.Addr().String()
	c := start(t, s, mcp.Options{})
	if err := <-woken; err != nil {
		t.Fatal(err)
	}
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
		`{"$ref":"` + far + `"}`: true,
		`{"type":"object","properties":{"a":{"$ref":"` + far + `/schema.json"}}}`: true,
		`{"type":"object","properties":{"a":{"$ref":"file:///etc/passwd"}}}`:      true,
		`{"$ref":"#"}`: true,
		`{"type":"object","allOf":[{"$ref":"#"}]}`: true,
		`{"type":"array"}`:                         true,
		`{"type":5}`:                               true,
		`[]`:                                       true,
		`true`:                                     true,
		`null`:                                     true,
		`{"type":"object","properties":{"a":{"pattern":"("}}}`:                                                                   true,
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
		// Arguments are checked against it, which ends.
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

// What a server says in content and in structuredContent is sent once; what differs is sent whole.
func TestTool_SaysTheSameOnce(t *testing.T) {
	c := start(t, program("odd"), mcp.Options{})
	for name, want := range map[string]string{
		"same_file":  "line 1\n\"line\" 2\n",
		"same_more":  `{"content":"line 1\nline 2","size":13}`,
		"same_list":  `{"result":["one",{"n":2}]}`,
		"same_words": `Result: {"n": 2}`,
		"not_same":   `{"structured":{"rain":true},"text":"It rains."}`,
	} {
		out, err := callOf(t.Context(), c, "srv__"+name, `{}`)
		if got := out.Text + string(out.JSON); err != nil || got != want {
			t.Errorf("%s: %s (%v), want %s", name, got, err, want)
		}
	}
}

// mortal is a server at an address that is killed at its nth request: before it does anything, or when
// it has done it and has not answered. Then it is started again.
type mortal struct {
	t       *testing.T
	at      int64
	after   bool
	address string
	seen    atomic.Int64
	dead    atomic.Bool
	mu      sync.Mutex
	effects map[string]int
	server  *http.Server
}

func (m *mortal) start() {
	m.t.Helper()
	s := sdk.NewServer(&sdk.Implementation{Name: "mortal", Version: "1"}, nil)
	s.AddTool(&sdk.Tool{Name: "append", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(_ context.Context, q *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			m.mu.Lock()
			m.effects[string(q.Params.Arguments)]++
			m.mu.Unlock()
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "done"}}}, nil
		})
	h := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, nil)
	var l net.Listener
	waittest.Until(m.t, "the address is free", func() (free bool) {
		var err error
		l, err = net.Listen("tcp", m.address)
		return err == nil
	})
	m.address = l.Addr().String()
	server := &http.Server{}
	m.mu.Lock()
	m.server = server
	m.mu.Unlock()
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		killed := m.seen.Add(1) == m.at
		if killed && m.after && r.Method == http.MethodPost {
			h.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithoutCancel(r.Context())))
		}
		if killed {
			go func() {
				_ = server.Close()
				m.start()
				m.dead.Store(true)
			}()
			panic(http.ErrAbortHandler)
		}
		h.ServeHTTP(w, r)
	})
	go server.Serve(l) //nolint:errcheck // it is closed
}

// A server at an address that is killed at any of its requests, and started again, costs its calls an
// error; nothing happens twice, and it is used again.
func TestServer_KilledAtAnAddress(t *testing.T) {
	for at := int64(1); at <= 8; at++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprint(at, after), func(t *testing.T) {
				t.Parallel()
				m := &mortal{t: t, at: at, after: after, address: "127.0.0.1:0", effects: map[string]int{}}
				m.start()
				t.Cleanup(func() {
					m.mu.Lock()
					defer m.mu.Unlock()
					_ = m.server.Close()
				})
				c := start(t, mcp.Server{Name: "srv", URL: "http://" + m.address}, mcp.Options{})
				key := func(i int) string { return fmt.Sprintf(`{"key":%d}`, i) }
				worked := 0
				for i := 0; worked < 3; i++ {
					if i > 500 {
						t.Fatalf("it is not used again: %+v", c.State())
					}
					ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
					out, err := callOf(ctx, c, "srv__append", key(i))
					cancel()
					m.mu.Lock()
					n := m.effects[key(i)]
					m.mu.Unlock()
					switch {
					case n > 1:
						t.Fatalf("call %d had its effect %d times", i, n)
					case err == nil && (n != 1 || out.Text != "done" || out.IsError):
						t.Fatalf("call %d: %+v, %d effects", i, out, n)
					case err == nil && m.dead.Load(): // it runs again
						worked++
					case err == nil && m.seen.Load() > m.at+50:
						t.Fatal("it was not killed")
					case err != nil:
						time.Sleep(20 * time.Millisecond)
					}
				}
			})
		}
	}
}
