package imports_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/toolcrib/toolcrib"

// layers are the core, the outermost first. A layer may import the ones after it,
// the standard library, and of other modules those named here.
var layers = []layer{
	{name: "replay"},
	{name: "agent"},
	{name: "gate", modules: []string{"github.com/santhosh-tekuri/jsonschema/v6", "golang.org/x/sys"}},
	{name: pureCore},
	{name: "api"},
	{name: "journal"},
	{name: "guard", modules: []string{"github.com/go-json-experiment/json", "golang.org/x/text"}},
	{name: "."},
}

type layer struct {
	name    string
	modules []string
}

// shared are packages beside adapters that several of them use; they wrap nothing.
var shared = []string{"provider/wire", "provider/limit", "provider/texttag", "store/sqlstore"}

// adapter returns the adapter that a package belongs to, "" if to none. An adapter
// wraps one outside dependency, or holds one family of tools.
func adapter(name string) string {
	if slices.Contains(shared, name) || strings.Contains(name, "/internal/") {
		return ""
	}
	for _, one := range []string{"mcp", "natsbus", "gate/celrule"} {
		if within(name, one) && !within(name, "mcp/serve") { // which is a front end
			return one
		}
	}
	for _, family := range []string{"provider/", "store/", "tool/", "channel/"} {
		if rest, ok := strings.CutPrefix(name, family); ok {
			first, _, _ := strings.Cut(rest, "/")
			return family + first
		}
	}
	return ""
}

// wiring reports whether a package may put adapters together.
func wiring(name string) bool {
	return within(name, "cmd") || name == "app" || within(name, "internal/cli") || within(name, "service")
}

// frontEnd reports whether a package is a way from people or programs to the service.
func frontEnd(name string) bool {
	return slices.ContainsFunc([]string{"cmd", "internal/cli", "internal/remote", "server", "acp", "mcp", "bus/serve"}, func(f string) bool { return within(name, f) })
}

// screens are what belongs to one front end, and nothing that the service may know.
var screens = []string{
	"github.com/spf13/cobra", "github.com/spf13/pflag", "charm.land", "golang.org/x/term", "net/http",
	"internal/cli", "internal/render", "internal/terminal", "internal/tui",
}

func within(name, folder string) bool {
	return name == folder || strings.HasPrefix(name, folder+"/")
}

// pkg is what the rules need to know of a package, as go list tells it.
type pkg struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Deps       []string
}

// packages lists the packages of the module and all that they depend on, tests
// left out, by the name that they have here: a path below the module for its own.
func packages(t *testing.T) map[string]pkg {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "list", "-e", "-deps", "-json=ImportPath,Standard,Imports,Deps", "./...")
	command.Dir = root(t)
	out, err := command.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := map[string]pkg{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		for i, path := range p.Imports {
			p.Imports[i] = local(path)
		}
		for i, path := range p.Deps {
			p.Deps[i] = local(path)
		}
		all[local(p.ImportPath)] = p
	}
	if _, ok := all["."]; !ok {
		t.Fatalf("go list does not know %s", module)
	}
	return all
}

// local shortens the path of a package of the module; "." is its root.
func local(path string) string {
	if path == module {
		return "."
	}
	return strings.TrimPrefix(path, module+"/")
}

func (p pkg) ours() bool {
	return p.ImportPath == module || strings.HasPrefix(p.ImportPath, module+"/")
}

func root(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		t.Fatalf("go list -m: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// TestImports keeps the import rules of docs/architecture.md.
func TestImports(t *testing.T) {
	all := packages(t)
	rules := []struct {
		name string
		// allowed reports whether the package from may import to.
		allowed func(all map[string]pkg, from, to string) bool
	}{
		{"the root imports the standard library only", rootStandsAlone},
		{"a layer of the core imports inwards only", coreImportsInwards},
		{"only the loop and what is outside of it import its core", gateKnowsNoCore},
		{"an adapter imports neither agent nor replay", adapterKnowsNoLoop},
		{"an adapter imports no other adapter", adapterStandsAlone},
		{"only cmd and internal/cli wire adapters", onlyWiringWires},
		{"only front ends import the service, only cmd internal/cli", nobodyImportsWiring},
		{"the service knows no command line, no terminal and no HTTP", serviceKnowsNoScreen},
		{"a room of the service does not import the service", roomsStandAlone},
		{"only front ends import the doctor", doctorStandsAlone},
		{"workers know neither policy nor tools", workersDriveRunsOnly},
		{"the bus is independent of transports and of the service", busStandsAlone},
		{"the product does not import toolcribtest", testsStayOutside},
	}
	for _, rule := range rules {
		t.Run(rule.name, func(t *testing.T) {
			for from, p := range all {
				if !p.ours() {
					continue
				}
				for _, to := range p.Imports {
					if !rule.allowed(all, from, to) {
						t.Errorf("%s imports %s", from, to)
					}
				}
			}
		})
	}
}

// TestArchitectureNamesAll keeps the tables of docs/architecture.md complete: every
// package of the module, and every module that it requires itself.
func TestArchitectureNamesAll(t *testing.T) {
	top := root(t)
	page, err := os.ReadFile(filepath.Join(top, "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range packages(t) {
		if p.ours() && name != "." && !bytes.Contains(page, []byte("`"+name+"`")) {
			t.Errorf("docs/architecture.md does not name the package %s: what is it, and what does it open?", name)
		}
	}
	required, err := os.ReadFile(filepath.Join(top, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	names := 0
	for line := range strings.Lines(string(required)) {
		fields := strings.Fields(line)
		if !strings.HasPrefix(line, "\t") || len(fields) != 2 {
			continue // of the lines of require blocks, those that end in // indirect
		}
		names++
		last := fields[0]
		if version := regexp.MustCompile(`/v[0-9]+$`).FindString(last); version != "" {
			last = strings.TrimSuffix(last, version)
		}
		if !bytes.Contains(page, []byte(path.Base(last))) {
			t.Errorf("docs/architecture.md does not say what %s is for", fields[0])
		}
	}
	if names < 10 {
		t.Errorf("go.mod requires %d modules only", names)
	}
}

func rootStandsAlone(all map[string]pkg, from, to string) bool {
	return from != "." || all[to].Standard
}

func coreImportsInwards(all map[string]pkg, from, to string) bool {
	at := layerOf(from)
	if at < 0 || all[to].Standard {
		return true
	}
	if !all[to].ours() {
		return slices.ContainsFunc(layers[at].modules, func(m string) bool { return within(to, m) })
	}
	if below := layerOf(to); below >= 0 {
		return below >= at
	}
	return within(to, "internal") && leaf(all, to)
}

// gateKnowsNoCore keeps decisions and folding apart: the gate is told facts, and knows no state.
func gateKnowsNoCore(_ map[string]pkg, from, to string) bool {
	return !within(to, pureCore) || !within(from, "gate")
}

// layerOf returns the layer that a package belongs to, -1 if to none.
func layerOf(name string) int {
	if adapter(name) != "" {
		return -1
	}
	at := -1
	for i, l := range layers {
		inside := name == l.name || l.name != "." && within(name, l.name)
		if inside && (at < 0 || len(l.name) > len(layers[at].name)) {
			at = i
		}
	}
	return at
}

// leaf reports whether a package depends on nothing but the standard library and
// the root.
func leaf(all map[string]pkg, name string) bool {
	return !slices.ContainsFunc(all[name].Deps, func(dep string) bool { return !all[dep].Standard && dep != "." })
}

func adapterKnowsNoLoop(_ map[string]pkg, from, to string) bool {
	return adapter(from) == "" || !within(to, "agent") && !within(to, "replay")
}

func adapterStandsAlone(all map[string]pkg, from, to string) bool {
	a, b := adapter(from), adapter(to)
	if a == "" || b == "" || a == b || !all[to].ours() {
		return true
	}
	if a == "provider/llamacpp" && b == "provider/openai" {
		return true // a dialect of the same API: it changes requests, and has no encoder of its own
	}
	if a == "tool/command" && b == "tool/shell" {
		return true // its programs run in that sandbox
	}
	return a == "tool/builtin" && strings.HasPrefix(b, "tool/") // it lists the families
}

func onlyWiringWires(all map[string]pkg, from, to string) bool {
	if frontEnd(from) && strings.HasPrefix(to, "store/") {
		return false // the service opens stores
	}
	table := from == "internal/providers" && strings.HasPrefix(to, "provider/") // one row for each
	return !all[to].ours() || adapter(to) == "" || adapter(from) != "" || wiring(from) || table
}

func nobodyImportsWiring(_ map[string]pkg, from, to string) bool {
	if within(to, "service") {
		return within(from, "service") || frontEnd(from)
	}
	return !wiring(to) || wiring(from) && !within(from, "service")
}

// roomsStandAlone keeps the packages below the service from its runs and sessions. env is below all of them.
func roomsStandAlone(_ map[string]pkg, from, to string) bool {
	if !strings.HasPrefix(from, "service/") || !within(to, "service") {
		return true
	}
	return to != "service" && from != "service/env"
}

// doctorStandsAlone keeps what only looks at the other packages away from them.
func doctorStandsAlone(_ map[string]pkg, from, to string) bool {
	return to != "service/doctor" || frontEnd(from)
}

// workersDriveRunsOnly keeps decisions out of the workers: they know the environment of the service, and runs.
func workersDriveRunsOnly(_ map[string]pkg, from, to string) bool {
	if from != "service/worker" {
		return true
	}
	decides := []string{"gate", "tool", "provider", "mcp", "access", "skill", "team"}
	return (!within(to, "service") || to == "service/env") &&
		!slices.ContainsFunc(decides, func(f string) bool { return within(to, f) })
}

// busStandsAlone keeps transports, tools and the service out of the protocol between nodes.
func busStandsAlone(all map[string]pkg, from, to string) bool {
	return from != "bus" || all[to].Standard || slices.Contains([]string{".", "access", "guard"}, to) ||
		within(to, "internal") && leaf(all, to)
}

func serviceKnowsNoScreen(_ map[string]pkg, from, to string) bool {
	return !within(from, "service") || !slices.ContainsFunc(screens, func(s string) bool { return within(to, s) })
}

func testsStayOutside(_ map[string]pkg, from, to string) bool {
	return !within(to, "toolcribtest") || within(from, "toolcribtest")
}

// TestRules_Bite tries the rules on packages that break them, for a rule that
// never refuses would keep nothing.
func TestRules_Bite(t *testing.T) {
	all := map[string]pkg{"context": {ImportPath: "context", Standard: true}}
	for _, name := range []string{
		".", "guard", "journal", "api", "gate", "agent", "agent/core", "replay", "gate/celrule", "provider/openai", "provider/llamacpp", "provider/script", "provider/wire",
		"tool/files", "tool/builtin", "tool/internal/wire", "store/sqlite", "service", "internal/cli", "internal/deltas", "internal/config", "cmd/toolcrib", "app", "tool/command", "tool/shell",
		"toolcribtest", "server", "acp", "mcp", "mcp/serve",
	} {
		all[name] = pkg{ImportPath: strings.TrimSuffix(module+"/"+name, "/.")}
	}
	for _, yaml := range []string{"github.com/goccy/go-yaml", "github.com/santhosh-tekuri/jsonschema/v6/kind"} {
		all[yaml] = pkg{ImportPath: yaml}
	}
	all["internal/config"] = pkg{ImportPath: module + "/internal/config", Deps: []string{"github.com/goccy/go-yaml"}}
	tests := []struct {
		rule     func(map[string]pkg, string, string) bool
		from, to string
		want     bool
	}{
		{rootStandsAlone, ".", "context", true},
		{rootStandsAlone, ".", "guard", false},
		{coreImportsInwards, "agent", "gate", true},
		{coreImportsInwards, "gate", "agent", false},
		{coreImportsInwards, "agent", "agent/core", true},
		{coreImportsInwards, "agent/core", "agent", false},
		{coreImportsInwards, "agent/core", "gate", false},
		{coreImportsInwards, "agent/core", "journal", true},
		{gateKnowsNoCore, "gate", "agent/core", false},
		{coreImportsInwards, "guard", "journal", false},
		{coreImportsInwards, "api", "journal", true},
		{coreImportsInwards, "api", "gate", false},
		{coreImportsInwards, "agent", "provider/openai", false},
		{coreImportsInwards, "agent", "github.com/goccy/go-yaml", false},
		{coreImportsInwards, "gate", "github.com/santhosh-tekuri/jsonschema/v6/kind", true},
		{coreImportsInwards, "agent", "internal/deltas", true},
		{coreImportsInwards, "agent", "internal/config", false},
		{coreImportsInwards, "agent", "server", false},
		{adapterKnowsNoLoop, "store/sqlite", "agent", false},
		{adapterKnowsNoLoop, "store/sqlite", "journal", true},
		{adapterKnowsNoLoop, "gate/celrule", "agent", false},
		{adapterStandsAlone, "provider/openai", "provider/script", false},
		{adapterStandsAlone, "provider/openai", "provider/wire", true},
		{adapterStandsAlone, "provider/llamacpp", "provider/openai", true},
		{adapterStandsAlone, "provider/openai", "provider/llamacpp", false},
		{adapterStandsAlone, "provider/llamacpp", "provider/script", false},
		{adapterStandsAlone, "tool/files", "tool/internal/wire", true},
		{adapterStandsAlone, "tool/builtin", "tool/files", true},
		{adapterStandsAlone, "tool/builtin", "store/sqlite", false},
		{adapterStandsAlone, "tool/command", "tool/shell", true},
		{adapterStandsAlone, "tool/command", "tool/files", false},
		{adapterStandsAlone, "tool/shell", "tool/command", false},
		{onlyWiringWires, "server", "store/sqlite", false},
		{onlyWiringWires, "internal/cli", "store/sqlite", false},
		{onlyWiringWires, "service", "store/sqlite", true},
		{onlyWiringWires, "internal/cli", "tool/builtin", true},
		{nobodyImportsWiring, "server", "internal/cli", false},
		{nobodyImportsWiring, "cmd/toolcrib", "app", true},
		{nobodyImportsWiring, "app", "internal/cli", true},
		{nobodyImportsWiring, "agent", "app", false},
		{nobodyImportsWiring, "service", "internal/cli", false},
		{nobodyImportsWiring, "internal/cli", "service", true},
		{nobodyImportsWiring, "server", "service", true},
		{nobodyImportsWiring, "agent", "service", false},
		{serviceKnowsNoScreen, "service", "internal/render", false},
		{serviceKnowsNoScreen, "service", "github.com/spf13/cobra", false},
		{serviceKnowsNoScreen, "service", "agent", true},
		{roomsStandAlone, "service", "service/models", true},
		{roomsStandAlone, "service/models", "service/env", true},
		{roomsStandAlone, "service/models", "service", false},
		{roomsStandAlone, "service/env", "service/models", false},
		{doctorStandsAlone, "service", "service/doctor", false},
		{doctorStandsAlone, "internal/cli", "service/doctor", true},
		{workersDriveRunsOnly, "service/worker", "service/env", true},
		{workersDriveRunsOnly, "service/worker", "agent", true},
		{workersDriveRunsOnly, "service/worker", "service/policy", false},
		{workersDriveRunsOnly, "service/worker", "gate", false},
		{workersDriveRunsOnly, "service", "gate", true},
		{onlyWiringWires, "mcp/serve", "mcp", false},
		{nobodyImportsWiring, "mcp/serve", "service", true},
		{nobodyImportsWiring, "mcp/serve", "internal/cli", false},
		{nobodyImportsWiring, "acp", "service", true},
		{nobodyImportsWiring, "acp", "internal/cli", false},
		{onlyWiringWires, "acp", "store/sqlite", false},
		{testsStayOutside, "agent", "toolcribtest", false},
		{busStandsAlone, "bus", "context", true},
		{busStandsAlone, "bus", "access", true},
		{busStandsAlone, "bus", "gate", false},
		{busStandsAlone, "bus", "natsbus", false},
		{busStandsAlone, "bus", "service", false},
		{busStandsAlone, "bus/serve", "service", true},
		{nobodyImportsWiring, "bus", "service", false},
		{nobodyImportsWiring, "bus/serve", "service", true},
	}
	for _, tt := range tests {
		if got := tt.rule(all, tt.from, tt.to); got != tt.want {
			t.Errorf("%s imports %s: allowed %v, want %v", tt.from, tt.to, got, tt.want)
		}
	}
}
