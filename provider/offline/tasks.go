package offline

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/guard"
)

// Most lines of a file, and items of a list, in an answer.
const (
	maxLines = 40
	maxItems = 12
)

// Results of the file tools and the shell.
type (
	document struct {
		Content string `json:"content"`
	}
	listing struct {
		Entries []struct {
			Name  string `json:"name"`
			IsDir bool   `json:"is_dir"`
			Size  int64  `json:"size"`
		} `json:"entries"`
	}
	found struct {
		Matches []struct {
			Path string `json:"path"`
			Line int    `json:"line"`
			Text string `json:"text"`
		} `json:"matches"`
	}
	output struct {
		ExitCode int    `json:"exit_code"`
		Stdout   string `json:"stdout"`
		Stderr   string `json:"stderr"`
	}
)

func replaceText(t *turn, m []string) (string, error) {
	file := cmp.Or(fileIn(m[7]), m[7])
	old, replacement := m[1]+m[2]+m[3], m[4]+m[5]+m[6]
	var done json.RawMessage
	_, err := t.call(editFile, arguments{"path": file, "old_text": old, "new_text": replacement}, &done)
	return fmt.Sprintf("Done: in %s, %q is now %q.", file, old, replacement), err
}

func writeText(t *turn, m []string) (string, error) {
	file := cmp.Or(fileIn(m[4]), m[4])
	var done struct{ Message string }
	_, err := t.call(writeFile, arguments{"path": file, "content": m[1] + m[2] + m[3]}, &done)
	return "Done: " + done.Message + ".", err
}

func runCommand(t *turn, m []string) (string, error) {
	command := strings.TrimSpace(strings.Join(m[1:], "")) // exactly one of the groups is not empty
	if strings.HasPrefix(strings.ToLower(command), "the ") {
		return "", errors.New("tell me the command line itself, such as: run `go test ./...`")
	}
	var out output
	if _, err := t.call(execShell, arguments{"command": command}, &out); err != nil {
		return "", err
	}
	text := fmt.Sprintf("`%s` ended with exit code %d", command, out.ExitCode)
	if shown := strings.TrimSpace(out.Stdout + out.Stderr); shown != "" {
		text += ":\n" + fence(head(shown, maxLines))
	}
	return text, nil
}

// runTests runs the usual test command of a folder with such files.
func runTests(t *turn, _ []string) (string, error) {
	var l listing
	if _, err := t.call(listDirectory, arguments{"path": "."}, &l); err != nil {
		return "", err
	}
	command, usual := "the tests", map[string]string{
		"Makefile": "make test", "Cargo.toml": "cargo test", "go.mod": "go test ./...", "package.json": "npm test",
		"pyproject.toml": "pytest",
	}
	for _, e := range l.Entries {
		command = cmp.Or(usual[e.Name], command)
	}
	return runCommand(t, []string{"", command})
}

func countIn(t *turn, m []string) (string, error) {
	file := fileIn(m[1])
	if file == "" {
		return "", errors.New("tell me in which file I should count, such as: how many lines has README.md?")
	}
	var d document
	cut, err := t.call(readFile, arguments{"path": file}, &d)
	if err != nil {
		return "", err
	}
	atLeast := ""
	if cut {
		atLeast = "at least "
	}
	return fmt.Sprintf("%s has %s%s.", file, atLeast, guard.Count(lines(d.Content), "line")), nil
}

// filesAbout searches for a word, also in other forms, in names and texts.
func filesAbout(t *turn, m []string) (string, error) {
	word := topic(m[1])
	if len(word) < 2 {
		return "", errors.New("tell me a word to look for")
	}
	stem := word
	for _, end := range []string{"ing", "ed", "es", "s"} {
		if short, ok := strings.CutSuffix(word, end); ok && len(short) >= 4 {
			stem = short
			break
		}
	}
	var texts, names found
	_, err := t.call(searchFiles, arguments{
		"pattern": regexp.QuoteMeta(stem), "case_insensitive": true, "names_only": true, "max_results": 200,
	}, &texts)
	_, other := t.call(searchFiles, arguments{"glob": "*" + anyCase(stem) + "*", "max_results": 200}, &names)
	if err := errors.Join(err, other); err != nil {
		return "", err
	}
	inName, inText := names.paths(), texts.paths()
	inText = slices.DeleteFunc(inText, func(p string) bool { return slices.Contains(inName, p) })
	if len(inName)+len(inText) == 0 {
		return fmt.Sprintf("No file has %q in its name or its text.", stem), nil
	}
	var places []string
	if len(inName) > 0 {
		places = append(places, fmt.Sprintf(" in the name of %s:\n%s", guard.Count(len(inName), "file"), bullets(inName)))
	}
	if len(inText) > 0 {
		places = append(places, fmt.Sprintf(" in the text of %s:\n%s", guard.Count(len(inText), "file"), bullets(inText)))
	}
	return fmt.Sprintf("What a file is about I can only tell by its words. %q is%s", stem,
		strings.Join(places, "\nand")), nil
}

func find(t *turn, m []string) (string, error) {
	word := topic(m[1])
	if word == "" {
		return "", errors.New("tell me what to look for")
	}
	var f found
	if _, err := t.call(searchFiles, arguments{"pattern": regexp.QuoteMeta(word), "max_results": 100}, &f); err != nil {
		return "", err
	}
	if len(f.Matches) == 0 {
		return fmt.Sprintf("No file has %q in its text.", word), nil
	}
	var places []string
	for _, one := range f.Matches {
		places = append(places, fmt.Sprintf("%s:%d: `%s`", one.Path, one.Line, shorten(one.Text)))
	}
	return fmt.Sprintf("%q is in %s:\n%s", word, guard.Count(len(places), "line"), bullets(places)), nil
}

// overview shows the folder and the first paragraph of its README.
func overview(t *turn, _ []string) (string, error) {
	var l listing
	if _, err := t.call(listDirectory, arguments{"path": "."}, &l); err != nil {
		return "", err
	}
	for _, e := range l.Entries {
		if e.IsDir || !strings.HasPrefix(strings.ToLower(e.Name), "readme") {
			continue
		}
		var d document
		if _, err := t.call(readFile, arguments{"path": e.Name}, &d); err != nil {
			return "", err
		}
		for p := range strings.SplitSeq(d.Content, "\n\n") {
			if p = strings.TrimSpace(p); p != "" && !strings.ContainsAny(p[:1], "#[!<=-*>`|") {
				p = strings.ReplaceAll(p, "\n", "\n> ")
				return fmt.Sprintf("I can only quote. %s begins:\n> %s\n\n%s", e.Name, p, l.describe(".")), nil
			}
		}
	}
	return "I found no README to quote.\n\n" + l.describe("."), nil
}

func list(t *turn, m []string) (string, error) {
	folder := m[1]
	switch folder {
	case "", "files", "here", "it", "this", "all":
		folder = "."
	default:
		if strings.Contains(path.Base(folder), ".") {
			return show(t, m)
		}
	}
	var l listing
	_, err := t.call(listDirectory, arguments{"path": folder}, &l)
	return l.describe(folder), err
}

func show(t *turn, m []string) (string, error) {
	file := fileIn(m[0])
	if file == "" {
		return "", errors.New("tell me the name of a file, such as: show me README.md")
	}
	var d document
	cut, err := t.call(readFile, arguments{"path": file}, &d)
	if err != nil {
		return "", err
	}
	more := ""
	if cut {
		more = ", and more"
	}
	return fmt.Sprintf("%s (%s%s):\n%s", file, guard.Count(lines(d.Content), "line"), more,
		fence(head(d.Content, maxLines))), nil
}

func (l listing) describe(folder string) string {
	var folders, files []string
	for _, e := range l.Entries {
		if e.IsDir {
			folders = append(folders, e.Name+"/")
		} else {
			files = append(files, fmt.Sprintf("%s (%s)", e.Name, guard.Count(int(e.Size), "byte")))
		}
	}
	if folder == "." {
		folder = "this folder"
	}
	if len(folders)+len(files) == 0 {
		return "There is nothing in " + folder + "."
	}
	return fmt.Sprintf("In %s I found %s and %s:\n%s", folder,
		guard.Count(len(folders), "folder"), guard.Count(len(files), "file"),
		head("- "+strings.Join(append(folders, files...), "\n- "), maxLines))
}

func (f found) paths() (paths []string) {
	for _, m := range f.Matches {
		paths = append(paths, m.Path)
	}
	return slices.Compact(paths)
}

// topic returns the subject of a clause: the text in quotes, or its first word.
func topic(text string) string {
	text = strings.TrimSpace(text)
	if text == "" {
		return ""
	}
	if i := strings.IndexAny(text, "\"'`“"); i >= 0 {
		rest := strings.TrimLeft(text[i:], "\"'`“")
		if j := strings.IndexAny(rest, "\"'`”"); j > 0 {
			return rest[:j]
		}
	}
	return strings.Trim(strings.Fields(text)[0], ".,;:?!()")
}

// anyCase returns a glob that ignores the case of ASCII letters.
func anyCase(word string) string {
	var b strings.Builder
	for _, r := range word {
		lower, upper := strings.ToLower(string(r)), strings.ToUpper(string(r))
		switch {
		case lower != upper:
			b.WriteString("[" + lower + upper + "]")
		case strings.ContainsRune(`*?[]{}\`, r):
			b.WriteString(`\` + string(r))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func lines(text string) int { return len(slices.Collect(strings.Lines(text))) }

func head(text string, n int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(all) <= n {
		return strings.Join(all, "\n")
	}
	return strings.Join(all[:n], "\n") + fmt.Sprintf("\n… %d more", len(all)-n)
}

func bullets(items []string) string {
	return "- " + strings.ReplaceAll(head(strings.Join(items, "\n"), maxItems), "\n", "\n- ")
}

// fence returns text in a Markdown code block.
func fence(text string) string {
	marks := "```"
	for strings.Contains(text, marks) {
		marks += "`"
	}
	return marks + "\n" + strings.TrimRight(text, "\n") + "\n" + marks
}
