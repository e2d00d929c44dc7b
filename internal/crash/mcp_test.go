package crash

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/mcp"
)

// The ways to the MCP server of a scenario.
const (
	overPipes = "stdio" // each process starts one, which ends with it
	overHTTP  = "http"  // the harness keeps one running for the whole story
)

// serverEnv makes a program play an MCP server: a served as JSON.
const serverEnv = "TOOLCRIB_CRASH_MCP"

// served is an MCP server of a story. Its points are counted over all processes that play it: a point
// is passed once in a story.
type served struct {
	Dir  string // of the scenario
	Way  string
	Kill string // the label to die at; "" = live
}

const (
	serverTrace = "server-trace" // a line for each point that a server has passed
	serversFile = "servers"      // each server holds a shared lock on it as long as it lives
	addressFile = "address"      // where the server is reached over HTTP
)

// playServer plays an MCP server, if the program was started as one; then it does not return.
func playServer() { play(serverEnv, (*served).serve) }

// play has a process serve what a variable of its environment orders, if there is one; then it does
// not return.
func play[O any](variable string, serve func(*O) error) {
	text := os.Getenv(variable)
	if text == "" {
		return
	}
	var o O
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = serve(&o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve serves clients. Effects are lines of effectsFile, like those of functions.
func (o *served) serve() error {
	lock, err := alive(filepath.Join(o.Dir, serversFile))
	if err != nil {
		return err
	}
	defer lock.Close()
	trace, err := os.OpenFile(filepath.Join(o.Dir, serverTrace), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	before, err := io.ReadAll(trace)
	if err != nil {
		return err
	}
	d := &dead{at: o.Kill, trace: trace, counts: map[string]int{"server": strings.Count(string(before), "/before")}}
	s := sdk.NewServer(&sdk.Implementation{Name: "crash", Version: "1"}, nil)
	s.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
			label := d.label("server")
			d.pass(label + "/before")
			result, err := next(ctx, method, req)
			d.pass(label + "/unanswered")
			return result, err
		}
	})
	o.add(s, "append", false)
	o.add(s, "append_and_die", false)
	o.add(s, "look", true)
	if o.Way == overPipes {
		return s.Run(context.Background(), &sdk.StdioTransport{})
	}
	listener, err := o.listen()
	if err != nil {
		return err
	}
	return http.Serve(listener, sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, nil))
}

// add adds a tool.
func (o *served) add(s *sdk.Server, name string, reads bool) {
	schema := `{"type":"object","properties":{"key":{"type":"string"}},"required":["key"]}`
	s.AddTool(&sdk.Tool{
		Name: name, InputSchema: json.RawMessage(schema), Annotations: &sdk.ToolAnnotations{ReadOnlyHint: reads},
	}, func(_ context.Context, q *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		var in keyed
		err := json.Unmarshal(q.Params.Arguments, &in)
		if err == nil && !reads {
			err = appendLine(filepath.Join(o.Dir, effectsFile), strings.TrimPrefix(in.Key, "key-")+" "+in.Key)
		}
		if name == "append_and_die" {
			os.Exit(1)
		}
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: in.Key}}}, err
	})
}

// listen listens where the server of this story was before, if there was one.
func (o *served) listen() (net.Listener, error) {
	path := filepath.Join(o.Dir, addressFile)
	at, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		at, err = []byte("127.0.0.1:0"), nil
	}
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		listener, err := net.Listen("tcp", string(at))
		if err != nil && time.Now().Before(end) {
			continue // the port was taken meanwhile, for a moment
		}
		if err == nil {
			err = os.WriteFile(path, []byte(listener.Addr().String()), 0o600)
		}
		fmt.Println("listens")
		return listener, err
	}
}

// keepServer starts the MCP server of a story over HTTP, and again whenever it was killed, until stop
// is called.
func (h *Harness) keepServer(ctx context.Context, s *Story) (stop func() error, err error) {
	text, err := json.Marshal(served{Dir: s.dir, Way: overHTTP, Kill: s.serverKill()})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	began, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		for {
			c := exec.CommandContext(ctx, h.Exe)
			c.Env = append(os.Environ(), serverEnv+"="+string(text))
			out, err := c.StdoutPipe()
			if err == nil {
				err = c.Start()
			}
			if err == nil {
				_, err = bufio.NewReader(out).ReadString('\n')
				select {
				case began <- err:
				default:
				}
				err = c.Wait()
			}
			switch {
			case ctx.Err() != nil:
				ended <- nil
				return
			case c.ProcessState == nil || !killed(c.ProcessState):
				err = fmt.Errorf("the MCP server has ended: %w", err)
				select {
				case began <- err:
				default:
				}
				ended <- err
				return
			}
		}
	}()
	stop = func() error {
		cancel()
		return <-ended
	}
	if err := <-began; err != nil && s.serverKill() == "" {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}

// serverKill is the point at which the MCP server of the story dies; "" = at none.
func (s *Story) serverKill() string {
	for _, k := range s.Kills {
		if k.Server {
			return k.Label
		}
	}
	return ""
}

// mcpTools are the tools of the MCP server. One that is a program ends with this process.
func mcpTools(o *order, way string) ([]toolcrib.Tool, error) {
	server := mcp.Server{Name: "srv", Trusted: way == overHTTP, Start: time.Minute} // so that look is a read
	if way == overHTTP {
		at, err := os.ReadFile(filepath.Join(o.Dir, addressFile))
		if err != nil {
			return nil, err
		}
		server.URL = "http://" + string(at)
	} else {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(served{Dir: o.Dir, Way: way, Kill: o.ServerKill})
		if err != nil {
			return nil, err
		}
		server.Command, server.Env = self, map[string]string{serverEnv: string(text)}
	}
	changed := make(chan struct{}, 1)
	c, err := mcp.New(server, mcp.Options{Changed: func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}})
	if err != nil {
		return nil, err
	}
	c.Start()
	for late := time.After(2 * time.Minute); !c.State().Running; {
		select {
		case <-changed: // one that was killed as it started is started again
		case <-late:
			return nil, fmt.Errorf("the MCP server does not run: %+v", c.State())
		}
	}
	var tools []toolcrib.Tool
	for _, d := range c.Definitions() {
		tools = append(tools, c.Tool(d))
	}
	return tools, nil
}

// flagged looks whether each call of the MCP server is answered by what it did: nothing that has
// happened is unknown, and nothing that has not is said to have happened.
func (s *Story) flagged(run *agent.State) error {
	for _, c := range run.Trace {
		if !strings.HasPrefix(c.Name, "srv__append") || c.Result == nil {
			continue
		}
		effect, err := s.effectOf(c.ID)
		if err != nil {
			return err
		}
		ok := c.Result.Status == toolcrib.ResultOK
		known := ok || c.Result.Status == toolcrib.ResultInDoubt ||
			strings.Contains(c.Result.Content, "whether the call took effect is not known")
		switch {
		case ok && !effect:
			s.problemf("call %s has a result and no effect", c.ID)
		case effect && !known:
			s.problemf("call %s took effect, and its result does not say that it may have: %s", c.ID, c.Result.Content)
		}
	}
	return nil
}

// An MCP server is killed at each message that it gets, before and after it acts on it: a program, and one
// behind an address. With -short it is a sample.
func TestCrash_MCPServers(t *testing.T) {
	t.Parallel()
	h := harness(t)
	s := newSample(t)
	for _, way := range []string{overPipes, overHTTP} {
		base := s.unkilled(h, []Tale{{Scenario: scenario(t, "MCP over "+way)}})[0]
		var kills []Kill
		for _, k := range base.Deaths(0, s.r) {
			if k.Server {
				kills = append(kills, k)
			}
		}
		if len(kills) < 10 {
			t.Fatalf("over %s: only %d points", way, len(kills))
		}
		all := len(kills)
		if testing.Short() {
			s.r.Shuffle(all, func(i, j int) { kills[i], kills[j] = kills[j], kills[i] })
			kills = kills[:4]
		}
		reached := 0
		err := h.PlayAll(t.Context(), tales(base, kills, nil), jobs, func(story *Story) bool {
			s.count(story)
			if story.Reached() {
				reached++
			}
			return true
		})
		if err != nil || reached == 0 {
			t.Fatalf("over %s: %d of %d kills, %v", way, reached, len(kills), err)
		}
		t.Logf("over %s: %d of %d points", way, reached, all)
	}
}
