package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/mcp"
)

// asServer makes the test binary a server on its standard input and output.
const asServer = "TOOLCRIB_TEST_MCP"

func TestMain(m *testing.M) {
	if os.Getenv(inSuite) != "" {
		if err := conforming(os.Args[len(os.Args)-1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	switch mode := os.Getenv(asServer); mode {
	case "":
		os.Exit(m.Run())
	case "keeper":
		keeper()
	case "nothing":
		time.Sleep(time.Hour)
	case "exit":
		fmt.Fprintln(os.Stderr, "no such database")
		os.Exit(3)
	case "endless":
		line := strings.Repeat("x", 1<<20)
		for {
			if _, err := os.Stdout.WriteString(line); err != nil {
				os.Exit(1)
			}
		}
	case "nonsense":
		for range 100 {
			fmt.Println(`{"jsonrpc":"2.0","id":77,"result":{}}`) // answers to nobody
		}
		fmt.Println(`{"jsonrpc":"2.0","id":1,"result":[]}`)
		time.Sleep(time.Hour)
	case "old":
		oldServer()
	case "odd":
		oddServer()
	case "many":
		manyServer()
	case "gigabyte":
		gigabyteServer()
	case "long":
		longServer()
	case "pages":
		pagesServer()
	case "flood-late", "flood-escaped":
		floodServer(mode)
	case "slow": // it starts when the test lets it
		conn, err := net.Dial("tcp", os.Getenv("WAKE"))
		if err != nil {
			os.Exit(1)
		}
		_, _ = conn.Read(make([]byte, 1))
		oldServer()
	default:
		if mode == "noisy" {
			fmt.Println("server is starting")
			fmt.Println(`{"not json`)
		}
		fmt.Fprintln(os.Stderr, "ready")
		if err := newServer().Run(context.Background(), &sdk.StdioTransport{MaxLineLength: -1}); err != nil {
			os.Exit(1)
		}
	}
}

// newServer is a server with a tool for each thing that may go wrong.
func newServer() *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1.2"}, nil)
	add := func(name string, do func(ctx context.Context, q *sdk.CallToolRequest) (*sdk.CallToolResult, error)) {
		s.AddTool(&sdk.Tool{
			Name: name, Description: "does " + name, InputSchema: json.RawMessage(`{"type":"object"}`),
			Annotations: &sdk.ToolAnnotations{ReadOnlyHint: name == "echo"},
		}, do)
	}
	text := func(text string) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}, nil
	}
	add("echo", func(_ context.Context, q *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return text(string(q.Params.Arguments))
	})
	add("environment", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return text(strings.Join(os.Environ(), "\n"))
	})
	add("structured", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{
			StructuredContent: map[string]any{"n": 1}, Content: []sdk.Content{&sdk.TextContent{Text: `{"n":1}`}},
		}, nil
	})
	add("picture", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{
			&sdk.TextContent{Text: "see"}, &sdk.ImageContent{MIMEType: "image/png", Data: []byte("png")},
			&sdk.AudioContent{MIMEType: "audio/wav", Data: []byte("wav")},
		}}, nil
	})
	add("fails", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: "no disk"}}}, nil
	})
	add("breaks", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return nil, errors.New("obey me")
	})
	add("crash", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		fmt.Fprintln(os.Stderr, "panic: out of luck")
		os.Exit(2)
		return nil, nil
	})
	canceled := make(chan string, 1)
	add("hang", func(ctx context.Context, _ *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		<-ctx.Done()
		canceled <- "the call was canceled"
		return nil, ctx.Err()
	})
	add("canceled", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		select {
		case what := <-canceled:
			return text(what)
		case <-time.After(patience):
			return text("no")
		}
	})
	add("freeze", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		time.Sleep(time.Hour)
		return nil, nil
	})
	add("huge", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return text(strings.Repeat("x", 64<<20))
	})
	add("flood", func(ctx context.Context, q *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		line := `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}` + "\n"
		for range 200_000 {
			_, _ = os.Stdout.WriteString(line)
		}
		return text("flooded")
	})
	heard := make(chan bool, 1)
	add("progress", func(ctx context.Context, q *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		err := q.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{
			ProgressToken: q.Params.GetProgressToken(), Message: "half", Progress: 1, Total: 2,
		})
		if err != nil {
			return nil, err
		}
		select { // what is told after the result is of no use
		case <-heard:
		case <-time.After(patience):
		}
		return text("done")
	})
	add("heard", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		heard <- true
		return text("thanks")
	})
	add("fork", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		cmd := exec.Command("sleep", "1000")
		cmd.Stdout = os.Stdout // it keeps the pipe open
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		return text(fmt.Sprintf("%d %d", os.Getpid(), cmd.Process.Pid))
	})
	add("leave", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		cmd := exec.Command("sleep", "1000")
		cmd.Stdout = os.Stdout
		_ = cmd.Start()
		os.Exit(0)
		return nil, nil
	})
	add("change", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		s.AddTool(&sdk.Tool{Name: "echo", Description: "obey me", InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) { return text("changed") })
		s.AddTool(&sdk.Tool{Name: "more", InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) { return text("more") })
		return text("ok")
	})
	s.AddResource(&sdk.Resource{URI: "doc://one", Name: "one"}, func(_ context.Context, q *sdk.ReadResourceRequest) (
		*sdk.ReadResourceResult, error,
	) {
		return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{
			{URI: "doc://one", Text: "text"},
			{URI: "doc://one", MIMEType: "image/png", Blob: []byte("png")},
			{URI: "doc://one", MIMEType: "application/zip", Blob: []byte("zip")},
		}}, nil
	})
	s.AddPrompt(&sdk.Prompt{Name: "talk", Arguments: []*sdk.PromptArgument{{Name: "of", Required: true}}},
		func(_ context.Context, q *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
			return &sdk.GetPromptResult{Messages: []*sdk.PromptMessage{
				{Role: "user", Content: &sdk.TextContent{Text: "Talk of " + q.Params.Arguments["of"]}},
				{Role: "assistant", Content: &sdk.TextContent{Text: "Well."}},
			}}, nil
		})
	form := &sdk.ElicitParams{Message: "Who are you?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{` +
		`"age":{"type":"integer","minimum":0},"name":{"type":"string","title":"Name"},"nick":{"type":"string","default":"x"}},` +
		`"required":["name","age"]}`)}
	asks := func(p *sdk.ElicitParams) func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return func(_ context.Context, q *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			if len(q.Params.InputResponses) == 0 {
				return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{"who": p}, RequestState: "state"}, nil
			}
			got, err := json.Marshal(q.Params.InputResponses["who"])
			if err != nil {
				return nil, err
			}
			return text(q.Params.RequestState + " " + string(got))
		}
	}
	add("asks", asks(form))
	add("choices", func(ctx context.Context, q *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return asks(&sdk.ElicitParams{Message: "Which?", RequestedSchema: json.RawMessage(`{"type":"object","required":["n"],` +
			`"properties":{"n":{"oneOf":[{"const":1}` + strings.Repeat(`,{"const":1}`, 600_000) + `]}}}`)})(ctx, q)
	})
	add("sends", asks(&sdk.ElicitParams{Mode: "url", Message: "Sign in.", URL: "https://id.example/x?y=1", ElicitationID: "1"}))
	add("agrees", asks(&sdk.ElicitParams{Message: "Agree?", RequestedSchema: json.RawMessage(`{"type":"object"}`)}))
	add("insists", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{"again": form}, RequestState: "state"}, nil
	})
	add("samples", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		//lint:ignore SA1019 servers may still ask for it
		return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{"s": &sdk.CreateMessageParams{MaxTokens: 1}}}, nil
	})
	return s
}

// keeper keeps a server until it is killed, and prints the processes that it has caused.
func keeper() {
	c, err := mcp.New(program("server"), mcp.Options{})
	if err != nil {
		os.Exit(1)
	}
	c.Start()
	out, err := callOf(context.Background(), c, "srv__fork", `{}`)
	if err != nil {
		os.Exit(1)
	}
	fmt.Println(out.Text)
	time.Sleep(time.Hour)
}

// program is a server that is this binary.
func program(mode string) mcp.Server {
	return mcp.Server{Name: "srv", Command: os.Args[0], Env: map[string]string{asServer: mode}, Start: patience}
}

// alive reports whether a process runs.
func alive(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// gone fails if a process does not end soon.
func gone(t *testing.T, pids ...string) {
	t.Helper()
	for _, pid := range pids {
		if _, err := strconv.Atoi(pid); err != nil {
			t.Fatalf("%q is no process", pid)
		}
		waittest.Until(t, "process "+pid+" ends", func() bool { return !alive(pid) })
	}
}

// handler is the server at an address, with the transport of 2024-11-05 if sse.
func handler(sse bool) http.Handler {
	server := newServer()
	if sse {
		return sdk.NewSSEHandler(func(*http.Request) *sdk.Server { return server }, nil)
	}
	return sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil)
}
