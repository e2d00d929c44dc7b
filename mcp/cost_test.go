package mcp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/mcp"
)

// gigabyteServer answers each call with a gigabyte.
func gigabyteServer() {
	rawServer(`{"name":"huge","inputSchema":{"type":"object"}}`, func(id, _ string) {
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"`, id)
		mebibyte := strings.Repeat("x", 1<<20)
		for range 1024 {
			if _, err := os.Stdout.WriteString(mebibyte); err != nil {
				os.Exit(1)
			}
		}
		fmt.Print(`"}]}}` + "\n")
	}, func(string) {})
}

// memory is what the heap and the stacks use.
func memory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// A result of a gigabyte is an error that names its size, of its call only; memory stays bounded.
func TestServer_AnswersAGigabyte(t *testing.T) {
	c := start(t, program("gigabyte"), mcp.Options{})
	before := memory()
	var most int64
	stop, sampled := make(chan bool), make(chan bool)
	go func() {
		defer close(sampled)
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				most = max(most, int64(m.HeapInuse+m.StackInuse)-before)
			}
		}
	}()
	out, err := callOf(t.Context(), c, "srv__huge", `{}`)
	close(stop)
	<-sampled
	if err == nil || !strings.Contains(err.Error(), "(1024.0 MiB)") || c.State().Starts != 1 {
		t.Errorf("%.100q, %v, want an error; %+v", out.Text, err, c.State())
	}
	if most > 160<<20 { // a message of 16 MiB, and what it grew from
		t.Errorf("%d MiB of memory", most>>20)
	}
	t.Logf("%d MiB of memory at most: %v", most>>20, err)
}

// A server at an address that sends events as fast as it can costs its calls an error, as a
// program that writes so does.
func TestServer_FloodsAtAnAddress(t *testing.T) {
	server, stop := newServer(), make(chan bool)
	events := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			events.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		line := strings.Repeat("event: message\r\ndata: "+
			`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`+"\r\n\r\n", 100)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := w.Write([]byte(line)); err != nil {
				return
			}
		}
	}))
	defer h.Close() // waits for the floods
	defer close(stop)
	c := start(t, mcp.Server{Name: "srv", URL: h.URL}, mcp.Options{})
	waittest.Until(t, "it is started again", func() bool { return c.State().Starts > 1 })
	t.Logf("%+v", c.State())
}

// A server that has nothing to do costs at most a mebibyte.
func TestServer_IdleCost(t *testing.T) {
	const servers = 10
	web := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return newServer() }, nil))
	t.Cleanup(web.Close)
	for name, s := range map[string]mcp.Server{"a program": program("server"), "at an address": {Name: "srv", URL: web.URL}} {
		start(t, s, mcp.Options{}) // what all share
		before, threads := memory(), runtime.NumGoroutine()
		for range servers {
			works(t, start(t, s, mcp.Options{}))
		}
		cost := (memory() - before) / servers
		t.Logf("%s: %d KiB, %d goroutines", name, cost>>10, (runtime.NumGoroutine()-threads)/servers)
		if cost > 1<<20 {
			t.Errorf("%s: %d KiB", name, cost>>10)
		}
	}
}
