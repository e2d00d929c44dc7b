package offline

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/guard"
)

// maxLines is the most lines of a file, and items of a list, in an answer.
const maxLines = 40

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
		} `json:"matches"`
	}
	output struct {
		ExitCode int    `json:"exit_code"`
		Stdout   string `json:"stdout"`
		Stderr   string `json:"stderr"`
	}
)

func writeText(t *turn, m []string) (string, error) {
	file := cmp.Or(fileIn(m[4]), m[4])
	var done struct{ Message string }
	_, err := t.call(writeFile, arguments{"path": file, "content": m[1] + m[2] + m[3]}, &done)
	return "Done: " + done.Message + ".", err
}

func runCommand(t *turn, m []string) (string, error) {
	command := m[1] + m[2] + m[3] // exactly one of the groups is not empty
	var out output
	if _, err := t.call(execShell, arguments{"command": command}, &out); err != nil {
		return "", err
	}
	text := fmt.Sprintf("`%s` ended with exit code %d", command, out.ExitCode)
	if shown := strings.TrimSpace(out.Stdout + out.Stderr); shown != "" {
		text += ":\n" + fence(shown)
	}
	return text, nil
}

// runTests runs the usual test command of a folder with such files.
func runTests(t *turn, _ []string) (string, error) {
	var l listing
	if _, err := t.call(listDirectory, arguments{"path": "."}, &l); err != nil {
		return "", err
	}
	command, usual := "", map[string]string{
		"Makefile": "make test", "Cargo.toml": "cargo test", "go.mod": "go test ./...", "package.json": "npm test",
		"pyproject.toml": "pytest",
	}
	for _, e := range l.Entries {
		command = cmp.Or(usual[e.Name], command)
	}
	if command == "" {
		return "", errors.New("tell me the command line itself, such as: run `go test ./...`")
	}
	return runCommand(t, []string{"", command, "", ""})
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
	word, _, _ := strings.Cut(strings.TrimSpace(m[1]), " ")
	word = strings.Trim(word, "\"'`“”.,;:?!()")
	for _, end := range []string{"ing", "ed", "es", "s"} {
		if short, ok := strings.CutSuffix(word, end); ok && len(short) >= 4 {
			word = short
			break
		}
	}
	if len(word) < 2 {
		return "", errors.New("tell me a word to look for")
	}
	var texts, names found
	_, err := t.call(searchFiles, arguments{
		"pattern": regexp.QuoteMeta(word), "case_insensitive": true, "names_only": true, "max_results": 200,
	}, &texts)
	_, other := t.call(searchFiles, arguments{"glob": "*" + word + "*", "max_results": 200}, &names)
	if err := errors.Join(err, other); err != nil {
		return "", err
	}
	var files []string
	for _, one := range slices.Concat(names.Matches, texts.Matches) {
		if !slices.Contains(files, one.Path) {
			files = append(files, one.Path)
		}
	}
	if len(files) == 0 {
		return fmt.Sprintf("No file has %q in its name or its text.", word), nil
	}
	return fmt.Sprintf("What a file is about I can only tell by its words. %q is in the name or the text of %s:\n%s",
		word, guard.Count(len(files), "file"), head("- "+strings.Join(files, "\n- "))), nil
}

func list(t *turn, _ []string) (string, error) {
	var l listing
	if _, err := t.call(listDirectory, arguments{"path": "."}, &l); err != nil {
		return "", err
	}
	var folders, files []string
	for _, e := range l.Entries {
		if e.IsDir {
			folders = append(folders, e.Name+"/")
		} else {
			files = append(files, fmt.Sprintf("%s (%s)", e.Name, guard.Count(int(e.Size), "byte")))
		}
	}
	if len(folders)+len(files) == 0 {
		return "There is nothing in this folder.", nil
	}
	return fmt.Sprintf("In this folder I found %s and %s:\n%s", guard.Count(len(folders), "folder"),
		guard.Count(len(files), "file"), head("- "+strings.Join(append(folders, files...), "\n- "))), nil
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
		fence(d.Content)), nil
}

func lines(text string) int { return len(slices.Collect(strings.Lines(text))) }

// head returns the first lines of a text.
func head(text string) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(all) <= maxLines {
		return strings.Join(all, "\n")
	}
	return strings.Join(all[:maxLines], "\n") + fmt.Sprintf("\n… %d more", len(all)-maxLines)
}

// fence returns the first lines of a text in a Markdown code block.
func fence(text string) string {
	marks := "```"
	for strings.Contains(text, marks) {
		marks += "`"
	}
	return marks + "\n" + head(text) + "\n" + marks
}
