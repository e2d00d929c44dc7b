package spawn

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

const (
	maxList     = 4 << 10 // bytes of the list of agents in the description
	maxAbout    = 500     // characters of the description of an agent
	maxAboutRaw = 8 << 10 // bytes of a description that are read

	maxPreviewTask  = 4000 // characters
	maxPreviewTools = 400  // bytes
)

const intro = "Give a task to another agent; its answer is the result. It knows only what you write into the task, " +
	"and has no tool that you do not have."

// describe returns the description of the tool, with a list of the agents in at most maxList bytes. If
// not all descriptions fit, later agents are listed without.
func describe(names []string, about map[string]string) string {
	if len(names) == 0 {
		return intro + " No agent is there to be called."
	}
	room, shown := maxList-len(moreText(len(names), true)), 0
	for _, name := range names[:min(len(names), maxEnum)] {
		if room -= len("\n- ") + len(name); room < 0 {
			break
		}
		shown++
	}
	var b strings.Builder
	b.WriteString(intro + "\nAgents:")
	for _, name := range names[:shown] {
		b.WriteString("\n- " + name)
		if text := about[name]; text != "" && len(text)+2 <= room {
			b.WriteString(": " + text)
			room -= len(text) + 2
		}
	}
	if more := len(names) - shown; more > 0 {
		b.WriteString(moreText(more, len(names) > maxEnum))
	}
	return b.String()
}

// moreText returns the last line of a list that was cut.
func moreText(more int, unlisted bool) string {
	if unlisted {
		return fmt.Sprintf("\n- and %d more that are not listed here: a name that does not exist is answered with names near it", more)
	}
	return fmt.Sprintf("\n- and %d more, which the parameter agent names", more)
}

// oneLine returns a text on one line, so that it cannot imitate another entry of the list, shortened
// and with hidden characters made visible.
func oneLine(text string) string {
	if len(text) > maxAboutRaw {
		text = text[:maxAboutRaw]
	}
	return cut(guard.Visible(strings.Join(strings.Fields(strings.ToValidUTF8(text, "�")), " ")), maxAbout)
}

// cut shortens text to at most limit characters.
func cut(text string, limit int) string {
	if len(text) <= limit || utf8.RuneCountInString(text) <= limit {
		return text
	}
	n := 0
	for i := range text {
		if n++; n == limit {
			return text[:i] + "…"
		}
	}
	return text
}

const parameters = `{"type":"object","properties":{` +
	`"agent":{"type":"string",%s},` +
	`"task":{"type":"string","minLength":1,"maxLength":32768},` +
	`"tools":{"type":"array","maxItems":200,"items":{"type":"string","minLength":1,"maxLength":128},` +
	`"description":"names or globs; default: all"}},` +
	`"required":["agent","task"],"additionalProperties":false}`

// schema returns the JSON Schema of the arguments. It lists the agents, unless there are too many.
func schema(names []string) json.RawMessage {
	if len(names) == 0 || len(names) > maxEnum {
		return fmt.Appendf(nil, parameters, fmt.Sprintf(`"minLength":1,"maxLength":%d`, maxName))
	}
	// Names have no control characters, so nothing else must be escaped in JSON.
	escaped := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(strings.Join(names, "\n"))
	return fmt.Appendf(nil, parameters, `"enum":["`+strings.ReplaceAll(escaped, "\n", `","`)+`"]`)
}

// preview shows the agent, its tools and the task. The task comes last and is indented, so that its
// lines cannot imitate the others.
func (t *spawner) preview(in input) toolcrib.Preview {
	agent := quotable(in.Agent)
	if about := t.about[in.Agent]; about != "" {
		agent += " (" + about + ")"
	}
	task := strings.TrimSpace(strings.ToValidUTF8(in.Task, "�"))
	text := fmt.Sprintf("agent: %s\ntools: %s\ntask (%d characters):", oneLine(agent), toolsText(in.Tools),
		utf8.RuneCountInString(in.Task))
	for line := range strings.SplitSeq(cut(task, maxPreviewTask), "\n") {
		text += "\n  " + guard.Visible(strings.TrimSuffix(line, "\r"))
	}
	return toolcrib.Preview{Kind: "text", Text: text}
}

// toolsText describes the list of tools for a person.
func toolsText(tools *[]string) string {
	switch {
	case tools == nil:
		return "all that it and the caller have"
	case len(*tools) == 0:
		return "none"
	}
	var b strings.Builder
	for i, name := range *tools {
		name = strings.Join(strings.Fields(quotable(name)), " ")
		if b.Len()+len(name)+2 > maxPreviewTools {
			return fmt.Sprintf("%s and %d more", b.String(), len(*tools)-i)
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(name)
	}
	return b.String()
}
