package system_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/system"
	"github.com/toolcrib/toolcrib/toolcribtest/tooltest"
)

func toolOf(t *testing.T, options system.Options, name string) toolcrib.Tool {
	t.Helper()
	for _, tool := range system.New(options) {
		if tool.Spec().Name == name {
			return tool
		}
	}
	t.Fatalf("there is no %s", name)
	return nil
}

func run(t *testing.T, tool toolcrib.Tool, arguments string, into any) toolcrib.Output {
	t.Helper()
	out, err := tool.Call(t.Context(), toolcrib.Call{Arguments: json.RawMessage(arguments)})
	if err != nil {
		t.Fatalf("%s: %v", arguments, err)
	}
	if err := json.Unmarshal(out.JSON, into); err != nil {
		t.Fatal(err)
	}
	return out
}

type env struct {
	Variables map[string]string
	Withheld  []string
	NotSet    []string `json:"not_set"`
	Truncated bool
}

func TestN24_EnvConforms(t *testing.T) {
	for _, name := range []string{"get_env", "get_env_raw"} {
		tooltest.Run(t, func() toolcrib.Tool { return toolOf(t, system.Options{}, name) }, tooltest.Cases{Calls: []tooltest.Case{
			{Name: "all", Arguments: `{}`},
			{Name: "names", Arguments: `{"names": ["PATH", "=", "A=B", "\u0000"]}`},
			{Name: "empty name", Arguments: `{"names": [""]}`, Invalid: true},
			{Name: "many", Arguments: `{"names": [` + strings.Repeat(`"x",`, 100) + `"x"]}`, Invalid: true, Err: toolcrib.InvalidArguments},
			{Name: "type", Arguments: `{"names": "PATH"}`, Invalid: true, Err: toolcrib.InvalidArguments},
		}})
	}
}

func TestN24_EnvIsRedacted(t *testing.T) {
	environment := []string{
		"PATH=/usr/bin:/bin", "OPENAI_API_KEY=sk-live-0123456789abcdef", "db_password=hunter2", "EMPTY_TOKEN=", "BROKER=amqp://me:hunter2@host/x",
		"CONFIG=prefix known-secret suffix", "=C:=C:\\", "NOVALUE", "PATH=/second", "TRACE=Authorization: Bearer abcdefgh12345",
	}
	options := system.Options{
		Environ: func() []string { return environment },
		Mask:    func(s string) string { return strings.ReplaceAll(s, "known-secret", "***") },
	}
	redacted, raw := toolOf(t, options, "get_env"), toolOf(t, options, "get_env_raw")
	for tool, want := range map[toolcrib.Tool][2]bool{redacted: {true, true}, raw: {false, true}} {
		if spec := tool.Spec(); spec.EnabledByDefault != want[0] || spec.RequiresAdmin != want[1] || spec.Effect.Writes() {
			t.Errorf("spec %+v", spec)
		}
	}
	var got env
	run(t, redacted, `{}`, &got)
	if fmt.Sprint(got) != "{map[PATH:/usr/bin:/bin] [BROKER CONFIG EMPTY_TOKEN OPENAI_API_KEY TRACE db_password] [] false}" {
		t.Errorf("got %v", got)
	}
	got = env{}
	out := run(t, redacted, `{"names": ["PATH", "OPENAI_API_KEY", "db_password", "EMPTY_TOKEN", "BROKER", "CONFIG", "TRACE"]}`, &got)
	const hidden = "***redacted***"
	want := map[string]string{
		"PATH": "/usr/bin:/bin", "OPENAI_API_KEY": hidden, "db_password": hidden, "EMPTY_TOKEN": "", "BROKER": "amqp://" + hidden + "@host/x",
		"CONFIG": "prefix *** suffix", "TRACE": "Authorization: " + hidden,
	}
	if fmt.Sprint(got.Variables) != fmt.Sprint(want) || strings.Contains(string(out.JSON), "hunter2") {
		t.Errorf("got %v\nwant %v", got.Variables, want)
	}
	got = env{}
	run(t, redacted, `{"names": ["db_password", "gone", "PATH", "gone"]}`, &got)
	if fmt.Sprint(got) != "{map[PATH:/usr/bin:/bin db_password:***redacted***] [] [gone] false}" {
		t.Errorf("got %v", got)
	}
	got = env{}
	run(t, raw, `{"names": ["db_password", "CONFIG"]}`, &got)
	if fmt.Sprint(got.Variables) != "map[CONFIG:prefix known-secret suffix db_password:hunter2]" {
		t.Errorf("got %v", got)
	}
}

// A value that nobody has called harmless is for a person to release.
func TestN24_EnvAsks(t *testing.T) {
	options := system.Options{Environ: func() []string {
		return []string{"PATH=/bin", "LC_ALL=C", "DEPLOY_HOST=10.0.0.7", "GITHUB=ghp", "db_password=hunter2"}
	}}
	for arguments, want := range map[string]string{
		`{}`: "", `{"names": []}`: "", `{"names": ["PATH", "LC_ALL", "GONE", "db_password"]}`: "",
		`{"names": ["PATH", "GITHUB", "DEPLOY_HOST"]}`: "shows the values of environment variables: DEPLOY_HOST, GITHUB",
	} {
		for _, name := range []string{"get_env", "get_env_raw"} {
			got := ""
			for _, c := range tooltest.Facts(toolOf(t, options, name), toolcrib.Call{Arguments: json.RawMessage(arguments)}).Concerns {
				got += c.Why
			}
			if name == "get_env_raw" {
				want = ""
			}
			if got != want {
				t.Errorf("%s %s: %q, want %q", name, arguments, got, want)
			}
		}
	}
}

func TestN24_EnvBounds(t *testing.T) {
	var environment []string
	for i := range 600 {
		environment = append(environment, fmt.Sprintf("V%04d=%s", i, strings.Repeat("é", 520+i%10*200)))
	}
	options := system.Options{Environ: func() []string { return environment }}
	for name, most := range map[string]int{"get_env": 1000, "get_env_raw": 4096} {
		var got env
		out := run(t, toolOf(t, options, name), `{}`, &got)
		if name == "get_env" {
			if len(got.Variables) != 0 || len(got.Withheld) != 500 || !got.Truncated || !out.Cut {
				t.Errorf("%d variables, %d names", len(got.Variables), len(got.Withheld))
			}
			got = env{}
			if run(t, toolOf(t, options, name), `{"names": ["V0009"]}`, &got); len(got.Variables["V0009"]) > most+len("…") ||
				got.Variables["V0009"] == "" {
				t.Errorf("a value of %d bytes", len(got.Variables["V0009"]))
			}
			continue
		}
		if len(got.Variables) != 500 || !got.Truncated || !out.Cut || len(got.Variables["V0009"]) > most+len("…") ||
			got.Variables["V0499"] == "" {
			t.Errorf("%s: %d variables, %d bytes", name, len(got.Variables), len(got.Variables["V0009"]))
		}
	}
	// A part of a secret is one that nothing recognises.
	long := "postgres://u:" + strings.Repeat("hunter2", 5000) + "@h/x"
	options.Environ = func() []string { return []string{"A=" + long, "B=see " + long} }
	var got env
	if out := run(t, toolOf(t, options, "get_env"), `{"names": ["A", "B"]}`, &got); strings.Contains(string(out.JSON), "hunter2") || got.Variables["B"] != "see" {
		t.Errorf("got %s", out.JSON)
	}
}

func TestN24_RuntimeInfoRaw(t *testing.T) {
	options := system.Options{Environ: func() []string { return []string{"X_SECRET=hunter2"} }}
	tool := toolOf(t, options, "get_runtime_info_raw")
	if spec := tool.Spec(); spec.EnabledByDefault || !spec.RequiresAdmin || spec.Effect.Writes() {
		t.Errorf("spec %+v", spec)
	}
	var got struct {
		Version     string
		PID         int
		Executable  string
		Folder      string `json:"working_directory"`
		Arguments   []string
		Environment map[string]string
	}
	run(t, tool, `{}`, &got)
	folder, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if got.Version != "unknown" || got.PID != os.Getpid() || got.Folder != folder || len(got.Arguments) == 0 || got.Environment["X_SECRET"] != "hunter2" || got.Executable == "" {
		t.Errorf("got %+v", got)
	}
	// What the other leaves out.
	out := run(t, toolOf(t, options, "get_runtime_info"), `{}`, &struct{}{})
	for _, word := range []string{"pid", "hunter2", "environment", folder, "arguments", "host"} {
		if strings.Contains(string(out.JSON), word) {
			t.Errorf("get_runtime_info tells %q: %s", word, out.JSON)
		}
	}
}
