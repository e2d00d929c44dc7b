package cli_test

// walkFiles are the home and the project at the beginning.
var walkFiles = map[string]string{
	".gitconfig": "[user]\n\tname = Ada\n\temail = ada@example.com\n[core]\n\tpager = cat\n[color]\n\tui = false\n[init]\n\tdefaultBranch = main\n",
	".config/toolcrib/toolcrib.yaml": `providers: {demo: {type: script, file: demo.script}}
models:
  small: {provider: demo, model: small, price: {input: 1, output: 5}}
  large: {provider: demo, model: large, price: {input: 3, output: 15}}
agents: {default: {model: small}}
`,
	".config/toolcrib/demo.script": "- text: hello\n",
	"shop/README.md":               "# Shop\n\nA cart that adds up prices.\nThe page that shows it is in web/.\n",
	"shop/AGENTS.md":               "Test with `go test ./...`. Prices are in cents.\n",
	"shop/go.mod":                  "module example.com/shop\n\ngo 1.22\n",
	"shop/cart.go": `package shop

// Total adds up prices in cents.
func Total(prices []int) int {
	sum := 0
	for _, p := range prices[1:] {
		sum += p
	}
	return sum
}
`,
	"shop/cart_test.go": `package shop

import "testing"

func TestTotal(t *testing.T) {
	if got := Total([]int{100, 250}); got != 350 {
		t.Errorf("Total = %d, want 350", got)
	}
}
`,
	"shop/app.log":          "10:00:01 INFO start\n10:00:02 ERROR cart: index out of range [1:0]\n10:00:03 INFO stop\n",
	"shop/web/package.json": `{"name": "web", "scripts": {"test": "node --test"}}` + "\n",
	"shop/web/price.js":     "exports.show = (cents) => '$' + cents / 100;\n",
	"shop/web/price.test.js": "const {test} = require('node:test'); const assert = require('node:assert');\n" +
		"const {show} = require('./price.js');\ntest('show', () => assert.equal(show(350), '$3.50'));\n",
	"shop/web/server.js": "const s = require('http').createServer((_, r) => r.end('ok'));\n" +
		"s.listen(0, '127.0.0.1', () => console.log('listening'));\n",
	"shop/.claude/commands/review.md":         "---\ndescription: looks at a file\n---\nReview $ARGUMENTS for bugs.\n",
	"shop/.claude/skills/changelog/SKILL.md":  "---\nname: changelog\ndescription: Writes a line of the changelog.\n---\nOne line, in the past tense.\n",
	"shop/.claude/skills/changelog/sample.md": "- Fixed the total of a cart.\n",
}

// walkTasks are what a person does on the first day, in this order.
var walkTasks = []task{
	{
		name: "version", line: "toolcrib version",
		want: []string{`toolcrib \S+`}, table: true,
	},
	{
		name: "help", line: "toolcrib --help",
		want: []string{`toolcrib run "What is in this folder\?"`}, table: true,
	},
	{
		name: "a word that is misspelt", line: "toolcrib rnu hello", exit: 2,
		want: []string{`toolcrib run|did you mean`},
	},
	{
		name: "init", line: "mkdir ~/new && cd ~/new && toolcrib init; cd ~/shop",
		does: []press{{`1 of 3`, "offline/offline<Enter>"}, {`2 of 3`, "<Enter>"}, {`3 of 3`, "<Enter>"}},
		want: []string{`toolcrib\.yaml: written`}, after: "test -s ~/new/toolcrib.yaml",
	},
	{
		name: "the first question without a model", line: "cd ~/new; toolcrib run --read-only 'how many lines has toolcrib.yaml?'; cd ~/shop",
		want: []string{`offline`, `toolcrib\.yaml has \d+ lines`},
	},
	{
		name: "notes that are not trusted yet", line: `toolcrib run "hello"`, script: "- text: hello to you\n",
		want: []string{`AGENTS\.md: not read, because`, `toolcrib trust`, `hello to you`},
	},
	{
		name: "trust the project", line: "toolcrib trust .", does: []press{{`Trust .*\?|\[y/N\]|trust it\?`, "y<Enter>"}},
		want: []string{`AGENTS\.md`, `review\.md`, `changelog`},
	},
	{
		name: "doctor", line: "toolcrib doctor",
		want: []string{`sandbox`, `demo`}, table: true,
	},
	{
		name: "ask about the project", line: `toolcrib run "What is this project?"`, script: `
- tool_calls: [{name: list_directory, arguments: {path: .}}, {name: read_file, arguments: {path: README.md}}]
- text: "A cart in Go that adds up prices, with a small page in web/."
`,
		want: []string{`list_directory`, `read_file README\.md`, `A cart in Go that adds up prices`},
	},
	{
		name: "the notes were read", line: "toolcrib runs export last | grep -c 'Prices are in cents'",
		want: []string{` [1-9]\d* \[0\]>`},
	},
	{
		name: "find a function", line: `toolcrib run "Where is Total defined?"`, script: `
- tool_calls: [{name: search_files, arguments: {pattern: "func Total", path: .}}]
- text: "In cart.go, line 4."
`,
		want: []string{`search_files`, `In cart\.go, line 4`},
	},
	{
		name: "see a test fail", line: `toolcrib run "Do the tests pass?"`, builds: true, script: `
- tool_calls: [{name: exec_shell, arguments: {command: "go test ./...", timeout: 300, write: true}}]
- text: "No: Total leaves out the first price."
`,
		does: []press{{`go test \./\.\.\. .*y yes`, "y<Enter>"}},
		want: []string{`runs what tools\.shell\.allow does not list: go`, `No: Total leaves out`},
	},
	{
		name: "fix a bug", line: `toolcrib run "Fix the failing test."`, script: `
- tool_calls: [{name: read_file, arguments: {path: cart.go}}]
- tool_calls: [{name: edit_file, arguments: {path: cart.go, old_text: "prices[1:]", new_text: "prices"}}]
- text: "It adds up all prices now."
`,
		does: []press{{`edit_file cart\.go .*\+ for _, p := range prices \{.*y yes`, "y<Enter>"}},
		want: []string{`It adds up all prices now`}, after: "grep -q 'range prices {' cart.go",
	},
	{
		name: "see it pass", line: `toolcrib run "Run the tests again."`, builds: true, script: `
- tool_calls: [{name: exec_shell, arguments: {command: "go test ./...", timeout: 300, write: true}}]
- text: "They pass."
`,
		does: []press{{`go test \./\.\.\. .*y yes`, "y<Enter>"}},
		want: []string{`They pass`}, after: "toolcrib runs show last --whole | grep -q 'ok.*example.com/shop'",
	},
	{
		name: "write a test", line: `toolcrib run "Test an empty cart."`, script: `
- tool_calls: [{name: write_file, arguments: {path: empty_test.go, content: "package shop\n\nimport \"testing\"\n\nfunc TestEmpty(t *testing.T) {\n\tif Total(nil) != 0 {\n\t\tt.Error(\"an empty cart costs something\")\n\t}\n}\n"}}]
- text: "empty_test.go tests it."
`,
		does: []press{{`write_file empty_test\.go .*y yes`, "y<Enter>"}},
		want: []string{`empty_test\.go tests it`}, after: "gofmt -l . | grep -c . | grep -q 0 && go vet ./...",
	},
	{
		name: "rename, all at once", line: `toolcrib run "Rename Total to Sum."`, script: `
- tool_calls:
  - {name: edit_file, arguments: {path: cart.go, old_text: "func Total(", new_text: "func Sum("}}
  - {name: edit_file, arguments: {path: cart.go, old_text: "// Total adds", new_text: "// Sum adds"}}
  - {name: edit_file, arguments: {path: cart_test.go, old_text: "Total([]", new_text: "Sum([]"}}
  - {name: edit_file, arguments: {path: empty_test.go, old_text: "Total(nil)", new_text: "Sum(nil)"}}
- text: "Renamed in three files."
`,
		does: []press{{`y yes`, "y<Enter>"}},
		want: []string{`Renamed in three files`}, after: "go vet ./... && grep -q 'func Sum' cart.go && ! grep -q ' Total(' *.go",
	},
	{
		name: "fix the other language", line: `toolcrib run "npm test fails in web. Fix it."`, script: `
- tool_calls: [{name: exec_shell, arguments: {command: "cd web && node --test", write: true}}]
- tool_calls: [{name: edit_file, arguments: {path: web/price.js, old_text: "cents / 100", new_text: "(cents / 100).toFixed(2)"}}]
- tool_calls: [{name: exec_shell, arguments: {command: "cd web && node --test", write: true}}]
- text: "Two digits now; node --test passes."
`,
		does: []press{
			{`node --test .*y yes`, "y<Enter>"},
			{`edit_file web/price\.js .*y yes`, "y<Enter>"},
			{`edit_file web/price\.js .*exec_shell .*y yes`, "y<Enter>"},
		},
		want: []string{`Two digits now`}, after: "node --test web",
	},
	{
		name: "explain a diff", line: `git diff | toolcrib run "Explain this diff."`, script: "- text: The total counts the first price, too.\n",
		want: []string{`The total counts the first price`}, after: "toolcrib runs export last | grep -q 'range prices'",
	},
	{
		name: "commit", line: `toolcrib run "Commit this."`, script: `
- tool_calls: [{name: exec_shell, arguments: {command: "git status --short"}}]
- tool_calls: [{name: exec_shell, arguments: {command: "git add -A && git commit -q -m 'Count every price'", write: true}}]
- text: "Committed."
`,
		does: []press{{`git commit -q -m .*y yes`, "y<Enter>"}},
		want: []string{`git status --short`, `Committed\.`}, after: "git log -1 --format='%s %an' | grep -q '^Count every price Ada$'",
	},
	{
		name: "what is in the log", line: `tail -n 3 app.log | toolcrib run -p "What went wrong?"`, script: "- text: The cart was empty at 10:00:02.\n",
		want: []string{`The cart was empty`},
	},
	{
		name: "JSON for a script", line: `toolcrib run -p --output json "Is it good?" </dev/null 2>/dev/null | node -pe 'JSON.parse(require("fs").readFileSync(0)).content'`,
		script: "- text: It is good.\n", want: []string{`It is good\. \[0\]>`},
	},
	{
		name: "events for a script", line: `toolcrib run --json "Is it good?" </dev/null 2>/dev/null | cut -c1-20`,
		script: "- text: It is good.\n", want: []string{`\{"seq":\d+,"event":"ru`},
	},
	{
		name: "attach a file", line: `toolcrib run --attach README.md "Summarise this."`, script: "- text: A shop with a cart.\n",
		want: []string{`A shop with a cart`},
	},
	{
		name: "and then", line: `toolcrib run -c "Shorter?"`, script: "- text: no\n- text: A shop.\n",
		want: []string{`A shop\.`},
	},
	{
		name: "later", line: `toolcrib run "Write a plan to PLAN.md."`, exit: 3, script: `
- tool_calls: [{name: write_file, arguments: {path: PLAN.md, content: "1. more tests\n"}}]
- text: "PLAN.md is there."
`,
		does: []press{{`y yes`, "l<Enter>"}}, want: []string{`toolcrib approvals`}, after: "! test -e PLAN.md",
	},
	{name: "what waits for me", line: "toolcrib approvals list", want: []string{`apr_`, `write_file PLAN\.md`}, table: true},
	{
		name: "decide it now", line: "toolcrib approvals approve last --resume", does: []press{{`y yes|\[y/N\]|approve.*\?`, "y<Enter>"}},
		want: []string{`PLAN\.md is there`}, after: "test -s PLAN.md",
	},
	{
		name: "deny and say why", line: `toolcrib run "Delete the plan."`, script: `
- tool_calls: [{name: exec_shell, arguments: {command: "rm PLAN.md", write: true}}]
- text: "I leave it, then."
`,
		does: []press{{`rm PLAN\.md .*y yes`, "d<Enter>"}, {`why\?`, "we still need it<Enter>"}},
		want: []string{`I leave it, then`}, after: "test -s PLAN.md && toolcrib runs export last | grep -q 'we still need it'",
	},
	{
		name: "change what is done", line: `toolcrib run "Add to the plan."`, script: `
- tool_calls: [{name: write_file, arguments: {path: PLAN.md, content: "wrong\n"}}]
- text: "Added."
`,
		does: []press{{`y yes`, "l<Enter>"}}, exit: 3,
	},
	{
		name: "with other words", line: `toolcrib approvals approve last --edit '{"path":"PLAN.md","content":"2. ship it\n"}' --resume`,
		does: []press{{`y yes|\[y/N\]|approve.*\?`, "y<Enter>"}}, want: []string{`Added\.`}, after: "grep -q 'ship it' PLAN.md",
	},
	{
		name: "a decision is remembered", line: `toolcrib run "Run make."`, exit: 3, script: `
- tool_calls: [{name: exec_shell, arguments: {command: "node web/price.js", write: true}}]
- text: "It ran."
`,
		does: []press{{`y yes`, "l<Enter>"}},
	},
	{
		name: "for good", line: "toolcrib approvals approve last --remember user --resume", does: []press{{`y yes|\[y/N\]|approve.*\?`, "y<Enter>"}},
		want: []string{`It ran\.`},
	},
	{name: "not asked again", line: `toolcrib run "Run make."`, want: []string{`It ran\.`}},
	{name: "what is remembered", line: "toolcrib approvals remembered list", want: []string{`rem_`, `node web/price\.js`}, table: true},
	{
		name: "another model", line: `toolcrib run -m large "Hello"`, script: "- text: Hello from the large one.\n",
		want: []string{`Hello from the large one`, `large · `},
	},
	{name: "which models", line: "toolcrib models list", want: []string{`small`, `large`}, table: true},
	{name: "a model that is not there", line: `toolcrib run -m gtp-5 "Hello"`, exit: 2, want: []string{`gtp-5`}},
	{name: "what it costs", line: "toolcrib usage --by model", want: []string{`demo/large|large`, `total`}, table: true},
	{
		name: "a skill is used", line: `toolcrib run "Write a changelog line."`, script: `
- tool_calls: [{name: read_skill, arguments: {name: changelog}}]
- text: "Fixed the total of a cart."
`,
		want: []string{`read_skill changelog`, `Fixed the total of a cart`}, after: "toolcrib runs show last --whole | grep -q 'in the past tense'",
	},
	{
		name: "the model plans", line: `toolcrib run "Plan the release."`, script: `
- tool_calls: [{name: update_plan, arguments: {steps: [{step: run the tests, status: done}, {step: tag it, status: in_progress}, {step: tell people}]}}]
- text: "That is the plan."
`,
		want: []string{`\[x\] run the tests`, `\[>\] tag it`, `\[ \] tell people`},
	},
	{
		name: "a server in the background", line: `toolcrib run "Does the server start?"`, script: `
- tool_calls: [{name: exec_shell, id: web, arguments: {command: "node web/server.js", background: true, write: true}}]
- tool_calls: [{name: exec_shell, arguments: {command: "echo wait"}}, {name: read_output, arguments: {id: proc_web, wait: 5}}]
- text: "It listens."
`,
		does: []press{{`node web/server\.js .*y yes`, "y<Enter>"}},
		want: []string{`It listens`}, after: `toolcrib runs show last --whole | grep -q listening`,
	},
	{
		name: "a process does not outlive a pause", line: `toolcrib run "Start it and write."`, exit: 3, script: `
- tool_calls: [{name: exec_shell, id: web, arguments: {command: "node web/server.js", background: true, write: true}}]
- tool_calls: [{name: write_file, arguments: {path: out.txt, content: x}}]
- tool_calls: [{name: read_output, arguments: {id: proc_web}}]
- text: "The server is gone; I would start it again."
`,
		does: []press{{`node web/server\.js .*y yes`, "y<Enter>"}, {`write_file out\.txt .*y yes`, "l<Enter>"}},
	},
	{
		name: "and is gone after it", line: "toolcrib approvals approve last --resume", does: []press{{`y yes|\[y/N\]|approve.*\?`, "y<Enter>"}},
		want: []string{`The server is gone`}, after: `toolcrib runs show last --whole | grep -q gone`,
	},
	{
		name: "stop a run", line: `toolcrib run "Think long."`, exit: 130, script: "- {text: too late, delay: 100s}\n",
		does: []press{{`waiting for the model`, "<C-c>"}},
	},
	{
		name: "a long command shows what it prints", line: `toolcrib run "Run the slow thing."`, script: `
- tool_calls: [{name: exec_shell, arguments: {command: "node -e 'console.log(\"step one\"); setTimeout(() => console.log(\"step two\"), 2500)'", write: true}}]
- text: "Both steps are done."
`,
		does: []press{{`node -e .*y yes`, "y<Enter>"}, {`later\? y .*step one`, ""}},
		want: []string{`Both steps are done`},
	},
	{
		name: "it may only read", line: `toolcrib run --read-only "Tidy up."`, script: `
- tool_calls: [{name: write_file, arguments: {path: tidy.txt, content: x}}]
- text: "I may only read."
`,
		want: []string{`read_only_mode`, `I may only read`}, after: "! test -e tidy.txt",
	},
	{
		name: "something is kept for next time", line: `toolcrib run "Remember that I use tabs."`, script: `
- tool_calls: [{name: memory_write, arguments: {key: style, content: "uses tabs"}}]
- text: "I shall."
`,
		does: []press{{`memory_write .*y yes`, "y<Enter>"}}, want: []string{`I shall`},
	},
	{name: "what is known of me", line: "toolcrib memory list", want: []string{`style .*uses tabs|style`}, table: true},
	{
		name: "forget it", line: "toolcrib memory forget style; toolcrib memory list", does: []press{{`\[y/N\]|\?`, "y<Enter>"}},
		want: []string{`forgotten|removed`},
	},
	{
		name: "another way from here", line: `toolcrib runs fork last "And in French?"`, script: "- text: bonjour\n- text: bonsoir\n",
		want: []string{`bon(jour|soir)`},
	},
	{
		name: "a conversation", line: "toolcrib chat --session day", script: `
- {tool_calls: [{name: write_file, arguments: {path: notes.txt, content: "one\n"}}]}
- {text: "Written."}
- {text: "You asked about a file."}
- {text: "I ran nothing."}
- {text: "No bugs in it."}
- {text: "Only planned."}
`,
		does: []press{
			{`/help lists`, "write notes<Enter>"},
			{`write_file notes\.txt .*y yes`, "y"},
			{`Written\. `, "/undo<Enter>"},
			{`y yes .*y yes|/undo .*y yes`, "y"},
			{`it is removed`, "what is in @README.md?<Enter>"},
			{`with this message: README\.md.*You asked about a file`, "!echo hello from me<Enter>"},
			{`hello from me .*hello from me`, "and?<Enter>"},
			{`I ran nothing`, "/review cart.go<Enter>"},
			{`No bugs in it`, "<BTab><BTab><BTab>"},
			{`plan · small`, "tidy up<Enter>"},
			{`Only planned`, "/cost<Enter>"},
			{`turns of this session`, "/model large<Enter>"},
			{`from now on large answers`, "/quit<Enter>"},
		},
		want: []string{`Review cart\.go for bugs|/review cart\.go`}, after: "! test -e notes.txt",
	},
	{name: "which conversations", line: "toolcrib sessions list", want: []string{`day`}, table: true},
	{name: "remove one", line: "toolcrib sessions remove day", does: []press{{`\[y/N\]|\?`, "y<Enter>"}}, want: []string{`removed`}},
	{name: "which runs", line: "toolcrib runs list --limit 8", want: []string{`completed`}, table: true},
	{name: "what happened", line: "toolcrib runs show last", want: []string{`local:`, `✓ completed`}},
	{name: "who allowed what", line: "toolcrib audit list --kind approval_decided --limit 50", want: []string{`approve`, `local:`, `write_file PLAN\.md`}, table: true},
	{
		name: "why it is asked", line: `toolcrib tools explain write_file --args '{"path":"a.txt","content":"x"}'`,
		want: []string{`would be asked about`},
	},
	{name: "which tools", line: "toolcrib tools list", want: []string{`read_file`, `exec_shell`}, table: true},
	{name: "nothing was changed", line: "toolcrib runs verify --all", want: []string{`✓ everything: \d+ runs`}},
	{name: "take it elsewhere", line: "toolcrib runs export last > run.jsonl && toolcrib --data-dir ~/other runs import run.jsonl", want: []string{`imported|run_`}},
	{name: "save everything", line: "toolcrib backup ~/all.backup", after: "test -s ~/all.backup"},
}
