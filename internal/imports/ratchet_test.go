package imports_test

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "lower the numbers of the tables in testdata to what is counted, and add what they do not know")

// table is a file of testdata: lines of a number, a name and a note, separated by
// tabs. The number is the most that may be counted for the name.
type table struct {
	head string // the comment at the top
	rows map[string]row
}

type row struct {
	most int
	note string
}

func readTable(t *testing.T, file string) table {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out, problem := parseTable(string(data))
	if problem != "" {
		t.Fatalf("%s: %s", file, problem)
	}
	return out
}

func parseTable(text string) (out table, problem string) {
	out.rows = map[string]row{}
	for number, line := range strings.Split(text, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			if line != "" {
				out.head += line + "\n"
			}
			continue
		}
		fields := strings.SplitN(line, "\t", 3)
		most, err := strconv.Atoi(strings.TrimSpace(fields[0]))
		if err != nil || len(fields) < 2 {
			return out, fmt.Sprintf("line %d is not NUMBER, tab, NAME: %q", number+1, line)
		}
		one := row{most: most}
		if len(fields) == 3 {
			one.note = fields[2]
		}
		if _, twice := out.rows[fields[1]]; twice {
			return out, fmt.Sprintf("line %d: a second row for %q", number+1, fields[1])
		}
		out.rows[fields[1]] = one
	}
	return out, ""
}

// over returns what is counted more often than its row allows, and what has no row.
func (tb table) over(counted map[string]int) (problems []string) {
	for _, name := range slices.Sorted(maps.Keys(counted)) {
		limit, known := tb.rows[name]
		switch {
		case !known:
			problems = append(problems, fmt.Sprintf("%s: %d, and the table has no row for it", name, counted[name]))
		case counted[name] > limit.most:
			problems = append(problems, fmt.Sprintf("%s: %d, its row allows %d", name, counted[name], limit.most))
		}
	}
	return problems
}

// lower returns the table with numbers that are not above what was counted; rows of
// what is gone are dropped, new ones are added. It raises nothing.
func (tb table) lower(counted map[string]int) string {
	var b strings.Builder
	b.WriteString(tb.head)
	for _, name := range slices.Sorted(maps.Keys(counted)) {
		limit, known := tb.rows[name]
		if !known || counted[name] < limit.most {
			limit.most = counted[name]
		}
		fmt.Fprintf(&b, "%d\t%s", limit.most, name)
		if limit.note != "" {
			b.WriteString("\t" + limit.note)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (tb table) check(t *testing.T, file, advice string, counted map[string]int) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(tb.lower(counted)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, problem := range readTable(t, file).over(counted) {
		t.Errorf("%s\n%s", problem, advice)
	}
}

// TestSizes keeps each package within its row of testdata/sizes.txt.
func TestSizes(t *testing.T) {
	const file = "testdata/sizes.txt"
	counted := map[string]int{}
	walk(t, func(name string, data []byte) {
		folder := path.Dir(name)
		first, _, _ := strings.Cut(folder, "/")
		otherModule := slices.Contains([]string{"bench", "examples", "oracle"}, first)
		if otherModule || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") ||
			strings.Contains(name, "testdata/") {
			return
		}
		counted[folder] += bytes.Count(data, []byte("\n"))
	})
	if len(counted) < 10 {
		t.Fatalf("only %d packages were found", len(counted))
	}
	readTable(t, file).check(t, file, "Look for lines to remove first. "+
		"If the package must grow, raise its row by hand and say why in the commit (CONTRIBUTING.md).", counted)
}

// TestWords keeps phrases that read as translated from spreading (CONTRIBUTING.md,
// "Words"). A row of testdata/words.txt has the forms of a phrase, separated by |,
// and what to write instead.
func TestWords(t *testing.T) {
	const file = "testdata/words.txt"
	words := readTable(t, file)
	counted := map[string]int{}
	walk(t, func(name string, data []byte) {
		if !slices.Contains([]string{".go", ".md", ".txt", ".txtar", ".yaml"}, path.Ext(name)) ||
			name == "CONTRIBUTING.md" || strings.HasPrefix(name, "internal/imports/") {
			return // the dictionary names the phrases that it is about
		}
		text := strings.ToLower(string(data))
		for phrase := range words.rows {
			for form := range strings.SplitSeq(phrase, "|") {
				counted[phrase] += countWords(text, form)
			}
		}
	})
	words.check(t, file, "CONTRIBUTING.md has a dictionary: write it as Go's own documentation would.", counted)
}

// countWords counts where text has phrase as whole words.
func countWords(text, phrase string) (n int) {
	letter := func(at int) bool { return at >= 0 && at < len(text) && text[at] >= 'a' && text[at] <= 'z' }
	for at := 0; ; at += len(phrase) {
		next := strings.Index(text[at:], phrase)
		if next < 0 {
			return n
		}
		if at += next; !letter(at-1) && !letter(at+len(phrase)) {
			n++
		}
	}
}

func TestTables_Bite(t *testing.T) {
	tb, problem := parseTable("# head\n3\ta\tnote\n2\tb\n1\tgone\n")
	if problem != "" {
		t.Fatal(problem)
	}
	counted := map[string]int{"a": 4, "b": 1, "new": 7}
	if got := tb.over(counted); len(got) != 2 || !strings.Contains(got[0], "a: 4") || !strings.Contains(got[1], "new: 7") {
		t.Errorf("problems %q, want one about a and one about new", got)
	}
	if got, want := tb.lower(counted), "# head\n3\ta\tnote\n1\tb\n7\tnew\n"; got != want {
		t.Errorf("lowered to %q, want %q", got, want)
	}
	if got := countWords("mend, amend, mended (mend)", "mend"); got != 2 {
		t.Errorf("mend was counted %d times, want 2", got)
	}
	for _, bad := range []string{"x\ta\n", "3 a\n", "1\ta\n1\ta\n"} {
		if _, problem := parseTable(bad); problem == "" {
			t.Errorf("%q was read as a table", bad)
		}
	}
}
