package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/hosts"
)

// two are the folders of a user's configuration and of a project's.
type two struct{ user, project string }

func newTwo(t testing.TB) two {
	return two{filepath.Join(t.TempDir(), "toolcrib.yaml"), filepath.Join(t.TempDir(), "toolcrib.yaml")}
}

// load loads both configurations; the project is trusted.
func (f two) load(user, project string) (*config.Config, error) {
	for file, text := range map[string]string{f.user: user, f.project: project} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	source := config.Source{Path: f.project, Origin: config.OriginCwd, Own: f.user}
	return config.Load(source, func(string, []byte) error { return nil })
}

// strictKey is a key of which the strictest stated value applies: value returns how strict a configuration is.
type strictKey struct {
	key    string
	values []string // from the weakest to the strictest
	value  func(*config.Config) any
}

var strictKeys = []strictKey{
	{"tools.confirm", []string{"never", "writes", "always"}, func(c *config.Config) any { return c.Tools.Confirm }},
	{"tools.settings.x.confirm", []string{"never", "writes", "always"}, func(c *config.Config) any { return c.Tools.Settings["x"].Confirm }},
	{"tools.settings.x.untrusted", []string{"false", "true"}, func(c *config.Config) any { return *c.Tools.Settings["x"].Untrusted }},
	{"tools.enabled", []string{"true", "false"}, func(c *config.Config) any { return c.Tools.Enabled }},
	{"tools.shell.mode", []string{"any", "ask", "allowlist", "off"}, func(c *config.Config) any { return c.Tools.Shell.Mode }},
	{"tools.shell.sandbox", []string{"best_effort", "required"}, func(c *config.Config) any { return c.Tools.Shell.Sandbox }},
	{"tools.shell.network", []string{"[a.test]", "ask", "false"}, func(c *config.Config) any { return fmt.Sprint(c.Tools.Shell.Network) }},
	{"agents.a.taint.writes", []string{"allow", "ask", "deny"}, func(c *config.Config) any { return c.Agents["a"].Taint.Writes }},
	{"agents.a.read_only", []string{"false", "true"}, func(c *config.Config) any { return c.Agents["a"].ReadOnly }},
	{"agents.a.limits.max_iterations", []string{"200", "20", "1"}, func(c *config.Config) any { return c.Agents["a"].Limits.MaxIterations }},
	{"agents.a.limits.max_identical_calls", []string{"0", "9", "1"}, func(c *config.Config) any { return c.Agents["a"].Limits.MaxIdenticalCalls }},
	{"agents.a.limits.tool_timeout", []string{"1h", "90s", "30s"}, func(c *config.Config) any { return c.Agents["a"].Limits.ToolTimeout }},
	{"agents.a.limits.on_limit", []string{"ask", "finalize", "error"}, func(c *config.Config) any { return c.Agents["a"].Limits.OnLimit }},
	{"agents.a.budget.max_cost_usd", []string{"0", "2.5", "1"}, func(c *config.Config) any { return c.Agents["a"].Budget.MaxCostUSD }},
	{"agents.a.budget.mode", []string{"off", "warn", "enforce"}, func(c *config.Config) any { return c.Agents["a"].Budget.Mode }},
	{"agents.a.session.wall_time", []string{"0", "2h", "1m"}, func(c *config.Config) any { return c.Agents["a"].Session.WallTime }},
	{"team.worker_tools.cost_cap_usd", []string{"0", "3", "0.5"}, func(c *config.Config) any { return c.Team.WorkerTools.CostCapUSD }},
	{"tools.web.allow_private", []string{"true", "false"}, func(c *config.Config) any { return c.Tools.Web.AllowPrivate }},
	{"approvals.four_eyes", []string{"false", "true"}, func(c *config.Config) any { return c.Approvals.FourEyes }},
}

// flow writes values by key path as a file, in flow style.
func flow(values map[string]string) string {
	sections := map[string]map[string]string{}
	var b strings.Builder
	for key, value := range values {
		if head, rest, nested := strings.Cut(key, "."); nested {
			if sections[head] == nil {
				sections[head] = map[string]string{}
			}
			sections[head][rest] = value
		} else {
			fmt.Fprintf(&b, "%s: %s, ", key, value)
		}
	}
	for head, section := range sections {
		fmt.Fprintf(&b, "%s: %s, ", head, flow(section))
	}
	return "{" + strings.TrimSuffix(b.String(), ", ") + "}"
}

// TestN5_StrictestStatedValueApplies: for generated pairs, of what both state the stricter value applies,
// and of what one states that value.
func TestN5_StrictestStatedValueApplies(t *testing.T) {
	files := newTwo(t)
	rapid.Check(t, func(t *rapid.T) {
		stated := [2]map[string]string{{}, {}}
		best := map[string]int{}
		for _, k := range strictKeys {
			for side := range stated {
				if i := rapid.IntRange(-1, len(k.values)-1).Draw(t, k.key); i >= 0 {
					stated[side][k.key] = k.values[i]
					best[k.key] = max(best[k.key], i)
				}
			}
		}
		c, err := files.load(flow(stated[0]), flow(stated[1]))
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range strictKeys {
			i, known := best[k.key]
			if !known {
				continue
			}
			alone, err := config.Parse("x", []byte(flow(map[string]string{k.key: k.values[i]})))
			if err != nil {
				t.Fatal(err)
			}
			want, got := k.value(alone), k.value(c)
			switch mine := stated[0]["tools.confirm"]; { // what the user states for all tools also applies to one
			case k.key == "tools.settings.x.confirm" && stated[0][k.key] == "" && slices.Index(k.values, mine) > i:
				want = mine
			case k.key == "agents.a.budget.mode" && stated[0][k.key] == "" && stated[0]["agents.a.budget.max_cost_usd"] != "":
				want = "enforce"
			case k.key == "agents.a.taint.writes" && stated[0][k.key] == "" && stated[0]["tools.settings.x.untrusted"] == "true" && i == 0:
				want = "ask"
			}
			if got != want {
				t.Fatalf("%s is %v, not %v:\n%s\n%s", k.key, got, want, flow(stated[0]), flow(stated[1]))
			}
		}
	})
}

// Tools, hosts, rules and budgets: what the user's lists refuse or ask about, both together do.
func TestN5_ListsOfBothRefuse(t *testing.T) {
	files := newTwo(t)
	draw := func(t *rapid.T, from ...string) string {
		n := rapid.IntRange(-2, len(from)).Draw(t, "entries")
		if n == -2 {
			return "null"
		}
		return "[" + strings.Join(rapid.Permutation(from).Draw(t, "order")[:max(n, 0)], ", ") + "]"
	}
	rapid.Check(t, func(t *rapid.T) {
		var texts [2]string
		for side, whose := range []string{"u", "p"} {
			texts[side] = "agents: {a: {tools: " + draw(t, "read_file", "'*_file'", "'r*'", "exec_shell", "'?rite_*'", "'*'") + "}}\n" +
				"tools: {web: {deny: " + draw(t, "a.example", "b.example", "'*.c.example'") + "}}\n" +
				"rules: " + draw(t, "{name: same, tools: [x], then: deny}", "{name: "+whose+"1, then: ask}",
				"{name: "+whose+"2, then: deny, when: 'args.a == 1'}", "{name: allowing, then: allow}") + "\n" +
				"budgets: " + draw(t, "{user: '*', requests_per_day: "+fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "all"))+"}",
				"{user: ann, requests_per_day: "+fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "ann"))+"}")
		}
		mine, err := config.Parse("user.yaml", []byte(texts[0]))
		if err != nil {
			t.Fatal(err)
		}
		both, err := files.load(texts[0], texts[1])
		if err != nil {
			t.Fatal(err)
		}
		allowed := func(list []string, name string) bool {
			return list == nil || slices.ContainsFunc(list, func(p string) bool { return gate.Match(p, name) })
		}
		for _, name := range []string{"read_file", "write_file", "exec_shell", "rm", "write_x", "x"} {
			if a, b := mine.Agents["a"], both.Agents["a"]; !allowed(a.Tools, name) && allowed(b.Tools, name) {
				t.Fatalf("%s may be used:\n%s\n%s\n%q", name, texts[0], texts[1], b.Tools)
			}
		}
		for _, host := range mine.Tools.Web.Deny {
			if !slices.Contains(both.Tools.Web.Deny, host) {
				t.Fatalf("%s is reached", host)
			}
		}
		for _, rule := range mine.Rules {
			same := func(r config.Rule) bool { return r.Name == rule.Name && r.When == rule.When && r.Then == rule.Then }
			if rule.Then != "allow" && !slices.ContainsFunc(both.Rules, same) {
				t.Fatalf("the rule %s is gone:\n%s\n%s", rule.Name, texts[0], texts[1])
			}
		}
		of := func(c *config.Config, user string) (most int64) {
			for _, b := range c.Budgets {
				if b.User == user || b.User == "*" && !slices.ContainsFunc(c.Budgets, func(b config.UserBudget) bool { return b.User == user }) {
					most = b.RequestsPerDay
				}
			}
			return most
		}
		for _, user := range []string{"ann", "bob"} {
			if a, b := of(mine, user), of(both, user); a > 0 && (b == 0 || b > a) {
				t.Fatalf("%s may have %d requests instead of %d:\n%s\n%s", user, b, a, texts[0], texts[1])
			}
		}
	})
}

// Of two lists of hosts for commands, the hosts apply that both reach.
func TestN5_HostsOfBoth(t *testing.T) {
	files := newTwo(t)
	entries := []string{
		"a.test", "b.a.test", "'*.a.test'", "'*.b.a.test'", "'a.test:443'", "'a.test:8080'", "'*'", "localhost", "127.0.0.1", "8.8.8.8",
	}
	rapid.Check(t, func(t *rapid.T) {
		var lists [2]string
		for side := range lists {
			n := rapid.IntRange(0, 4).Draw(t, "entries")
			lists[side] = "[" + strings.Join(rapid.Permutation(entries).Draw(t, "order")[:n], ", ") + "]"
		}
		both, err := files.load("tools: {shell: {network: "+lists[0]+"}}", "tools: {shell: {network: "+lists[1]+"}}")
		if err != nil {
			t.Fatal(err)
		}
		of := func(text string) hosts.List {
			c, err := config.Parse("x", []byte("tools: {shell: {network: "+text+"}}"))
			if err != nil {
				t.Fatal(err)
			}
			l, err := hosts.NewList(c.Tools.Shell.Network.Hosts)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		merged, err := hosts.NewList(both.Tools.Shell.Network.Hosts)
		if err != nil {
			t.Fatal(err)
		}
		one, two := of(lists[0]), of(lists[1])
		for _, address := range []string{
			"https://a.test/", "http://a.test/", "https://b.a.test/", "https://c.b.a.test/", "https://a.test:8080/", "https://x.test/",
			"http://localhost/", "http://127.0.0.1/", "https://8.8.8.8/",
		} {
			u, err := hosts.Parse(address)
			if err != nil {
				t.Fatal(err)
			}
			a, namedA := one.Allows(u)
			b, namedB := two.Allows(u)
			got, named := merged.Allows(u)
			local := hosts.Loopback(u.Hostname())
			if got && (!a || !b || local && named && !(namedA && namedB)) || !got && a && b && !(local && !(namedA && namedB)) {
				t.Fatalf("%s: %v of %s and %s: %q", address, got, lists[0], lists[1], both.Tools.Shell.Network.Hosts)
			}
		}
	})
}

// No credential of one file is sent to an address of the other.
func TestN5_CredentialsStayWithTheirAddress(t *testing.T) {
	files := newTwo(t)
	rapid.Check(t, func(t *rapid.T) {
		part := func(whose string) string {
			at := "https://" + whose + ".example"
			one := func(entries ...string) string {
				var kept []string
				for _, e := range entries {
					if rapid.Bool().Draw(t, "has") {
						kept = append(kept, e)
					}
				}
				return "{" + strings.Join(kept, ", ") + "}"
			}
			key := "key-of-" + whose
			return flow(map[string]string{
				"providers.n": "{type: openai, " + strings.TrimPrefix(one("base_url: '"+at+"'", "api_key: "+key, "headers: {X-Key: "+key+whose+"}", "proxy: '"+at+"'"), "{"),
				"mcpServers.n": "{url: '" + at + "', " + strings.TrimPrefix(one("headers: {Authorization: "+key+"}", "confirm: always",
					"oauth: {client_id: a, client_secret: "+key+"}"), "{"),
				"channels.n":       "{type: webhook, secret: 0123456789abcdef, url: '" + at + "/" + key + "', " + strings.TrimPrefix(one("inbound: {allow: ["+whose+"]}"), "{"),
				"sql.n":            "{url: 'postgres://" + key + "@" + whose + ".example/db'}",
				"tools.web.search": one("endpoint: '"+at+"'", "api_key: "+key),
			})
		}
		user, project := part("user"), part("project")
		c, err := files.load(user, project)
		if err != nil {
			t.Fatal(err)
		}
		p, m, s := c.Providers["n"], c.MCPServers["n"], c.Tools.Web.Search
		texts := map[string]string{
			"provider": fmt.Sprint(p.BaseURL.Raw(), p.APIKey.Raw(), p.Proxy.Raw()), "server": m.URL.Raw() + m.OAuth.ClientSecret.Raw(),
			"channel": c.Channels["n"].URL.Raw() + strings.Join(c.Channels["n"].Inbound.Allow, ""), "sql": c.SQL["n"].URL.Raw(), "search": s.Endpoint.Raw() + s.APIKey.Raw(),
		}
		for _, v := range p.Headers {
			texts["provider"] += v.Raw()
		}
		for _, v := range m.Headers {
			texts["server"] += v.Raw()
		}
		for what, text := range texts {
			if strings.Contains(text, "user") && strings.Contains(text, "project") {
				t.Fatalf("%s mixes: %s\n%s\n%s", what, text, user, project)
			}
		}
		if strings.Contains(user, "confirm: always") && m.Confirm != "always" {
			t.Fatalf("confirm is %q", m.Confirm)
		}
	})
}

// The notes of a project replace the user's, but both stay protected; and a rule of the same name and
// another content is an error of the project's file, not a rule less.
func TestN5_NotesAndNamesOfBoth(t *testing.T) {
	files := newTwo(t)
	c, err := files.load("notes: {files: [RULES.md]}", "notes: {files: [X.md]}")
	if err != nil || !slices.Equal(c.Notes.Files, []string{"X.md"}) {
		t.Fatalf("%v, %v", c, err)
	}
	for _, name := range []string{"X.md", "RULES.md"} {
		if !slices.Contains(c.ProtectedNotes(), name) {
			t.Errorf("%s is not protected", name)
		}
	}
	_, err = files.load("rules: [{name: a, then: deny}]", "log: {level: info}\nrules: [{name: a, then: allow}]")
	if err == nil || !strings.HasPrefix(err.Error(), files.project+":2: rules[1].name: \"a\" is the name of rules[0]") {
		t.Errorf("%v", err)
	}
	// Files and folders are relative to the file that names them.
	c, err = files.load("log: {file: a.log}\nteam: {rubric: r.yaml}", "log: {file: b.log}")
	if err != nil {
		t.Fatal(err)
	}
	for value, want := range map[config.Value]string{
		c.Log.File: filepath.Join(filepath.Dir(files.project), "b.log"), c.Team.Rubric: filepath.Join(filepath.Dir(files.user), "r.yaml"),
	} {
		if got, err := value.Resolve(config.Resolver{}); err != nil || got != want {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
	}
}
