package offline

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// result is what a tool answered, as far as it can be read.
type result struct {
	problem  string // why there is nothing to use: refused, failed
	notFound bool   // the problem is that there is no such file
	isFolder bool   // the problem is that it is a folder, not a file
	withheld bool   // the problem is that the tool may not be used, however it is called
	content  string // the text of the result
	cut      bool   // the result was too long and is not whole
}

var (
	wrapper = regexp.MustCompile(`(?s)^\s*<untrusted_input[^>]*>\n(.*)\n</untrusted_input>\s*$`)
	canary  = regexp.MustCompile(`^<canary>[^<]*</canary>\n?`)
)

func readResult(r *toolcrib.ToolResult) result {
	content := r.Content
	if m := wrapper.FindStringSubmatch(content); m != nil {
		content = canary.ReplaceAllString(m[1], "")
	}
	if r.IsError {
		return failed(content)
	}
	var cut struct {
		JSON  *string `json:"_truncated_json"`
		Bytes int64   `json:"original_bytes"`
	}
	if json.Unmarshal([]byte(content), &cut) == nil && cut.JSON != nil {
		return result{content: strings.TrimSuffix(*cut.JSON, "..."), cut: true}
	}
	return result{content: content}
}

// failed reads the JSON that stands for a refusal or an error (contract §6). That
// it is one is known from the mark of the result, not from its text.
func failed(content string) result {
	var told struct {
		Error   string `json:"error"`
		Refused bool   `json:"refused"`
		Reason  string `json:"reason"`
		Message string `json:"message"`
		Rule    string `json:"rule"`
	}
	if json.Unmarshal([]byte(content), &told) != nil {
		return result{problem: oneLine(content)}
	}
	switch {
	case told.Refused && told.Message != "":
		return result{problem: "the call was refused (" + told.Reason + "): " + strings.TrimSuffix(oneLine(told.Message), "."), withheld: withholds(told.Reason)}
	case told.Refused:
		return result{problem: "the call was refused (" + told.Reason + ")", withheld: withholds(told.Reason)}
	case told.Error != "":
		return result{
			problem: oneLine(told.Error), notFound: strings.HasPrefix(told.Error, string(toolcrib.NotFound)+":"),
			isFolder: strings.HasPrefix(told.Error, string(toolcrib.InvalidPath)+":") && strings.Contains(told.Error, " is a folder"),
		}
	}
	return result{problem: oneLine(content), content: content}
}

// withholds tells whether a reason is about the tool, not about this call of it.
func withholds(reason string) bool {
	switch toolcrib.Reason(reason) {
	case toolcrib.ReasonNotRegistered, toolcrib.ReasonToolDisabled, toolcrib.ReasonRequiresAdmin, toolcrib.ReasonNotPermitted,
		toolcrib.ReasonAgentAllowlist, toolcrib.ReasonSkillAllowlist, toolcrib.ReasonRunAllowlist, toolcrib.ReasonWorkerAllowlist,
		toolcrib.ReasonNotOffered, toolcrib.ReasonReadOnlyMode:
		return true
	}
	return false
}

// decode reads the JSON of the result into v. Of a result that was cut, what came
// whole is read; with partial, also the beginning of the string it was cut in.
func (r result) decode(v any, partial bool) bool {
	content := r.content
	if r.cut {
		content = mend(content, partial)
	}
	return json.Unmarshal([]byte(content), v) == nil
}

// mend closes what is open at the end of a JSON text that was cut: with partial
// the string that it was cut in is kept as far as it goes, else everything after
// the last whole element is left out.
func mend(s string, partial bool) string {
	if partial {
		if whole, ok := closed(trimEscape(s)); ok {
			return whole
		}
	}
	// Commas between whole elements, the last first.
	for _, at := range commas(s) {
		if whole, ok := closed(s[:at]); ok {
			return whole
		}
	}
	return s
}

var openEscape = regexp.MustCompile(`(^|[^\\])(\\\\)*(\\(u[0-9a-fA-F]{0,3})?)$`)

// trimEscape leaves out an escape sequence that the text ends inside of.
func trimEscape(s string) string {
	if m := openEscape.FindStringSubmatchIndex(s); m != nil && m[6] >= 0 {
		return s[:m[6]]
	}
	return s
}

// closed adds the quote and brackets that are missing at the end of s.
func closed(s string) (string, bool) {
	open, inString := scan(s, nil)
	var b strings.Builder
	b.WriteString(s)
	if inString {
		b.WriteByte('"')
	}
	for i := len(open) - 1; i >= 0; i-- {
		b.WriteByte(open[i] + 2) // ] and } stand two after [ and {
	}
	return b.String(), json.Valid([]byte(b.String()))
}

// commas returns the positions of the commas after which a new element of an outer
// list begins (not the fields inside of an element), the last first, at most 8.
func commas(s string) (at []int) {
	scan(s, func(position int, previous byte) {
		if previous == '}' || previous == ']' {
			at = append([]int{position}, at[:min(len(at), 7)]...)
		}
	})
	return at
}

// scan returns the brackets that are open at the end of s, and whether it ends
// inside of a string; comma is told each comma outside of strings, with what
// stands before it.
func scan(s string, comma func(at int, previous byte)) (open []byte, inString bool) {
	escaped := false
	var previous byte
	for i := range len(s) {
		c := s[i]
		switch {
		case escaped:
			escaped = false
		case inString && c == '\\':
			escaped = true
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			open = append(open, c)
		case (c == '}' || c == ']') && len(open) > 0:
			open = open[:len(open)-1]
		case c == ',' && comma != nil:
			comma(i, previous)
		}
		if c != ' ' && c != '\n' {
			previous = c
		}
	}
	return open, inString
}

// oneLine shortens a text to one line of at most 300 characters.
func oneLine(s string) string { return shorten(s, 300) }

// shorten makes one line of at most n characters.
func shorten(s string, n int) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}
