package skill_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib/skill"
	"github.com/toolcrib/toolcrib/tool/builtin"
)

func drawEntries(t *rapid.T, name string) []string {
	return rapid.SliceOfN(rapid.SampledFrom([]string{
		"read_file", "read_*", "*", "Bash", "Bash(git:*)", "Bash(git log *)", "Bash(* --help)", "Bash(ls)", "Read(docs/**)", "Read(*.md)", "exec_?hell(wc:*)",
		"Grep(src/**)", "WebFetch(domain:a.b)", "WebFetch(https://a.b/c/*)", "x(a/**)", "bad(", "", "Task(r:*)",
	}), 0, 5).Draw(t, name)
}

type called struct {
	tool string
	args json.RawMessage
}

func drawCall(t *rapid.T) called {
	tool := rapid.SampledFrom([]string{"read_file", "exec_shell", "search_files", "web_fetch", "spawn", "x", "write_file"}).Draw(t, "tool")
	key := rapid.SampledFrom([]string{"path", "command", "url", "agent", "pattern"}).Draw(t, "key")
	text := rapid.OneOf(
		rapid.SampledFrom([]string{
			"docs/a", "docs/../a", "a.md", "src", "src/x", ".", "/ws/docs/a", "git log", "git log | wc -l", "git log; rm x", "git $(x)", "ls", "rm --help", "git log > x",
			"https://a.b/c/d", "https://a.b", "https://a.b@c", "r", "r x",
		}),
		rapid.String(),
		rapid.StringMatching(`(git|wc|ls|rm)( (log|-l|a|\$x|'q'|"q"|[|;&>]|&&|\|\|)){0,4}`),
	).Draw(t, "text")
	return called{tool, object(t, key, text)}
}

// A list never allows more than no list, a pattern never more than none, a list
// more than its entries do, and order means nothing.
func TestN15_ListsNeverWiden(t *testing.T) {
	ws := folder(t)
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawEntries(t, "a"), drawEntries(t, "b")
		c := drawCall(t)
		ask := func(entries []string) bool {
			ok, err := allowed(entries, c.tool, c.args, ws)
			if ok && err != nil {
				t.Fatalf("allowed with an error: %v", err)
			}
			return ok
		}
		if !ask(nil) || ask([]string{}) {
			t.Fatal("null restricts, or empty allows")
		}
		inA, inB, both := ask(a), ask(b), ask(slices.Concat(a, b))
		if (inA || inB) && !both {
			t.Fatalf("%v and %v: a union takes away", a, b)
		}
		if both != ask(slices.Concat(b, a)) {
			t.Fatalf("%v and %v: the order counts", a, b)
		}
		if both && !ask(bare(slices.Concat(a, b))) {
			t.Fatalf("%v, %v: a pattern allows what its tool's name does not", a, b)
		}
		for _, workspace := range []string{ws, ws + "/"} {
			if got, _ := allowed(a, c.tool, c.args, workspace); got && !ask(bare(a)) {
				t.Fatalf("%v in %s", a, workspace)
			}
		}
	})
}

// drawLibrary makes skills called s0, s1, … with any text.
func drawLibrary(t *rapid.T) (library, []string) {
	files := map[string][]byte{}
	var names []string
	for i := range rapid.IntRange(0, 5).Draw(t, "skills") {
		name := "s" + string(rune('0'+i))
		names = append(names, name)
		front := "name: " + name + "\ndescription: d\n"
		switch rapid.IntRange(0, 4).Draw(t, "declares") {
		case 0:
		case 1:
			front += "allowed-tools: []\n"
		case 2:
			front += "enabled: false\nallowed-tools: [z]\n"
		default:
			front += "allowed-tools:\n"
			for _, e := range drawEntries(t, "entries") {
				front += "  - '" + e + "'\n"
			}
		}
		body := rapid.OneOf(rapid.String(), rapid.StringMatching(`(<|/|untrusted_input|>|\$\{v\}|x|\n|tool_result|ä){0,60}`)).Draw(t, "body")
		files[name+"/SKILL.md"] = []byte("---\n" + front + "---\n" + strings.Repeat(body+"\n", rapid.IntRange(1, 20).Draw(t, "times")))
	}
	l, _ := skill.Load([]skill.Dir{{Path: "x", Files: files}}, builtin.Aliases())
	return l, names
}

// Whatever is cut, switched off or not approved, nothing is widened; and no text
// breaks its fence, its bound, or the program.
func TestN15_CutsAndApprovalsNeverWiden(t *testing.T) {
	ws := folder(t)
	rapid.Check(t, func(t *rapid.T) {
		l, names := drawLibrary(t)
		names = append(names, rapid.SliceOfN(rapid.SampledFrom([]string{"s0", "s1", "ghost", ""}), 0, 3).Draw(t, "more")...)
		all, _ := l.choose(names, everything)
		turned := slices.Clone(names)
		slices.Reverse(turned)
		other, _ := l.choose(turned, everything)
		if !slices.Equal(all.AllowedTools(), other.AllowedTools()) ||
			(all.AllowedTools() == nil) != (other.AllowedTools() == nil) {
			t.Fatalf("the order counts: %v, %v", all.AllowedTools(), other.AllowedTools())
		}
		some := rapid.SliceOfDistinct(rapid.SampledFrom([]string{"s0", "s1", "s2", "s3", "s4"}), rapid.ID).Draw(t, "approved")
		fewer, _ := l.choose(names, func(s *skill.Skill) bool { return slices.Contains(some, s.Name) })
		c := drawCall(t)
		wide, _ := allowed(all.AllowedTools(), c.tool, c.args, ws)
		if narrow, _ := allowed(fewer.AllowedTools(), c.tool, c.args, ws); narrow && !wide {
			t.Fatalf("with fewer approved %v is allowed, with all it is not: %v, %v", c, fewer.AllowedTools(), all.AllowedTools())
		}
		before := all.AllowedTools()
		vars := map[string]string{"v": rapid.String().Draw(t, "v")}
		small, large := rapid.IntRange(-10, 4000).Draw(t, "small"), rapid.IntRange(1, 4000).Draw(t, "larger")
		text, cut := all.Text(small, vars)
		checkText(t, text, small)
		if small != 0 {
			larger, cutLarger := all.Text(max(1, small)+large, vars)
			checkText(t, larger, max(1, small)+large)
			if len(cutLarger) > len(cut) || len(cutLarger) == len(cut) && len(larger) < len(text) {
				t.Fatalf("more room shows less: %d bytes cut %v, %d bytes cut %v", small, cut, large, cutLarger)
			}
		}
		if !slices.Equal(before, all.AllowedTools()) {
			t.Fatal("a cut changed what is allowed")
		}
	})
}

func checkText(t *rapid.T, text string, budget int) {
	if budget == 0 {
		budget = skill.DefaultTextBytes
	}
	if len(text) > max(0, budget) {
		t.Fatalf("%d bytes, more than %d", len(text), budget)
	}
	if opened, closed := strings.Count(text, "<untrusted_input"), strings.Count(text, "\n</untrusted_input>\n"); opened != closed || opened != strings.Count(text, "\n<untrusted_input source=\"skill:s") {
		t.Fatalf("%d fences open, %d close in %q", opened, closed, text)
	}
}

func TestN15_ParseNeverPanics(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		front := rapid.StringMatching(`((name|description|allowed-tools|metadata|enabled|x): ?([a-z*&!|>'"\[\]{},#%@ -]{0,8})\n?( {0,3})(- )?){0,8}`).Draw(t, "front")
		s, err := skill.Parse("x", []byte("---\nname: x\n"+front+"\n---\n"+rapid.String().Draw(t, "body")), nil)
		if (s == nil) == (err == nil) {
			t.Fatalf("%v, %v", s, err)
		}
	})
}
