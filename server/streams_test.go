package server_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/service"
)

// Many open streams use little memory each, one without a reader does not slow down its run, and all of them end with
// the run.
func TestManyStreams(t *testing.T) {
	n, most := 1000, int64(64<<10)
	if testing.Short() {
		n, most = 200, 96<<10 // with fewer, shared memory counts too much
	}
	h := openClient(t)
	ann := h.token("ann", access.Scope{})
	for _, over := range []string{"events", "ws"} {
		h.unwritten("ann")
		var run service.Run
		h.want(200, &run, "POST", "/api/runs", ann, `{"input":"Write."}`)
		before := h.memory(0)
		conns := make([]net.Conn, n)
		for i := range conns {
			conns[i] = h.stream(over, ann, run)
		}
		h.eventually(fmt.Sprintf("each of %d streams over %s takes at most %d bytes", n, over, most), func() bool {
			each := (h.memory(n) - before) / int64(n) // more while some requests are still being answered
			t.Logf("%s: %d KiB for each of %d streams", over, each>>10, n)
			return each <= most
		})
		began := time.Now()
		h.want(200, nil, "POST", "/api/approvals/"+run.Pending.ApprovalID, ann,
			`{"decision":"approve","digest":"`+run.Pending.Digest+`"}`)
		h.eventually("its end", func() bool {
			h.want(200, &run, "GET", "/api/runs/"+string(run.ID), ann, "")
			return run.Status == "completed"
		})
		t.Logf("%s: the run has ended after %s", over, time.Since(began))
		var all sync.WaitGroup
		for i, conn := range conns {
			if i%2 == 1 { // without a reader
				_ = conn.Close()
				continue
			}
			all.Go(func() {
				defer conn.Close()
				_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
				for lines := bufio.NewScanner(conn); lines.Scan(); {
					if strings.Contains(lines.Text(), `"stop_reason":"completed"`) {
						return
					}
				}
				t.Errorf("%s: a stream has no end", over)
			})
		}
		all.Wait()
	}
}

// stream opens a connection with the events of a run, without the memory of an HTTP client.
func (h *house) stream(over, token string, run service.Run) net.Conn {
	h.t.Helper()
	address := strings.TrimPrefix(h.url, "http://")
	conn, err := net.Dial("tcp", address)
	if err != nil {
		h.t.Fatal(err)
	}
	path, more := "/api/runs/"+string(run.ID)+"/events", ""
	if over == "ws" {
		path, more = "/api/ws", "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	}
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n%s\r\n", path, address, token, more)
	head := make([]byte, 12)
	if _, err := conn.Read(head); err != nil ||
		string(head[9:12]) != map[string]string{"events": "200", "ws": "101"}[over] {
		h.t.Fatalf("%s: %s %v", path, head, err)
	}
	if over == "ws" { // a masked text frame, whose mask is zero
		text := fmt.Sprintf(`{"type":"join","run_id":%q}`, run.ID)
		_, _ = conn.Write(append([]byte{0x81, byte(0x80 | len(text)), 0, 0, 0, 0}, text...))
	}
	return conn
}

// connected waits until the server has n connections, not counting the idle ones of the client.
func (h *house) connected(n int) {
	h.t.Helper()
	h.eventually(fmt.Sprintf("%d connections", n), func() bool {
		http.DefaultClient.CloseIdleConnections()
		return h.server.Connections() == n
	})
}

// memory returns the bytes in use once the server has n connections.
func (h *house) memory(n int) int64 {
	h.t.Helper()
	h.connected(n)
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// A client that starts a run and reads its events gets all of them, including the live ones of its first reply, however
// quickly it comes, and each before the kept event that it belongs to.
func TestStreamsBegin(t *testing.T) {
	h := open(t, "")
	ann := h.token("ann", access.Scope{})
	joined := func(over, name, data, arguments string) string {
		var delta struct {
			Delta string `json:"arguments_delta"`
		}
		var call struct{ Arguments json.RawMessage }
		switch name {
		case "tool_call_delta":
			if err := json.Unmarshal([]byte(data), &delta); err != nil {
				t.Fatal(err)
			}
			arguments += delta.Delta
		case "tool_call":
			if err := json.Unmarshal([]byte(data), &call); err != nil {
				t.Fatal(err)
			}
			var a, b any
			if json.Unmarshal([]byte(arguments), &a) != nil || json.Unmarshal(call.Arguments, &b) != nil ||
				!reflect.DeepEqual(a, b) {
				t.Errorf("%s: the deltas of %s are joined %q", over, call.Arguments, arguments)
			}
		}
		return arguments
	}
	for range 10 {
		all := h.events(h.request("POST", "/api/runs", ann, `{"input":"Write."}`, "Accept", "Text/Event-Stream"), nil)
		if all[0].name != "run_started" || all[len(all)-1].name != "paused" {
			t.Fatalf("POST: %s", names(all))
		}
		arguments := ""
		for _, e := range all {
			arguments = joined("POST", e.name, e.data, arguments)
		}
		s := h.socket(ann)
		s.send(`{"type":"run","body":{"input":"Write."}}`)
		frames := s.until(isEvent("paused", "error"))
		arguments = ""
		for _, f := range frames {
			arguments = joined("WebSocket", f.Event, string(f.Data), arguments)
		}
		if frames[0].Event != "run_started" {
			t.Errorf("WebSocket: %+v", frames)
		}
	}
}
