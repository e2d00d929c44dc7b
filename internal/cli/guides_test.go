package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"mvdan.cc/sh/v3/syntax"
)

// how says how a command line of a guide is run if it is not just to end with 0.
type how struct {
	code    int
	answers string // what a person types, on a terminal; "" = no terminal
	prints  string // a pattern of what the line prints
	not     string // why it is not run
}

// The lines of guides that end otherwise, are run on a terminal, or not at all.
const (
	needsKey = "asks a provider, which needs a key"
	needsNet = "needs the network"
	needsEnd = "runs until it is ended; TestServeGuide has it"
	needsOwn = "a line to fill in"
)

func guides() map[string]map[string]how {
	return map[string]map[string]how{
		"docs/guide-coding-agent.md": {
			"go install github.com/toolcrib/toolcrib/cmd/toolcrib@latest": {not: needsNet},
			"export ANTHROPIC_API_KEY=…":                                  {not: needsKey},
			"toolcrib trust .":                                            {answers: "y\n", prints: "AGENTS.md"},
			`toolcrib run "The tests fail. Find out why, and fix it."`: {
				answers: "a\ny\n", prints: "Greet left out the exclamation mark",
			},
			`toolcrib tools explain exec_shell --args '{"command": "go test ./..."}'`:            {prints: "would run"},
			`toolcrib tools explain exec_shell --args '{"command": "cat /etc/passwd"}'`:          {prints: "tool_policy"},
			`toolcrib tools explain write_file --args '{"path": ".git/config", "content": "x"}'`: {prints: "protected_path"},
			"git diff":                  {prints: `name \+ "!"`},
			"toolcrib runs show last":   {prints: "edit_file"},
			"toolcrib runs verify last": {prints: "sealed"},
		},
		"README.md": {
			`go run ./cmd/toolcrib run "show me around and leave a note"`: {not: "compiles the program; the script tour has the rest"},
			"./scripts/test": {not: "runs this test"},
			"go install github.com/toolcrib/toolcrib/cmd/toolcrib@latest": {not: needsNet},
			`toolcrib run "Write 'hello' to notes.txt"`:                   {code: 3, prints: "approvals approve"},
			"toolcrib runs show last":                                     {prints: "write_file"},
			"toolcrib approvals show last":                                {prints: "write_file"},
			"toolcrib mcp add --from .vscode/mcp.json":                    {not: needsOwn},
			`toolcrib confer --agents ann,bob "Is it safe?"`:              {code: 2, prints: "unknown agent"},

			"toolcrib serve":                  {not: needsEnd},
			"toolcrib --server URL runs list": {not: needsOwn},
		},
		"docs/guide-ci.md": {
			`toolcrib --config ci/toolcrib.yaml run --approve deny --output json "Why do the tests fail?" > run.json`: {not: needsKey},
			"jq -r .content run.json": {not: needsKey},
			`toolcrib --config ci/toolcrib.yaml run --approve deny --output json "Do the tests pass?" > run.json`:                  {not: needsKey},
			"jq -e '.content | fromjson.ok' run.json":                                                                              {not: needsKey},
			`git diff origin/main...HEAD | toolcrib --config ci/toolcrib.yaml run --read-only --approve deny "Review this change"`: {not: needsKey},
		},
		"docs/guide-approvals.md": {
			"toolcrib approvals notify test":                           {not: needsNet},
			`toolcrib run --approve none "Write 'hello' to notes.txt"`: {code: 3, prints: "approvals approve"},
			"toolcrib approvals show last":                             {prints: "write_file"},
			"toolcrib approvals approve last --resume":                 {answers: "y\n", prints: "Successfully wrote"},
		},
	}
}

// guideFile is a file that a guide has in a block: what introduces it names it at its end.
var guideFile = regexp.MustCompile("`([^` ]+\\.(?:go|yaml|md|json))`[^`]*:\\s*$")

// guideBlock is a block of a page: fenced, or indented lines.
type guideBlock struct{ before, language, text string }

func guideBlocks(page string) (all []guideBlock) {
	var b guideBlock
	fenced := false
	end := func() {
		if b.text != "" {
			all = append(all, b)
			b = guideBlock{}
		}
	}
	for line := range strings.Lines(page) {
		language, fence := strings.CutPrefix(line, "```")
		switch indented := strings.HasPrefix(line, "    "); {
		case fence && fenced:
			fenced = false
			end()
		case fence:
			end()
			fenced, b.language = true, strings.TrimSpace(language)
		case fenced || indented:
			b.text += line
		default:
			end()
			b.before += line
		}
	}
	return all
}

// guideScript makes a script of the command lines of a page, with the files that it says to write, in their order.
func guideScript(t *testing.T, path string, known map[string]how) string {
	t.Helper()
	page, err := os.ReadFile("../../" + path)
	if err != nil {
		t.Fatal(err)
	}
	var script, files strings.Builder
	seen, n := map[string]bool{}, 0
	step := func(line, shell string) {
		n++
		h, ok := known[line]
		seen[line] = ok
		fmt.Fprintf(&files, "-- lines/%d.sh --\nexec 2>&1\n. ./state\n%s\ncode=$?\nexport -p >$WORK/state\necho \"cd '$PWD'\" >>$WORK/state\nexit $code\n", n, shell)
		switch {
		case h.not != "":
			return
		case h.answers != "":
			fmt.Fprintf(&files, "-- lines/%d.typed --\n%s", n, h.answers)
			fmt.Fprintf(&script, "pty lines/%d.typed %d sh lines/%d.sh\n", n, h.code, n)
		default:
			fmt.Fprintf(&script, "exits %d sh lines/%d.sh\n", h.code, n)
		}
		if h.prints != "" {
			fmt.Fprintf(&script, "stdout '%s'\n", h.prints)
		}
	}
	for _, b := range guideBlocks(string(page)) {
		name := guideFile.FindStringSubmatch(b.before)
		switch {
		case b.language != "" && b.language != "sh" && name != nil:
			name := strings.Replace(name[1], "~", "$HOME", 1)
			step("", fmt.Sprintf("mkdir -p \"$(dirname %s)\" && cat >>%s <<'END'\n%sEND", name, name, b.text))
		case b.language == "" || b.language == "sh":
			parsed, err := syntax.NewParser().Parse(strings.NewReader(b.text), path)
			if err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			for _, s := range parsed.Stmts {
				line := b.text[s.Pos().Offset():s.End().Offset()]
				step(line, line)
			}
		}
	}
	for line := range known {
		if !seen[line] {
			t.Errorf("%s has no line %s", path, line)
		}
	}
	return script.String() + files.String()
}

// TestGuides runs the command lines of the guides as they stand, in their order, in an empty home: one that is not in
// guides has to end with 0.
func TestGuides(t *testing.T) {
	t.Parallel()
	p := scripts(t)
	p.Dir = t.TempDir()
	for path, known := range guides() {
		name := strings.TrimSuffix(filepath.Base(path), ".md") + ".txtar"
		if err := os.WriteFile(filepath.Join(p.Dir, name), []byte("[!linux] skip\n[!exec:git] skip\n[!exec:go] skip\n"+guideScript(t, path, known)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	setup := p.Setup
	p.Setup = func(env *testscript.Env) error {
		if err := setup(env); err != nil {
			return err
		}
		state := "export HTTPS_PROXY=http://127.0.0.1:9 GIT_AUTHOR_NAME=Ann GIT_AUTHOR_EMAIL=ann@example.com " +
			"GIT_COMMITTER_NAME=Ann GIT_COMMITTER_EMAIL=ann@example.com WORK='" + env.WorkDir + "'\n"
		return os.WriteFile(filepath.Join(env.WorkDir, "state"), []byte(state), 0o600)
	}
	testscript.Run(t, p)
}
