package offline

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/toolcrib/toolcrib"
)

const (
	signature = "offline model"
	footer    = "(Answered by toolcrib's offline model: rules, no language model. " + howToConfigure + ")"

	howToConfigure = "For a real model set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, start Ollama, or name a provider in toolcrib.yaml."
)

const introduction = `I am toolcrib's offline model: a few fixed rules, no language model. No language model is configured, or the offline model was chosen.
I cannot reason, write prose or remember anything; I can drive the real tools for some kinds of requests, through the same loop, gate and journal that a real model gets.`

var examples = []struct{ tool, prompt string }{
	{listDirectory, "What files are here?"},
	{readFile, "Show me README.md"},
	{readFile, "Outline README.md"},
	{searchFiles, "Which files mention \"context\"?"},
	{searchFiles, "Where is main defined?"},
	{searchFiles, "How many Go files are there, and how many lines has README.md?"},
	{searchFiles, "What is this project about?"},
	{writeFile, "Write \"hello\" to notes.txt"},
	{editFile, "Replace \"hello\" with \"good morning\" in notes.txt"},
	{execShell, "Run `wc -l README.md`"},
}

// introduce says what this model is.
func introduce(t *turn, _ clause, _ string) (string, bool) { return help(t), true }

// help says what this model is, what can be asked, and how a real model is set up.
func help(t *turn) string {
	var b strings.Builder
	b.WriteString(introduction)
	b.WriteString("\n\n")
	some := false
	for _, e := range examples {
		if _, ok := t.offered[e.tool]; ok {
			if !some {
				b.WriteString("Try:\n")
			}
			some = true
			fmt.Fprintf(&b, "- %s\n", e.prompt)
		}
	}
	if !some {
		b.WriteString("In this request none of the tools that I know is offered to me, so there is nothing that I can look up.\n")
	}
	b.WriteString("\n" + howToConfigure)
	return b.String()
}

// capabilities lists the tools that are offered, with what they do.
func capabilities(t *turn, _ clause, _ string) (string, bool) {
	if len(t.tools) == 0 {
		return help(t), true
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s offered to me in this run:\n", plural(len(t.tools), "tool is", "tools are"))
	for _, spec := range t.tools {
		about, _, _ := strings.Cut(spec.Description, ". ")
		fmt.Fprintf(&b, "- %s (%s): %s\n", spec.Name, effect(spec), oneLine(strings.TrimSuffix(about, ".")))
	}
	b.WriteString("\n" + help(t))
	return b.String(), true
}

func effect(spec toolcrib.Spec) string {
	if spec.Effect.Writes() {
		return "writes"
	}
	return "reads"
}

// plural counts: 1 file, 2 files.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// fence shows text as it is.
func fence(text string) string {
	marks := "```"
	for strings.Contains(text, marks) {
		marks += "`"
	}
	return marks + "\n" + strings.TrimRight(text, "\n") + "\n" + marks
}

// stem makes the beginning that the forms of a word have in common; a rule of
// thumb: testing, tests, tested → test.
func stem(word string) string {
	for _, end := range []string{"ization", "ations", "ation", "ings", "ing", "ies", "ers", "er", "ed", "es", "s"} {
		n := len(word) - len(end)
		if n >= 4 && strings.EqualFold(word[n:], end) {
			return word[:n]
		}
	}
	return word
}

// anyCase makes a glob that ignores the case of word.
func anyCase(word string) string {
	var b strings.Builder
	for _, r := range word {
		lower, upper := strings.ToLower(string(r)), strings.ToUpper(string(r))
		switch {
		case lower != upper:
			b.WriteString("[" + lower + upper + "]")
		case strings.ContainsRune(`*?[]{}\`, r):
			b.WriteString(`\` + string(r))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// expression makes a regular expression that finds a text as words.
func expression(text string) string {
	e := regexp.QuoteMeta(text)
	first, last := text[0], text[len(text)-1]
	if isWord(first) {
		e = `\b` + e
	}
	if isWord(last) {
		e += `\b`
	}
	return e
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
