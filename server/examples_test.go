package server_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/internal/npmtest"
	"github.com/toolcrib/toolcrib/service"
)

// exampleScripts are the replies of the models of the examples.
func exampleScripts() map[string]string {
	scripts := map[string]string{
		"hello":   "- {text: Hello there.}\n",
		"looks":   "- {tool_calls: [{name: list_directory, arguments: {}}]}\n- {text: It is empty.}\n",
		"failing": "- {error: auth}\n",
		"writes":  "- {tool_calls: [{name: write_file, arguments: {path: out.txt, content: hello}}]}\n- {text: It is written.}\n",
		"handoff": "- {tool_calls: [{name: transfer_to_Data_agent, arguments: {}}]}\n" +
			"- {tool_calls: [{name: get_weather, arguments: {city: San Francisco}}]}\n- {text: It is fine.}\n",
		"handOff": "- {tool_calls: [{name: handOff, arguments: {toAgent: WeatherAgent, reason: weather}}]}\n" +
			"- {tool_calls: [{name: get_weather, arguments: {city: Tokyo}}]}\n- {text: It is fine.}\n",
		"steps": "- {tool_calls: [{name: weather, arguments: {location: New York}}]}\n" +
			"- {tool_calls: [{name: convertFahrenheitToCelsius, arguments: {temperature: 50}}]}\n- {text: It is fine.}\n- {text: There too.}\n",
	}
	for name, call := range map[string]string{
		"weather":   "{name: get_weather, arguments: {city: Tokyo}}",
		"location":  "{name: weather, arguments: {location: Tokyo}}",
		"horoscope": "{name: get_horoscope, arguments: {sign: Aquarius}}",
	} {
		scripts[name] = "- tool_calls: [" + call + "]\n- {text: It is fine.}\n"
		scripts["both-"+name] = "- tool_calls: [{name: list_directory, arguments: {}}, " + call + "]\n- {text: It is fine.}\n"
	}
	return scripts
}

// The examples of each client work unchanged: with tools of the server, of the client and of both, an error of the
// provider, an approval that is decided elsewhere, and three users behind one key who ask the same at once. Some
// clients have more: agents that hand over, several steps, and a person who takes longer than client_tool_timeout.
func TestV1_Examples(t *testing.T) {
	const celsius = `{"location":"New York","temperature":50} {"celsius":10} It is fine.`
	for client, one := range map[string]struct {
		packages string
		texts    map[string]string // texts of its steps in addition to those of all clients
		uses     map[string]string // client tools that runs must have used, by agent
	}{
		"openai": {
			"openai@7.59.0",
			map[string]string{"plain chat": "Hello there."},
			map[string]string{"horoscope": "get_horoscope"},
		},
		"agents": {
			"@openai/agents@0.20.0",
			map[string]string{"hand-off": "Data agent: It is fine.", "late": "It is fine."},
			map[string]string{"weather": "get_weather", "handoff": "get_weather"},
		},
		"ai": {
			"@ai-sdk/openai@4.0.118 ai@7.0.173",
			map[string]string{"steps": celsius, "prepareStep": celsius, "turns": "There too.", "late": "It is fine."},
			map[string]string{"location": "weather", "steps": "convertFahrenheitToCelsius"},
		},
		"langgraph": {
			"@langchain/langgraph@1.7.3 @langchain/openai@1.6.0 @langchain/core@1.4.0",
			map[string]string{"late": "Approve this? It is fine."},
			map[string]string{"weather": "get_weather"},
		},
		"llamaindex": {
			"llamaindex@0.12.1 @llamaindex/openai@0.4.23 @llamaindex/workflow@1.1.25",
			map[string]string{"hand-off": "It is fine."},
			map[string]string{"weather": "get_weather", "handOff": "get_weather"},
		},
	} {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			dir, modules := t.TempDir(), filepath.Join(npmtest.Package(t, one.packages), "node_modules")
			if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS(dir, os.DirFS("testdata/examples")); err != nil {
				t.Fatal(err)
			}
			h := scripted(t, exampleScripts(), "  gpt-5.5: {model: hello/x}\n  gpt-6-astra: {model: hello/x}\n"+
				"server: {client_tool_timeout: 2s}\n")
			token := h.token("ann", signIn)
			steps := h.example(token, npmtest.Node(t), filepath.Join(dir, client+".mjs"))
			for _, all := range []map[string]string{one.texts, {
				"plain": "Hello there.", "server tool": "It is empty.", "client tool": "It is fine.", "both tools": "It is fine.",
				"users": "It is fine. It is fine. It is fine.", "approval": "It is written.",
			}} {
				for step, want := range all {
					if got := steps[step]; got.Text != want {
						t.Errorf("%s: %+v, want %q", step, got, want)
					}
				}
			}
			if got := steps["error"]; got.Status != 502 || !strings.Contains(got.Error, "auth") {
				t.Errorf("error: %+v", got)
			}
			if said := h.results(token, "writes", ""); !strings.Contains(strings.Join(said, "\n"), "approve; write_file: ok") {
				t.Errorf("after the approval the model reads %q", said)
			}
			for agent, tool := range one.uses {
				results := h.results(token, agent, tool)
				if len(results) == 0 {
					t.Errorf("no run of %s has a result of %s", agent, tool)
				}
				for n := 1; n <= 3 && (agent == "weather" || agent == "location" || agent == "horoscope"); n++ {
					if got := strings.Count(strings.Join(results, "\n"), fmt.Sprintf("of user %d", n)); got != 1 {
						t.Errorf("%d results of user %d: %q", got, n, results)
					}
				}
			}
		})
	}
}

// exampleStep is the output of a step of an example.
type exampleStep struct {
	Step, Text, Error string
	Status            int
}

// example runs an example against the server.
func (h *house) example(token, node, file string) map[string]exampleStep {
	h.t.Helper()
	var stderr bytes.Buffer
	command := exec.Command(node, file)
	command.Stderr = &stderr
	command.Env = append(os.Environ(), "OPENAI_BASE_URL="+h.url+"/v1", "OPENAI_API_KEY="+token,
		"OPENAI_DEFAULT_MODEL=gpt-5.5", "OPENAI_AGENTS_DISABLE_TRACING=1")
	out, err := command.Output()
	if err != nil {
		h.t.Fatalf("%v\n%s%s", err, out, stderr.Bytes())
	}
	steps := map[string]exampleStep{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var one exampleStep
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			h.t.Fatalf("%v: %s", err, lines.Bytes())
		}
		steps[one.Step] = one
	}
	return steps
}

// results returns what the completed runs of an agent have read from a tool, whether the call is theirs or came with
// the conversation. If the tool is "", it returns the messages of the user.
func (h *house) results(token, agent, tool string) (all []string) {
	h.t.Helper()
	var runs api.RunList
	h.want(200, &runs, "GET", "/api/runs?status=completed&agent="+agent, token, "")
	for _, listed := range runs.Runs {
		var run struct{ Messages []toolcrib.Message }
		h.want(200, &run, "GET", "/api/runs/"+string(listed.ID)+"/messages", token, "")
		for _, m := range run.Messages {
			if tool == "" && m.Role == toolcrib.RoleUser {
				all = append(all, m.Text())
			}
			for _, p := range m.Parts {
				if r := p.ToolResult; r != nil && r.Name == tool && !r.IsError {
					all = append(all, r.Content)
				}
			}
		}
	}
	return all
}

// commandLine is a command-line agent that uses a server as its model.
type commandLine struct {
	t   *testing.T
	ask func(dir, model, prompt string, again bool) *exec.Cmd
}

func (c commandLine) run(dir, model, prompt string, again bool) string {
	out, err := c.ask(dir, model, prompt, again).CombinedOutput()
	if err != nil {
		c.t.Errorf("%s: %v\n%s", model, err, out)
	}
	return string(out)
}

var approvalID = regexp.MustCompile(`apr_[0-9A-Z]{26}`)

// holds has two users behind one key ask the same at once, about files of their own. Then a call of a server tool waits
// for an approval, and the conversation continues after it.
func (c commandLine) holds(h *house, token, tool string) {
	c.t.Helper()
	var outs [2]string
	var asking sync.WaitGroup
	for i := range outs {
		dir := c.t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("user%d.txt", i)), nil, 0o600); err != nil {
			c.t.Fatal(err)
		}
		asking.Go(func() { outs[i] = c.run(dir, "agent/files", "Which files are there?", false) })
	}
	asking.Wait()
	all := strings.Join(h.results(token, "files", tool), "\n")
	for i, out := range outs {
		if file := fmt.Sprintf("user%d.txt", i); !strings.Contains(out, "There is one.") || strings.Count(all, file) != 1 {
			c.t.Errorf("%s: %s\n%s", file, out, all)
		}
	}
	if got := h.results(token, "files", "list_directory"); len(got) != 2 {
		c.t.Errorf("results of the server's tool: %q", got)
	}

	dir := c.t.TempDir()
	var a service.Approval
	id := approvalID.FindString(c.run(dir, "agent/waits", "Write out.txt.", false))
	h.want(200, &a, "GET", "/api/approvals/"+id, token, "")
	h.want(200, nil, "POST", "/api/approvals/"+id, token, `{"decision":"approve","digest":"`+a.Digest+`"}`)
	h.eventually("the run after the approval", func() bool { return h.runOf(token, string(a.Run)).Status.Ended() })
	if out := c.run(dir, "agent/waits", "Is it done?", true); !strings.Contains(out, "It is written.") {
		c.t.Errorf("after the approval: %s", out)
	}
	if said := h.results(token, "waits", ""); !strings.Contains(strings.Join(said, "\n"), "approve; write_file: ok") {
		c.t.Errorf("after the approval the model reads %q", said)
	}
}

// commandLineHouse has the replies of the models of command-line agents: both first ask for a tool of the server and
// one of the client.
func commandLineHouse(t *testing.T, call string) *house {
	return scripted(t, map[string]string{
		"hello":     "- {text: Hello there.}\n",
		"failing":   "- {error: auth}\n",
		"look":      "- tool_calls: [{name: list_directory, arguments: {}}, " + call + "]\n- {text: There is one.}\n",
		"write":     "- {tool_calls: [{name: write_file, arguments: {path: out.txt, content: hello}}]}\n- {text: It is written.}\n",
		"picture":   "- {tool_calls: [{name: view_image, arguments: {path: dot.png}}]}\n- {text: It is a dot.}\n",
		"namespace": "- {tool_calls: [{name: close_agent, arguments: {target: nobody}}]}\n- {text: It is closed.}\n",
	}, "  files: {model: look/x, tools: [list_directory]}\n  waits: {model: write/x, tools: [write_file]}\n")
}

// Codex uses the server as a model provider. Its tools in a namespace are found by that.
func TestV1_Codex(t *testing.T) {
	t.Parallel()
	script := filepath.Join(npmtest.Package(t, "@openai/codex@0.171.0"), "node_modules/@openai/codex/bin/codex.js")
	node, home := npmtest.Node(t), t.TempDir()
	h := commandLineHouse(t, "{name: exec_command, arguments: {cmd: ls}}")
	token := h.token("ann", signIn)
	config := `model_provider = "toolcrib"
check_for_update_on_startup = false
analytics = { enabled = false }
features = { plugins = false, apps = false }

[model_providers.toolcrib]
name = "toolcrib"
base_url = "` + h.url + `/v1"
env_key = "TOOLCRIB_TOKEN"
wire_api = "responses"
request_max_retries = 0
`
	if err := os.WriteFile(filepath.Join(home, "config.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	codex := commandLine{t, func(dir, model, prompt string, again bool) *exec.Cmd {
		// The tests may run in a sandbox in which the sandbox of Codex does not work.
		args := []string{script, "exec", "--skip-git-repo-check", "-s", "danger-full-access", "-m", model}
		if again {
			args = append(args, "resume", "--last")
		}
		command := exec.Command(node, append(args, prompt)...)
		command.Dir, command.Env = dir, append(os.Environ(), "CODEX_HOME="+home, "HOME="+home, "TOOLCRIB_TOKEN="+token)
		return command
	}}
	codex.holds(h, token, "exec_command")
	out, err := codex.ask(home, "failing", "Hello.", false).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "failed: auth") {
		t.Errorf("an error of the provider: %v\n%s", err, out)
	}
	var dot bytes.Buffer
	if err := png.Encode(&dot, image.NewGray(image.Rect(0, 0, 1, 1))); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "dot.png"), dot.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := codex.run(home, "picture", "Look at it.", false); !strings.Contains(out, "It is a dot.") {
		t.Errorf("an image as a result: %s", out)
	}
	codex.run(home, "namespace", "Close it.", false)
	if got := h.results(token, "namespace", "close_agent"); len(got) != 1 ||
		!strings.Contains(got[0], "invalid agent id") {
		t.Errorf("a tool in a namespace: %q", got)
	}
}

// qwen-code brings tools with names of the server's tools, so it needs an agent without those.
func TestV1_QwenCode(t *testing.T) {
	t.Parallel()
	script := filepath.Join(npmtest.Package(t, "@qwen-code/qwen-code@0.24.4"), "node_modules/@qwen-code/qwen-code/cli-entry.js")
	node, home := npmtest.Node(t), t.TempDir()
	h := commandLineHouse(t, "{name: glob, arguments: {pattern: '*.txt'}}")
	token := h.token("ann", signIn)
	if err := os.Mkdir(filepath.Join(home, ".qwen"), 0o700); err != nil {
		t.Fatal(err)
	}
	settings := `{"general": {"enableAutoUpdate": false}, "privacy": {"usageStatisticsEnabled": false}}`
	if err := os.WriteFile(filepath.Join(home, ".qwen/settings.json"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	qwen := commandLine{t, func(dir, model, prompt string, again bool) *exec.Cmd {
		args := []string{script, "-p", prompt}
		if again {
			args = append(args, "--continue")
		}
		command := exec.Command(node, args...)
		command.Dir = dir
		command.Env = append(os.Environ(), "HOME="+home, "OPENAI_BASE_URL="+h.url+"/v1", "OPENAI_API_KEY="+token,
			"OPENAI_MODEL="+model)
		return command
	}}
	qwen.holds(h, token, "glob")
	out, _ := qwen.ask(home, "default", "Hello.", false).CombinedOutput()
	if !strings.Contains(string(out), "read_file is the name of a tool") || !strings.Contains(string(out), "tools: []") {
		t.Errorf("an agent that has read_file: %s", out)
	}
}
