package yamltree_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib/internal/yamltree"
)

var limits = yamltree.Limits{Bytes: 1 << 16, Tokens: 2000, Depth: 8}

// outline writes the nodes with their paths and places, a line each.
func outline(b *strings.Builder, n *yamltree.Node) {
	fmt.Fprintf(b, "%s %d:%d %s %q\n", n.Path, n.Line, n.Column, n.Kind, n.Text)
	for _, item := range n.Items {
		outline(b, item)
	}
	for _, e := range n.Entries {
		outline(b, e.Value)
	}
}

func TestParse_PathsAndPlaces(t *testing.T) {
	root, errs := yamltree.Parse([]byte("a:\r\n  - 'x\r\n    y'\r\n  - {\"b c\": 1e3, d: ~}\r\nz: >\r\n  1\r\nA: true\r\n"), yamltree.Limits{
		Bytes: 1000, Tokens: 100, Depth: 3, FirstLine: 11,
	})
	if len(errs) > 0 {
		t.Fatal(errs[0])
	}
	var b strings.Builder
	outline(&b, root.Entries[0].Value)
	for _, e := range root.Entries[1:] {
		outline(&b, e.Value)
	}
	want := `a 11:1 a list "-"
a[0] 12:5 a text "x y"
a[1] 14:6 a mapping "{"
a[1]["b c"] 14:6 a number "1e3"
a[1].d 14:18 null "~"
z 15:1 a text "1\n"
A 17:1 true or false "true"
`
	if b.String() != want {
		t.Errorf("have\n%swant\n%s", b.String(), want)
	}
	for _, place := range []struct{ column, line, file int }{{1, 12, 6}, {3, 13, 5}, {4, 13, 6}} {
		if line, column := root.Entries[0].Value.Items[0].Place(1, place.column); line != place.line || column != place.file {
			t.Errorf("character %d stands at %d:%d, want %d:%d", place.column, line, column, place.line, place.file)
		}
	}
}

func TestParse_Refuses(t *testing.T) {
	for text, want := range map[string]string{
		"a: [1\nb: 2":                  "2: is not valid YAML: ",
		"a: \xff":                      "1: is not valid UTF-8 text",
		"a: b\nc: \x00":                "2: is not valid UTF-8 text",
		"a: &x 1":                      "1: anchors and aliases",
		"a: *x":                        "1: anchors and aliases",
		"a: !!str 1":                   "1: tags are not allowed",
		"<<: {a: 1}":                   "1: merge keys",
		"%YAML 1.2\n---\na: 1":         "1: directives",
		"? a\n: b":                     "1: keys written with ?",
		"a: 1\n---\nb: 2":              "2: only one YAML document",
		"a: 1\n...\nb: 2":              "3: only one YAML document",
		"[]: 1":                        "1: ",
		"a: " + strings.Repeat("[", 9): "1: lists and mappings are nested deeper than 8",
		strings.Repeat("- ", 9) + "a":  "1: lists and mappings are nested deeper than 8",
		"a: [" + strings.Repeat("1,", 2000) + "]": "1: the file has more than 2000 words and marks",
		strings.Repeat("#", 1<<16+1):              "1: is larger than 65536 bytes",
	} {
		root, errs := yamltree.Parse([]byte(text), limits)
		if root != nil || len(errs) != 1 || !strings.HasPrefix(fmt.Sprintf("%d: %v", errs[0].Line, errs[0]), want) {
			t.Errorf("%.40q: %v, %v, want %s", text, root, errs, want)
		}
	}
	root, errs := yamltree.Parse([]byte("a: {b: 1, b: 2}\na: 3\n"), limits)
	if root == nil || len(errs) != 2 || errs[0].Error() != `a.b: duplicate key "b"; it is already at line 1` || errs[1].Line != 2 {
		t.Errorf("%v", errs)
	}
}

// However a text is written, each of its characters is found where it stands.
func TestPlace_EveryCharacter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-z'"\\é𝄞]([a-z'"\\é𝄞 ]{0,12}[a-z'"\\é𝄞])?`).Draw(t, "text")
		before := rapid.SampledFrom([]string{"", "é: x\n", "'k': |\n  text\n"}).Draw(t, "before")
		written := rapid.SampledFrom([]string{
			"'" + strings.ReplaceAll(text, "'", "''") + "'",
			`"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "é", `\u00e9`, "𝄞", `\U0001d11e`).Replace(text) + `"`,
			"|\n   " + text + "\n", ">-\n   " + text + "\n",
		}).Draw(t, "written")
		file := before + "at: " + written
		root, errs := yamltree.Parse([]byte(file), limits)
		if len(errs) > 0 {
			t.Skip(errs[0])
		}
		n := root.Entries[len(root.Entries)-1].Value
		lines := strings.Split(file, "\n")
		for i, want := range []rune(text) {
			line, column := n.Place(1, i+1)
			if line == 0 {
				t.Fatalf("%q: the place of character %d is not known", file, i)
			}
			got := []rune(lines[line-1])[column-1]
			switch {
			case got == want:
			case got == '\\' && strings.HasPrefix(written, `"`):
			case want == ' ':
			default:
				t.Fatalf("%q: character %d (%c) is said to stand at %d:%d, which is %c", file, i, want, line, column, got)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"a: [1, {b: c}]", "- |\n x\n- 'a''b'\n", "a: \"\\x41\\\n b\"", "? a", "a: &b c", "\ufeffa: >-\n  x\n\n  y"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		root, errs := yamltree.Parse([]byte(text), limits)
		if root == nil {
			if len(errs) != 1 {
				t.Fatalf("no tree and %d errors", len(errs))
			}
			return
		}
		var visit func(n *yamltree.Node)
		visit = func(n *yamltree.Node) {
			n.Place(1, 1)
			n.Place(1<<20, 1<<20)
			for _, item := range n.Items {
				visit(item)
			}
			for _, e := range n.Entries {
				visit(e.Value)
			}
		}
		visit(root)
	})
}
