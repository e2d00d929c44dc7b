package offline

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/guard"
)

// maxLines is the most items of a list in an answer.
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
	output struct {
		ExitCode int    `json:"exit_code"`
		Stdout   string `json:"stdout"`
		Stderr   string `json:"stderr"`
	}
)

func (t *turn) write(text, file string) (string, error) {
	var done struct{ Message string }
	_, err := t.call(writeFile, arguments{"path": cmp.Or(fileIn(file), file), "content": text}, &done)
	return "Done: " + done.Message + ".", err
}

func (t *turn) count(file string) (string, error) {
	if file == "" {
		return "", errors.New("tell me in which file I should count, such as: how many lines has README.md?")
	}
	var d document
	_, err := t.call(readFile, arguments{"path": file}, &d)
	n := len(slices.Collect(strings.Lines(d.Content)))
	return fmt.Sprintf("%s has %s.", file, guard.Count(n, "line")), err
}

func (t *turn) list() (string, error) {
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

// head returns the first lines of a text.
func head(text string) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(all) <= maxLines {
		return strings.Join(all, "\n")
	}
	return strings.Join(all[:maxLines], "\n") + fmt.Sprintf("\n… %d more", len(all)-maxLines)
}
