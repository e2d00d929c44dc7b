package offline

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
)

// note is the only file that the tour writes: a new one, or one that it wrote before.
const (
	note     = "toolcrib-note.md"
	noteText = "Look %d of the offline model: %s."
)

// noteLine matches the text of the note.
var noteLine = lazyregexp.New(`(?m)^Look (\d{1,6}) of the offline model: .*$`)

// plainName matches the name of a file that needs no quotes in a command line.
var plainName = lazyregexp.New(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)

// tour shows toolcrib in any folder: it lists the folder, counts the lines of
// one file with a command, and leaves a note, about which a person is asked. Without a
// person it does only the part that reads.
func tour(t *turn, m []string) (string, error) {
	var l listing
	cut, err := t.call(listDirectory, arguments{"path": "."}, &l)
	switch {
	case errors.Is(err, errPending):
		return "", err
	case cut:
		err = nil // more than fits one result
	case err != nil:
		return "", err
	}
	file, hasNote := "", false
	folders, files := 0, 0
	for _, e := range l.Entries {
		switch {
		case e.IsDir:
			folders++
		case e.Name == note:
			hasNote = true
		default:
			files++
			readme := strings.HasPrefix(strings.ToLower(e.Name), "readme")
			if plainName.MatchString(e.Name) && (readme || file == "") {
				file = e.Name
			}
		}
	}
	seen := fmt.Sprintf("%s and %s", guard.Count(folders, "folder"), guard.Count(files, "file"))
	if cut {
		seen = "more than I can list"
	}
	var before document
	var counted output
	var errNote error
	if hasNote {
		_, errNote = t.call(readFile, arguments{"path": note}, &before)
	}
	if _, ok := t.offered[execShell]; ok && file != "" {
		_, err = t.call(execShell, arguments{"command": "wc -l " + file}, &counted)
	}
	if errors.Is(err, errPending) || errors.Is(errNote, errPending) {
		return "", errPending
	}
	var n int
	if _, bad := fmt.Sscan(counted.Stdout, &n); bad == nil && err == nil && counted.ExitCode == 0 {
		seen += "; " + file + " has " + guard.Count(n, "line")
	}
	text := "Here I found " + seen + "."
	if !strings.Contains(strings.ToLower(m[0]), "note") {
		return text + t.lookBack(), nil
	}
	told, err := t.leaveNote(seen, before.Content, hasNote, errNote)
	return text + " " + told + t.lookBack(), err
}

// leaveNote writes a summary into a file of its own, if a person can be asked.
func (t *turn) leaveNote(seen, before string, exists bool, unread error) (string, error) {
	seen = strings.NewReplacer(" and ", ", ", " has ", ": ").Replace(seen) // one row of a terminal
	tool, a := writeFile, arguments{"path": note, "content": fmt.Sprintf(noteText+"\n", 1, seen)}
	if exists {
		old := noteLine.FindStringSubmatch(before)
		if unread != nil || old == nil {
			return "I left no note: " + note + " is not mine.", nil
		}
		looks, _ := strconv.Atoi(old[1])
		tool = editFile
		a = arguments{"path": note, "old_text": old[0], "new_text": fmt.Sprintf(noteText, looks+1, seen)}
	}
	if _, ok := t.offered[tool]; !ok {
		return "I left no note: no tool that writes is offered to me here.", nil
	}
	if t.Alone && t.taken == len(t.results) {
		return "I left no note: there is no terminal on which you could allow it.", nil
	}
	var done json.RawMessage
	_, err := t.call(tool, a, &done)
	switch {
	case errors.Is(err, errPending):
		return "", err
	case err != nil:
		return "I left no note: " + err.Error() + ".", nil
	}
	return "I noted that in " + note + "; to undo it, remove that file.", nil
}

// lookBack returns the commands that show the run, and why a call is allowed, asked about or
// refused, and who answers.
func (t *turn) lookBack() string {
	self := cmp.Or(t.Command, "toolcrib")
	return fmt.Sprintf("\n- what happened: `%s runs show last`\n- why writing asks: `%s tools explain %s`"+
		"\n- who answers: the %s, a few rules, not a language model", self, self, writeFile, signature)
}
