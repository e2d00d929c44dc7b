package files_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/tool/files"
)

func TestC9_SearchFiles(t *testing.T) {
	k := newKit(t, files.Options{})
	k.put("a.go", "package a\nfunc Hello() {}\r\n// hello <b>\n")
	k.put("src/b.go", "package b\n\nfunc hello() {}")
	k.put("src/deep/c.txt", "hello")
	k.put("bin", "hello\x00hello")
	k.put(".git/config", "hello")
	k.put(".env", "hello=1")
	k.link("src", "again")
	k.link("/etc", "etc")
	found := func(searched int, matches ...string) string {
		return fmt.Sprintf(`{"matches":[%s],"files_searched":%d,"truncated":false}`, strings.Join(matches, ","), searched)
	}
	k.want("search_files", args{"pattern": "hello"}, found(5,
		`{"path":".env","line":1,"text":"hello=1"}`, `{"path":"a.go","line":3,"text":"// hello <b>"}`,
		`{"path":"src/b.go","line":3,"text":"func hello() {}"}`, `{"path":"src/deep/c.txt","line":1,"text":"hello"}`))
	k.want("search_files", args{"pattern": "^func (\\w+)", "case_insensitive": true, "glob": "*.go"}, found(2,
		`{"path":"a.go","line":2,"text":"func Hello() {}"}`, `{"path":"src/b.go","line":3,"text":"func hello() {}"}`))
	k.want("search_files", args{"pattern": "hello", "names_only": true, "path": "src"}, found(2, `{"path":"src/b.go"}`, `{"path":"src/deep/c.txt"}`))
	k.want("search_files", args{"glob": "**/*.{txt,md}"}, found(1, `{"path":"src/deep/c.txt"}`))
	k.want("search_files", args{"glob": "deep/*", "path": "src"}, found(1, `{"path":"src/deep/c.txt"}`))
	k.want("search_files", args{"glob": "deep/*", "path": "again"}, found(1, `{"path":"again/deep/c.txt"}`))
	k.want("search_files", args{"pattern": "^func", "path": "a.go"}, found(1, `{"path":"a.go","line":2,"text":"func Hello() {}"}`))
	k.want("search_files", args{"pattern": "nothing"}, found(5))
	k.want("search_files", args{"pattern": "hello", "max_results": 1},
		`{"matches":[{"path":".env","line":1,"text":"hello=1"}],"files_searched":2,"truncated":true,"reason":"there are more matches than max_results"}`)
	k.fails("search_files", args{"pattern": "("}, "invalid arguments: pattern: error parsing regexp")
	k.fails("search_files", args{"pattern": strings.Repeat("a", 1025)}, "invalid arguments: pattern is longer than 1024 bytes")
	k.fails("search_files", args{"glob": "{a,b}{a,b}{a,b}{a,b}{a,b}"}, "invalid arguments: glob is longer than")
	k.fails("search_files", args{"glob": "[a"}, `invalid arguments: glob "[a" is not well formed`)
	k.fails("search_files", args{}, "invalid arguments: give a pattern, a glob, or both")
	k.fails("search_files", args{"pattern": "root", "path": "etc"}, "invalid path: path escapes workspace: etc")
}

func TestN24_SearchIsBounded(t *testing.T) {
	k := newKit(t, files.Options{})
	k.put("many", strings.Repeat("x\n", 5000))
	k.put("wide", strings.Repeat("é", 100_000)+" needle\nshort needle\n"+strings.Repeat("é", 300)+"needle"+strings.Repeat("é", 300)+"\n")
	var got struct {
		Matches []struct {
			Line int
			Text string
		}
		Truncated bool
	}
	search := func(arguments args) {
		t.Helper()
		out, err := k.call("search_files", arguments)
		if err != nil {
			t.Fatal(err)
		}
		got.Matches = nil
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
	}
	search(args{"pattern": "x", "max_results": 9999})
	if len(got.Matches) != 1000 || !got.Truncated {
		t.Errorf("hard cap: %d matches, truncated %v", len(got.Matches), got.Truncated)
	}
	search(args{"pattern": "x"})
	if len(got.Matches) != 100 {
		t.Errorf("default: %d matches", len(got.Matches))
	}
	search(args{"pattern": "needle"})
	if len(got.Matches) != 2 || got.Matches[0].Line != 2 || got.Matches[1].Line != 3 {
		t.Fatalf("only the first 64 KiB of a line are matched: %+v", got)
	}
	if text := got.Matches[1].Text; !strings.Contains(text, "needle") || len(text) > 510 || !strings.HasPrefix(text, "…é") || !strings.HasSuffix(text, "é…") {
		t.Errorf("a long line is cut around the match: %q", text)
	}
	k.put(strings.Repeat("d/", 140)+"f", "deep")
	search(args{"pattern": "deep"})
	if !got.Truncated || len(got.Matches) != 0 {
		t.Errorf("depth: %+v", got)
	}
}

// TestSearchIgnores: what .gitignore and .ignore leave out is counted, and found on
// demand; no file hides itself from reading or listing.
func TestSearchIgnores(t *testing.T) {
	k := newKit(t, files.Options{Hidden: func(abs string) bool { return strings.HasSuffix(abs, "/private") }})
	k.put(".gitignore", "*.log\nnode_modules/\n/private\n")
	k.put("src/.ignore", "made.go\n!keep.log\n")
	for _, name := range []string{"a.go", "a.log", "node_modules/x/index.js", "src/made.go", "src/keep.log", "private", "src/deep/b.log"} {
		k.put(name, "needle")
	}
	hit := func(names ...string) string {
		for i, name := range names {
			names[i] = fmt.Sprintf(`{"path":%q,"line":1,"text":"needle"}`, name)
		}
		return strings.Join(names, ",")
	}
	k.want("search_files", args{"pattern": "needle"},
		`{"matches":[`+hit("a.go", "src/keep.log")+`],"files_searched":4,"ignored":4,"truncated":false}`)
	k.want("search_files", args{"pattern": "needle", "path": "src"},
		`{"matches":[`+hit("src/keep.log")+`],"files_searched":2,"ignored":2,"truncated":false}`)
	k.want("search_files", args{"pattern": "needle", "path": "node_modules"},
		`{"matches":[`+hit("node_modules/x/index.js")+`],"files_searched":1,"truncated":false}`)
	k.want("search_files", args{"pattern": "needle", "path": "a.log"}, `{"matches":[`+hit("a.log")+`],"files_searched":1,"truncated":false}`)
	k.want("search_files", args{"pattern": "needle", "ignored": true}, `{"matches":[`+
		hit("a.go", "a.log", "node_modules/x/index.js", "src/deep/b.log", "src/keep.log", "src/made.go")+`],"files_searched":8,"truncated":false}`)
	k.want("read_file", args{"path": "a.log"}, `{"content":"needle"}`)
	if out, err := k.call("list_directory", args{}); err != nil || !strings.Contains(out, `"a.log"`) || !strings.Contains(out, `"node_modules"`) {
		t.Errorf("list_directory leaves files out: %s %v", out, err)
	}
}

// TestSearchDecodes: a text is found in the encodings that read_file decodes.
func TestSearchDecodes(t *testing.T) {
	k := newKit(t, files.Options{})
	k.put("latin.txt", "first\ncaf\xe9 \x80\nlast")
	k.put("little.txt", "\xff\xfea\x00\n\x00h\x00\xe9\x00\r\x00\n\x00")
	k.put("big.txt", "\xfe\xff\x00h\x00\xe9\x30\x42")
	k.put("late.txt", strings.Repeat("plain\n", 3000)+"caf\xe9\n")
	k.put("kanji.txt", strings.Repeat("\x93\xfa\x96\x7b\x8c\xea", 50)+"\ncaf\xe9 abc abc abc\n") // Shift-JIS: not decoded
	k.want("search_files", args{"pattern": "h[é]"}, `{"matches":[{"path":"big.txt","line":1,"text":"héあ"},`+
		`{"path":"little.txt","line":2,"text":"hé"}],"files_searched":5,"truncated":false}`)
	k.want("search_files", args{"pattern": "café"}, `{"matches":[{"path":"late.txt","line":3001,"text":"café"},`+
		`{"path":"latin.txt","line":2,"text":"café €"}],"files_searched":5,"truncated":false}`)
}
