package render

import (
	"cmp"
	"html"
	"slices"
	"strings"
	"unicode/utf8"

	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"
	"github.com/charmbracelet/x/ansi"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
)

const (
	// MaxProse is the width at which prose is wrapped on wide terminals: longer lines are hard to read.
	MaxProse = 100
	// maxLine bounds a line, and maxTable and maxColumns bound a table, that is held back until it is
	// complete, because held text is not visible.
	maxLine    = 4 << 10
	maxTable   = 200
	maxColumns = 50
)

// Markdown renders a text in Markdown line by line as it arrives, with the terminal's sixteen colors. Only fenced code
// and tables span lines; everything else is recognized from its own line, so that a text can be shown while it is
// written. Without Color, marks are kept.
type Markdown struct {
	Color    bool
	line     string   // the last line, which may continue
	fence    string   // the closing fence of the current code block, or ""
	language string   // language of the code block
	table    []string // rows of a table that may continue
}

// Write adds text. It returns the rows that are complete, of at most width columns; an empty row is a gap. Single words
// and rows of a table may be wider.
func (m *Markdown) Write(text string, width int) (rows []string) {
	m.line += text
	for {
		n := strings.IndexByte(m.line, '\n')
		if n < 0 && len(m.line) <= maxLine {
			return rows
		}
		rest := n + 1
		if n < 0 || n > maxLine {
			for n = maxLine; !utf8.RuneStart(m.line[n]) && n > maxLine-utf8.UTFMax; {
				n--
			}
			n = cmp.Or(strings.LastIndexByte(m.line[:n], ' ')+1, n)
			rest = n
		}
		var line string
		line, m.line = m.line[:n], m.line[rest:]
		rows = append(rows, m.next(line, width)...)
	}
}

// End ends the text, and returns the rest of its rows.
func (m *Markdown) End(width int) (rows []string) {
	if m.line != "" {
		rows = m.Write("\n", width)
	}
	rows = append(rows, m.ended(width)...)
	*m = Markdown{Color: m.Color}
	return rows
}

// Held returns the text that is held back, as it came.
func (m *Markdown) Held() string { return strings.Join(append(slices.Clone(m.table), m.line), "\n") }

// Beginnings of lines. A list keeps its indent.
var (
	fenceLine   = lazyregexp.New("^\\s*(`{3,}|~{3,})\\s*([^\\s`]*)[^`]*$")
	headingLine = lazyregexp.New(`^(#{1,6})\s+(.*?)[\s#]*$`)
	ruleLine    = lazyregexp.New(`^\s*([-*_]\s*){3,}$`)
	itemLine    = lazyregexp.New(`^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$`)
	underHead   = lazyregexp.New(`^\|?[\s:|-]*-[\s:|-]*$`)
)

// next returns the rows of the next line. Rows of a table are held back until the table ends.
func (m *Markdown) next(src string, width int) []string {
	if src = strings.TrimRight(src, "\r"); m.fence == "" {
		src = Prose(src)
	}
	src, width = strings.TrimRight(spaced(src), " "), max(width, 10)
	if m.fence != "" {
		if end := strings.TrimSpace(src); strings.HasPrefix(end, m.fence) && strings.Trim(end, m.fence[:1]) == "" {
			m.fence = ""
			return nil
		}
		return m.code(src, width)
	}
	if strings.HasPrefix(strings.TrimSpace(src), "|") && len(m.table) < maxTable {
		m.table = append(m.table, src)
		return nil
	}
	rows := m.ended(width)
	if found := fenceLine.FindStringSubmatch(src); found != nil {
		m.fence, m.language = found[1], found[2]
		return rows
	}
	return append(rows, m.prose(src, min(width, MaxProse))...)
}

// ended returns the rows of a table that ends.
func (m *Markdown) ended(width int) (rows []string) {
	table := m.table
	m.table = nil
	if len(table) > 1 && underHead.MatchString(table[1]) {
		return m.columns(table, width)
	}
	for _, row := range table {
		rows = append(rows, m.prose(row, min(width, MaxProse))...)
	}
	return rows
}

// prose returns the rows of a line that is not code.
func (m *Markdown) prose(src string, width int) []string {
	first, style := "", ""
	for quoted := false; len(first) < width && strings.HasPrefix(strings.TrimLeft(src, " "), ">"); quoted = true {
		if src = strings.TrimPrefix(strings.TrimLeft(src, " ")[1:], " "); !quoted || len(first) < width/4 {
			first += m.sgr("2", "│") + " "
		}
	}
	other := first
	item, heading := itemLine.FindStringSubmatch(src), headingLine.FindStringSubmatch(src)
	var gap []string
	switch {
	case ruleLine.MatchString(src):
		return []string{first + m.sgr("2", "────────")}
	case item != nil:
		mark := strings.NewReplacer("-", "•", "*", "•", "+", "•").Replace(item[2]) + " "
		indent := strings.Repeat(" ", min(len(item[1]), width/3))
		first, other = first+indent+mark, first+indent+strings.Repeat(" ", ansi.StringWidth(mark))
		src = item[3]
	case heading != nil:
		if style = "1;36"; len(heading[1]) < 3 {
			style = []string{"1;4", "1"}[len(heading[1])-1]
		}
		if src = heading[2]; !m.Color {
			first += heading[1] + " "
		}
		gap = []string{""}
	default:
		text := strings.TrimLeft(src, " ")
		first += strings.Repeat(" ", min(len(src)-len(text), width/3))
		other, src = first, text
	}
	rows := broken(m.inline(src, style), width-ansi.StringWidth(first))
	for i, row := range rows {
		rows[i], first = first+row, other
	}
	return append(gap, rows...)
}

// broken wraps a colored text between words.
func broken(text string, width int) []string {
	const dash = "\u2011" // lines are not broken at it
	text = lipgloss.Wrap(strings.ReplaceAll(text, "-", dash), max(width, 1), "")
	return strings.Split(strings.ReplaceAll(text, dash, "-"), "\n")
}

// sgr styles a text; parameters are those of SGR in ECMA-48.
func (m *Markdown) sgr(parameters, text string) string {
	if !m.Color || parameters == "" || text == "" {
		return text
	}
	return "\x1b[" + parameters + "m" + text + "\x1b[0m"
}

// columns formats a table. Cells are wrapped if it is too wide.
func (m *Markdown) columns(rows []string, width int) []string {
	cell := lipgloss.NewStyle().Padding(0, 1)
	t := table.New().Border(lipgloss.NormalBorder()).BorderTop(false).BorderBottom(false).BorderLeft(false).
		BorderRight(false).StyleFunc(func(int, int) lipgloss.Style { return cell })
	for i, row := range slices.Delete(rows, 1, 2) { // the line below the heading
		row = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(strings.ReplaceAll(row, `\|`, "\x00")), "|"), "|")
		cells := strings.SplitN(row, "|", maxColumns)
		for c, cell := range cells {
			cells[c] = m.inline(strings.ReplaceAll(strings.TrimSpace(cell), "\x00", `\|`), "")
		}
		if i == 0 {
			t.Headers(cells...)
		} else {
			t.Row(cells...)
		}
	}
	text := t.Render()
	if lipgloss.Width(text) > width {
		text = t.Width(width).Render()
	}
	return strings.Split(text, "\n")
}

// Marked text consists of code, in which marks have no meaning, and of other text that does not begin
// or end with a blank; an emphasis may contain bold text.
const (
	code = "`[^`]+`"
	full = "(?:" + code + "|[^\\s`])"
	bold = `\*\*(?:` + full + "(?:(?:" + code + "|[^`])*?" + full + `)??\*?)\*\*`
	thin = "(?:" + code + "|[^*\\s`]|" + bold + ")"
)

// marks matches the markup within a line: code, marked text by the kinds of markings, links, escapes
// and character references.
var marks = lazyregexp.New("``(.+?)``|`([^`]+)`" + `|\*\*\*(\S(?:.*?\S)??)\*\*\*|` +
	strings.Replace(bold, "?:", "", 1) + `|~~(\S(?:.*?\S)??)~~` +
	`|\b__(\S(?:.*?\S)??)__\b|\*(` + thin + `(?:(?:\s|` + thin + `)*` + thin + `)?)\*|\b_([^_]+)_\b` +
	`|(!?)\[([^\[\]]*)\]\(<?([^()\s<>]*(?:\([^()\s]*\)[^()\s]*)?)>?(?:\s+["'][^"']*["'])?\)` +
	"|<(https?://[^\\s<>]+)>|\\\\([!-/:-@\\[-`{-~])|&#?\\w{1,31};")

// markings are the kinds of marked text, in the order of groups 3 to 8 of marks.
var markings = []struct{ mark, style string }{
	{"***", "1;3"}, {"**", "1"}, {"~~", "9"}, {"__", "1"}, {"*", "3"}, {"_", "3"},
}

var reference = lazyregexp.New(`&#?\w{1,31};`)

// inline styles the text of a line. Without colors the marks are kept.
func (m *Markdown) inline(src, style string) string {
	var b strings.Builder
	write := func(text, style string) { b.WriteString(m.sgr(style, text)) }
	at := 0
	for _, found := range marks.FindAllStringSubmatchIndex(src, -1) {
		group := func(n int) string { return src[max(found[2*n], 0):max(found[2*n+1], 0)] }
		write(src[at:found[0]], style)
		at = found[1]
		whole := src[found[0]:at]
		switch code := group(1) + group(2); {
		case code != "" && m.Color:
			write(strings.TrimSpace(code), both(style, "36"))
		case found[2*10] >= 0:
			text := both(style, "1")
			if group(9) != "" {
				write("Image: ", "2")
				text = both(style, "2")
			}
			b.WriteString(m.inline(group(10), text))
			write(" "+resolved(group(11)), "4;34")
		case group(12) != "":
			write(group(12), "4;34")
		case group(13) != "":
			write(group(13), style)
		case whole[0] == '&':
			write(resolved(whole), style)
		case code != "":
			write(whole, style)
		default:
			i := slices.IndexFunc(found[6:], func(at int) bool { return at >= 0 }) / 2
			if text := group(3 + i); m.Color {
				b.WriteString(m.inline(text, both(style, markings[i].style)))
			} else {
				b.WriteString(markings[i].mark + m.inline(text, style) + markings[i].mark)
			}
		}
	}
	write(src[at:], style)
	return b.String()
}

// resolved resolves the character references in a text and makes it one line.
func resolved(text string) string {
	text = reference.ReplaceAllStringFunc(text, html.UnescapeString) // but not &copy=1 in a link
	return strings.ReplaceAll(spaced(Prose(text)), "\n", " ")
}

func both(style, more string) string { return strings.TrimPrefix(style+";"+more, ";") }

// spaced is [guard.Visible] with tabs replaced by spaces, because a tab has no fixed width.
func spaced(text string) string { return strings.ReplaceAll(guard.Visible(text), "\t", "    ") }

// lexemes matches comments, strings, numbers and keywords in a line of code, as most languages write
// them. A keyword of another language in blue does no harm.
var lexemes = lazyregexp.New(`(//.*|-- .*|#(?:[ !].*)?$)|("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|` + "`[^`]*`" + `)|(\b\d[\w.]*)|\b(` +
	"and|as|async|await|break|case|catch|chan|class|const|continue|def|default|defer|delete|do|elif|else|end|enum|except|export|" +
	"extends|false|finally|fn|for|foreach|from|func|function|go|if|impl|implements|import|in|interface|is|lambda|let|local|loop|" +
	"map|match|module|mod|mut|new|nil|none|not|null|or|package|pass|private|protected|public|pub|raise|range|return|select|" +
	`self|static|struct|super|switch|then|this|throw|trait|true|try|typeof|type|undefined|union|unless|until|use|using|var|void|` +
	`where|while|with|yield)\b`)

// code returns the rows of a line of code.
func (m *Markdown) code(src string, width int) []string {
	var rows []string
	for _, row := range Wrap(src, max(width-2, 1)) {
		switch {
		case m.language == "diff" && strings.HasPrefix(row, "+"):
			row = m.sgr("32", row)
		case m.language == "diff" && strings.HasPrefix(row, "-"):
			row = m.sgr("31", row)
		case m.Color:
			row = m.coloured(row)
		}
		rows = append(rows, "  "+row)
	}
	return rows
}

func (m *Markdown) coloured(row string) string {
	var b strings.Builder
	at := 0
	for _, found := range lexemes.FindAllStringSubmatchIndex(row, -1) {
		b.WriteString(row[at:found[0]])
		at = found[1]
		for kind, style := range []string{"90", "32", "35", "34"} {
			if found[2*kind+2] >= 0 {
				b.WriteString(m.sgr(style, row[found[0]:at]))
			}
		}
	}
	return b.String() + row[at:]
}
