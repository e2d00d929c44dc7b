//go:build unix

package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/toolcrib/toolcrib/internal/config"
)

func writeFile(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestN5_OrderOfLookup(t *testing.T) {
	cwd, xdg, home := t.TempDir(), t.TempDir(), t.TempDir()
	t.Chdir(cwd)
	vars := map[string]string{"HOME": home}
	find := func(flag string) config.Source {
		return config.Find(flag, func(name string) string { return vars[name] })
	}
	want := func(flag string, want config.Source, trust bool) {
		t.Helper()
		if got := find(flag); got != want || got.NeedsTrust() != trust {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	want("", config.Source{}, false)
	atHome := filepath.Join(home, ".config", "toolcrib", "toolcrib.yaml")
	writeFile(t, atHome, "")
	want("", config.Source{Path: atHome, Origin: config.OriginUser}, false)
	vars["XDG_CONFIG_HOME"] = "relative"
	want("", config.Source{Path: atHome, Origin: config.OriginUser}, false)
	vars["XDG_CONFIG_HOME"] = xdg
	want("", config.Source{}, false)
	atXDG := filepath.Join(xdg, "toolcrib", "toolcrib.yaml")
	writeFile(t, atXDG, "")
	want("", config.Source{Path: atXDG, Origin: config.OriginUser}, false)
	t.Chdir(filepath.Dir(atXDG))
	want("", config.Source{Path: atXDG, Origin: config.OriginUser}, false)
	t.Chdir(cwd)
	if err := os.Symlink("nothing", filepath.Join(cwd, "toolcrib.yaml")); err != nil {
		t.Fatal(err)
	}
	want("", config.Source{Path: "toolcrib.yaml", Origin: config.OriginCwd, Own: atXDG}, true)
	vars["TOOLCRIB_CONFIG"] = "elsewhere.yaml"
	want("", config.Source{Path: "elsewhere.yaml", Origin: config.OriginEnv}, false)
	want("x.yaml", config.Source{Path: "x.yaml", Origin: config.OriginFlag}, false)
}

func TestN5_LoadRefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	pipe, big, closed := filepath.Join(dir, "pipe"), filepath.Join(dir, "big"), filepath.Join(dir, "closed")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	writeFile(t, big, strings.Repeat("#", config.MaxBytes+1))
	writeFile(t, closed, "")
	if err := os.Chmod(closed, 0); err != nil {
		t.Fatal(err)
	}
	cases := map[string]string{
		dir: "is a directory, not a file", pipe: "is not a regular file", big: "is larger than 1048576 bytes",
		filepath.Join(dir, "missing"): "does not exist", filepath.Join(big, "x"): "cannot be read: not a directory",
	}
	if os.Getuid() != 0 { // root may read everything
		cases[closed] = "cannot be read: permission denied"
	}
	for file, want := range cases {
		c, err := config.Load(config.Source{Path: file, Origin: config.OriginFlag}, nil)
		if c != nil || err == nil || err.Error() != file+": "+want {
			t.Errorf("%v, %v; want %s", c, err, want)
		}
	}
}

func TestN5_LoadAsksForTrustWithWhatItLoads(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "toolcrib.yaml", "log: {level: debug}\n")
	source := config.Find("", func(string) string { return "" })
	if _, err := config.Load(source, nil); err == nil || err.Error() != "toolcrib.yaml: is not trusted" {
		t.Errorf("nobody asked: %v", err)
	}
	refused := errors.New("refused")
	if _, err := config.Load(source, func(string, []byte) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("err = %v", err)
	}
	c, err := config.Load(source, func(path string, content []byte) error {
		if path != "toolcrib.yaml" || string(content) != "log: {level: debug}\n" {
			t.Errorf("asked about %s: %q", path, content)
		}
		writeFile(t, "toolcrib.yaml", "log: {level: error}\n") // too late to matter
		return nil
	})
	if err != nil || c.Log.Level != "debug" {
		t.Errorf("%+v, %v", c, err)
	}
	named := config.Source{Path: "toolcrib.yaml", Origin: config.OriginFlag}
	if c, err := config.Load(named, nil); err != nil || c.Log.Level != "error" {
		t.Errorf("named by a flag: %v", err)
	}
	if c, err := config.Load(config.Source{}, nil); err != nil || c.Position("log") != "default" {
		t.Errorf("no file: %v", err)
	}
}

// Every key of the contract is known.
func TestN5_KeysAreKnown(t *testing.T) {
	mustParse(t, everything)
	mustParse(t, later)
}

// The ID of a sender that can be changed, an address without a type, and what one type does not have, are errors.
func TestC16_Channels(t *testing.T) {
	const tg, hook = `type: telegram, url: "telegram://1:a@telegram"`, `type: webhook, url: "https://h.example/x", secret: "0123456789abcdef"`
	for text, want := range map[string]string{
		`{` + tg + `, inbound: {agent: default, allow: [12345, "telegram:7", "n:8=ann"]}}`:         "",
		`{type: telegram, url: "${secret:tg}", inbound: {allow: [7]}}`:                             "",
		`{type: telegram, url: "telegram://${secret:tg}@telegram"}`:                                "",
		`{type: matrix, url: "matrix://:t@m.example", inbound: {allow: ["@ann:example.org=ann"]}}`: "",
		`{type: discord, url: "discord://token@id"}`:                                               "",
		`{` + hook + `, inbound: {allow: [ann]}}`:                                                  "",
		`{type: telegram, inbound: {allow: [7]}}`:                                                  "channels.n.url: is required",
		`{type: telegram, url: "http://x"}`:                                                        "channels.n.url: has no token before its host: telegram://…@…",
		`{type: telegram, url: "slack://a:b@slack"}`:                                               "channels.n.url: must begin with telegram:// or https://",
		`{type: webhook, secret: "0123456789abcdef"}`:                                              "channels.n.url: is required",
		`{type: webhook, url: "slack://x", secret: "0123456789abcdef"}`:                            "channels.n.url: must begin with https:// or http://",
		`{type: webhook, url: "https://h.example", inbound: {allow: [ann]}}`:                       "channels.n.secret: is required: messages are signed with it",
		`{type: discord, url: "https://h.example"}`:                                                "channels.n.url: must begin with the scheme of a messenger, such as discord://",
		`{` + tg + `, inbound: {allow: [ann]}}`:                                                    "channels.n.inbound.allow[0]: ",
		`{` + tg + `, inbound: {allow: ["@ann=ann"]}}`:                                             "channels.n.inbound.allow[0]: ",
		`{type: slack, url: "slack://a:b@slack", inbound: {allow: [ann]}}`:                         "channels.n.inbound.allow[0]: ",
		`{` + hook + `, inbound: {allow: ["*"]}}`:                                                  "channels.n.inbound.allow[0]: ",
		`{` + hook + `, inbound: {allow: ["a/b"]}}`:                                                "channels.n.inbound.allow[0]: ",
		`{` + tg + `, inbound: {allow: ["7=../x"]}}`:                                               "channels.n.inbound.allow[0]: ",
		`{type: discord, url: "discord://token@id", inbound: {allow: [7]}}`:                        "channels.n.inbound: ",
		`{type: irc, url: "irc://x"}`:                                                              "channels.n.type: ",
		`{type: slack, url: "slack://a:b@slack", secret: "0123456789abcdef"}`:                      "channels.n.secret: ",
		`{` + tg + `, inbound: {agent: none}}`:                                                     "channels.n.inbound.agent: ",
	} {
		_, err := config.Parse("x.yaml", []byte("channels: {n: "+text+"}\n"))
		if want == "" && err != nil || want != "" && (err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), " "+want)) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if _, err := config.Parse("x.yaml", []byte("channels: {local: {type: telegram, url: \"telegram://1:a@telegram\"}}\n")); err == nil {
		t.Error("a channel may be called local, so that its senders are users of this machine")
	}
}

// later sets keys that everything does not.
const later = `
telemetry: {otlp: "https://otel.example", content: true}
agents: {default: {find_tools: {above_bytes: 0}}}
tools:
  bound: {notes: {capability: rag.query@1.0, effect: read_only, description: Notes., parameters: {type: object}, params: {corpus: notes}, timeout: 5s}}
  shell: {mode: ask, path: [/usr/bin], env: {LANG: C}, caches: false}
team: {worker_tools: {cost_cap_usd: 1, cost_cap_mode: enforce}, panels: {three: {agents: [default], proposer: default, synthesizer: default}}, rubric: rubric.yaml}
notes: {files: []}
server: {client_tool_timeout: 5m}
`

// A project does not say who may run programs without a sandbox: it is trusted by one user of a machine.
func TestN5_ProjectCannotLiftTheSandbox(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "toolcrib.yaml", "tools:\n  shell:\n    unconfined: [ann]\n")
	trusted := func(string, []byte) error { return nil }
	const want = "toolcrib.yaml:3: tools.shell.unconfined: cannot be set in the configuration of a folder; "
	project := config.Source{Path: "toolcrib.yaml", Origin: config.OriginCwd}
	if c, err := config.Load(project, trusted); c != nil || err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, %v", c, err)
	}
	if _, err := config.Examine(project); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("looked at: %v", err)
	}
	for _, origin := range []config.Origin{config.OriginFlag, config.OriginEnv, config.OriginUser} {
		c, err := config.Load(config.Source{Path: "toolcrib.yaml", Origin: origin}, nil)
		if err != nil || len(c.Tools.Shell.Unconfined) != 1 {
			t.Errorf("%s: %v", origin, err)
		}
	}
}
