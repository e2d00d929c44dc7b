package mcp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/mcp"
	"github.com/toolcrib/toolcrib/toolcribtest/tooltest"
)

// patience is how long a test waits for what must come, on a machine that has other things to do.
const patience = 4 * time.Minute

func start(t *testing.T, s mcp.Server, o mcp.Options) *mcp.Client {
	t.Helper()
	c, err := mcp.New(s, o)
	if err != nil {
		t.Fatal(err)
	}
	c.Start()
	t.Cleanup(c.Close)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if !c.Wait(ctx) {
		t.Fatal("the first attempt to start has not ended")
	}
	return c
}

func toolOf(c *mcp.Client, name string) (toolcrib.Tool, error) {
	for _, d := range c.Definitions() {
		if d.Name == name {
			return c.Tool(d), nil
		}
	}
	return nil, fmt.Errorf("there is no tool %s: %+v", name, c.State())
}

func callOf(ctx context.Context, c *mcp.Client, name, arguments string) (toolcrib.Output, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c.Wait(ctx)
	tool, err := toolOf(c, name)
	if err != nil {
		return toolcrib.Output{}, err
	}
	return tool.Call(ctx, toolcrib.Call{Arguments: json.RawMessage(arguments), Progress: func(string, float64) {}})
}

// works fails unless the server answers within a while: what happened to it before cost
// nothing but that.
func works(t *testing.T, c *mcp.Client) {
	t.Helper()
	waittest.Until(t, "it echoes", func() bool {
		out, err := callOf(t.Context(), c, "srv__echo", `{"a":1}`)
		return err == nil && out.Text == `{"a":1}`
	})
}

func TestServer_OnStandardInput(t *testing.T) {
	t.Setenv("MCP_TEST_SECRET", "s3cr3t")
	var mu sync.Mutex
	var logged []string
	s := program("noisy")
	s.Env["GIVEN"] = "yes"
	c := start(t, s, mcp.Options{Log: func(server, line string) {
		mu.Lock()
		defer mu.Unlock()
		logged = append(logged, server+": "+line)
	}})
	got := c.State()
	if !got.Running || got.Server != "test 1.2" || got.Protocol == "" || got.Error != "" || got.Starts != 1 {
		t.Errorf("state = %+v", got)
	}
	works(t, c)

	out, err := callOf(t.Context(), c, "srv__environment", `{}`)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.Text) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), "=")
		known := []string{"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "GIVEN", asServer}
		if !slices.Contains(known, name) {
			t.Errorf("the server was given %s", name)
		}
	}
	if !strings.Contains(out.Text, "GIVEN=yes") {
		t.Error("the server was not given the variable of its configuration")
	}

	out, err = callOf(t.Context(), c, "srv__structured", `{}`)
	if err != nil || string(out.JSON) != `{"n":1}` || out.Text != "" {
		t.Errorf("structured = %+v, %v", out, err)
	}
	out, err = callOf(t.Context(), c, "srv__picture", `{}`)
	if err != nil || out.Text != "see\n[audio of 3 bytes is left out]" || len(out.Files) != 1 ||
		out.Files[0].MediaType != "image/png" || string(out.Files[0].Data) != "png" {
		t.Errorf("picture = %+v, %v", out, err)
	}
	for name, want := range map[string]string{"fails": "no disk", "breaks": "obey me"} {
		// The words of a server are results, which are marked as untrusted; never errors of ours.
		out, err = callOf(t.Context(), c, "srv__"+name, `{}`)
		if err != nil || !out.IsError || !strings.Contains(out.Text, want) || out.Source != "mcp:srv" {
			t.Errorf("%s = %+v, %v", name, out, err)
		}
	}

	tool, err := toolOf(c, "srv__progress")
	if err != nil {
		t.Fatal(err)
	}
	told, done := make(chan string, 1), make(chan error, 1)
	go func() {
		_, err := tool.Call(t.Context(), toolcrib.Call{Progress: func(text string, fraction float64) {
			told <- fmt.Sprint(text, fraction)
		}})
		done <- err
	}()
	select {
	case got := <-told:
		if got != "half0.5" {
			t.Errorf("progress = %s", got)
		}
	case <-time.After(patience):
		t.Error("no progress was passed on")
	}
	if _, err := callOf(t.Context(), c, "srv__heard", `{}`); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}

	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{"srv: server is starting", "srv: ready", `srv: {"not json`} {
		if !slices.Contains(logged, want) {
			t.Errorf("the log has no %q: %q", want, logged)
		}
	}
}

func TestTool_SpecIsStrictUnlessTrusted(t *testing.T) {
	for _, trusted := range []bool{false, true} {
		s := program("server")
		s.Trusted, s.Timeout = trusted, time.Minute
		c := start(t, s, mcp.Options{})
		for name, reads := range map[string]bool{"srv__echo": true, "srv__fails": false} {
			tool, err := toolOf(c, name)
			if err != nil {
				t.Fatal(err)
			}
			spec := tool.Spec()
			want := toolcrib.EffectNonIdempotentWrite
			if trusted && reads {
				want = toolcrib.EffectReadOnly
			}
			if spec.Effect != want || spec.Untrusted == trusted || !spec.Sink || spec.Source != "mcp:srv" ||
				spec.Timeout != time.Minute || spec.Check() != nil {
				t.Errorf("trusted %v: %s = %+v", trusted, name, spec)
			}
		}
	}
	s := program("server")
	s.Confirm = true
	tool, err := toolOf(start(t, s, mcp.Options{}), "srv__echo")
	if err != nil {
		t.Fatal(err)
	}
	asks := tooltest.Facts(tool, toolcrib.Call{}).Concerns
	if len(asks) != 1 || asks[0].Reason != toolcrib.ReasonNeedsConfirmation {
		t.Errorf("asks = %+v", asks)
	}
}

func TestServer_FailuresCostTheirOwnCallsOnly(t *testing.T) {
	for _, name := range []string{"crash", "flood", "leave"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t, program("server"), mcp.Options{})
			out, err := callOf(t.Context(), c, "srv__"+name, `{}`)
			var failure *toolcrib.ToolError
			if !errors.As(err, &failure) {
				t.Fatalf("%s = %.100q, %v; want an error for the model", name, out.Text, err)
			}
			if text := failure.Error(); strings.Contains(text, "luck") || len(text) > 300 {
				t.Errorf("the model reads %q", text)
			}
			works(t, c)
			if got := c.State().Starts; got < 2 {
				t.Errorf("started %d times", got)
			}
		})
	}
	t.Run("calls at the same time", func(t *testing.T) {
		t.Parallel()
		c := start(t, program("server"), mcp.Options{})
		other := start(t, program("server"), mcp.Options{})
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { _, _ = callOf(t.Context(), c, "srv__crash", `{}`) })
			all.Go(func() {
				if out, err := callOf(t.Context(), other, "srv__echo", `{"b":2}`); err != nil || out.Text != `{"b":2}` {
					t.Errorf("another server: %+v, %v", out, err)
				}
			})
		}
		all.Wait()
	})
}

func TestServer_CallThatHangs(t *testing.T) {
	c := start(t, program("server"), mcp.Options{})
	for _, name := range []string{"srv__hang", "srv__freeze"} {
		tool, err := toolOf(c, name)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		began := time.Now()
		_, err = tool.Call(ctx, toolcrib.Call{Arguments: json.RawMessage(`{}`)})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > patience {
			t.Errorf("%s: %v after %v", name, err, time.Since(began))
		}
	}
	works(t, c)
	if out, err := callOf(t.Context(), c, "srv__canceled", `{}`); err != nil || out.Text != "the call was canceled" {
		t.Errorf("the server was not told: %+v, %v", out, err)
	}

	// A server with many calls that it does not answer is started again.
	tool, err := toolOf(c, "srv__freeze")
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_, _ = tool.Call(ctx, toolcrib.Call{Arguments: json.RawMessage(`{}`)})
		cancel()
	}
	works(t, c)
}

func TestServer_ThatDoesNotStart(t *testing.T) {
	tests := map[string]string{
		"nothing": "does not answer", "exit": "no such database", "endless": "more than 16 MiB", "nonsense": "",
	}
	for mode, want := range tests {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := program(mode)
			if mode == "nothing" || mode == "nonsense" { // the others end by themselves
				s.Start = time.Second
			}
			c := start(t, s, mcp.Options{})
			state := c.State()
			if state.Running || !strings.Contains(state.Error, want) || state.Error == "" || len(state.Error) > 400 {
				t.Errorf("state = %+v", state)
			}
			if len(c.Definitions()) != 0 {
				t.Error("it has tools")
			}
		})
	}
	c := start(t, mcp.Server{Name: "x", Command: "/no/such/program"}, mcp.Options{})
	if state := c.State(); state.Running || !strings.Contains(state.Error, "/no/such/program cannot be started") {
		t.Errorf("state = %+v", state)
	}
}

// Contract §2: a program from before server/discover is begun with initialize, whatever it makes of that.
func TestServer_FromBeforeDiscover(t *testing.T) {
	for _, how := range []string{"ends", "ignores", "nobody", "empty", "other error"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := program("old")
			s.Env["DISCOVER"], s.Start = how, time.Minute
			c := start(t, s, mcp.Options{})
			if state := c.State(); !state.Running || state.Protocol != "2025-06-18" || len(c.Definitions()) != 1 {
				t.Errorf("state = %+v", state)
			}
			want := 1
			if how == "ends" {
				want = 2
			}
			if state := c.State(); state.Starts != want {
				t.Errorf("it was started %d times, want %d", state.Starts, want)
			}
		})
	}
}

func TestServer_ThatChangesItsTools(t *testing.T) {
	changed := make(chan struct{}, 100)
	c := start(t, program("server"), mcp.Options{Changed: func() { changed <- struct{}{} }})
	old, err := toolOf(c, "srv__echo")
	if err != nil {
		t.Fatal(err)
	}
	<-changed
	if _, err := callOf(t.Context(), c, "srv__change", `{}`); err != nil {
		t.Fatal(err)
	}
	for end := time.After(patience); ; {
		if _, err := toolOf(c, "srv__more"); err == nil {
			break
		}
		select {
		case <-changed:
		case <-end:
			t.Fatal("the new tool is not listed")
		}
	}
	_, err = old.Call(t.Context(), toolcrib.Call{Arguments: json.RawMessage(`{}`)})
	if err == nil || !strings.Contains(err.Error(), "must be reviewed") {
		t.Errorf("a call of what was defined before: %v", err)
	}
}

func TestServer_LeavesNoProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	t.Run("closed", func(t *testing.T) {
		c := start(t, program("server"), mcp.Options{})
		out, err := callOf(t.Context(), c, "srv__fork", `{}`)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		gone(t, strings.Fields(out.Text)...)
	})
	t.Run("killed", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), asServer+"=keeper")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		pids := strings.Fields(line)
		if len(pids) != 2 || !alive(pids[0]) || !alive(pids[1]) {
			t.Fatalf("%q do not run", line)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		gone(t, pids...)
	})
}

func TestServer_OverHTTP(t *testing.T) {
	for _, sse := range []bool{false, true} {
		t.Run(fmt.Sprintf("SSE %v", sse), func(t *testing.T) { overHTTPWorks(t, sse, handler(sse)) })
	}
	t.Run("JSON", func(t *testing.T) {
		server := newServer()
		overHTTPWorks(t, false, sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server },
			&sdk.StreamableHTTPOptions{JSONResponse: true}))
	})
}

func overHTTPWorks(t *testing.T, sse bool, inner http.Handler) {
	t.Helper()
	var mu sync.Mutex
	var tokens []string
	far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		mu.Lock()
		tokens = append(tokens, q.Header.Get("Authorization"))
		mu.Unlock()
		inner.ServeHTTP(w, q)
	}))
	t.Cleanup(func() {
		far.CloseClientConnections()
		far.Close()
	})
	c := start(t, mcp.Server{
		Name: "srv", URL: far.URL, Headers: map[string]string{"Authorization": "Bearer t0k"}, Tools: []string{"e*", "huge"},
		SSE: sse,
	}, mcp.Options{})
	works(t, c)
	if n := len(c.Definitions()); n != 3 {
		t.Errorf("%d tools, want echo, environment and huge", n)
	}
	if _, err := callOf(t.Context(), c, "srv__huge", `{}`); err == nil || !strings.Contains(err.Error(), "(64.0 MiB)") {
		t.Errorf("a result of 64 MiB: %v", err)
	}
	if works(t, c); c.State().Starts != 1 {
		t.Errorf("it was started again: %+v", c.State())
	}
	mu.Lock()
	for _, token := range tokens {
		if token != "Bearer t0k" {
			t.Errorf("a request had the token %q", token)
		}
	}
	mu.Unlock()
	far.CloseClientConnections()
	works(t, c)
}

// A server that was started again no longer knows the session. A call that only reads, and finds that out, is
// sent in a new one, whatever the server says of it.
func TestServer_OverHTTP_ForgetsItsSession(t *testing.T) {
	for name, body := range map[string]string{
		"text": "session not found",
		"rpc":  `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session not found"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			inner, gone := handler(false), map[string]bool{} // the sessions, false for those that are known
			far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				mu.Lock()
				h, id := inner, q.Header.Get("Mcp-Session-Id")
				forgotten := gone[id]
				gone[id] = forgotten
				mu.Unlock()
				if forgotten {
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(http.StatusNotFound)
					_, _ = io.WriteString(w, body)
					return
				}
				if q.Header.Get("MCP-Protocol-Version") >= "2026" { // which has no sessions
					http.Error(w, "unknown version", http.StatusBadRequest)
					return
				}
				h.ServeHTTP(w, q)
			}))
			t.Cleanup(func() {
				far.CloseClientConnections()
				far.Close()
			})
			c := start(t, mcp.Server{Name: "srv", URL: far.URL, Trusted: true}, mcp.Options{})
			works(t, c)
			for range 2 {
				mu.Lock()
				for id := range gone {
					gone[id] = id != ""
				}
				inner = handler(false)
				mu.Unlock()
				out, err := callOf(t.Context(), c, "srv__echo", `{"a":1}`)
				if err != nil || out.IsError || out.Text != `{"a":1}` {
					t.Errorf("%+v, %v", out, err)
				}
			}
		})
	}
}

// A server that answers 404 in a new session as well may mean the call itself: it may have carried it out. So
// what may change something is not sent again.
func TestServer_OverHTTP_ForgetsTheNext(t *testing.T) {
	var calls atomic.Int32
	inner := handler(false)
	far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		switch {
		case q.Header.Get("MCP-Protocol-Version") >= "2026": // which has no sessions
			http.Error(w, "unknown version", http.StatusBadRequest)
		case bytes.Contains(body, []byte(`"tools/call"`)):
			calls.Add(1)
			http.NotFound(w, q)
		default:
			q.Body = io.NopCloser(bytes.NewReader(body))
			inner.ServeHTTP(w, q)
		}
	}))
	t.Cleanup(func() {
		far.CloseClientConnections()
		far.Close()
	})
	for reads, want := range map[bool]struct {
		calls int32
		text  string
	}{true: {2, "took effect is not known"}, false: {1, "no longer knows its session"}} {
		c := start(t, mcp.Server{Name: "srv", URL: far.URL, Trusted: reads}, mcp.Options{})
		_, err := callOf(t.Context(), c, "srv__echo", `{"a":1}`)
		if n := calls.Swap(0); err == nil || !strings.Contains(err.Error(), want.text) || n != want.calls {
			t.Errorf("reads %t: %d calls, %v", reads, n, err)
		}
	}
}

// byHand is a server over HTTP that speaks the protocol of 2025-06-18 by hand; call answers a call of a tool.
func byHand(t *testing.T, call func(w http.ResponseWriter, session, id, tool string)) string {
	t.Helper()
	var sessions atomic.Int32
	far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ Name string }
		}
		if q.Method != http.MethodPost {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		if err := json.NewDecoder(q.Body).Decode(&m); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		answer := func(result string) { fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result) }
		switch m.Method {
		case "initialize":
			w.Header().Set("Mcp-Session-Id", fmt.Sprint(sessions.Add(1)))
			answer(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"raw","version":"1"}}`)
		case "tools/list":
			answer(`{"tools":[{"name":"one","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},` +
				`{"name":"two","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]}`)
		case "tools/call":
			call(w, q.Header.Get("Mcp-Session-Id"), string(m.ID), m.Params.Name)
		case "server/discover":
			w.WriteHeader(http.StatusBadRequest)
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	}))
	t.Cleanup(far.Close)
	return far.URL
}

// A block of content of a type that is not known is left out, and said, whatever way the answer comes.
func TestServer_OverHTTP_NewerContent(t *testing.T) {
	result := `{"content":[{"type":"text","text":"seen"},{"type":"video","data":"AAAA"}],"_meta":{"n":12345678901234567890}}`
	at := byHand(t, func(w http.ResponseWriter, _, id, tool string) {
		text := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
		if tool == "two" {
			w.Header().Set("Content-Type", "text/event-stream")
			text = "event: message\ndata:" + text + "\n\n"
		}
		_, _ = io.WriteString(w, text)
	})
	c := start(t, mcp.Server{Name: "srv", URL: at}, mcp.Options{})
	for _, tool := range []string{"srv__one", "srv__two"} {
		out, err := callOf(t.Context(), c, tool, `{}`)
		if err != nil || out.Text != "seen\n[content of type \"video\" was left out: it is not supported]" {
			t.Errorf("%s: %+v, %v", tool, out, err)
		}
	}
}

// A call that is under way does not keep the next from a new session, and has its answer.
func TestServer_OverHTTP_ForgetsBesideACall(t *testing.T) {
	under, goOn := make(chan bool, 1), make(chan bool)
	at := byHand(t, func(w http.ResponseWriter, session, id, tool string) {
		if tool == "two" && session == "1" {
			http.NotFound(w, nil)
			return
		}
		if tool == "one" {
			under <- true
			<-goOn
		}
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, textResult(tool+session))
	})
	c := start(t, mcp.Server{Name: "srv", URL: at, Trusted: true}, mcp.Options{})
	first := make(chan string, 1)
	go func() {
		out, err := callOf(t.Context(), c, "srv__one", `{}`)
		first <- fmt.Sprint(out.Text, err)
	}()
	<-under
	if out, err := callOf(t.Context(), c, "srv__two", `{}`); err != nil || out.Text != "two2" {
		t.Errorf("the second: %q, %v", out.Text, err)
	}
	close(goOn)
	if got := <-first; got != "one1<nil>" {
		t.Errorf("the first: %s", got)
	}
}

// A session that has expired with 400, as older servers say it, is begun again, and a call that only reads is repeated.
func TestServer_OverHTTP_ForgetsWith400(t *testing.T) {
	at := byHand(t, func(w http.ResponseWriter, session, id, tool string) {
		if session == "1" {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`)
			return
		}
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, textResult(tool+session))
	})
	c := start(t, mcp.Server{Name: "srv", URL: at, Trusted: true}, mcp.Options{})
	if out, err := callOf(t.Context(), c, "srv__one", `{}`); err != nil || out.Text != "one2" {
		t.Errorf("%q, %v", out.Text, err)
	}
}

// What HTTP answers instead of MCP is said in words, at a start and of a call.
func TestServer_OverHTTP_Refuses(t *testing.T) {
	for name, c := range map[string]struct {
		status            int
		kind, after, want string
	}{
		"limit":  {429, "text/plain", "30", "answers 429 Too Many Requests: it takes no more requests now; try again in 30 s"},
		"limits": {429, "application/json", "", "answers 429 Too Many Requests: it takes no more requests now; try again later"},
		"key":    {401, "text/plain", "", "answers 401 Unauthorized: it wants a sign-in"},
		"access": {403, "text/plain", "", "answers 403 Forbidden: it refuses access"},
		"page":   {200, "text/html", "", "answers 200 OK: a web page, not MCP; is the url right?"},
		"gone":   {404, "text/html", "", "answers 404 Not Found: a web page, not MCP; is the url right?"},
		"down":   {502, "text/html", "", "answers 502 Bad Gateway: it has failed or is not reachable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refuse := func(w http.ResponseWriter) {
				w.Header().Set("Content-Type", c.kind)
				w.Header().Set("Retry-After", c.after)
				w.WriteHeader(c.status)
				fmt.Fprint(w, "<html>no</html>")
			}
			far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { refuse(w) }))
			defer far.Close()
			if s := start(t, mcp.Server{Name: "srv", URL: far.URL}, mcp.Options{}).State(); !strings.Contains(s.Error, c.want) {
				t.Errorf("it does not start: %s, want %s", s.Error, c.want)
			}
			at := byHand(t, func(w http.ResponseWriter, _, _, _ string) { refuse(w) })
			_, err := callOf(t.Context(), start(t, mcp.Server{Name: "srv", URL: at}, mcp.Options{}), "srv__one", `{}`)
			if c.status != 404 && (err == nil || !strings.Contains(err.Error(), c.want)) { // of a session 404 means that it has ended
				t.Errorf("the call: %v, want %s", err, c.want)
			}
		})
	}
}

// An address without a type may be one of the transport of 2024-11-05.
func TestServer_OverHTTP_Legacy(t *testing.T) {
	far := httptest.NewServer(handler(true))
	t.Cleanup(far.CloseClientConnections)
	c := start(t, mcp.Server{Name: "srv", URL: far.URL}, mcp.Options{})
	works(t, c)
}

func TestServer_OverHTTP_Hostile(t *testing.T) {
	reached := make(chan string, 10)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		reached <- q.Header.Get("Authorization")
	}))
	defer other.Close()
	endless := func(w http.ResponseWriter, contentType string) {
		w.Header().Set("Content-Type", contentType)
		block := []byte(strings.Repeat("x", 1<<20))
		for range 1 << 10 {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}
	tests := map[string]func(w http.ResponseWriter, q *http.Request){
		"elsewhere": func(w http.ResponseWriter, q *http.Request) {
			http.Redirect(w, q, other.URL, http.StatusTemporaryRedirect)
		},
		"round": func(w http.ResponseWriter, q *http.Request) {
			http.Redirect(w, q, "/", http.StatusTemporaryRedirect)
		},
		"1 GB":      func(w http.ResponseWriter, _ *http.Request) { endless(w, "application/json") },
		"1 GB text": func(w http.ResponseWriter, _ *http.Request) { endless(w, "text/event-stream") },
		"nonsense":  func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"refuses":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
		"hangs": func(_ http.ResponseWriter, q *http.Request) {
			_, _ = io.Copy(io.Discard, q.Body) // only then the end of the connection is seen
			<-q.Context().Done()
		},
	}
	for name, answer := range tests {
		t.Run(name, func(t *testing.T) {
			far := httptest.NewServer(http.HandlerFunc(answer))
			c := start(t, mcp.Server{
				Name: "srv", URL: far.URL, Headers: map[string]string{"Authorization": "Bearer t0k"}, Start: time.Second,
			}, mcp.Options{})
			if state := c.State(); state.Running || state.Error == "" || len(state.Error) > 400 {
				t.Errorf("state = %+v", state)
			}
			c.Close()
			far.CloseClientConnections()
			far.Close()
		})
	}
	select {
	case token := <-reached:
		t.Errorf("another server was reached, with %q", token)
	default:
	}
}
