package cli_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"mvdan.cc/sh/v3/syntax"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/natstest"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

// how describes how a command line of a guide ends if not just with 0.
type how struct {
	code    int
	answers string // what a person types on a terminal; "" = no terminal
	prints  string // pattern of what the line prints
}

// guide describes how a page is run: its files, and the lines that do not just end with 0.
type guide struct {
	given  map[string]string // files that its reader has
	before string            // commands that its reader has given
	model  []string          // replies of Anthropic, for a page that asks it
	nats   bool              // there is a NATS server on its usual port
	lines  map[string]how
}

func guides() map[string]guide {
	return map[string]guide{
		"README.md": {
			given: map[string]string{".vscode/mcp.json": `{"servers": {"files": {"command": "mcpserver", "args": ["1"]}}}`},
			lines: map[string]how{
				`toolcrib run "Write 'hello' to notes.txt"`:         {code: 3, prints: "approvals approve"},
				"toolcrib runs show last":                           {prints: "write_file"},
				"toolcrib approvals show last":                      {prints: "write_file"},
				`toolcrib confer --agents ann,bob "Is it safe?"`:    {code: 2, prints: "unknown agent"},
				"toolcrib --server http://127.0.0.1:8420 runs list": {code: 1, prints: "TOOLCRIB_TOKEN"},
			},
		},
		"docs/guide-coding-agent.md": {lines: map[string]how{
			"toolcrib trust .": {answers: "y\n", prints: "AGENTS.md"},
			`toolcrib run "The tests fail. Find out why, and fix it."`: {
				answers: "a\ny\n", prints: "Greet left out the exclamation mark",
			},
			`toolcrib tools explain exec_shell --args '{"command": "go test ./..."}'`:            {prints: "would run"},
			`toolcrib tools explain exec_shell --args '{"command": "cat /etc/passwd"}'`:          {prints: "tool_policy"},
			`toolcrib tools explain write_file --args '{"path": ".git/config", "content": "x"}'`: {prints: "protected_path"},
			"git diff":                  {prints: `name \+ "!"`},
			"toolcrib runs show last":   {prints: "edit_file"},
			"toolcrib runs verify last": {prints: "sealed"},
		}},
		"docs/guide-approvals.md": {lines: map[string]how{
			`toolcrib run --approve none "Write 'hello' to notes.txt"`: {code: 3, prints: "approvals approve"},
			"toolcrib approvals show last":                             {prints: "write_file"},
			"toolcrib approvals approve last --resume":                 {answers: "y\n", prints: "Successfully wrote"},
		}},
		"docs/guide-ci.md": {
			before: "git init -q . && git commit -q --allow-empty -m first && git update-ref refs/remotes/origin/main HEAD\n" +
				"echo x >x && git add x && git commit -q -m second",
			model: []string{"TestGreet fails.", `{"ok": true, "summary": "They pass."}`, "It is fine."},
			lines: map[string]how{
				"jq -r .content run.json":                 {prints: "TestGreet fails"},
				"jq -e '.content | fromjson.ok' run.json": {prints: "true"},
				`git diff origin/main...HEAD | toolcrib --config ci/toolcrib.yaml run --read-only --approve deny "Review this change"`: {prints: "It is fine"},
			},
		},
		"docs/channels.md": {lines: map[string]how{
			`until toolcrib runs list --user desk:ann | grep completed; do sleep 0.1; done`: {prints: "completed"},
		}},
		"docs/bus.md": {nats: true, lines: map[string]how{
			"toolcrib --config laptop.yaml bus capabilities":                                                      {prints: `rag\.query@1\.0`},
			`toolcrib --config laptop.yaml tools call search_corpus --args '{"query": "patent license", "k": 5}'`: {prints: "patent license"},
			`toolcrib --config laptop.yaml run "What files are here?"`:                                            {prints: "list_directory"},
		}},
		"docs/people.md": {},
		"docs/taint.md":  {lines: map[string]how{"toolcrib runs show last": {code: 1, prints: "no run yet"}}},
		"docs/audit.md":  {},
		"docs/hook.md":   {lines: map[string]how{"toolcrib gate hook < call.json": {prints: `"deny"`}}},
		"docs/several.md": {lines: map[string]how{
			`toolcrib --config toolcrib.yaml coordinate --worker-tools verify "Where do we keep sessions?"`: {prints: "SQLite, as long as there is one server"},
		}},
		"docs/moving.md": {lines: map[string]how{
			`toolcrib tools explain exec_shell --args '{"command": "go test ./..."}'`: {prints: "would run"},
			`toolcrib tools explain exec_shell --args '{"command": "git push"}'`:      {prints: "would be asked about.*rule push asks"},
			`toolcrib tools explain read_file --args '{"path": ".env"}'`:              {prints: "would be refused .rule_denied."},
		}},
		"docs/library.md": {},
		"docs/mcp.md": {
			given: map[string]string{
				".vscode/mcp.json":                    `{"servers": {"github": {"command": "mcpserver", "args": ["1"]}}}`,
				"home/.config/toolcrib/toolcrib.yaml": "agents: {reader: {tools: ['*']}}\n",
			},
			lines: map[string]how{
				"toolcrib mcp add --from .vscode/mcp.json": {prints: "github"},
				"toolcrib mcp list":                        {prints: "github +running"},
				"toolcrib mcp review github":               {answers: "\ny\n", prints: "github__look"},
			},
		},
	}
}

// exampleDatabase matches a database that a page has at db.example.
var exampleDatabase = regexp.MustCompile(`@db\.example/(\w+)`)

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

// notRun is the comment before a block that is not run, with the reason.
var notRun = regexp.MustCompile(`<!-- not run: (.+) -->\s*$`)

// guideScript makes a script of the command lines of a page, with the files that it says to write, in their order. It
// reports how many lines it does not run, and why.
func guideScript(t *testing.T, path string, g guide) string {
	t.Helper()
	page, err := os.ReadFile("../../" + path)
	if err != nil {
		t.Fatal(err)
	}
	script, files := "[!linux] skip\n[!exec:git] skip\n[!exec:go] skip\n[!exec:jq] skip\n", ""
	for name, text := range g.given {
		files += "-- " + name + " --\n" + text + "\n"
	}
	seen, steps, left, reasons := map[string]bool{}, 0, 0, []string{}
	step := func(line, shell string) {
		steps++
		h := g.lines[line]
		seen[line] = true
		if serving.MatchString(line) {
			shell = fmt.Sprintf(serves, line)
		}
		shell = strings.ReplaceAll(shell, "http://127.0.0.1:8420", "$URL")
		shell = exampleDatabase.ReplaceAllString(shell, "@/$1?host=$$PGHOST")
		files += fmt.Sprintf("-- lines/%d.sh --\nexec 2>&1\nset -a\n. ./state\n%s\nended=$?\nexport -p >$WORK/state\n"+
			"echo \"cd '$PWD'\" >>$WORK/state\nexit $ended\n", steps, shell)
		if h.answers != "" {
			files += fmt.Sprintf("-- lines/%d.typed --\n%s", steps, h.answers)
			script += fmt.Sprintf("pty lines/%d.typed %d sh lines/%d.sh\n", steps, h.code, steps)
		} else {
			script += fmt.Sprintf("exits %d sh lines/%d.sh\n", h.code, steps)
		}
		if h.prints != "" {
			script += fmt.Sprintf("stdout '%s'\n", h.prints)
		}
	}
	if g.before != "" {
		step("", g.before)
	}
	for _, b := range guideBlocks(string(page)) {
		name, reason := guideFile.FindStringSubmatch(b.before), notRun.FindStringSubmatch(b.before)
		if b.language != "" && b.language != "sh" {
			if name != nil {
				file := strings.Replace(name[1], "~", "$HOME", 1)
				step("", fmt.Sprintf("mkdir -p \"$(dirname %s)\" && cat >>%s <<'END'\n%sEND", file, file, b.text))
			}
			continue
		}
		parsed, err := syntax.NewParser().Parse(strings.NewReader(b.text), path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if reason != nil {
			left += len(parsed.Stmts)
			reasons = append(reasons, reason[1])
			continue
		}
		for _, s := range parsed.Stmts {
			line := b.text[s.Pos().Offset():s.End().Offset()]
			step(line, line)
		}
	}
	for line := range g.lines {
		if !seen[line] {
			t.Errorf("%s has no line %s", path, line)
		}
	}
	t.Logf("%s: %d steps, %d lines not run: %s", path, steps, left, strings.Join(reasons, "; "))
	return script + files
}

// serving matches a line that starts a server.
var serving = regexp.MustCompile(`^toolcrib (--config \S+ )?serve\b`)

// serves starts a server of a page in the background, on a port of its own, which later lines use.
const serves = `%s --listen 127.0.0.1:0 </dev/null >$WORK/serve.log 2>&1 &
printf %%d $! >$WORK/serve.pid
until grep -q 'listens on' $WORK/serve.log; do kill -0 $! || { cat $WORK/serve.log; exit 1; }; sleep 0.1; done
export URL=$(sed -n 's/.*listens on \(http:[^ "]*\).*/\1/p' $WORK/serve.log)`

// TestGuides runs the command lines of the guides as they stand, in their order, in an empty home: one that is not in
// guides has to end with 0. Those that docs/serve.md has are run by TestServeGuide.
func TestGuides(t *testing.T) {
	t.Parallel()
	p := scripts(t)
	p.Dir = t.TempDir()
	models := map[string]*modeltest.Server{}
	for path, g := range guides() {
		name := strings.TrimSuffix(filepath.Base(path), ".md")
		script := guideScript(t, path, g)
		if g.nats {
			script = strings.ReplaceAll(script, "nats://127.0.0.1:4222", natstest.Start(t, 1, nil).URL())
		}
		if err := os.WriteFile(filepath.Join(p.Dir, name+".txtar"), []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
		var replies []toolcrib.Reply
		for _, text := range g.model {
			replies = append(replies, modeltest.Text(text))
		}
		if len(replies) > 0 {
			models[name] = modeltest.NewServer(modeltest.Anthropic, modeltest.ServerOptions{Steps: modeltest.Steps(replies...)})
		}
	}
	setup := p.Setup
	p.Setup = func(env *testscript.Env) error {
		if err := setup(env); err != nil {
			return err
		}
		state := "export HTTPS_PROXY=http://127.0.0.1:9 GIT_AUTHOR_NAME=Ann GIT_AUTHOR_EMAIL=ann@example.com " +
			"GIT_COMMITTER_NAME=Ann GIT_COMMITTER_EMAIL=ann@example.com WORK='" + env.WorkDir + "'\n"
		if model := models[strings.TrimPrefix(filepath.Base(env.WorkDir), "script-")]; model != nil {
			server := httptest.NewServer(model.Handler())
			env.Defer(server.Close)
			state += "export ANTHROPIC_API_KEY=key ANTHROPIC_BASE_URL=" + server.URL + "/v1\n"
		}
		env.Defer(func() { endServers(t, env.WorkDir) })
		return os.WriteFile(filepath.Join(env.WorkDir, "state"), []byte(state), 0o600)
	}
	testscript.Run(t, p)
}
