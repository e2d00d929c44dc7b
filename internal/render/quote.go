package render

import (
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// quote puts a text that comes in pieces behind a gutter, broken at words. The zero value
// is ready; style must not change within a row.
type quote struct {
	style   Style
	visible visibleStream
	word    strings.Builder // that has not ended yet
	column  int             // of the current row; 0 = it is empty
	indent  int             // columns of blanks that the row begins with
	blanks  int             // after the last word; a row ends without them
	open    bool            // the current row has its gutter
}

// write returns what of the text can be shown now.
func (q *quote) write(text string) string {
	var b strings.Builder
	q.add(&b, q.visible.Write(text))
	return b.String()
}

// end returns what was held back, and the end of the last row.
func (q *quote) end() string {
	var b strings.Builder
	q.add(&b, q.visible.Flush())
	q.endWord(&b)
	if q.open {
		b.WriteByte('\n')
	}
	q.reset()
	return b.String()
}

func (q *quote) reset() { *q = quote{style: q.style} }

func (q *quote) add(b *strings.Builder, text string) {
	for _, r := range strings.ReplaceAll(text, "\t", "    ") {
		switch r {
		case '\n':
			q.endWord(b)
			q.begin(b)
			q.endRow(b)
		case ' ':
			q.endWord(b)
			if q.column > q.indent {
				q.blanks++
				continue
			}
			q.put(b, " ", 1)
			q.indent = q.column
		default:
			q.word.WriteRune(r)
			if ansi.StringWidth(q.word.String()) >= q.room() {
				q.endWord(b)
			}
		}
	}
}

func (q *quote) room() int { return q.style.columns() - 2 }

// endWord writes the word, in a row of its own where it does not fit into this one.
func (q *quote) endWord(b *strings.Builder) {
	word := q.word.String()
	if word == "" {
		return
	}
	width := ansi.StringWidth(word)
	if q.blanks > 0 && q.column+q.blanks+width > q.room() {
		q.endRow(b)
	}
	q.put(b, strings.Repeat(" ", q.blanks)+word, q.blanks+width)
	q.word.Reset()
	q.blanks = 0
}

func (q *quote) put(b *strings.Builder, text string, width int) {
	if q.column > 0 && q.column+width > q.room() {
		q.endRow(b)
	}
	q.begin(b)
	b.WriteString(text)
	q.column += width
}

func (q *quote) begin(b *strings.Builder) {
	if !q.open {
		b.WriteString(q.style.Dim(gutter))
		q.open = true
	}
}

func (q *quote) endRow(b *strings.Builder) {
	b.WriteByte('\n')
	q.column, q.indent, q.blanks, q.open = 0, 0, 0, false
}
