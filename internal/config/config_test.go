package config_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	yaml "github.com/goccy/go-yaml"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/config"
)

func mustParse(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse("toolcrib.yaml", []byte(text))
	if err != nil {
		t.Fatalf("Parse: %v\nof:\n%s", err, text)
	}
	return c
}

func sample(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "sample.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestN5_SampleOfContractLoads(t *testing.T) {
	c := mustParse(t, string(sample(t)))
	if got := c.Position("agents.default.limits.max_iterations"); got != "toolcrib.yaml:35" {
		t.Errorf("position = %s", got)
	}
	small, err := c.ResolveModel("small")
	if err != nil {
		t.Fatal(err)
	}
	want := toolcrib.Price{Input: 0.25, CachedInput: 0.025, Output: 2, Known: true}
	if small.Name() != "openai/gpt-5-mini" || small.Price != want ||
		small.Provider.ConnectTimeout.Std() != 10*time.Second {
		t.Errorf("small = %+v", small)
	}
	if tiny, err := c.ResolveModel("tiny"); err != nil || tiny.Tools != "text" || tiny.Provider.Type != "ollama" ||
		tiny.Price.Known {
		t.Errorf("tiny = %+v, %v", tiny, err)
	}
	agent, err := c.Agent("", config.Resolver{})
	if err != nil {
		t.Fatal(err)
	}
	if agent.Model != "small" || agent.Tools != nil || agent.System != "You are a careful assistant." {
		t.Errorf("agent = %+v", agent)
	}
}

// The sample states every default: without its examples it is the empty file.
func TestN5_SampleOfContractIsTheDefault(t *testing.T) {
	text := string(sample(t))
	for _, section := range []string{"providers", "models"} {
		text = regexp.MustCompile(`(?m)^`+section+`:.*\n((?: .*)?\n)*`).ReplaceAllString(text, "")
	}
	text = strings.Replace(text, "    model: small\n", "", 1)
	text = regexp.MustCompile(`(?m)^budgets:.*\n  -.*\n`).ReplaceAllString(text, "")
	if got, want := string(config.Show(mustParse(t, text))), string(config.Show(config.Default())); got != want {
		t.Error(cmp.Diff(want, got))
	}
}

func TestN5_AgentOfDefaults(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "agents:\n", "agents: {default: }\n", "null\n", "---\n"} {
		got, err := mustParse(t, text).Agent("default", config.Resolver{})
		if err != nil {
			t.Fatal(err)
		}
		want := toolcrib.Agent{
			Name: "default", Fallback: []string{}, System: "You are a careful assistant.", Skills: []string{},
			ToolChoice: toolcrib.ToolChoice{Mode: "auto"}, OnDenial: "continue", Arguments: "lossless", Limits: toolcrib.DefaultLimits(),
			Budget: toolcrib.Budget{Mode: "enforce"}, TaintWrites: "ask", ContextStrategy: "condense", KeepRecent: 0.3, FindAbove: 32768,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("of %q: %s", text, diff)
		}
	}
}

// What an agent is for is known by its name; a run keeps nothing of it.
func TestN5_AgentDescriptions(t *testing.T) {
	longest := strings.Repeat("ä", 500)
	c := mustParse(t, "agents:\n  a: {description: '"+longest+"'}\n  b: {description: ''}\n  c.d: {description: 'Reviews, in 日本語 too.'}\n")
	for name, want := range map[string]string{"a": longest, "b": "", "c.d": "Reviews, in 日本語 too.", "default": ""} {
		if got := c.Agents[name].Description; got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := c.Position(config.JoinKey("agents", "c.d") + ".description"); got != "toolcrib.yaml:4" {
		t.Errorf("%s", got)
	}
}

func TestN15_NullAndEmptyTools(t *testing.T) {
	for text, want := range map[string][]string{
		"null": nil, "": nil, "[]": {}, "[read_*, web_fetch]": {"read_*", "web_fetch"},
	} {
		agent, err := mustParse(t, "agents: {default: {tools: "+text+"}}\n").Agent("", config.Resolver{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, agent.Tools); diff != "" {
			t.Errorf("tools: %s: %s", text, diff)
		}
	}
}

func TestN5_AgentsInheritOnlyTheModel(t *testing.T) {
	c := mustParse(t, `
models: {a: {provider: offline, model: a}, b: {provider: offline, model: b}}
agents:
  default: {model: a, fallback: [b], tools: [], limits: {max_iterations: 7}}
  coder: {read_only: true}
  other: {model: b}
  third: {fallback: [offline/x]}
`)
	agents := map[string]toolcrib.Agent{}
	for _, name := range c.AgentNames() {
		agent, err := c.Agent(name, config.Resolver{})
		if err != nil {
			t.Fatal(err)
		}
		agents[name] = agent
	}
	coder := agents["coder"]
	if coder.Model != "a" || len(coder.Fallback) != 1 || coder.Tools != nil || coder.Limits.MaxIterations != 20 ||
		!coder.ReadOnly {
		t.Errorf("coder = %+v", coder)
	}
	if other := agents["other"]; other.Model != "b" || len(other.Fallback) != 0 {
		t.Errorf("other = %+v", other)
	}
	if third := agents["third"]; third.Model != "a" || len(third.Fallback) != 1 || third.Fallback[0] != "offline/x" {
		t.Errorf("third = %+v", third)
	}
	if _, err := c.Agent("codr", config.Resolver{}); err == nil ||
		err.Error() != `unknown agent "codr"; did you mean "coder"? (valid: coder, default, other, third)` {
		t.Errorf("err = %v", err)
	}
}

func TestH13_ToolChoice(t *testing.T) {
	for text, want := range map[string]toolcrib.ToolChoice{
		"auto": {Mode: "auto"}, "none": {Mode: "none"}, "required": {Mode: "required"}, "{name: read_file}": {Mode: "name", Name: "read_file"},
	} {
		agent, err := mustParse(t, "agents: {default: {tool_choice: "+text+"}}\n").Agent("", config.Resolver{})
		if err != nil || agent.ToolChoice != want {
			t.Errorf("%s = %+v, %v", text, agent.ToolChoice, err)
		}
	}
}

func TestN5_Durations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "30s": 30 * time.Second, "15m": 15 * time.Minute, "72h": 72 * time.Hour, "90d": 90 * 24 * time.Hour,
		"1d12h": 36 * time.Hour, "1.5s": 1500 * time.Millisecond, `"0"`: 0, "0s": 0, "250ms": 250 * time.Millisecond,
	} {
		c := mustParse(t, "retention: {runs: "+text+"}\n")
		if got := c.Retention.Runs.Std(); got != want {
			t.Errorf("%s = %s, want %s", text, got, want)
		}
		again := mustParse(t, "retention: {runs: "+c.Retention.Runs.String()+"}\n")
		if again.Retention.Runs != c.Retention.Runs {
			t.Errorf("%s is written as %s", text, c.Retention.Runs)
		}
	}
}

func TestN5_OutputSchemaKeepsItsOrder(t *testing.T) {
	agent, err := mustParse(t, `
agents:
  default:
    output_schema: {type: object, properties: {zeta: {type: string}, alpha: {type: integer, minimum: 1}}, required: [zeta]}
`).Agent("", config.Resolver{})
	want := `{"type":"object","properties":{"zeta":{"type":"string"},"alpha":{"type":"integer","minimum":1}},"required":["zeta"]}`
	if err != nil || string(agent.OutputSchema) != want {
		t.Errorf("schema = %s, %v", agent.OutputSchema, err)
	}
}

func TestN5_Positions(t *testing.T) {
	c := mustParse(t, `# comment
tools:
  settings:
    web_fetch: {timeout: 5s}
rules:
  - name: one
    tools: [a]
    then: deny
  -
    name: two
    then: ask
models:
  gpt-5.1: {provider: openai, model: gpt-5.1}
`)
	for path, want := range map[string]string{
		"rules": "toolcrib.yaml:5", "rules[0]": "toolcrib.yaml:6", "rules[0].tools[0]": "toolcrib.yaml:7", "rules[1]": "toolcrib.yaml:10",
		"rules[1].then": "toolcrib.yaml:11", "tools.settings.web_fetch.timeout": "toolcrib.yaml:4", "tools.confirm": "default",
		`models["gpt-5.1"].model`: "toolcrib.yaml:13", "agents.default.tools": "default", "nonsense": "default",
	} {
		if got := c.Position(path); got != want {
			t.Errorf("%s = %s, want %s", path, got, want)
		}
	}
}

func TestN5_ShowReadAgainIsTheSame(t *testing.T) {
	for name, text := range map[string]string{
		"default": "", "sample": string(sample(t)), "all": everything,
	} {
		c := mustParse(t, text)
		shown := config.Show(c)
		if strings.Contains(string(shown), "***") {
			t.Fatalf("%s: nothing was to be masked:\n%s", name, shown)
		}
		again := config.Show(mustParse(t, string(shown)))
		if diff := cmp.Diff(string(shown), string(again)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// everything sets what the sample leaves out.
const everything = `
database: postgres://db.example/toolcrib
workspace: work
providers:
  p1: {type: openai, base_url: "https://models.example/v1", api_key: "${env:KEY}", headers: {X-Org: "${env:ORG}"}, proxy: "socks5://localhost:1080", ca_file: ca.pem, max_concurrent: 3}
  ollama: {}
models:
  "m:1": {provider: p1, model: org/m-1, tools: none, reasoning: off, extra: {num_ctx: 4096, nested: {"a b": [1, 2.5, null, true, "x: y"]}}, price: {input: 1, output: 2}}
agents:
  coder:
    description: |
      Writes code: "quoted",
      on two lines.
    model: "m:1"
    fallback: [ollama/gemma3, offline]
    system: |
      Two lines: "quoted",
      and $${env:X} as it is, ${HOME} too.
    temperature: 0.5
    max_output_tokens: 100
    tools: []
    skills: [review]
    tool_choice: none
    output_schema: {type: object}
budgets: [{user: "*", cost_usd_per_day: 1.5}, {user: "local:me"}]
tools:
  shell: {mode: off, allow: [true, make, g++]}
  web: {allow: ["*.example.org", "https://example.org/docs/", "*", "127.0.0.1:8080", "[::1]"], search: {endpoint: "https://search.example/?q="}}
  settings: {exec_shell: {timeout: 300s, max_result_bytes: 256, confirm: always, untrusted: true}}
rules:
  - {name: pushes, tools: [exec_shell], when: 'args.command.startsWith("git push")', then: ask, message: "Ask before you push."}
  - {name: all, tools: null, then: deny}
approvals: {expire: 1s, four_eyes: true, notify: ["${env:HOOK}", {url: "${env:H2}", secret: "${secret:hook}"}, {url: "${file:hook}"}]}
skills: {dirs: []}
mcpServers:
  files: {command: npx, args: [-y, server, 8080, true], env: {A: "${env:A}", PORT: "${env:P}"}, trusted: true, confirm: never, tools: [read_*], timeout: 10s, cwd: /}
  far: {type: http, url: "https://mcp.example/mcp", headers: {Authorization: "Bearer ${secret:far}"}}
sql: {main: {url: "postgres://reader:${env:PW}@db.example/main"}}
retention: {runs: 90d, content: 0}
server: {auth: none, tls: {cert: c.pem, key: k.pem}, rate_limit: 60}
`

func TestN21_ShowMasksSecrets(t *testing.T) {
	c := mustParse(t, `
database: postgres://me:s3cr3t-db@db.example/x?sslpassword=s3cr3t-ssl
bus: {url: "nats://s3cr3t-nats@bus.example:4222"}
providers:
  openai: {type: openai, api_key: s3cr3t-key, base_url: "https://h.example/?api_key=s3cr3t-query", headers: {Authorization: "Bearer s3cr3t-header", X-Org: s3cr3t-org}, proxy: "http://p:s3cr3t-proxy@h:1"}
tools: {web: {search: {endpoint: "https://h.example/?token=s3cr3t-search", api_key: "s3cr3t-${env:X}"}}}
approvals: {notify: ["slack://s3cr3t-a/s3cr3t-b", {url: "https://h.example/s3cr3t-hook", secret: s3cr3t-sign-0123456}]}
mcpServers: {x: {command: x, args: ["--token=s3cr3t-arg"], env: {API_TOKEN: s3cr3t-env}}}
sql: {a: {url: "host=h user=u password=s3cr3t-dsn"}}
`)
	shown := string(config.Show(c))
	if strings.Contains(shown, "s3cr3t") {
		t.Errorf("a secret is shown:\n%s", shown)
	}
	if !strings.Contains(shown, `"***${env:X}"`) || !strings.Contains(shown, "postgres://me:***@db.example/x") {
		t.Errorf("what is no secret is missing:\n%s", shown)
	}
	if _, err := config.Parse("shown.yaml", []byte(shown)); err == nil ||
		!strings.Contains(err.Error(), "is masked (***); write the value itself") {
		t.Errorf("a masked configuration loads: %v", err)
	}
	known := fmt.Sprint(c.Secrets())
	if !strings.Contains(known, "{providers.openai.api_key s3cr3t-key}") {
		t.Errorf("the secrets are not named after their places: %s", known)
	}
	for _, secret := range []string{"db", "ssl", "nats", "key", "query", "header", "proxy", "search", "arg", "env", "dsn", "a/s3cr3t-b", "hook", "sign-0123456"} {
		if !strings.Contains(known, "s3cr3t-"+secret) {
			t.Errorf("s3cr3t-%s is not among the known secrets:\n%s", secret, known)
		}
	}
	if text, err := json.Marshal(c); err != nil || bytes.Contains(text, []byte("s3cr3t")) {
		t.Errorf("JSON holds a secret (%v): %s", err, text)
	}
}

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(config.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("mem:///schema", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("mem:///schema")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// asJSON reads YAML without the loader, as an editor with the schema does.
func asJSON(t *testing.T, text []byte) any {
	t.Helper()
	converted, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(converted))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestN5_SchemaAcceptsWhatLoads(t *testing.T) {
	s := compileSchema(t)
	for name, text := range map[string][]byte{
		"sample": sample(t), "all": []byte(everything), "shown": config.Show(config.Default()),
	} {
		if err := s.Validate(asJSON(t, text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestN5_SchemaRefusesWhatDoesNotLoad(t *testing.T) {
	s := compileSchema(t)
	for _, text := range []string{
		"nonsense: 1\n", "agents: {default: {limits: {max_iterations: 0}}}\n", "agents: {default: {limits: {on_limit: stop}}}\n",
		"agents: {default: {tools: 3}}\n", "retention: {runs: 5}\n", "rules: [{name: a}]\n", "agents: {default: {tool_choice: any}}\n",
		"agents: {default: {description: " + strings.Repeat("ä", 501) + "}}\n",
	} {
		if _, err := config.Parse("x", []byte(text)); err == nil {
			t.Errorf("loads: %s", text)
		}
		if err := s.Validate(asJSON(t, []byte(text))); err == nil {
			t.Errorf("the schema takes: %s", text)
		}
	}
}

// Each key that the schema has is known to the loader, with its default.
func TestN5_LoaderKnowsEveryKeyOfTheSchema(t *testing.T) {
	var root map[string]any
	if err := json.Unmarshal(config.Schema(), &root); err != nil {
		t.Fatal(err)
	}
	count := 0
	var visit func(prefix string, schema map[string]any)
	visit = func(prefix string, schema map[string]any) {
		if properties, ok := schema["properties"].(map[string]any); ok {
			for key, inner := range properties {
				member, ok := inner.(map[string]any)
				if !ok || member["description"] == nil {
					if key != "name" { // of tool_choice
						t.Errorf("%s.%s has no description", prefix, key)
					}
					continue
				}
				count++
				text := strings.ReplaceAll(prefix, "%", "{"+key+": @}")
				example, hasDefault := member["default"]
				if hasDefault {
					value, err := json.Marshal(example)
					if err != nil {
						t.Fatal(err)
					}
					_, err = config.Parse("x", []byte(strings.ReplaceAll(text, "@", string(value))))
					if complaint := complaintAbout(err, key); complaint != "" {
						t.Errorf("%s with its default: %s", text, complaint)
					}
				}
				visit(strings.ReplaceAll(prefix, "%", "{"+key+": %}"), member)
			}
		}
		if inner, ok := schema["additionalProperties"].(map[string]any); ok {
			visit(strings.ReplaceAll(prefix, "%", "{A: %}"), inner)
		}
		if inner, ok := schema["items"].(map[string]any); ok {
			visit(strings.ReplaceAll(prefix, "%", "[%]"), inner)
		}
	}
	visit("%\n", root)
	keys, err := os.ReadFile("keys.txt")
	if err != nil {
		t.Fatal(err)
	}
	described := 0
	for line := range strings.Lines(string(keys)) {
		if !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "approvals.notify[].") { // one of two forms
			described++
		}
	}
	if described != count {
		t.Errorf("keys.txt describes %d keys, the schema has %d", described, count)
	}
	if count < 120 {
		t.Errorf("only %d keys were tried", count)
	}
}

// complaintAbout returns the first error about the key itself; others are about
// what it needs beside it.
func complaintAbout(err error, key string) string {
	var all config.Errors
	if !errors.As(err, &all) {
		return ""
	}
	for _, e := range all {
		if strings.HasSuffix(e.Key, "."+key) && !strings.Contains(e.Message, "is required") ||
			strings.Contains(e.Message, "unknown key") {
			return e.Error()
		}
	}
	return ""
}

// Where a condition stands is known to the column, however it is written:
// config check names line and column.
func TestPlace_Contract2(t *testing.T) {
	c, err := config.Parse("toolcrib.yaml", []byte(`rules:
  - {name: plain, then: ask, when: args.x == 1}
  - {name: single, then: ask, when: 'args.x == "é"'}
  - {name: double, then: ask, when: "args.x == 'a'"}
  - name: block
    then: ask
    when: |

      args.x == 1 &&
        args.y == 2
  - {name: escaped, then: ask, when: "args.x == \"a\""}
  - {name: doubled, then: ask, when: 'args.x == ''a'''}
  - name: folded
    then: ask
    when: >-
      args.x == 1 &&
      args.y == 2
  - name: over
    then: ask
    when: args.x == 1 &&
      args.y == 2
  - {name: none, then: ask}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][2]int{
		"plain": {2, 36}, "single": {3, 38}, "double": {4, 38}, "block": {9, 7},
		"escaped": {11, 39}, "doubled": {12, 39}, "folded": {16, 7}, "over": {20, 11}, "none": {},
	}
	for i, r := range c.Rules {
		line := 1
		if strings.HasPrefix(r.When, "\n") {
			line = 2
		}
		got := [2]int{}
		got[0], got[1] = c.Place(fmt.Sprintf("rules[%d].when", i), line, 1)
		if got != want[r.Name] {
			t.Errorf("%s: %+v, want %+v", r.Name, got, want[r.Name])
		}
	}
}
