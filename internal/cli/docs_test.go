package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"

	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/provider/script"
)

var fenced = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")

// pages returns the pages of the documentation by their paths.
func pages(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(names) < 20 {
		t.Fatal(names, err)
	}
	all := map[string]string{}
	for _, name := range append(names, "../../README.md", "../../CONTRIBUTING.md", "../../SECURITY.md", "../../CHANGELOG.md") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(text)
	}
	return all
}

// inline is a command in a sentence or a table.
var inline = regexp.MustCompile("`toolcrib ([^`\n]+)`")

// alternatives returns the commands that a table names at once: approvals list\|show.
func alternatives(args []string) [][]string {
	for i, arg := range args {
		if strings.HasPrefix(arg, "-") {
			break
		}
		if names := strings.Split(strings.ReplaceAll(arg, `\|`, "|"), "|"); len(names) > 1 {
			var all [][]string
			for _, name := range names {
				all = append(all, slices.Concat(args[:i], []string{name}, args[i+1:]))
			}
			return all
		}
	}
	return [][]string{args}
}

// commandsIn returns the arguments of each toolcrib command in a shell text.
func commandsIn(text string) (all [][]string, err error) {
	file, err := syntax.NewParser().Parse(strings.NewReader(text), "")
	if err != nil {
		return nil, err
	}
	syntax.Walk(file, func(n syntax.Node) bool {
		call, ok := n.(*syntax.CallExpr)
		if !ok || len(call.Args) == 0 || call.Args[0].Lit() != "toolcrib" {
			return true
		}
		words := []string{}
		for _, w := range call.Args[1:] {
			word, failed := expand.Literal(nil, w)
			if failed != nil {
				err = failed
			}
			words = append(words, word)
		}
		all = append(all, words)
		return true
	})
	return all, err
}

// TestDocs_Commands reads every command line of the pages and of --help as the command
// would: the command exists, and takes these flags and arguments.
func TestDocs_Commands(t *testing.T) {
	shown := map[string]string{}
	for name, page := range pages(t) {
		for _, block := range fenced.FindAllStringSubmatch(page, -1) {
			if block[1] == "" || block[1] == "sh" {
				shown[name] += block[2]
			}
		}
		for line := range strings.Lines(fenced.ReplaceAllString(page, "")) {
			if strings.HasPrefix(line, "    ") {
				shown[name] += line
			}
		}
	}
	for _, d := range descriptions()[1:] {
		shown[d.path+" --help"] = d.Example
	}
	seen := 0
	for name, text := range shown {
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(line)
			if !strings.HasPrefix(line, "toolcrib ") && !strings.Contains(line, "| toolcrib ") {
				continue
			}
			commands, err := commandsIn(line)
			if err != nil {
				t.Errorf("%s: %s: %v", name, line, err)
			}
			for _, args := range commands {
				seen++
				cmd, rest, err := newApp(os.Stdin, os.Stdout, os.Stderr).root().Find(args)
				if err == nil {
					err = cmd.ParseFlags(rest)
				}
				if err == nil {
					err = cmd.ValidateArgs(cmd.Flags().Args())
				}
				if err == nil && cmd.HasSubCommands() && len(cmd.Flags().Args()) > 0 {
					t.Errorf("%s: %s: no such command", name, line)
				}
				if err != nil {
					t.Errorf("%s: %s: %v", name, line, err)
				}
			}
		}
	}
	for name, page := range pages(t) {
		for _, found := range inline.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
			for _, args := range alternatives(strings.Fields(found[1])) {
				seen++
				cmd, rest, err := newApp(os.Stdin, os.Stdout, os.Stderr).root().Find(args)
				if err != nil || cmd.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
					t.Errorf("%s: %s: no such command %v", name, found[1], err)
					continue
				}
				for _, arg := range rest {
					flag, _, _ := strings.Cut(arg, "=")
					if long, ok := strings.CutPrefix(flag, "--"); ok && cmd.Flag(long) == nil && long != "" {
						t.Errorf("%s: %s: no flag %s", name, found[1], flag)
					}
				}
			}
		}
	}
	if seen < 400 {
		t.Errorf("only %d command lines", seen)
	}
}

// TestDocs_Blocks reads the configurations, scripts and JSON values of the pages.
func TestDocs_Blocks(t *testing.T) {
	seen := map[string]int{}
	for name, page := range pages(t) {
		for _, block := range fenced.FindAllStringSubmatch(page, -1) {
			kind, text := block[1], block[2]
			var err error
			switch {
			case kind == "json":
				if !json.Valid([]byte(text)) {
					t.Errorf("%s: not JSON:\n%s", name, text)
				}
			case kind != "yaml":
				continue
			case strings.HasPrefix(text, "- "):
				kind = "script"
				_, err = script.New(script.Options{Bytes: []byte(text)})
			case strings.HasPrefix(text, "    "):
				_, err = config.Parse("toolcrib.yaml", []byte("agents:\n  default:\n"+text))
			default:
				_, err = config.Parse("toolcrib.yaml", []byte(text))
			}
			if err != nil {
				t.Errorf("%s: %v\n%s", name, err, text)
			}
			seen[kind]++
		}
	}
	for kind, least := range map[string]int{"yaml": 18, "script": 2, "json": 1} {
		if seen[kind] < least {
			t.Errorf("%d blocks of %s, want at least %d", seen[kind], kind, least)
		}
	}
}

// TestDocs_Programs compares the Go code of the pages about the library with the programs that tests compile and run: each
// block is part of one of them.
func TestDocs_Programs(t *testing.T) {
	names, err := filepath.Glob("../../examples/*/main.go")
	if err != nil || len(names) < 6 {
		t.Fatal(names, err)
	}
	plain := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	var programs []string
	for _, name := range append(names, "../../example_test.go") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		programs = append(programs, plain(string(text)))
	}
	seen := 0
	for _, name := range []string{"../../README.md", "../../docs/library.md"} {
		for _, block := range fenced.FindAllStringSubmatch(pages(t)[name], -1) {
			if block[1] != "go" {
				continue
			}
			seen++
			if !slices.ContainsFunc(programs, func(p string) bool { return strings.Contains(p, plain(block[2])) }) {
				t.Errorf("%s: in no program:\n%s", name, block[2])
			}
		}
	}
	if seen < 9 {
		t.Errorf("only %d blocks", seen)
	}
}

// TestDocs_Links follows every link within the documentation, to its heading too.
func TestDocs_Links(t *testing.T) {
	all := pages(t)
	heading := regexp.MustCompile(`(?m)^#+ (.*)$`)
	drop := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	link := regexp.MustCompile(`\]\(([^)\s]*)\)`)
	seen := 0
	for name, page := range all {
		for _, found := range link.FindAllStringSubmatch(page, -1) {
			path, anchor, _ := strings.Cut(found[1], "#")
			if strings.Contains(path, ":") {
				continue
			}
			seen++
			target := page
			if path != "" {
				path = filepath.Join(filepath.Dir(name), path)
				if _, err := os.Stat(path); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				target = all[path]
			}
			if anchor == "" {
				continue
			}
			var known []string
			for _, h := range heading.FindAllStringSubmatch(target, -1) {
				known = append(known, strings.ReplaceAll(strings.ToLower(drop.ReplaceAllString(h[1], "")), " ", "-"))
			}
			if !slices.Contains(known, anchor) {
				t.Errorf("%s: %s has no heading #%s", name, found[1], anchor)
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d links", seen)
	}
}
