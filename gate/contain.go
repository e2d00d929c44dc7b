package gate

import (
	"fmt"
	"runtime/debug"
	"unicode/utf8"
)

// Bounds of texts that the gate keeps or shows.
const (
	maxMessageBytes = 2 << 10 // what a model reads of a refusal
	maxDetailBytes  = 4 << 10 // what an operator reads
	maxShownName    = 128     // a name as a model wrote it
)

// panicError is a panic of a tool or layer, as an error.
type panicError struct {
	value any
	stack string
}

func (e *panicError) Error() string {
	return cut(fmt.Sprintf("panic: %v\n%s", e.value, e.stack), maxDetailBytes)
}

// contain runs f and returns its error, and a panic of f as an error: no tool and
// no layer can bring the process down.
func contain(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{value: v, stack: string(debug.Stack())}
		}
	}()
	return f()
}

// cut shortens s to at most limit bytes, at the start of a character.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	const dots = "…"
	end := max(0, limit-len(dots))
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + dots
}

// shown is a name as it may be repeated in a text, which is cleaned as a whole when the
// verdict leaves.
func shown(name string) string { return cut(name, maxShownName) }
