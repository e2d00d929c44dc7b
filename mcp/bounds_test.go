package mcp_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
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
