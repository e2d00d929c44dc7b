package serve_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib/mcp/serve"
	"github.com/toolcrib/toolcrib/service"
)

// raw is a client that writes and reads lines.
type raw struct {
	t     *testing.T
	in    io.WriteCloser
	lines chan string // closed when the server has ended
	ended chan error
}

func (c *crib) raw() *raw {
	in, out, stop, ended := c.run(service.StartRequest{})
	r := &raw{t: c.t.(*testing.T), in: in, lines: make(chan string, 1024), ended: ended}
	go func() {
		defer close(r.lines)
		for lines := bufio.NewReader(out); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			r.lines <- line
		}
	}()
	c.t.Cleanup(func() {
		_ = in.Close()
		for range r.lines {
			continue
		}
		stop()
	})
	return r
}

func (r *raw) send(line string) {
	r.t.Helper()
	if _, err := io.WriteString(r.in, line+"\n"); err != nil {
		r.t.Fatal(err)
	}
}

// answer is the next answer with this ID.
func (r *raw) answer(id string) string {
	r.t.Helper()
	return r.answers(id)[id]
}

// answers are the next answers with these IDs, in whatever order they come.
func (r *raw) answers(ids ...string) map[string]string {
	r.t.Helper()
	limit := time.After(patience)
	found := map[string]string{}
	for len(found) < len(ids) {
		select {
		case line, ok := <-r.lines:
			if !ok {
				r.t.Fatalf("the server has ended before it answered %s: %v", ids, <-r.ended)
			}
			var message struct {
				ID json.RawMessage `json:"id"`
			}
			if json.Unmarshal([]byte(line), &message) == nil && slices.Contains(ids, string(message.ID)) {
				found[string(message.ID)] = line
			}
		case <-limit:
			r.t.Fatalf("no answer to %s, only %v", ids, found)
		}
	}
	return found
}

func (r *raw) initialize() {
	r.t.Helper()
	r.send(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":` +
		`{"elicitation":{}},"clientInfo":{"name":"x","version":"1"}}}`)
	r.answer(`"init"`)
	r.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

// lives fails unless the server still answers.
func (r *raw) lives() {
	r.t.Helper()
	r.send(`{"jsonrpc":"2.0","id":"alive","method":"tools/call","params":{"name":"read_file","arguments":{"path":"a.txt"}}}`)
	if got := r.answer(`"alive"`); !strings.Contains(got, "the text of a") {
		r.t.Fatal(got)
	}
}

// Whatever a client sends: an error for it, nothing runs that would not have, and the next
// call is answered.
func TestServe_Hostile(t *testing.T) {
	c := stock(t, "")
	r := c.raw()
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_file","arguments":{"path":"a.txt"}}}`)
	if got := r.answer("1"); !strings.Contains(got, "error") || strings.Contains(got, "the text of a") {
		t.Errorf("before initialize: %s", got)
	}
	r.initialize()
	deep := strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000)
	for name, params := range map[string]string{
		"unknown tool":       `{"name":"nothing","arguments":{}}`,
		"no name":            `{"arguments":{}}`,
		"a name of 1 MB":     `{"name":"` + strings.Repeat("x", 1<<20) + `","arguments":{}}`,
		"a name with codes":  `{"name":"write_file\u0000\u202e","arguments":{"path":"b.txt","content":"x"}}`,
		"another case":       `{"name":"Write_File","arguments":{"path":"b.txt","content":"x"}}`,
		"a name of a number": `{"name":7,"arguments":{}}`,
		"an array":           `{"name":"write_file","arguments":["b.txt","x"]}`,
		"a text":             `{"name":"write_file","arguments":"{\"path\":\"b.txt\",\"content\":\"x\"}"}`,
		"a number":           `{"name":"write_file","arguments":1e999}`,
		"null":               `{"name":"write_file","arguments":null}`,
		"no arguments":       `{"name":"write_file"}`,
		"wrong types":        `{"name":"write_file","arguments":{"path":1,"content":{}}}`,
		"unknown arguments":  `{"name":"write_file","arguments":{"path":"b.txt","content":"x","confirm":true}}`,
		"twice the same key": `{"name":"write_file","arguments":{"path":"a.txt","path":"b.txt","content":"x"}}`,
		"keys by case":       `{"name":"write_file","arguments":{"path":"a.txt","Path":"b.txt","content":"x"}}`,
		"10 MB":              `{"name":"write_file","arguments":{"path":"b.txt","content":"` + strings.Repeat("x", 10<<20) + `"}}`,
		"deep":               `{"name":"write_file","arguments":` + deep + `}`,
		"a state":            `{"name":"write_file","arguments":{"path":"b.txt","content":"x"},"requestState":"AAAA"}`,
		"a state and an answer": `{"name":"write_file","arguments":{"path":"b.txt","content":"x"},"requestState":"AAAA",` +
			`"inputResponses":{"toolcrib":{"action":"accept","content":{"decision":"approve"}}}}`,
		"answers of another kind": `{"name":"write_file","arguments":{"path":"b.txt","content":"x"},"requestState":"AAAA",` +
			`"inputResponses":{"toolcrib":{"roots":[]},"x":7}}`,
		"an agent's own name": `{"name":"agent__helper","arguments":{"task":"x","agent":"stopped"}}`,
		"spawn":               `{"name":"spawn","arguments":{"task":"x","agent":"default"}}`,
		"a token":             `{"name":"nothing","arguments":{},"_meta":{"progressToken":{"a":1}}}`,
		"collects a number":   `{"name":"collect_result","arguments":{"approval_id":7}}`,
		"collects by path":    `{"name":"collect_result","arguments":{"approval_id":"apr_../../x"}}`,
	} {
		r.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":` + params + `}`)
		got := r.answer("2")
		if !strings.Contains(got, `"error"`) && !strings.Contains(got, `"isError":true`) {
			t.Errorf("%s: %.300s", name, got)
		}
		if c.written() != "" {
			t.Fatalf("%s: written", name)
		}
	}
	for name, line := range map[string]string{
		"an unknown method":      `{"jsonrpc":"2.0","id":3,"method":"gate/allow","params":{}}`,
		"params of a list":       `{"jsonrpc":"2.0","id":3,"method":"tools/list","params":[]}`,
		"a cursor of its own":    `{"jsonrpc":"2.0","id":3,"method":"tools/list","params":{"cursor":"!!"}}`,
		"initialize once more":   `{"jsonrpc":"2.0","id":3,"method":"initialize","params":{}}`,
		"an old name":            `{"jsonrpc":"2.0","id":3,"method":"resources/read","params":{"uri":"toolcrib://runs/../../x"}}`,
		"a resource of a number": `{"jsonrpc":"2.0","id":3,"method":"resources/read","params":{"uri":3}}`,
		"a prompt":               `{"jsonrpc":"2.0","id":3,"method":"prompts/get","params":{"name":"x"}}`,
		"a subscription":         `{"jsonrpc":"2.0","id":3,"method":"resources/subscribe","params":{"uri":"toolcrib://runs"}}`,
		"a completion":           `{"jsonrpc":"2.0","id":3,"method":"completion/complete","params":{}}`,
	} {
		r.send(line)
		if got := r.answer("3"); !strings.Contains(got, `"error"`) && name != "initialize once more" {
			t.Errorf("%s: %.300s", name, got)
		}
	}
	for _, line := range []string{
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}`,
		`{"jsonrpc":"2.0","method":"notifications/nothing"}`,
		`{"jsonrpc":"2.0","id":77,"result":{}}`,
		`{"jsonrpc":"2.0","id":"77","error":{"code":1,"message":"x"}}`,
	} {
		r.send(line)
	}
	r.lives()
	// An answer to a question that was not asked is ignored.
	r.send(`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"write_file","arguments":{"path":"b.txt","content":` +
		`"x"},"inputResponses":{"toolcrib":{"action":"accept","content":{"decision":"approve"}}}}}`)
	if got := <-r.lines; !strings.Contains(got, `"elicitation/create"`) || c.written() != "" {
		t.Errorf("%s", got)
	}
}

// The same ID twice at a time is answered for one of them only, and neither runs twice.
func TestServe_HostileIDs(t *testing.T) {
	c := stock(t, "tools: {confirm: never}\n")
	r := c.raw()
	r.initialize()
	for range 20 {
		r.send(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"write_file","arguments":{"path":"b.txt","content":"x"}}}`)
	}
	r.answer("5")
	r.lives()
	runs, _, err := c.s.Runs(t.Context(), c.who, service.RunsQuery{})
	if err != nil || len(runs) > 21 || c.written() != "x" {
		t.Errorf("%d runs, %v", len(runs), err)
	}
}

// An invalid message is answered with an error, and the next one is handled; the same at the end of
// the input, in the middle of a line.
func TestServe_HostileLines(t *testing.T) {
	r := stock(t, "").raw()
	r.initialize()
	for name, line := range map[string]string{
		"no JSON":       "hello",
		"cut":           `{"jsonrpc":"2.0","id":1,`,
		"a number":      "7",
		"no version":    `{"id":1,"method":"ping"}`,
		"a long line":   `{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", 20<<20) + `"}`,
		"bytes":         "\xff\xfe\x00",
		"an empty set":  "[]",
		"a large set":   "[1" + strings.Repeat(",1", 2000) + "]",
		"an ID of ours": `{"jsonrpc":"2.0","id":{"a":1},"method":"ping"}`,
		"depth":         strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000),
	} {
		r.send(line)
		select {
		case got := <-r.lines:
			if !strings.Contains(got, "-32700") {
				t.Errorf("%s: %s", name, got)
			}
		case <-time.After(patience):
			t.Fatalf("%s: no answer", name)
		}
	}
	// A batch (2025-03-26): its requests are carried out side by side, so in any order.
	r.send(`[{"jsonrpc":"2.0","id":21,"method":"ping"},{"jsonrpc":"2.0","id":22,"method":"ping"}]`)
	for id, got := range r.answers("21", "22") {
		if strings.Contains(got, `"error"`) {
			t.Errorf("%s: %s", id, got)
		}
	}
	r.lives()
	_, _ = io.WriteString(r.in, `{"jsonrpc":"2.0","id":9,"method":"ping"}`)
	_ = r.in.Close()
	r.answer("9")
	select {
	case <-r.ended:
	case <-time.After(patience):
		t.Fatal("the server has not ended")
	}
}

// A flood is answered: by results for as many as are carried out at a time, by errors for the
// others.
func TestServe_HostileFlood(t *testing.T) {
	n := 100_000
	if testing.Short() {
		n = 5_000
	}
	c := stock(t, "")
	r := c.raw()
	r.initialize()
	sent := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < n && err == nil; i++ {
			name := "read_file"
			if i%10 != 0 {
				name = "nothing"
			}
			_, err = fmt.Fprintf(r.in, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{"path":"a.txt"}}}`+"\n",
				i+100, name)
		}
		sent <- err
	}()
	results, busy, answered := 0, 0, map[string]bool{}
	for len(answered) < n {
		var line string
		select {
		case line = <-r.lines:
		case <-time.After(patience):
			t.Fatalf("%d of %d answered", len(answered), n)
		}
		var message struct {
			ID    json.RawMessage
			Error struct{ Code int }
		}
		if err := json.Unmarshal([]byte(line), &message); err != nil {
			t.Fatal(err)
		}
		if message.ID == nil { // a notification
			continue
		}
		if answered[string(message.ID)] {
			t.Fatalf("answered twice: %s", message.ID)
		}
		answered[string(message.ID)] = true
		switch {
		case strings.Contains(line, "the text of a"):
			results++
		case message.Error.Code == -32000:
			busy++
		case message.Error.Code != -32602:
			t.Fatal(line)
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	runs := 0
	for q := (service.RunsQuery{}); ; {
		page, next, err := c.s.Runs(t.Context(), c.who, q)
		if err != nil {
			t.Fatal(err)
		}
		if runs += len(page); next == "" {
			break
		}
		q.Cursor = next
	}
	t.Logf("%d results, %d of %d at a time refused, %d runs", results, busy, serve.MaxCalls, runs)
	if results == 0 || runs != results {
		t.Errorf("%d results of %d runs", results, runs)
	}
	r.lives()
}

var errWrite = errors.New("nobody reads")

type deaf struct{}

func (deaf) Write([]byte) (int, error) { return 0, errWrite }

// A client that does not read any answer ends its server.
func TestServe_HostileDeaf(t *testing.T) {
	c := stock(t, "")
	serving, err := c.s.Serve(t.Context(), c.who, service.StartRequest{})
	if err != nil {
		t.Fatal(err)
	}
	defer serving.Close()
	in, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- serve.New(serve.Options{Serving: serving, Mask: func(text string) string { return text }}).Run(t.Context(), in, deaf{})
	}()
	_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n")
	_ = w.Close()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("the server has not ended")
	}
}

// A client that keeps the output open and reads nothing does not keep its server running, neither when
// it closes the input nor when the process is terminated.
func TestServe_HostileStalled(t *testing.T) {
	c := stock(t, "")
	ended := map[string]chan error{"input closed": make(chan error, 1), "told to end": make(chan error, 1)}
	for name, end := range ended {
		serving, err := c.s.Serve(t.Context(), c.who, service.StartRequest{})
		if err != nil {
			t.Fatal(err)
		}
		defer serving.Close()
		in, w := io.Pipe()
		unread, out := io.Pipe() // a write blocks until it is read
		defer unread.Close()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() {
			end <- serve.New(serve.Options{Serving: serving, Mask: func(text string) string { return text }}).Run(ctx, in, out)
		}()
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n")
		if name == "told to end" {
			stop()
		} else {
			_ = w.Close()
		}
	}
	limit := time.After(patience)
	for name, end := range ended {
		select {
		case <-end:
		case <-limit:
			t.Errorf("%s: the server has not ended", name)
		}
	}
}
