// Command mcp measures what a call of an MCP tool costs through toolcrib's gateway (mcp serve,
// with the tool's own server behind it), beside the same call made directly, and beside the
// least that a gateway can be: a server of the official SDK that hands each call on by a client
// of the same. CPU is that of all processes together, those of the client and of the tool among
// them; what starting them costs is taken off. Added CPU is what is not that of the direct call.
//
//	go build -o toolcrib ../../cmd/toolcrib && go run . -toolcrib ./toolcrib [-calls N] [-turns N]
//
// All of this is measured twice: with the data in memory, where the barrier of the durable journal
// costs nothing (mcp serve: in /dev/shm; the library: the journal in memory), and with SQLite on the
// disk of the temporary folder.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcrib/toolcrib/bench/stat"
)

func main() {
	var err error
	switch {
	case len(os.Args) > 1 && os.Args[1] == "upstream":
		err = upstream()
	case len(os.Args) > 1 && os.Args[1] == "proxy":
		err = proxy()
	default:
		binary := flag.String("toolcrib", "toolcrib", "the `binary`")
		calls := flag.Int("calls", 1024, "calls of each kind in a turn")
		turns := flag.Int("turns", 5, "turns, of which medians are printed")
		flag.Parse()
		err = bench(*binary, *calls, *turns)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench/mcp:", err)
		os.Exit(1)
	}
}

var tool = &sdk.Tool{
	Name: "lookup", Description: "Looks up a word.",
	InputSchema: json.RawMessage(`{"type":"object","properties":{"word":{"type":"string"}},"required":["word"]}`),
	Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true},
}

// answer is about what a call of a real server answers.
const answer = `{"word":"gate","meaning":"a place through which one passes, and which can be closed","see":["door","wicket"]}`

func upstream() error {
	s := sdk.NewServer(&sdk.Implementation{Name: "upstream", Version: "1"}, nil)
	s.AddTool(tool, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: answer}}}, nil
	})
	return s.Run(context.Background(), &sdk.StdioTransport{})
}

// proxy hands calls on, and does nothing else.
func proxy() error {
	ctx := context.Background()
	to, err := connect(ctx, os.Args[0], "upstream")
	if err != nil {
		return err
	}
	s := sdk.NewServer(&sdk.Implementation{Name: "proxy", Version: "1"}, nil)
	s.AddTool(tool, func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return to.CallTool(ctx, &sdk.CallToolParams{Name: req.Params.Name, Arguments: req.Params.Arguments})
	})
	err = s.Run(ctx, &sdk.StdioTransport{})
	_ = to.Close()
	return err
}

func connect(ctx context.Context, program string, args ...string) (*sdk.ClientSession, error) {
	client := sdk.NewClient(&sdk.Implementation{Name: "bench", Version: "1"}, nil)
	command := exec.Command(program, args...)
	command.Stderr = os.Stderr
	return client.Connect(ctx, &sdk.CommandTransport{Command: command, TerminateDuration: 20 * time.Second}, nil)
}

// kind is a way to the tool.
type kind struct {
	name      string
	calls     func(n int) (walls []time.Duration, err error) // starts what it takes, and makes so many calls
	cpu, wall []time.Duration                                // of a call, by turn
}

func bench(binary string, calls, turns int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if binary, err = filepath.Abs(binary); err != nil {
		return err
	}
	kinds := []*kind{
		{name: "directly", calls: through("lookup", self, "upstream")},
		{name: "go-sdk proxy", calls: through("lookup", self, "proxy")},
	}
	for _, at := range []struct{ name, dir string }{{"toolcrib, no barrier", "/dev/shm"}, {"toolcrib, durable", ""}} {
		dir, err := os.MkdirTemp(at.dir, "toolcrib-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		command, err := home(binary, self, dir)
		if err != nil {
			return err
		}
		kinds = append(kinds, &kind{name: at.name, calls: through("up__lookup", command...)})
	}
	disk, err := os.MkdirTemp("", "toolcrib-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(disk)
	for _, in := range []struct {
		name, store string
		each        int
	}{
		{"in runs of 64, memory", "", runTurns * turnCalls},
		{"in runs of 64, durable", disk, runTurns * turnCalls},
		{"in runs of 1, memory", "", 1},
		{"in runs of 1, durable", disk, 1},
	} {
		run, err := newInRun(self, in.store, in.each)
		if err != nil {
			return err
		}
		kinds = append(kinds, &kind{name: in.name, calls: run.calls})
	}
	for range turns {
		for _, k := range kinds {
			if err := k.turn(calls); err != nil {
				return fmt.Errorf("%s: %w", k.name, err)
			}
		}
	}
	fmt.Printf("%-24s %12s %12s %8s %8s %12s %12s\n", "", "CPU a call", "added CPU", "× direct", "× proxy", "wall",
		"added wall")
	direct, proxied := kinds[0], kinds[1]
	for _, k := range kinds {
		fmt.Printf("%-24s %12s %12s %8.2f %8.2f %12s %12s\n", k.name, stat.Median(k.cpu).Round(time.Microsecond),
			(stat.Median(k.cpu) - stat.Median(direct.cpu)).Round(time.Microsecond),
			stat.Ratio(k.cpu, direct.cpu), stat.Ratio(k.cpu, proxied.cpu), stat.Median(k.wall).Round(time.Microsecond),
			(stat.Median(k.wall) - stat.Median(direct.wall)).Round(time.Microsecond))
	}
	return nil
}

// home makes a configuration with the tool's server, whose definitions are accepted.
func home(binary, self, dir string) ([]string, error) {
	config := filepath.Join(dir, "toolcrib.yaml")
	text := fmt.Sprintf("data_dir: %s\nworkspace: %s\n"+
		"mcpServers: {up: {command: %s, args: [upstream], trusted: true}}\n", dir, os.TempDir(), self)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	base := []string{binary, "--config", config}
	toolcrib := func(args ...string) ([]byte, error) {
		command := exec.Command(binary, append(base[1:], args...)...)
		command.Stderr = os.Stderr
		return command.Output()
	}
	out, _ := toolcrib("mcp", "review", "up", "--json") // its exit code says that there is something to review
	var reviews []struct{ Digest string }
	if err := json.Unmarshal(out, &reviews); err != nil || len(reviews) != 1 {
		return nil, fmt.Errorf("mcp review: %s %v", out, err)
	}
	if _, err := toolcrib("mcp", "review", "up", "--digest", reviews[0].Digest); err != nil {
		return nil, fmt.Errorf("mcp review: %w", err)
	}
	return append(base, "mcp", "serve", "--tools", "up__lookup"), nil
}

// turn makes the calls, one after another, and once more none.
func (k *kind) turn(calls int) error {
	with, walls, err := k.measure(calls)
	if err != nil {
		return err
	}
	without, _, err := k.measure(0)
	if err != nil || len(walls) == 0 {
		return err
	}
	k.cpu = append(k.cpu, (with-without)/time.Duration(len(walls)))
	k.wall = append(k.wall, stat.Median(walls))
	return nil
}

func (k *kind) measure(calls int) (cpu time.Duration, walls []time.Duration, err error) {
	before := stat.CPU()
	walls, err = k.calls(calls)
	return stat.CPU() - before, walls, err
}

// through calls a tool of the server that a command starts.
func through(tool string, command ...string) func(calls int) (walls []time.Duration, err error) {
	return func(calls int) (walls []time.Duration, err error) {
		ctx := context.Background()
		session, err := connect(ctx, command[0], command[1:]...)
		if err != nil {
			return nil, err
		}
		for range calls {
			from := time.Now()
			r, err := session.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: map[string]string{"word": "gate"}})
			if err != nil || r.IsError {
				return nil, fmt.Errorf("%+v: %w", r, err)
			}
			walls = append(walls, time.Since(from))
		}
		return walls, session.Close()
	}
}
