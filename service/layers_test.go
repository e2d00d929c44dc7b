package service_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/service/policy"
)

// section returns values by key path as YAML in flow style.
func section(values map[string]string) string {
	parts, nested := []string{}, map[string]map[string]string{}
	for key, value := range values {
		head, rest, deeper := strings.Cut(key, ".")
		if !deeper {
			parts = append(parts, head+": "+value)
			continue
		}
		if nested[head] == nil {
			nested[head] = map[string]string{}
		}
		nested[head][rest] = value
	}
	for head, inner := range nested {
		parts = append(parts, head+": "+section(inner))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// Calls that the values stated by a user refuse, or ask about, are refused or asked about under both configurations
// together, whatever the project's says. Keys that the user does not state have their loosest value where only the
// user's configuration is judged, because a default is not stated.
func TestLayers_BothRefuseAndAskWhatTheUserDoes(t *testing.T) {
	s, dir := open(t), t.TempDir()
	loosest := map[string]string{
		"tools.confirm": "never", "tools.shell.mode": "ask", "agents.default.taint.writes": "allow",
	}
	choices := map[string][]string{
		"tools.confirm":                      {"never", "writes", "always"},
		"tools.settings.write_file.confirm":  {"never", "writes", "always"},
		"tools.settings.read_file.confirm":   {"never", "always", `""`},
		"tools.settings.read_file.untrusted": {"true", "false", "null"},
		"tools.enabled":                      {"true", "true", "false"},
		"tools.shell.mode":                   {"ask", "allowlist", "off"},
		"agents.default.tools":               {"null", "['*']", "[write_file, exec_shell]", "['r*', 'w*']", "[]"},
		"agents.default.read_only":           {"true", "false", "false"},
		"agents.default.taint.writes":        {"allow", "ask", "deny"},
		"rules": {
			"[{name: a, tools: [write_file], then: deny}]", "[{name: a, then: allow}]", "[]", "null",
			"[{name: b, tools: ['*_file'], then: ask}, {name: c, tools: [exec_shell], then: allow}]",
		},
	}
	calls := map[string]string{
		"write_file": `{"path": "a.txt", "content": "x"}`, "read_file": `{"path": "a.txt"}`,
		"exec_shell": `{"command": "make x"}`,
	}
	load := func(t *rapid.T, source config.Source) *config.Config {
		c, err := config.Load(source, func(string, []byte) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	write := func(t *rapid.T, name string, values map[string]string) string {
		file := filepath.Join(dir, name)
		text := strings.TrimSuffix(section(values), "}") + ", providers: {p: {type: ollama}}}"
		if err := os.WriteFile(file, []byte(strings.Replace(text, "{, ", "{", 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	rank := func(d toolcrib.Decision) int {
		return map[toolcrib.Decision]int{toolcrib.Allow: -2, toolcrib.Ask: -1}[d] // anything else refuses
	}
	rapid.Check(t, func(t *rapid.T) {
		user, project := map[string]string{}, map[string]string{}
		for _, key := range slices.Sorted(maps.Keys(choices)) {
			for _, side := range []map[string]string{user, project} {
				if i := rapid.IntRange(-1, len(choices[key])-1).Draw(t, key); i >= 0 {
					side[key] = choices[key][i]
				}
			}
		}
		if user["rules"] != "" && strings.Contains(project["rules"], "name: a, then: allow") {
			user["rules"] = strings.Replace(user["rules"], "name: a, tools", "name: mine, tools", 1)
		}
		alone := maps.Clone(loosest)
		maps.Copy(alone, user)
		own := write(t, "own.yaml", user)
		mine := s.Under(load(t, config.Source{Path: write(t, "alone.yaml", alone), Origin: config.OriginFlag}))
		both := s.Under(load(t, config.Source{Path: write(t, "toolcrib.yaml", project), Origin: config.OriginCwd, Own: own}))
		for tool, arguments := range calls {
			for _, tainted := range [][]string{nil, {"https://a.example"}} {
				q := policy.ExplainRequest{
					Given:   &toolcrib.ToolCall{Name: tool, Arguments: json.RawMessage(arguments)},
					Tainted: tainted,
				}
				a, err := mine.Policy.Explain(t.Context(), root, q)
				if err != nil {
					t.Fatal(err)
				}
				b, err := both.Policy.Explain(t.Context(), root, q)
				if err != nil {
					t.Fatal(err)
				}
				if rank(b.Call.Verdict.Decision) < rank(a.Call.Verdict.Decision) {
					t.Fatalf("%s, tainted %q: %s by the user's alone (%s), %s by both\n%s\n%s", tool, tainted, a.Call.Verdict.Decision,
						a.Call.Verdict.Reason, b.Call.Verdict.Decision, section(user), section(project))
				}
			}
		}
	})
}
