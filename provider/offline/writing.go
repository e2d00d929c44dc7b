package offline

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

var (
	backReference = pattern(`\b(?:(?:the|this|that|your)\s+(?:result|answer|number|count|list|output|lines?|sum)|it|this|that|das ergebnis|die antwort|die zahl|es|them)\b`)
	sentenceTail  = pattern(`^(?:.*?\b(?:the\s+)?(?:list|names|number|count|contents?|outline|first|last|how|which|what)\b)`)
	intoFile      = pattern(`\s+(?:in|into|to|as|nach|unter)\s+(?:the\s+|a\s+)?(?:new\s+)?(?:file\s+)?(?:called\s+|named\s+)?\S+$`)
)

// writeText writes a file: what stands in quotes or after the colon, to the byte;
// or the answer to the clause before, or to a question inside of the order, as
// lines.
func writeText(t *turn, c clause, previous string) (string, bool) {
	target := c.files[len(c.files)-1]
	text, what := c.content, ""
	if text == "" {
		for _, q := range c.quotes {
			if q != target {
				text = q
				break
			}
		}
	}
	if text == "" {
		var done bool
		if text, done = t.answerFor(c, previous); !done {
			return "", false
		}
		what = " (my answer, with a line break at its end)"
	}
	if text == "" {
		return whatToWrite(c, target), true
	}
	if what != "" {
		text = ending(text)
	}
	if isAppend.MatchString(c.text) {
		old, missing, done := t.readPath(target)
		switch {
		case !done:
			return "", false
		case missing:
		case old.problem != "":
			return cannot("append to "+target, old.problem), true
		case !old.whole:
			return fmt.Sprintf("I did not append to %s: it is too long for me to read whole, and I would lose the rest.", target), true
		case old.text != "":
			text = strings.TrimSuffix(old.text, "\n") + "\n" + text
		}
		text, what = ending(text), what+", the new text on a line of its own"
	}
	r, done := t.call(writeFile, arguments{"path": target, "content": text})
	switch {
	case !done:
		return "", false
	case r.problem != "":
		return cannot("write "+visible(target), r.problem), true
	}
	return fmt.Sprintf("Done: %s%s.", visible(message(r, "wrote "+target)), what), true
}

// whatToWrite asks for the text, with an order that works.
func whatToWrite(c clause, target string) string {
	verb, name := "Write", visible(target)
	if isAppend.MatchString(c.text) {
		verb = "Append"
	}
	if !isPath(target) {
		name = `"` + name + `"`
	}
	return fmt.Sprintf("What shall I write to %s? I cannot make up a text. Give it to me in quotes or after a colon, such as:\n%s \"hello\" to %s",
		visible(target), verb, name)
}

// answerFor makes the text to write from a question: the clause before ("… and
// write it to x"), or the order itself ("write a list of the Go files to x").
func (t *turn) answerFor(c clause, previous string) (string, bool) {
	inner := c
	target := c.files[len(c.files)-1]
	inner.text = strings.TrimSpace(intoFile.ReplaceAllString(isWrite.ReplaceAllString(c.text, ""), ""))
	inner.raw, inner.files = inner.text, nil
	for _, f := range c.files {
		if f != target {
			inner.files = append(inner.files, f)
		}
	}
	if previous != "" && backReference.MatchString(inner.text) && len(inner.files) == 0 {
		return previous, true
	}
	if !sentenceTail.MatchString(inner.text) {
		return "", true
	}
	if do := taskFor(inner); do != nil && !inner.writes() {
		return do(t, inner, "")
	}
	return "", true
}

// ending ends a text with a line break.
func ending(text string) string {
	if strings.HasSuffix(text, "\n") {
		return text
	}
	return text + "\n"
}

// message is what a tool says in its result.
func message(r result, otherwise string) string {
	var told struct {
		Message string `json:"message"`
	}
	if json.Unmarshal([]byte(r.content), &told) == nil && told.Message != "" {
		return strings.TrimSuffix(told.Message, ".")
	}
	return otherwise
}

// replaceText edits a file.
func replaceText(t *turn, c clause, _ string) (string, bool) {
	var texts []string
	for _, q := range c.quotes {
		if q != c.files[0] {
			texts = append(texts, q)
		}
	}
	if len(texts) != 2 {
		return fmt.Sprintf("Give me two texts in quotes: replace \"this\" with \"that\" in %s.", c.files[0]), true
	}
	r, done := t.call(editFile, arguments{"path": c.files[0], "old_text": texts[0], "new_text": texts[1]})
	switch {
	case !done:
		return "", false
	case r.problem != "":
		return cannot("change "+c.files[0], r.problem), true
	}
	return "Done: " + message(r, "changed "+c.files[0]) + ".", true
}

func rememberText(t *turn, c clause, _ string) (string, bool) {
	what := strings.TrimSpace(isRemember.FindStringSubmatch(c.raw + " ")[1])
	r, done := t.call(memoryWrite, arguments{"content": what, "mode": "append"})
	switch {
	case !done:
		return "", false
	case r.problem != "":
		return cannot("remember that", r.problem), true
	}
	return "Remembered: " + what, true
}

func recallText(t *turn, _ clause, _ string) (string, bool) {
	r, done := t.call(memoryRead, arguments{})
	var told struct {
		Content string `json:"content"`
		Message string `json:"message"`
	}
	switch {
	case !done:
		return "", false
	case r.problem != "":
		return cannot("read the memory", r.problem), true
	case !r.decode(&told, true):
		return cannot("read the memory", "its result could not be read"), true
	case told.Content == "":
		return "Nothing is remembered.", true
	}
	return "This is remembered:\n" + fence(clip(told.Content)), true
}

// command returns the shell command of a clause; "" if it is rather prose.
func command(c clause) string {
	if len(c.quotes) > 0 {
		return c.quotes[0]
	}
	m := isRun.FindStringSubmatch(c.text)
	if m == nil || prose.MatchString(m[1]) {
		return ""
	}
	return m[1]
}

var prose = regexp.MustCompile(`(?i)^(?:the|a|an|all|my|our|this|that|it|them|tests?|die|der|das)\b`)

func runCommand(t *turn, c clause, _ string) (string, bool) {
	r, done := t.call(execShell, arguments{"command": command(c)})
	var told struct {
		ExitCode int    `json:"exit_code"`
		Stdout   string `json:"stdout"`
		Stderr   string `json:"stderr"`
	}
	switch {
	case !done:
		return "", false
	case r.problem != "":
		return cannot("run it", r.problem), true
	case !r.decode(&told, true):
		return "It ran, and this came back:\n" + fence(clip(r.content)), true
	}
	text := fmt.Sprintf("`%s` ended with exit status %d.", command(c), told.ExitCode)
	if told.Stdout != "" {
		text += "\n" + fence(clip(told.Stdout))
	}
	if told.Stderr != "" {
		text += "\nOn standard error:\n" + fence(clip(told.Stderr))
	}
	return text, true
}

func fetchPage(t *turn, c clause, _ string) (string, bool) {
	url := strings.TrimRight(isURL.FindString(c.raw), endMarks)
	r, done := t.call(webFetch, arguments{"url": url})
	var told struct {
		Status int    `json:"status"`
		Body   string `json:"body"`
	}
	switch {
	case !done:
		return "", false
	case r.problem != "":
		return cannot("fetch "+url, r.problem), true
	case !r.decode(&told, true):
		return "This came back:\n" + fence(clip(r.content)), true
	}
	return fmt.Sprintf("%s answered with status %d and %s of text. It begins:\n%s", url, told.Status, plural(len(told.Body), "byte", "bytes"), fence(clip(firstLines(told.Body)))), true
}

func firstLines(text string) string {
	lines := strings.SplitAfter(text, "\n")
	return strings.Join(lines[:min(len(lines), maxShown)], "")
}

// ask makes a task that calls a tool without arguments and shows its result.
func ask(tool string) task {
	return func(t *turn, _ clause, _ string) (string, bool) {
		return t.show(tool, arguments{})
	}
}

func askUsers(t *turn, c clause, previous string) (string, bool) {
	if strings.EqualFold(isUsers.FindStringSubmatch(c.text)[1], "groups") {
		return ask("list_groups")(t, c, previous)
	}
	return ask("list_users")(t, c, previous)
}

// callTool calls the tool that the prompt names with the JSON that it gives.
func callTool(t *turn, c clause, _ string) (string, bool) {
	m := isCall.FindStringSubmatch(c.raw)
	var a arguments
	if err := json.Unmarshal([]byte(m[2]), &a); err != nil {
		return fmt.Sprintf("The arguments for %s are no JSON object: %v", m[1], err), true
	}
	return t.show(m[1], a)
}

// show calls a tool and shows what came back, as it is.
func (t *turn) show(tool string, a arguments) (string, bool) {
	r, done := t.call(tool, a)
	switch {
	case !done:
		return "", false
	case r.problem != "":
		return cannot("use "+tool, r.problem), true
	}
	text := r.content
	var v any
	if json.Unmarshal([]byte(text), &v) == nil {
		if indented, err := json.MarshalIndent(v, "", "  "); err == nil {
			text = string(indented)
		}
	}
	if r.cut {
		text += "\n… (the result was cut)"
	}
	return fmt.Sprintf("%s says:\n%s", tool, fence(clip(text))), true
}
