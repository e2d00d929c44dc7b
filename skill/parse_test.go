package skill_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/skill"
	"github.com/toolcrib/toolcrib/tool/builtin"
)

// front makes a SKILL.md called pdf with more front matter.
func front(more string) string {
	return "---\nname: pdf\ndescription: Reads PDF files.\n" + more + "---\nBody.\n"
}

func none() []string { return []string{} }

// TestN15_Parse reads SKILL.md files: what they declare, or why they are refused.
func TestN15_Parse(t *testing.T) {
	absent := []string(nil)
	tests := []struct {
		name, text string
		allowed    []string
		err        string // a part of the error; "" = none
	}{
		{"N15 key absent", front(""), absent, ""},
		{"N15 list", front("allowed-tools: [read_file, list_directory]\n"), []string{"read_file", "list_directory"}, ""},
		{"N15 list in lines", front("allowed-tools:\n  - read_file\n  - Bash(git:*)\n"), []string{"read_file", "exec_shell(git:*)"}, ""},
		{"N15 empty list", front("allowed-tools: []\n"), none(), ""},
		{"N15 empty value", front("allowed-tools:\n"), none(), ""},
		{"N15 null", front("allowed-tools: null\n"), none(), ""},
		{"N15 empty text", front("allowed-tools: ''\n"), none(), ""},
		{"N15 only commas", front("allowed-tools: ', ,'\n"), none(), ""},
		{"1b text with space", front("allowed-tools: read_file  write_file\n"), []string{"read_file", "write_file"}, ""},
		{"1b text with commas", front("allowed-tools: read_file,write_file, edit_file\n"), []string{"read_file", "write_file", "edit_file"}, ""},
		{"1b text over lines", front("allowed-tools: |\n  read_file\n  write_file\n"), []string{"read_file", "write_file"}, ""},
		{"1b underscore", front("allowed_tools: read_file\n"), []string{"read_file"}, ""},
		{"1b both spellings", front("allowed-tools: a\nallowed_tools: b\n"), nil, "allowed-tools is already given"},
		{"convention text with patterns", front("allowed-tools: Bash(git:*) Bash(jq:*) Read\n"), []string{"exec_shell(git:*)", "exec_shell(jq:*)", "read_file"}, ""},
		{"convention pattern with space", front("allowed-tools: Bash(npm run test, all:*), Read\n"), []string{"exec_shell(npm run test, all:*)", "read_file"}, ""},
		{"convention aliases", front("allowed-tools: Read Write Edit Grep Glob LS WebFetch WebSearch Task Skill\n"), []string{
			"read_file", "write_file", "edit_file", "search_files", "list_directory", "web_fetch", "web_search", "spawn", "read_skill",
		}, ""},
		{"convention MCP", front("allowed-tools: mcp__github__get_issue mcp__jira mcp__x__*\n"), []string{"github__get_issue", "jira__*", "x__*"}, ""},
		{"globs", front("allowed-tools: read_* *\n"), []string{"read_*", "*"}, ""},
		{"star pattern is none", front("allowed-tools: Bash(*)\n"), []string{"exec_shell"}, ""},
		{"entries twice", front("allowed-tools: Read read_file Read\n"), []string{"read_file"}, ""},
		{"entry that never closes", front("allowed-tools: 'Read Bash(git Write'\n"), []string{"read_file"}, ""},
		{"entry that closes twice", front("allowed-tools: 'Bash(git)) Write'\n"), []string{"write_file"}, ""},
		{"entry with empty pattern", front("allowed-tools: Bash()\n"), none(), ""},
		{"entry look-alike", front("allowed-tools: 'Rеad'\n"), none(), ""},
		{"entry number", front("allowed-tools: [1]\n"), nil, "each entry must be a text"},
		{"entry null", front("allowed-tools: [~]\n"), nil, "each entry must be a text"},
		{"entry list", front("allowed-tools: [[read_file]]\n"), nil, "each entry must be a text"},
		{"number", front("allowed-tools: 7\n"), nil, "must be a list or a text, not a number"},
		{"mapping", front("allowed-tools: {read_file: true}\n"), nil, "must be a list or a text, not a mapping"},
		{"bool", front("allowed-tools: true\n"), nil, "must be a list or a text, not true or false"},
		{"misspelt", front("allowedTools: [Read]\n"), nil, "write allowed-tools"},
		{"misspelt case", front("Allowed-Tools: [Read]\n"), nil, "write allowed-tools"},
		{"misspelt tools", front("tools: Read\n"), nil, "write allowed-tools"},
		{"key look-alike", front("аllowed-tools: []\n"), nil, "has invalid characters"},
		{"key twice", front("allowed-tools: []\nallowed-tools: ['*']\n"), nil, "duplicate key \"allowed-tools\"; it is already at line 4"},
		{"too many entries", front("allowed-tools: " + strings.Repeat("a ", 300) + "\n"), nil, "more than the 256"},
		{"long pattern", front("allowed-tools: 'Bash(" + strings.Repeat("a", 2000) + ") Read'\n"), []string{"read_file"}, ""},
		{"disabled misspelt", front("disabled: true\n"), nil, "write enabled: true or enabled: false"},
		{"enabled text", front("enabled: no\n"), nil, "enabled must be true or false, not a text"},
		{"no front matter", "Body\n", nil, "must begin with front matter"},
		{"empty file", "", nil, "must begin with front matter"},
		{"no end", "---\nname: pdf\n", nil, "no line --- ends the front matter"},
		{"empty front matter", "---\n---\nBody", nil, "must be a mapping"},
		{"a list", "---\n- a\n---\n", nil, "must be a mapping"},
		{"no name", "---\ndescription: x\n---\n", nil, "name is missing"},
		{"no description", "---\nname: pdf\n---\n", nil, "description is missing"},
		{"empty description", "---\nname: pdf\ndescription: '  '\n---\n", nil, "description must not be empty"},
		{"hidden description", "---\nname: pdf\ndescription: \"\\U000E0041\"\n---\n", nil, "description must not be empty"},
		{"long description", "---\nname: pdf\ndescription: " + strings.Repeat("ä", 4097) + "\n---\n", nil, "more than the 4096"},
		{"longest description", "---\nname: pdf\ndescription: " + strings.Repeat("ä", 4096) + "\n---\n", absent, ""},
		{"other name", "---\nname: pd\ndescription: x\n---\n", absent, ""},
		{"name with capitals", "---\nname: PDF\ndescription: x\n---\n", absent, ""},
		{"listed by others", "---\nname: pdf\ndescription: x\ndisable-model-invocation: maybe\n---\n", nil, "must be true or false"},
		{"colon that is not text", "---\nname: pdf\ndescription: x: y\n  z: a\n---\n", nil, "SKILL.md:"},
		{"colon and comment", "---\nname: pdf\ndescription: x: y # z\n---\n", nil, "SKILL.md:"},
		{"colon elsewhere", "---\nname: pdf\nlicense: x: y\ndescription: x\n---\n", nil, "SKILL.md:"},
		{"colon and worse", "---\nname: pdf\ndescription: x: y\nmetadata: &a x\n---\n", nil, "SKILL.md:"},
		{"name list", "---\nname: [pdf]\ndescription: x\n---\n", nil, "name must be a text"},
		{"alias bomb", front("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"), nil, "anchors and aliases"},
		{"merge", front("a: {<<: b}\n"), nil, "merge keys"},
		{"tag", front("a: !!binary aGk=\n"), nil, "tags are not allowed"},
		{"deep flow", front("a: " + strings.Repeat("[", 5000) + "\n"), nil, "nested deeper than 10"},
		{"deep lists", front("a:\n  " + strings.Repeat("- ", 200) + "x\n"), nil, "nested deeper than 10"},
		{"many words", front("a: [" + strings.Repeat("x,", 20000) + "]\n"), nil, "more than 6000 words"},
		{"long front matter", front(strings.Repeat("# comment\n", 7000)), nil, "more than 65536 bytes"},
		{"two documents", "---\nname: pdf\n...\ndescription: x\n---\n", nil, "only one YAML document is allowed"},
		{"no UTF-8", front("") + "\xff", nil, "not valid UTF-8"},
		{"NUL", front("") + "\x00", nil, "not valid UTF-8"},
		{"10 MB", front("") + strings.Repeat("x", 10<<20), nil, "more than the 262144"},
		{"BOM and CRLF", "\ufeff" + strings.ReplaceAll(front("allowed-tools: Read\n"), "\n", "\r\n"), []string{"read_file"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := skill.Parse("pdf", []byte(tt.text), builtin.Aliases())
			if tt.err != "" {
				var e *skill.Error
				if !errors.As(err, &e) || s != nil || !strings.Contains(err.Error(), tt.err) ||
					e.Line > 0 && !strings.HasPrefix(err.Error(), "SKILL.md:") {
					t.Fatalf("got %+v, %v; want an error with %q", s, err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if (s.AllowedTools == nil) != (tt.allowed == nil) || !slices.Equal(s.AllowedTools, tt.allowed) {
				t.Errorf("allowed-tools %#v, want %#v", s.AllowedTools, tt.allowed)
			}
		})
	}
}

func TestN15_ParseFields(t *testing.T) {
	s, err := skill.Parse("pdf-2", []byte("---\n# a comment\nname: pdf-2\ndescription: >\n  Reads PDFs.\n  And\u200bmore\u202e.\nlicense: MIT\n"+
		"compatibility: Requires jq\nmetadata:\n  author: example\n  version: 1.0\n  deep: {a: 1}\nenabled: false\nmodel: opus\nargument-hint: \"[x]\"\n"+
		"allowed-tools: Bash(git Read\n---   \n\n# Title\n---\nmore ${workspace}\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if s.Name != "pdf-2" || s.Description != "Reads PDFs. And\u200bmore[U+202E]." || s.Reason != skill.ReasonDisabled {
		t.Errorf("%+v", s)
	}
	if s.Body != "\n# Title\n---\nmore ${workspace}\n" {
		t.Errorf("body %q", s.Body)
	}
	notices := strings.Join(s.Notices, "\n")
	for _, want := range []string{"the key model means nothing", "argument-hint", `"Bash(git Read" allows nothing`} {
		if !strings.Contains(notices, want) {
			t.Errorf("no notice of %q in\n%s", want, notices)
		}
	}
}

func TestN15_ParseSaysTheLine(t *testing.T) {
	for text, line := range map[string]int{
		"---\nname: pdf\ndescription: x\nenabled: 1\n---\n": 4,
		"---\nname: pdf\ndescription: x\nbad: [a\n---\n":    4,
		"---\nname: pdf\n\n# c\nname: pdf\n---\n":           5,
		"---\nname: pdf\nlicense: use when: x\n---\n":       3,
		"no": 1,
		"---\nname: pdf\ndescription: x\na: *alias\n---\n":  4,
		"---\ndescription: x\n---\n":                        1,
		"---\nname: pdf\ndescription: x\nTools: [a]\n---\n": 4,
	} {
		_, err := skill.Parse("pdf", []byte(text), nil)
		var e *skill.Error
		if !errors.As(err, &e) || e.Line != line {
			t.Errorf("%q: %v, want line %d", text, err, line)
		}
	}
}

func TestN15_ValidName(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "a-b": true, "pdf2": true, "2": true, strings.Repeat("a", 64): true,
		"": false, "-a": false, "a-": false, "a--b": false, "A": false, "a_b": false, "a.b": false, "..": false, ".": false, "a/b": false, `a\b`: false,
		"ä": false, "аb": false, "a\n": false, "a b": false, strings.Repeat("a", 65): false, "a\x00": false,
	} {
		if skill.ValidName(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
		_, err := skill.Parse(name, fmt.Appendf(nil, "---\nname: %q\ndescription: x\n---\n", name), nil)
		if (err == nil) != want {
			t.Errorf("Parse %q: %v", name, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("pdf", []byte(front("allowed-tools: Bash(git:*) Read\n")))
	f.Add("pdf", []byte(front("metadata: {a: 'b'}\nenabled: false\nother: [1, {a: ~}]\n")))
	f.Add("a-b", []byte("---\r\nname: a-b\r\ndescription: |\r\n  x\r\n---\r\n${a}</untrusted_input>"))
	f.Add("x", []byte("---\n? a\n: b\n---\n"))
	f.Add("x", []byte("---\nname: x\ndescription: &a *a\n---\n"))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		s, err := skill.Parse(name, data, builtin.Aliases())
		if (s == nil) == (err == nil) {
			t.Fatalf("%v and %v", s, err)
		}
		if s == nil {
			return
		}
		if s.Name != name || !skill.ValidName(name) || s.Description == "" || len(s.Notices) > 32 {
			t.Fatalf("%+v", s)
		}
		for _, text := range s.AllowedTools {
			e, err := skill.ParseEntry(text, builtin.Aliases())
			if err != nil || e.String() != text {
				t.Fatalf("the entry %q reads back as %q, %v", text, e, err)
			}
		}
	})
}

// Skills that were made for other agents: what the convention asks of an author, and clients
// do not insist on, is a notice and the skill works.
func TestN15_ParseOfOthers(t *testing.T) {
	s, err := skill.Parse("react-views", []byte("---\r\nname: vendor-react-views\r\ndescription: Don't guess: read it. Triggers: views\r\n"+
		"disable-model-invocation: true\r\nuser-invocable: true\r\nallowed-tools: Read\r\n---\r\nBody.\r\n"), builtin.Aliases())
	if err != nil {
		t.Fatal(err)
	}
	if s.Name != "react-views" || s.Description != "Don't guess: read it. Triggers: views" || !s.Unlisted || s.Reason != "" {
		t.Errorf("%+v", s)
	}
	for _, want := range []string{`name: it says "vendor-react-views"`, "as if it had", "user-invocable"} {
		if !strings.Contains(strings.Join(s.Notices, "\n"), want) {
			t.Errorf("no notice of %s: %q", want, s.Notices)
		}
	}
	if len(s.AllowedTools) != 1 || s.AllowedTools[0] != "read_file" {
		t.Errorf("%q", s.AllowedTools)
	}
}
