package offline_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
)

// oddNames are files with names that need care, each with its name as the text.
var oddNames = []string{
	"with space.txt", "日本.md", ".env", ".gitignore", "link-target", "it's.txt", "über uns/erste notiz.md", "sub dir/deep/plain",
	"notes(1).txt", "data.2024", "🎉.txt", "title.md", "about.txt", "docs.d/x",
}

func odd(t *testing.T) *conversation {
	t.Helper()
	c := converse(t)
	for _, name := range oddNames {
		path := filepath.Join(c.dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("this is "+name+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func TestOffline_ReadsWhatIsNamed(t *testing.T) {
	for _, tt := range []struct{ prompt, file string }{
		{"Show me \"with space.txt\"", "with space.txt"},
		{"show 'with space.txt'.", "with space.txt"},
		{"cat `with space.txt`", "with space.txt"},
		{"open the file “with space.txt”, please", "with space.txt"},
		{"What is in \"with space.txt\"?", "with space.txt"},
		{"what does ‘with space.txt’ say?", "with space.txt"},
		{"Show me 日本.md", "日本.md"},
		{"read 日本.md!", "日本.md"},
		{"Show me .env", ".env"},
		{"Show me the .env file", ".env"},
		{"what's in .gitignore?", ".gitignore"},
		{"Show me link-target", "link-target"},
		{"please open link-target.", "link-target"},
		{"print the contents of link-target", "link-target"},
		{"show \"it's.txt\"", "it's.txt"},
		{"read \"über uns/erste notiz.md\"", "über uns/erste notiz.md"},
		{"cat \"sub dir/deep/plain\"", "sub dir/deep/plain"},
		{"Can you show me notes(1).txt?", "notes(1).txt"},
		{"display data.2024", "data.2024"},
		{"Show me 🎉.txt", "🎉.txt"},
		{"show title.md", "title.md"},
		{"show me about.txt", "about.txt"},
		{"print ./docs.d/x", "docs.d/x"},
		{"what is in docs.d/x?", "docs.d/x"},
		{"how many lines has \"with space.txt\"?", ""},
		{"summarise \"with space.txt\"", "with space.txt"},
		{"Zeige mir \"with space.txt\"", "with space.txt"},
		{"was steht in 日本.md?", "日本.md"},
	} {
		t.Run(tt.prompt, func(t *testing.T) {
			c := odd(t)
			answer := c.say(t, tt.prompt)
			want := "this is " + tt.file
			if tt.file == "" {
				want = "with space.txt has 1 line."
			}
			if !strings.Contains(answer, want) || len(c.calls) != 1 {
				t.Errorf("the answer lacks %q; calls %q\n%s", want, c.calls, answer)
			}
		})
	}
}

func TestOffline_ReadsSeveralNames(t *testing.T) {
	c := odd(t)
	answer := c.say(t, "show \"with space.txt\", link-target and 日本.md")
	for _, want := range []string{"this is with space.txt", "this is link-target", "this is 日本.md"} {
		if !strings.Contains(answer, want) {
			t.Errorf("the answer lacks %q:\n%s", want, answer)
		}
	}
	if answer := c.say(t, "how many lines does it have?"); !strings.Contains(answer, "日本.md has 1 line.") {
		t.Errorf("it: %s", answer)
	}
	c.say(t, "Show me link-target")
	if answer := c.say(t, "how many words are in it?"); !strings.Contains(answer, "link-target has 3 words.") {
		t.Errorf("it, after a plain word: %s", answer)
	}
	for prompt, want := range map[string]string{"what is in \"sub dir\"?": "deep/", "show me docs": "guide.md", "open the docs.d folder": "x (17 bytes)"} {
		if answer := odd(t).say(t, prompt); !strings.Contains(answer, want) {
			t.Errorf("%q: a folder lacks %q: %s", prompt, want, answer)
		}
	}
}

func TestOffline_WhatIsNotThereIsTold(t *testing.T) {
	for prompt, want := range map[string]string{
		"Show me wih_space.txt":          "There is no file wih_space.txt here; files with similar names: with space.txt.",
		"cat RADME.md":                   "There is no file RADME.md here; files with similar names: README.md.",
		"read .evn":                      "There is no file .evn here; files with similar names: .env.",
		"show me doc":                    "There is no file doc here; files with similar names: docs.d/, docs/.",
		"what does \"no such x.md\" say": "There is no file no such x.md here, and none with a similar name that I found.",
		"open zzz":                       "There is no file zzz here, and none with a similar name that I found.",
		"how many lines has man.go?":     "There is no file man.go here; files with similar names: main.go",
		"show readme":                    "(There is no readme; I took README.md.)",
		"show guide":                     "(There is no guide; I took docs/guide.md.)",
	} {
		c := odd(t)
		if answer := c.say(t, prompt); !strings.Contains(answer, want) {
			t.Errorf("%q: the answer lacks %q:\n%s\n%s", prompt, want, strings.Join(c.calls, "\n"), answer)
		}
	}
	c := odd(t)
	c.specs = slices.DeleteFunc(c.specs, func(s toolcrib.Spec) bool { return s.Name != "read_file" })
	if answer := c.say(t, "show zzz.txt"); !strings.Contains(answer, "There is no file zzz.txt here.") {
		t.Errorf("nothing to search with: %s", answer)
	}
}

func TestOffline_WhatIsNoNameGetsHelp(t *testing.T) {
	for _, prompt := range []string{"show me how to love", "read me a story", "print hello big world", "show me", "open it", "what is in general?", "What is 42?"} {
		c := odd(t)
		if answer := c.say(t, prompt); !strings.Contains(answer, "Try:") || len(c.calls) > 0 {
			t.Errorf("%q called %q:\n%s", prompt, c.calls, answer)
		}
	}
}

// listing answers every list_directory with entries.
func listing(t *testing.T, entries ...map[string]any) *conversation {
	t.Helper()
	c := converse(t)
	data, err := json.Marshal(map[string]any{"entries": entries})
	if err != nil {
		t.Fatal(err)
	}
	c.answer = func(call toolcrib.ToolCall, _ string) (string, bool) {
		if call.Name == "list_directory" {
			return string(data), false
		}
		return "", false
	}
	return c
}

func TestOffline_Listings(t *testing.T) {
	folder := map[string]any{"name": "d", "is_dir": true}
	file := func(size int64) map[string]any { return map[string]any{"name": "f", "size": size} }
	for _, tt := range []struct {
		entries []map[string]any
		want    string
	}{
		{[]map[string]any{folder}, "In this folder there is 1 folder:\n- d/\n"},
		{[]map[string]any{file(1)}, "In this folder there is 1 file:\n- f (1 byte)\n"},
		{[]map[string]any{folder, file(0), file(9_999)}, "there is 1 folder and 2 files:\n- d/\n- f (0 bytes)\n- f (9999 bytes)\n"},
		{[]map[string]any{file(10_000), file(12_345)}, "there are 2 files:\n- f (10 kB)\n- f (12.3 kB)\n"},
		{[]map[string]any{file(999_949), file(999_950), file(75_780 << 20)}, "- f (999.9 kB)\n- f (1 MB)\n- f (79.5 GB)\n"},
		{[]map[string]any{file(10 << 30), file(1 << 62)}, "- f (10.7 GB)\n- f (4611.7 PB)\n"},
		{[]map[string]any{{"name": "a\nb\t\u202e.txt", "size": 1}}, "- a\\nb\\t\\u202e.txt (1 byte)\n"},
		{[]map[string]any{{"name": "l", "is_dir": true, "is_symlink": true}}, "there is 1 folder:\n- l/ (a link to a folder)\n"},
		{[]map[string]any{{"name": "l", "size": 12, "is_symlink": true}}, "- l (a link to a file of 12 bytes)\n"},
		{[]map[string]any{{"name": "l", "is_symlink": true}}, "- l (a link: to nothing, to an empty or special file, or out of the workspace)\n"},
	} {
		if answer := listing(t, tt.entries...).say(t, "list"); !strings.Contains(answer, tt.want) {
			t.Errorf("the answer lacks %q:\n%s", tt.want, answer)
		}
	}
	if answer := listing(t, file(10<<30)).say(t, "how big is f.x? and what is the largest file?"); !strings.Contains(answer, "f: 10737418240 bytes (10.7 GB)") {
		t.Errorf("sizes: %s", answer)
	}
}

func TestOffline_WithheldToolsAreExplained(t *testing.T) {
	c := converse(t)
	c.specs = nil
	if answer := c.say(t, "Write \"hello\" to notes.txt"); !strings.Contains(answer, "I could not write notes.txt: the tool write_file is not offered to me here; `toolcrib tools explain write_file` says why.\n") {
		t.Errorf("not offered: %s", answer)
	}
	for reason, explained := range map[string]bool{"tool_disabled": true, "read_only_mode": true, "approval_denied": false, "protected_path": false} {
		c := converse(t)
		c.answer = func(toolcrib.ToolCall, string) (string, bool) {
			return `{"refused": true, "tool": "write_file", "reason": "` + reason + `", "message": "It may not."}`, true
		}
		answer := c.say(t, "Write \"hello\" to notes.txt")
		if !strings.Contains(answer, "("+reason+"): It may not") || strings.Contains(answer, "`toolcrib tools explain write_file` says why.") != explained {
			t.Errorf("%s: %s", reason, answer)
		}
	}
}

func TestOffline_WhereIsSearchesThePlainWord(t *testing.T) {
	c := converse(t)
	answer := c.say(t, "Where is NEXT?")
	if want := `search_files {"case_insensitive":true,"max_results":100,"pattern":"\\bNEXT\\b"}`; len(c.calls) != 1 || c.calls[0] != want {
		t.Errorf("calls %q, want %q", c.calls, want)
	}
	if !strings.Contains(answer, "2 lines mention \"NEXT\"") {
		t.Errorf("mentions: %s", answer)
	}
	// A word with too many mentions: the definition is still found.
	if err := os.WriteFile(filepath.Join(c.dir, "a.txt"), []byte(strings.Repeat("Wind\n", 150)), 0o644); err != nil {
		t.Fatal(err)
	}
	if answer := c.say(t, "Where is Wind()?"); len(c.calls) != 2 || !strings.Contains(answer, "Wind is defined here:\n- main.go:14") {
		t.Errorf("calls %q: %s", c.calls, answer)
	}
}

func TestOffline_AsksWithAnOrderThatWorks(t *testing.T) {
	for _, prompt := range []string{"Write a haiku to poem.txt", "Write a haiku to \"my poem.txt\"", "append a verse to poem.txt", "create .env"} {
		c := converse(t)
		answer := c.say(t, prompt)
		_, example, found := strings.Cut(answer, "such as:\n")
		example, _, _ = strings.Cut(example, "\n")
		if !found || len(c.calls) > 0 {
			t.Errorf("%q called %q: %s", prompt, c.calls, answer)
			continue
		}
		if answer := c.say(t, example); !strings.Contains(answer, "Done: Successfully wrote") {
			t.Errorf("%q, the example of %q: %s", example, prompt, answer)
		}
	}
}

func TestOffline_QuotesTheReadme(t *testing.T) {
	quote := "This is an excerpt, the first paragraph of README.md:\n> Clockwork keeps the time of a small workshop."
	for _, prompt := range []string{
		"what is clockwork?", "What is Clockwork", "how does clockwork decide what time it is?", "how does Clockwork decide which tools may run?",
		"What does this project do?", "what does clockwork do?", "tell me about clockwork", "explain clockwork", "why does clockwork keep the time", "was ist Clockwork?",
	} {
		if answer := converse(t).say(t, prompt); !strings.Contains(answer, quote) || strings.Contains(answer, "Try:") {
			t.Errorf("%q: %s", prompt, answer)
		}
	}
	if answer := converse(t).say(t, "what is love?"); !strings.Contains(answer, "I know nothing about \"love\", and README.md does not mention it") || strings.Contains(answer, "excerpt") {
		t.Errorf("what the README does not mention: %s", answer)
	}
	c := converse(t)
	if err := os.Remove(filepath.Join(c.dir, "README.md")); err != nil {
		t.Fatal(err)
	}
	if answer := c.say(t, "what is clockwork?"); !strings.Contains(answer, "there is no README here") {
		t.Errorf("no README: %s", answer)
	}
}

func TestOffline_QuotesTheReadmeNotForItself(t *testing.T) {
	if answer := converse(t).say(t, "what is toolcrib?"); !strings.Contains(answer, "toolcrib is the runtime that this model runs in") || strings.Contains(answer, "excerpt") {
		t.Errorf("toolcrib where the README does not mention it: %s", answer)
	}
}

func TestOffline_LinksToNothing(t *testing.T) {
	c := converse(t)
	if err := os.Symlink("nowhere", filepath.Join(c.dir, "dead")); err != nil {
		t.Skip("no links here: ", err)
	}
	if err := os.Symlink("go.mod", filepath.Join(c.dir, "link")); err != nil {
		t.Fatal(err)
	}
	if answer := c.say(t, "Show me dead"); !strings.Contains(answer, "dead is a link, and there is nothing where it leads to.") {
		t.Errorf("a link to nothing: %s", answer)
	}
	if answer := c.say(t, "Show me link"); !strings.Contains(answer, "module example.org/clockwork") {
		t.Errorf("a link: %s", answer)
	}
	if answer := c.say(t, "list"); !strings.Contains(answer, "- link (a link to a file of 109 bytes)\n") || !strings.Contains(answer, "- dead (a link: to nothing") {
		t.Errorf("the list: %s", answer)
	}
}

// TestOffline_NewcomersConversation keeps what a newcomer tried, to be read by people.
func TestOffline_NewcomersConversation(t *testing.T) {
	c := odd(t)
	keep(t, c, "newcomer.txt", []string{
		"what is clockwork?", "Show me \"with space.txt\"", "Show me 日本.md", "Show me .env", "Show me link-target", "Show me lnk-target",
		"what is in \"über uns\"?", "Where is NEXT?", "Write a haiku to poem.txt", "Write 'hello' to poem.txt", "append \"world\" to poem.txt and show it",
		"run `ls`", "What is this project about?", "sing",
	})
}
