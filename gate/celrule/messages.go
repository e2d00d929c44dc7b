package celrule

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// explain says in plain words what the library says about an error.
func explain(message string) string {
	message = strings.TrimPrefix(readable(message), "Syntax error: ")
	what, expecting, found := strings.Cut(message, " expecting ")
	switch {
	case found && strings.Contains(what, "'<EOF>'"), strings.HasSuffix(message, " at '<EOF>'"):
		return "syntax error: the condition ends too early"
	case found && strings.HasPrefix(expecting, "<EOF>"):
		return "syntax error: " + what + " after what is a whole condition already"
	case found:
		return "syntax error: " + what
	case strings.HasPrefix(message, "token recognition error at: '= "):
		return "syntax error: compare with ==, not ="
	case strings.HasPrefix(message, "token recognition error at: '"), strings.HasPrefix(message, "no viable alternative at input "):
		_, at, _ := strings.Cut(message, "'")
		return "syntax error at '" + at
	case message == "invalid duration argument":
		return "this is no duration, such as 90m or 1.5h"
	case message == "invalid timestamp argument":
		return "this is no time, such as 2026-01-31T15:04:05Z"
	case message == "invalid argument to has() macro":
		return "has() takes a field of something, such as has(args.path)"
	}
	if rest, ok := strings.CutPrefix(message, "undeclared reference to '"); ok && !strings.Contains(rest, "did you mean") {
		name, _, _ := strings.Cut(rest, "'")
		message += didYouMean(name, variableNames())
	}
	return message
}

// readable takes the library's own notation out of a message.
func readable(message string) string {
	message = strings.ReplaceAll(message, " (in container '')", "")
	for _, operator := range []string{"==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "&&", "||", "[_]"} {
		message = strings.ReplaceAll(message, "'_"+operator+"_'", "'"+operator+"'")
	}
	return strings.NewReplacer("'@in'", "'in'", "'!_'", "'!'", "'_[_]'", "'[]'", "'_?_:_'", "'? :'").Replace(message)
}

// oneLine makes a message one short line without control characters.
func oneLine(message string) string {
	message = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar || unicode.Is(unicode.Cf, r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(message, " "))
	if len(message) <= maxProblem {
		return message
	}
	at := maxProblem
	for at > 0 && message[at]&0xc0 == 0x80 {
		at--
	}
	return message[:at] + "…"
}

// filePosition splits FILE:LINE.
func filePosition(position string) (file string, line int) {
	at := strings.LastIndex(position, ":")
	if line, err := strconv.Atoi(position[at+1:]); at >= 0 && err == nil && line >= 0 {
		return position[:at], line
	}
	return position, 0
}

// quoted shows a short text of the configuration.
func quoted(s string) string {
	if len(s) > 60 {
		s = s[:60] + "…"
	}
	return fmt.Sprintf("%q", s)
}
