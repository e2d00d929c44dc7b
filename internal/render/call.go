package render

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// leading returns the names of the most important arguments, which are shown first, in this order
// and without their names.
func leading() []string {
	return []string{"path", "command", "url", "pattern", "query", "name", "ref"}
}

// Arguments formats the arguments of a call as one line of at most width columns. If a path is too long, folders
// in its middle are left out.
func Arguments(arguments json.RawMessage, width int) string {
	fields, names := ordered(arguments)
	if fields == nil {
		return middle(plainValue(arguments), width)
	}
	room := width
	if len(names) > 1 {
		room = (width - len(leftOut(1000))) * 2 / 3 // what [cut] leaves of the beginning
	}
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = plainValue(fields[name])
		if name == "path" && len(arguments) > width {
			parts[i] = shortPath(parts[i], room)
		}
		if !slices.Contains(leading(), name) {
			parts[i] = name + "=" + parts[i]
		}
	}
	return middle(strings.Join(parts, " "), width)
}

// shortPath leaves out the folders of a path that is wider than width columns.
func shortPath(path string, width int) string {
	head, name := path[:strings.LastIndexByte(path, '/')+1], path[strings.LastIndexByte(path, '/')+1:]
	room := width - ansi.StringWidth(leftOut(len(head))+"/"+name)
	if ansi.StringWidth(path) <= width || room < 1 {
		return path
	}
	kept := ansi.Truncate(firstBytes(head, 16*room), room, "")
	if len(kept) >= len(head)-1 {
		return path
	}
	return kept + leftOut(utf8.RuneCountInString(head)-utf8.RuneCountInString(kept)-1) + "/" + name
}

// ordered returns the fields of arguments, and their names in the order in which they are shown.
// Both are nil if the arguments are not an object.
func ordered(arguments json.RawMessage) (fields map[string]json.RawMessage, names []string) {
	if json.Unmarshal(arguments, &fields) != nil {
		return nil, nil
	}
	for _, name := range leading() {
		if _, ok := fields[name]; ok {
			names = append(names, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return fields, names
}

// Whole formats all arguments of a call: texts of several lines as lines, other values as JSON.
// The lines are indented, so that they cannot be mistaken for names.
func Whole(arguments json.RawMessage) string {
	fields, names := ordered(arguments)
	if len(names) == 0 {
		return Indented(arguments)
	}
	var b strings.Builder
	for _, name := range names {
		var text string
		if json.Unmarshal(fields[name], &text) != nil || !strings.Contains(strings.TrimSuffix(text, "\n"), "\n") {
			fmt.Fprintf(&b, "%s: %s\n", oneLine(name), strings.ReplaceAll(Indented(fields[name]), "\n", "\n  "))
			continue
		}
		body, ends := strings.CutSuffix(text, "\n")
		fmt.Fprintf(&b, "%s: %d lines%s\n  %s\n", oneLine(name), strings.Count(body, "\n")+1,
			when(!ends, ", the last without an end"), strings.ReplaceAll(body, "\n", "\n  "))
	}
	return b.String()
}

// plainValue returns a string without its quotes, and other values as JSON.
func plainValue(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

// JSONOrText returns text if it is JSON, and otherwise text as a JSON string.
func JSONOrText(text string) json.RawMessage {
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	raw, _ := json.Marshal(text) // a string can always be marshaled
	return raw
}

// Indented returns indented JSON, or raw if it is not JSON, passed through [guard.Visible].
func Indented(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return guard.Visible(string(raw))
	}
	return guard.Visible(b.String())
}

// ResultText returns the text of a result for a person, without empty lines at its end.
func ResultText(content string, untrusted bool) string {
	if untrusted {
		content = unwrapped(content)
	}
	return strings.TrimRight(resultText(content), "\n")
}

// resultText returns the text of a result: that in the JSON objects of known tools, or content.
func resultText(content string) string {
	var fields map[string]json.RawMessage
	if !strings.HasPrefix(content, "{") || json.Unmarshal([]byte(content), &fields) != nil {
		var text string
		if strings.HasPrefix(content, `"`) && json.Unmarshal([]byte(content), &text) == nil {
			return text
		}
		return content
	}
	named := false
	for _, name := range []string{"error", "content", "message"} {
		var text string
		if raw, ok := fields[name]; ok && json.Unmarshal(raw, &text) == nil {
			if named = true; text != "" {
				return text
			}
		}
	}
	if named {
		return ""
	}
	if text, ok := commandText(fields); ok {
		return text
	}
	for _, name := range []string{"entries", "matches"} {
		if text, ok := listText(fields[name]); ok {
			return text
		}
	}
	return content
}

// unwrapped removes the fence around untrusted data, which is for models; people see a mark
// instead.
func unwrapped(content string) string {
	head, inner, _ := strings.Cut(content, ">\n")
	inner, ends := strings.CutSuffix(inner, "\n</untrusted_input>")
	if !ends || !strings.HasPrefix(head, "<untrusted_input source=") {
		return content
	}
	return guard.WithoutCanary(inner)
}

// commandText returns the output of a command as a terminal would show it, after its exit status
// unless that is 0.
func commandText(fields map[string]json.RawMessage) (string, bool) {
	var code int
	var stdout, stderr, signal, warning, status string
	if json.Unmarshal(fields["exit_code"], &code) != nil || json.Unmarshal(fields["stdout"], &stdout) != nil {
		return "", false
	}
	for name, text := range map[string]*string{"stderr": &stderr, "signal": &signal, "warning": &warning} {
		_ = json.Unmarshal(fields[name], text) // not all results have them
	}
	switch {
	case code < 0 && cmp.Or(signal, warning) != "":
		status = cmp.Or(around("killed by signal: ", signal, ""), warning)
	case code != 0:
		status = fmt.Sprintf("exit status %d", code)
	}
	stderr = when(strings.TrimSpace(stderr) != "", strings.TrimRight(stderr, "\n"))
	return joined("\n", status, strings.TrimRight(stdout, "\n"), stderr), true
}

// listed is an element of a list of files or of search results.
type listed struct {
	Name  string `json:"name"`
	IsDir bool   `json:"is_dir"`
	Path  string `json:"path"`
	Line  int    `json:"line"`
	Text  string `json:"text"`
}

// listText formats a list with one element per line.
func listText(raw json.RawMessage) (string, bool) {
	var list []listed
	if len(raw) == 0 || json.Unmarshal(raw, &list) != nil {
		return "", false
	}
	lines := make([]string, len(list))
	for i, e := range list {
		switch {
		case e.Name != "":
			lines[i] = e.Name + when(e.IsDir, "/")
		case e.Path != "" && e.Line > 0:
			lines[i] = fmt.Sprintf("%s:%d: %s", e.Path, e.Line, strings.TrimSpace(e.Text))
		case e.Path != "":
			lines[i] = e.Path
		default:
			return "", false
		}
		lines[i] = oneLine(lines[i]) // a name may contain line breaks
	}
	return strings.Join(lines, "\n"), true
}

// foldedLines is how many lines of a folded result are shown: its beginning and its end.
const foldedLines = 4

// Fold formats a result as at most most indented lines, or completely if most < 1. Of more than one line the beginning
// and the end are shown. more, if not "", says how to see the rest.
func (s Style) Fold(r journal.ResultView, most int, more string) string {
	var b strings.Builder
	text := ResultText(r.Content, r.Untrusted)
	if r.Status == toolcrib.ResultRefused {
		text = strings.TrimPrefix(text, string(r.Reason)+": ") // the head has the reason
	}
	lines := strings.Split(text, "\n")
	if text == "" || text == string(r.Status) { // not "cancelled: cancelled"
		lines = nil
	}
	shown := len(lines)
	if most > 0 && !IsPlan(r.Name, r.Status) {
		shown = min(shown, most)
	}
	head, end := s.outcome(r), tail(r, len(lines)-shown, more)
	ending := 0 // lines after the note
	if 1 < most && shown < len(lines) && listsNames(r) {
		lines, shown, end = []string{s.namesRow(r, lines, more)}, 1, ""
	} else if shown < len(lines) {
		ending = shown / 2
		lines = slices.Concat(lines[:shown-ending], lines[len(lines)-ending:])
	} else if len(lines) == 1 && end != "" && ansi.StringWidth(lines[0]+head+end) < s.width()-10 {
		lines[0], end = lines[0]+" · "+end, ""
	}
	note := func() {
		if end != "" {
			fmt.Fprintf(&b, "    %s\n", s.Dim(end))
		}
	}
	lead := "  └ "
	for i, l := range lines[:shown] {
		if ending > 0 && i == shown-ending {
			note()
		}
		l = strings.ReplaceAll(guard.Visible(l), "\t", "    ")
		room, broken := s.width()-5, ansi.Hardwrap
		if i == 0 && head != "" { // a sentence, which gets two rows
			room, broken = 2*room-ansi.StringWidth(head)-2, wrapped
		}
		if most > 0 {
			l = cutLine(l, room)
		}
		if r.Status == toolcrib.ResultOK {
			l = s.Dim(l)
		} else if i == 0 && head != "" {
			l = head + ": " + l
		}
		// No row begins at the margin, where those of this program do.
		l = strings.ReplaceAll(broken(l, s.columns()-4, true), "\n", "\n    ")
		b.WriteString(strings.TrimRight(lead+l, " ") + "\n")
		lead = "    "
	}
	if shown == 0 {
		b.WriteString(lead + cmp.Or(head, s.Dim("(empty)")) + "\n")
	}
	if ending == 0 {
		note()
	}
	return b.String()
}

// listsNames reports whether a result lists a folder.
func listsNames(r journal.ResultView) bool {
	var fields struct{ Entries []struct{ Name string } }
	return json.Unmarshal([]byte(r.Content), &fields) == nil && len(fields.Entries) > 0 && fields.Entries[0].Name != ""
}

// namesRow puts names into one row, with the number of those that do not fit.
func (s Style) namesRow(r journal.ResultView, names []string, more string) string {
	row, n := names[0], 1
	for n < len(names) && ansi.StringWidth(row+"  "+names[n]+tail(r, len(names)-n, more)) < s.width()-8 {
		row, n = row+"  "+names[n], n+1
	}
	return row + "  " + tail(r, len(names)-n, more)
}

func wrapped(text string, width int, _ bool) string { return strings.Join(Wrap(text, width), "\n") }

// outcome returns the status of a result, or "" for success.
func (s Style) outcome(r journal.ResultView) string {
	switch r.Status {
	case toolcrib.ResultOK:
		return ""
	case toolcrib.ResultRefused:
		return s.Yellow(fmt.Sprintf("refused (%s)", guard.Visible(string(r.Reason))))
	}
	return s.Red(guard.Visible(string(r.Status)))
}

// shortDuration is the time from which a duration is worth mentioning, in milliseconds.
const shortDuration = 100

// tail returns the note after a result of which left lines are left out.
func tail(r journal.ResultView, left int, more string) string {
	took := Duration(time.Duration(r.DurationMS) * time.Millisecond)
	return joined(" · ", when(left > 0, "… "+Count(left, "more line")), when(r.Truncated, "cut"),
		when(r.Untrusted, "untrusted"), when(r.DurationMS >= shortDuration, took), more)
}

// Duration formats a duration as 80ms, 3.2s, 2m05s or 1h02m.
func Duration(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", max(d.Milliseconds(), 0))
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}

// previewRows bounds the rows of a line of a preview, unless the whole preview is shown.
const previewRows = 4

// Preview formats the preview of a call. If whole is false, long lines are cut in the middle.
func (s Style) Preview(p *toolcrib.Preview, whole bool) string {
	if p == nil || strings.TrimRight(p.Text, "\n") == "" {
		return ""
	}
	tone := func(l string) string { return l }
	text := strings.TrimRight(p.Text, "\n")
	if p.Kind == "diff" {
		tone = s.diffLine
		if rest, ok := strings.CutPrefix(text, "--- /dev/null\n+++ b/"); ok && !whole {
			name, rest, _ := strings.Cut(rest, "\n")
			_, rest, _ = strings.Cut(rest, "\n")
			text = "new file " + name + "\n" + rest
		}
	}
	if !whole {
		lines := strings.Split(text, "\n")
		for i, l := range lines {
			lines[i] = cut(blanks(guard.Visible(l), blanksInRow), previewRows*(s.width()-5), true)
		}
		text = strings.Join(lines, "\n")
	}
	return s.quoted(text, tone)
}

func (s Style) diffLine(l string) string {
	switch {
	case strings.HasPrefix(l, "+++"), strings.HasPrefix(l, "---"), strings.HasPrefix(l, "new file "):
		return s.Bold(l)
	case strings.HasPrefix(l, "@@"):
		return s.Cyan(l)
	case strings.HasPrefix(l, "+"):
		return s.Green(l)
	case strings.HasPrefix(l, "-"):
		return s.Red(l)
	}
	return l
}
