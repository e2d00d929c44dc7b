package builtin_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/tool/builtin"
	"github.com/toolcrib/toolcrib/tool/memory"
	"github.com/toolcrib/toolcrib/tool/system"
	"github.com/toolcrib/toolcrib/tool/tables"
)

func theGate(t *testing.T) *gate.Gate {
	t.Helper()
	g, err := gate.New(gate.Options{
		Availability: gate.Overrides{},
		Tools: builtin.New(builtin.Options{
			System: system.Options{Logs: new(system.LogRing)}, Directory: nobody{}, Memory: memory.NewFiles(t.TempDir(), memory.Limits{}), Databases: []tables.Database{{Name: "main"}},
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// Nobody but an administrator is offered the tools that tell about the system and
// about others, and the raw ones are off for everybody.
func TestN18_AdminToolsAreOfferedToAdministrators(t *testing.T) {
	g := theGate(t)
	admins := []string{"fetch_logs", "get_env", "get_runtime_info", "list_users", "list_groups", "read_asset_meta"}
	everybody := []string{"describe_tables", "get_tree", "memory_read", "memory_write"}
	raw := []string{"get_env_raw", "get_runtime_info_raw", "list_users_raw"}
	for _, c := range []struct {
		who  toolcrib.Principal
		want map[string]bool
	}{
		{toolcrib.Principal{User: "root", Admin: true}, wanted(admins, true, everybody, true, raw, false)},
		{toolcrib.Principal{User: "ann"}, wanted(admins, false, everybody, true, raw, false)},
		{toolcrib.Principal{Admin: true}, wanted(admins, false, raw, false)},
	} {
		offer, err := g.Offer(t.Context(), c.who, gate.Scope{Workspace: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		offered := offer.Set()
		for name, want := range c.want {
			if offered[name] != want {
				t.Errorf("%+v is offered %s: %v", c.who, name, offered[name])
			}
		}
	}
}

func wanted(pairs ...any) map[string]bool {
	want := map[string]bool{}
	for i := 0; i < len(pairs); i += 2 {
		for _, name := range pairs[i].([]string) {
			want[name] = pairs[i+1].(bool)
		}
	}
	return want
}

// What the gate says to hostile and to ordinary arguments (N26): bounds that are too
// high are the tool's to cut, everything else is refused before it is reached.
func TestN26_GateOnHostileArguments(t *testing.T) {
	g, dir := theGate(t), t.TempDir()
	who := toolcrib.Principal{User: "root", Admin: true}
	scope := gate.Scope{Workspace: dir, TaintWrites: gate.TaintDeny, MaxCalls: 64}
	offer, err := g.Offer(t.Context(), who, scope)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct{ name, arguments, want string }{
		{"fetch_logs", `{"limit": 9999}`, "allow"},
		{"fetch_logs", `{"limit": -1}`, "invalid_arguments"},
		{"fetch_logs", `{"path": "/etc/shadow"}`, "invalid_arguments"},
		{"list_users", `{"limit": 9999, "offset": 3}`, "allow"},
		{"list_users_raw", `{}`, "tool_disabled"},
		{"get_env_raw", `{"names": ["HOME"]}`, "tool_disabled"},
		{"get_env", `{"names": "HOME"}`, "invalid_arguments"},
		{"get_tree", `{"depth": 9999, "limit": 9999}`, "allow"},
		{"get_tree", `{"path": "../.."}`, "tool_policy"},
		{"read_asset_meta", `{"path": "/etc/shadow"}`, "tool_policy"},
		{"read_asset_meta", `{"path": "gone"}`, "allow"},
		{"describe_tables", `{"database": "main", "table": "x; DROP TABLE y"}`, "allow"},
		{"describe_tables", `{"query": "SELECT 1"}`, "invalid_arguments"},
		{"memory_read", `{"key": "../ann"}`, "tool_policy"},
		{"memory_read", `{"key": "ann", "user": "bob"}`, "invalid_arguments"},
		{"memory_write", `{"key": "a", "content": "x"}`, "ask non_idempotent_write"},
		{"memory_write", `{"key": "a", "content": "x", "mode": "overwrite"}`, "ask idempotent_write"},
		{"memory_write", `{"key": "a\u0000", "content": "x"}`, "tool_policy"},
		{"memory_write", `{"content": "` + strings.Repeat("x", 1000) + `", "mode": "erase"}`, "invalid_arguments"},
	} {
		verdicts := g.Judge(t.Context(), who, scope, gate.Facts{Run: "run_x", Offered: offer.Set()}, []toolcrib.ToolCall{
			{ID: fmt.Sprintf("call_%d", i), Name: c.name, Arguments: json.RawMessage(c.arguments)},
		})
		v := verdicts[0]
		got := string(v.Decision)
		switch {
		case v.Reason != "" && v.Decision == toolcrib.Refuse:
			got = string(v.Reason)
		case v.Decision == toolcrib.Ask:
			got += " " + string(v.Effect)
		}
		if got != c.want {
			t.Errorf("%s %s: %s (%s), want %s", c.name, c.arguments, got, v.Message, c.want)
		}
	}
}
