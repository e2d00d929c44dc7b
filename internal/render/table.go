package render

import (
	"fmt"
	"io"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/toolcrib/toolcrib/guard"
)

// Bounds of a column that has to give way.
const (
	columnGap   = 2
	leastColumn = 12
)

// Table writes rows in columns, the first row as a heading. Cells are made
// visible. Where the width of the style is known, the widest columns give way until
// the lines fit, but for the first: it names what the row is about. Where that is not
// enough, each row becomes a paragraph that names its columns.
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
		if narrowest := columnGap * (len(widths) - 1); over > 0 {
			for c, width := range widths {
				if c > 0 {
					width = min(width, leastColumn)
				}
				narrowest += width
			}
			if narrowest > s.width() {
				s.paragraphs(w, rows)
				return
			}
		}
		Narrow(widths, over, 1, leastColumn)
	}
	for r, row := range rows {
		var b strings.Builder
		for c, cell := range row {
			cell = cut(cell, widths[c], false)
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

// paragraphs writes rows that are too wide for a line each: the first cell on a line of its
// own, below it the others with the names of their columns.
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

// Narrow takes columns that are too many from the widest of the columns after the first keep
// ones, none of which gets narrower than least.
func Narrow(widths []int, over, keep, least int) {
	for ; over > 0; over-- {
		widest := keep
		for c := keep; c < len(widths); c++ {
			if widths[c] > widths[widest] {
				widest = c
			}
		}
		if widest >= len(widths) || widths[widest] <= least {
			return
		}
		widths[widest]--
	}
}
