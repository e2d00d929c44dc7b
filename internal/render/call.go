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

// leading are the arguments that say most about a call; they are shown without
// their names, in this order.
func leading() []string {
	return []string{"path", "command", "url", "pattern", "query", "name", "ref"}
}

// Arguments shows the arguments of a call in one line of at most width columns. Of a path that is too long the name
// of the file stays.
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

// shortPath leaves out what is before the last name of a path that is wider than so many columns.
func shortPath(path string, width int) string {
	head, name := path[:strings.LastIndexByte(path, '/')+1], path[strings.LastIndexByte(path, '/')+1:]
	room := width - ansi.StringWidth(leftOut(len(head))+"/"+name)
	if len(path) <= width || room < 1 {
		return path
	}
	kept := ansi.Truncate(firstBytes(head, 16*room), room, "")
	return kept + leftOut(utf8.RuneCountInString(head)-utf8.RuneCountInString(kept)-1) + "/" + name
}

// ordered returns the fields of arguments, and their names in the order in which they
// are shown; nil if they are no object.
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

// Whole shows all arguments of a call: a text of several lines line by line, all else as
// JSON. Lines of a text are indented, so that none passes for a name.
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
		fmt.Fprintf(&b, "%s: %d lines", oneLine(name), strings.Count(body, "\n")+1)
		if !ends {
			b.WriteString(", the last without an end")
		}
		b.WriteString("\n  " + strings.ReplaceAll(body, "\n", "\n  ") + "\n")
	}
	return b.String()
}

// plainValue is a text without its quotes, anything else as its JSON.
func plainValue(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

// JSONOrText is what a person has typed as JSON: as it is if it is JSON, else a text.
func JSONOrText(text string) json.RawMessage {
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	raw, err := json.Marshal(text)
	if err != nil {
		return json.RawMessage(`""`) // a text has a JSON form always
	}
	return raw
}

// Indented returns JSON over several lines, visible; what is not JSON as it is.
func Indented(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return guard.Visible(string(raw))
	}
	return guard.Visible(b.String())
}

// ResultText is what a person wants to read of a result, without empty lines at its end.
func ResultText(content string, untrusted bool) string {
	if untrusted {
		content = unwrapped(content)
	}
	return strings.TrimRight(resultText(content), "\n")
}

// resultText is what a person wants to read of a result: the text inside of the
// usual envelopes, or the JSON.
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

// unwrapped takes away what is around untrusted data for a model's eyes
// (contract §7); a person sees it in the marks.
func unwrapped(content string) string {
	inner, ok := strings.CutPrefix(content, "<untrusted_input source=")
	if !ok {
		return content
	}
	if _, inner, ok = strings.Cut(inner, ">\n"); !ok {
		return content
	}
	if inner, ok = strings.CutSuffix(inner, "\n</untrusted_input>"); !ok {
		return content
	}
	return guard.WithoutCanary(inner)
}

// commandText is what a command wrote, as a terminal would show it, and its exit
// status where that is not 0.
func commandText(fields map[string]json.RawMessage) (string, bool) {
	var code int
	var stdout, stderr string
	if json.Unmarshal(fields["exit_code"], &code) != nil || json.Unmarshal(fields["stdout"], &stdout) != nil {
		return "", false
	}
	var parts []string
	var signal, warning string
	if code < 0 && json.Unmarshal(fields["signal"], &signal) == nil && signal != "" {
		parts = append(parts, "killed by signal: "+signal)
	} else if code < 0 && json.Unmarshal(fields["warning"], &warning) == nil && warning != "" {
		parts = append(parts, warning)
	} else if code != 0 {
		parts = append(parts, fmt.Sprintf("exit status %d", code))
	}
	if stdout = strings.TrimRight(stdout, "\n"); stdout != "" {
		parts = append(parts, stdout)
	}
	if raw, ok := fields["stderr"]; ok && json.Unmarshal(raw, &stderr) == nil && strings.TrimSpace(stderr) != "" {
		parts = append(parts, strings.TrimRight(stderr, "\n"))
	}
	return strings.Join(parts, "\n"), true
}

// listed is an element of a listing: of a folder, or of a search.
type listed struct {
	Name  string `json:"name"`
	IsDir bool   `json:"is_dir"`
	Path  string `json:"path"`
	Line  int    `json:"line"`
	Text  string `json:"text"`
}

// listText writes a listing as people expect it, one element a line.
func listText(raw json.RawMessage) (string, bool) {
	var list []listed
	if len(raw) == 0 || json.Unmarshal(raw, &list) != nil {
		return "", false
	}
	lines := make([]string, len(list))
	for i, e := range list {
		switch {
		case e.Name != "" && e.IsDir:
			lines[i] = e.Name + "/"
		case e.Name != "":
			lines[i] = e.Name
		case e.Path != "" && e.Line > 0:
			lines[i] = fmt.Sprintf("%s:%d: %s", e.Path, e.Line, strings.TrimSpace(e.Text))
		case e.Path != "":
			lines[i] = e.Path
		default:
			return "", false
		}
	}
	for i := range lines {
		lines[i] = oneLine(lines[i]) // a name with an end of line in it is one name
	}
	return strings.Join(lines, "\n"), true
}

// foldedLines is how many lines of a result are shown where it is folded.
const foldedLines = 4

// Fold shows a result in a few indented lines; most < 1 shows all of it. more says how the rest is shown; "" = nothing.
func (s Style) Fold(r journal.ResultView, most int, more string) string {
	var b strings.Builder
	text := ResultText(r.Content, r.Untrusted)
	if r.Status == toolcrib.ResultRefused {
		text = strings.TrimPrefix(text, string(r.Reason)+": ") // its head names it
	}
	lines := strings.Split(text, "\n")
	if text == "" || text == string(r.Status) { // cancelled: cancelled
		lines = nil
	}
	shown := len(lines)
	if most > 0 && !IsPlan(r.Name, r.Status) {
		shown = min(shown, most)
	}
	head, end := s.outcome(r), tail(r, len(lines)-shown, more)
	if 1 < most && shown < len(lines) && listsNames(r) {
		lines, shown, end = []string{s.namesRow(r, lines, more)}, 1, ""
	} else if len(lines) == 1 && end != "" && ansi.StringWidth(lines[0]+head+end) < s.width()-10 {
		lines[0], end = lines[0]+" · "+end, ""
	}
	lead := "  └ "
	for i, l := range lines[:shown] {
		l = strings.ReplaceAll(guard.Visible(l), "\t", "    ")
		room, broken := s.width()-5, ansi.Hardwrap
		if i == 0 && head != "" { // a sentence, over two rows
			room, broken = 2*room-ansi.StringWidth(head)-2, wrapped
		}
		if most > 0 {
			l = cutLine(l, room)
		}
		if l = s.tone(r, l); i == 0 && head != "" {
			l = head + ": " + l
		}
		// No row begins where this program's own do.
		l = strings.ReplaceAll(broken(l, s.columns()-4, true), "\n", "\n    ")
		b.WriteString(strings.TrimRight(lead+l, " ") + "\n")
		lead = "    "
	}
	if shown == 0 {
		b.WriteString(lead + cmp.Or(head, s.Dim("(empty)")) + "\n")
	}
	if end != "" {
		fmt.Fprintf(&b, "    %s\n", s.Dim(end))
	}
	return b.String()
}

// listsNames reports whether a result lists what is in a folder.
func listsNames(r journal.ResultView) bool {
	var fields struct{ Entries []struct{ Name string } }
	return json.Unmarshal([]byte(r.Content), &fields) == nil && len(fields.Entries) > 0 && fields.Entries[0].Name != ""
}

// namesRow puts names into one row, and says how many have no room in it.
func (s Style) namesRow(r journal.ResultView, names []string, more string) string {
	row, n := names[0], 1
	for n < len(names) && ansi.StringWidth(row+"  "+names[n]+tail(r, len(names)-n, more)) < s.width()-8 {
		row, n = row+"  "+names[n], n+1
	}
	return row + "  " + tail(r, len(names)-n, more)
}

func wrapped(text string, width int, _ bool) string { return strings.Join(Wrap(text, width), "\n") }

// outcome names everything but success.
func (s Style) outcome(r journal.ResultView) string {
	switch r.Status {
	case toolcrib.ResultOK:
		return ""
	case toolcrib.ResultRefused:
		return s.Yellow(fmt.Sprintf("refused (%s)", guard.Visible(string(r.Reason))))
	case toolcrib.ResultError:
		return s.Red("error")
	}
	return s.Red(guard.Visible(string(r.Status)))
}

func (s Style) tone(r journal.ResultView, text string) string {
	if r.Status == toolcrib.ResultOK {
		return s.Dim(text)
	}
	return text
}

// tail is what is to be said after what is shown of a result, of which so many lines are left out.
func tail(r journal.ResultView, left int, more string) string {
	var parts []string
	if left > 0 {
		parts = append(parts, "… "+Count(left, "more line"))
	}
	if r.Truncated {
		parts = append(parts, "cut")
	}
	if r.Untrusted {
		parts = append(parts, "untrusted")
	}
	// What took no time to speak of needs no word about it.
	if r.DurationMS >= 100 {
		parts = append(parts, Duration(time.Duration(r.DurationMS)*time.Millisecond))
	}
	return joined(" · ", append(parts, more)...)
}

// Duration writes a span as people say it: 80ms, 3.2s, 2m05s, 1h02m.
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

// previewRows is how many rows a line of a preview has until all of it is asked for.
const previewRows = 4

// Preview shows what a call would change; of long lines both ends, unless whole.
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
	lines := strings.Split(text, "\n")
	var b strings.Builder
	for _, l := range lines {
		if !whole {
			l = cut(blanks(guard.Visible(l), blanksInRow), previewRows*(s.width()-5), true)
		}
		first := true
		b.WriteString(s.quoted(l, func(row string) string {
			if !first {
				return row // what it begins with says nothing
			}
			first = false
			return tone(row)
		}))
	}
	return b.String()
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
