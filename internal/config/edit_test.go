package config_test

import (
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/config"
)

func TestEdit_MCPServers(t *testing.T) {
	entry := config.MCPEntry{
		Command: "npx", Args: []string{"-y", "@scope/pkg@1.2", "a b"}, Env: map[string]string{"T": "${secret:t}", "ON": "true"},
	}
	const block = "  new:\n    command: npx\n    args: [\"-y\", \"@scope/pkg@1.2\", \"a b\"]\n" +
		"    env:\n      \"ON\": \"true\"\n      T: \"${secret:t}\"\n"
	for name, c := range map[string]struct{ before, after string }{
		"an empty file":   {"", "mcpServers:\n" + block},
		"comments only":   {"# mine", "# mine\nmcpServers:\n" + block},
		"no servers":      {"agents: {}  # mine\n", "agents: {}  # mine\nmcpServers:\n" + block},
		"an empty one":    {"mcpServers: {}  # mine\nagents: {}\n", "mcpServers:  # mine\n" + block + "agents: {}\n"},
		"null":            {"mcpServers:\nagents: {}\n", "mcpServers:\n" + block + "agents: {}\n"},
		"null at the end": {"mcpServers:", "mcpServers:\n" + block},
		"others": {
			"mcpServers:\n  # the first\n  a: {command: a}\n  b:\n    # of b\n    command: b\n\n# of agents\nagents: {}\n",
			"mcpServers:\n  # the first\n  a: {command: a}\n  b:\n    # of b\n    command: b\n" + block + "\n# of agents\nagents: {}\n",
		},
		"without an end of line": {"mcpServers:\n  a:\n    command: a", "mcpServers:\n  a:\n    command: a\n" + block},
		"indented by four": {
			"mcpServers:\n    a:\n        command: a\n",
			"mcpServers:\n    a:\n        command: a\n" + strings.ReplaceAll("  "+strings.TrimSuffix(block, "\n"), "\n", "\n  ") + "\n",
		},
		"on one line": {
			"mcpServers: {a: {command: a}} # mine\n",
			`mcpServers: {"new": {"command":"npx","args":["-y","@scope/pkg@1.2","a b"],"env":{"ON":"true","T":"${secret:t}"}}, ` +
				"a: {command: a}} # mine\n",
		},
	} {
		got, err := config.AddMCPServer("toolcrib.yaml", []byte(c.before), "new", entry)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if string(got) != c.after {
			t.Errorf("%s:\n%s\nwant:\n%s", name, got, c.after)
		}
		if _, err := config.Parse("toolcrib.yaml", got); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := config.AddMCPServer("toolcrib.yaml", got, "new", entry); err == nil {
			t.Errorf("%s: it was added twice", name)
		}
		back, err := config.RemoveMCPServer("toolcrib.yaml", got, "new")
		if name == "on one line" {
			if err == nil {
				t.Errorf("%s: removed, it is\n%s", name, back)
			}
			continue
		}
		if err != nil || strings.Contains(string(back), "npx") ||
			strings.Count(string(back), "#") != strings.Count(c.before, "#") {
			t.Errorf("%s: removed, it is\n%s, %v", name, back, err)
		}
	}
	for name, text := range map[string]string{
		"not YAML": "a: [", "a flow": "{agents: {}}", "a list": "- a\n", "wrong before": "agents: {x: 1}\n", "there": "mcpServers: {new: {command: x}}",
		"old line ends": "# a\r# b\r# c\rmcpServers: {}\n",
	} {
		if got, err := config.AddMCPServer("toolcrib.yaml", []byte(text), "new", entry); err == nil {
			t.Errorf("%s: it became\n%s", name, got)
		}
	}
	long := config.MCPEntry{Command: "npx", Args: []string{strings.Repeat("a", config.MaxBytes)}}
	if _, err := config.AddMCPServer("toolcrib.yaml", nil, "new", long); toolcrib.CodeOf(err) != toolcrib.CodeTooLarge {
		t.Errorf("an entry that is longer than a configuration: %v", err)
	}
	if _, err := config.RemoveMCPServer("toolcrib.yaml", []byte("mcpServers: {a: {command: a}}"), "b"); err == nil {
		t.Error("a server that is not there was removed")
	}
}
