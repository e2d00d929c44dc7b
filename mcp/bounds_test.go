package mcp_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib/mcp"
)

// pagesServer lists a tool of 12 MiB on each page, without end. It gives up if somebody wants
// more of them than can be of use.
func pagesServer() {
	pages := 0
	big := strings.Repeat("x", 12<<20)
	speak(func(id, method string) {
		switch method {
		case "initialize":
			answer(id, `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"p","version":"1"}}`)
		case "tools/list":
			if pages++; pages > 10 {
				fmt.Fprintln(os.Stderr, "too many pages")
				os.Exit(9)
			}
			tool := `{"name":"good","inputSchema":{"type":"object"}}`
			if pages > 1 {
				tool = fmt.Sprintf(`{"name":"t%d","description":%q,"inputSchema":{"type":"object"}}`, pages, big)
			}
			answer(id, fmt.Sprintf(`{"tools":[%s],"nextCursor":"%d"}`, tool, pages))
		case "tools/call":
			answer(id, textResult("fine"))
		}
	})
}

// speak has a server answer each request by hand.
func speak(on func(id, method string)) {
	in := json.NewDecoder(os.Stdin)
	for {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if in.Decode(&m) != nil {
			os.Exit(1)
		}
		if m.Method == "server/discover" {
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"unknown"}}`+"\n", m.ID)
			continue
		}
		on(string(m.ID), m.Method)
	}
}

// The pages of a list are not kept without bound.
func TestServer_WithPagesOfHugeTools(t *testing.T) {
	c := start(t, program("pages"), mcp.Options{}) // with the race detector it takes half a minute to read so much
	if got := c.State(); !got.Running || got.Starts != 1 || len(c.Definitions()) != 1 || len(got.Problems) == 0 {
		t.Errorf("%d tools, %+v", len(c.Definitions()), got)
	}
	if out, err := callOf(t.Context(), c, "srv__good", `{}`); err != nil || out.Text != "fine" {
		t.Errorf("%+v, %v", out, err)
	}
}

// The answer to a request that failed is bounded like any other, whatever its type.
func TestServer_WithEndlessErrorAtAnAddress(t *testing.T) {
	var wrote atomic.Int64
	chunk := make([]byte, 1<<20)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusBadRequest)
		for wrote.Load() < 400<<20 {
			if _, err := w.Write(chunk); err != nil {
				return
			}
			wrote.Add(int64(len(chunk)))
		}
	}))
	defer s.Close()
	c := start(t, mcp.Server{Name: "srv", URL: s.URL, Start: 5 * time.Second}, mcp.Options{})
	if got := c.State(); got.Running || got.Error == "" {
		t.Errorf("state = %+v", got)
	}
	c.Close()
	if n := wrote.Load() >> 20; n > 200 { // a few answers of 16 MiB, and what the buffers hold
		t.Errorf("%d MiB were read", n)
	}
}

// floods are messages that are no answers, in each of the ways to write them.
var floods = map[string]string{
	"flood-late": `{"jsonrpc":"2.0","params":{"level":"info","data":"` + strings.Repeat("x", 300) +
		`"},"method":"notifications/message"}`,
	"flood-escaped": `{"jsonrpc":"2.0","\u006dethod":"notifications/message","params":{"level":"info","data":"x"}}`,
}

func floodServer(mode string) {
	rawServer(`{"name":"flood","inputSchema":{"type":"object"}}`, func(id, _ string) {
		var flood strings.Builder
		for range 1000 {
			flood.WriteString(floods[mode] + "\n")
		}
		for range 200 {
			if _, err := os.Stdout.WriteString(flood.String()); err != nil {
				os.Exit(1)
			}
		}
		answer(id, textResult("flooded"))
	}, func(string) {})
}

func TestServer_FloodsInAnyWay(t *testing.T) {
	for mode := range floods {
		t.Run(mode, func(t *testing.T) {
			c := start(t, program(mode), mcp.Options{})
			began := time.Now()
			if out, err := callOf(t.Context(), c, "srv__flood", `{}`); err == nil {
				t.Errorf("%.100q; want an error", out.Text)
			}
			if took := time.Since(began); took > patience {
				t.Errorf("it was let to flood for %v", took)
			}
		})
	}
}

// long are messages of more than 16 MiB, by the position of their ID: %[1]s, next to a text, %[2]s.
var long = map[string]string{
	"first":   `{"jsonrpc":"2.0","id":%[1]s,"result":{"content":[{"type":"text","text":"%[2]s"}]}}`,
	"last":    `{"result":{"content":[{"type":"text","text":"%[2]s"}]},"jsonrpc":"2.0","id" : %[1]s }`,
	"escaped": `{"result":{"content":[],"x":"%[2]s\"}"},"jsonrpc":"2.0","\u0069d":%[1]s}`,
	"others":  `{"jsonrpc":"2.0","result":{"id":4711,"structuredContent":{"id":4712,"a":[1,{"id":4713},"\"id\":4714,%[2]s"]}},"id":%[1]s}`,
	"batch":   `[{"jsonrpc":"2.0","method":"notifications/x"},{"jsonrpc":"2.0","result":{"a":"%[2]s"},"id":%[1]s}]`,
}

func longServer() {
	text := strings.Repeat(`\\x`, 6<<20)
	asked := ""
	var tools []string
	for _, name := range append(slices.Sorted(maps.Keys(long)), "echo", "notice", "ask") {
		tools = append(tools, fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}}`, name))
	}
	rawServer(strings.Join(tools, ","), func(id, name string) {
		switch form, ok := long[name]; {
		case ok:
			fmt.Printf(form+"\n", id, text)
		case name == "notice":
			fmt.Printf(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"%s"}}`+"\n", text)
			answer(id, textResult("noticed"))
		case name == "ask":
			asked = id
			fmt.Printf(`{"params":{"message":"%s"},"method":"elicitation/create","jsonrpc":"2.0","id":99}`+"\n", text)
		default:
			answer(id, textResult(`{"a":1}`))
		}
	}, func(string) { answer(asked, textResult("asked")) })
}

// An answer that is too long fails its own call only, and the error names its size, wherever its ID
// is; so does a question or a notification.
func TestServer_AnswersTooMuch(t *testing.T) {
	c := start(t, program("long"), mcp.Options{})
	for name := range long {
		_, err := callOf(t.Context(), c, "srv__"+name, `{}`)
		if err == nil || !strings.Contains(err.Error(), "(18.0 MiB), and at most 16 MiB are read") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, want := range map[string]string{"notice": "noticed", "ask": "asked"} {
		if out, err := callOf(t.Context(), c, "srv__"+name, `{}`); err != nil || out.Text != want {
			t.Errorf("%s: %+v, %v", name, out, err)
		}
	}
	if works(t, c); c.State().Starts != 1 {
		t.Errorf("it was started again: %+v", c.State())
	}
}
