// Package render shows runs to people: live on a terminal, as lines without a terminal, and
// afterwards as a story. It makes no decisions and stores nothing.
//
// All text that comes from a model, a tool or a file passes guard.Visible before it is written to
// a terminal, so that it cannot contain escape sequences. Only this package writes colors, and
// only if [Style.Color] is true.
package render

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// Style describes what the output can show. The zero value is for plain text of 80 columns.
type Style struct {
	Color bool // whether to use ANSI colors
	Dumb  bool // whether a terminal does not understand escape sequences; never with Color
	Width int  // columns; 0 means 80
	// Columns returns the columns of a terminal, which may change. If nil, Width is used.
	Columns func() int
}

func (s Style) width() int {
	width := s.Width
	if s.Columns != nil {
		width = s.Columns()
	}
	if width < 1 {
		return 80
	}
	return width
}

func (s Style) paint(code, text string) string {
	if !s.Color || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Bold, Dim, Red, Green, Yellow and Cyan style a text that has passed guard.Visible.
func (s Style) Bold(text string) string   { return s.paint("1", text) }
func (s Style) Dim(text string) string    { return s.paint("2", text) }
func (s Style) Red(text string) string    { return s.paint("31", text) }
func (s Style) Green(text string) string  { return s.paint("32", text) }
func (s Style) Yellow(text string) string { return s.paint("33", text) }
func (s Style) Cyan(text string) string   { return s.paint("36", text) }

// Widths of columns in a table.
const (
	columnGap   = 2
	leastColumn = 12
)

// Table writes rows in columns, with the first row as a heading. Cells pass guard.Visible. If the
// width of the style is known, the widest columns are narrowed until the lines fit, except the
// first column, which identifies the row. If that is not enough, each row becomes a paragraph with
// the names of its columns.
func (s Style) Table(w io.Writer, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	widths := make([]int, len(rows[0]))
	for r := range rows {
		for c := range rows[r] {
			rows[r][c] = guard.Visible(strings.Join(strings.Fields(rows[r][c]), " "))
			widths[c] = max(widths[c], ansi.StringWidth(rows[r][c]))
		}
	}
	if s.Width > 0 || s.Columns != nil {
		over := columnGap*(len(widths)-1) - s.width()
		for _, width := range widths {
			over += width
		}
		narrowest := columnGap*(len(widths)-1) + widths[0]
		for _, width := range widths[1:] {
			narrowest += min(width, leastColumn)
		}
		if narrowest > s.width() {
			s.paragraphs(w, rows)
			return
		}
		for ; over > 0; over-- { // narrow the widest column except the first
			widths[1+slices.Index(widths[1:], slices.Max(widths[1:]))]--
		}
	}
	for r, row := range rows {
		var b strings.Builder
		for c, cell := range row {
			cell = words(cell, widths[c])
			b.WriteString(cell)
			b.WriteString(strings.Repeat(" ", widths[c]-ansi.StringWidth(cell)+columnGap))
		}
		text := strings.TrimRight(b.String(), " ")
		if r == 0 {
			text = s.Bold(text)
		}
		fmt.Fprintln(w, text)
	}
}

// paragraphs writes rows that are too wide for one line: the first cell on a line of its own,
// below it the others with the names of their columns.
func (s Style) paragraphs(w io.Writer, rows [][]string) {
	for _, row := range rows[1:] {
		var cells []string
		for c, cell := range row[1:] {
			if cell != "" {
				cells = append(cells, strings.ToLower(rows[0][c+1])+": "+cell)
			}
		}
		fmt.Fprintln(w, s.Bold(cut(row[0], s.columns(), true)))
		if len(cells) > 0 {
			fmt.Fprintln(w, "  "+strings.Join(s.hanging(strings.Join(cells, " · ")), "\n  "))
		}
	}
}

// Tokens formats a number of tokens as "1,234 tokens (1,100 in, 134 out)", with ~ if it is
// estimated. [toolcrib.Usage.Estimated] is not sufficient for that, since it is also true if only
// the price is unknown.
func Tokens(u toolcrib.Usage, estimated bool) string {
	if u.TotalTokens == 0 {
		return "0 tokens"
	}
	cached := when(u.CachedInputTokens > 0, Number(u.CachedInputTokens)+" of them cached, ")
	return fmt.Sprintf("%s%s tokens (%s in, %s%s out)", when(estimated, "~"), Number(u.TotalTokens), Number(u.InputTokens),
		cached, Number(u.OutputTokens))
}

// Cost formats a cost in dollars, or returns "?" if no price is known.
func Cost(u toolcrib.Usage, known bool) string {
	switch {
	case !known && u.CostUSD == 0:
		return "?"
	case u.CostUSD == 0:
		return "$0"
	}
	return when(u.Estimated, "~") + dollars(u.CostUSD)
}

func dollars(usd float64) string {
	if usd >= 0.01 {
		return fmt.Sprintf("$%.2f", usd)
	}
	return "$" + strconv.FormatFloat(usd, 'f', 6, 64)
}

// Number groups the digits of n in threes.
func Number(n int64) string {
	digits, negative := strings.CutPrefix(strconv.FormatInt(n, 10), "-")
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return when(negative, "-") + digits
}

// Bar draws value as a share of most: a bar of at most width columns, in eighths of a column. A
// positive value is never drawn as an empty bar.
func Bar(value, most float64, width int) string {
	if !(value > 0) || !(most > 0) || width < 1 {
		return ""
	}
	eighths := max(int(min(value/most, 1)*float64(width)*8+0.5), 1)
	text := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		text += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return text
}
