package render

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// Frame tells one event in one line of at most width columns (0 = any number): its
// number, its kind, and what it says.
func Frame(f journal.Frame, width int) string {
	text := fmt.Sprintf("%5d  %-21s  %s", f.Seq, f.Event, frameText(f))
	text = strings.TrimRight(guard.Visible(oneLine(text)), " ")
	if width > 0 {
		text = cut(text, width, false)
	}
	return text
}

// oneLine shows the ends of lines as they are written in source code.
func oneLine(text string) string {
	return strings.NewReplacer("\n", `\n`, "\r", `\r`).Replace(text)
}

func frameText(f journal.Frame) string {
	switch f.Event {
	case string(journal.KindToolCall), string(journal.KindToolStarted):
		c := decode[callFrame](f.Data)
		if len(c.Arguments) == 0 {
			return strings.TrimSpace(c.ID + " " + c.Name)
		}
		return c.ID + " " + c.Name + " " + string(c.Arguments)
	case string(journal.KindToolResult):
		r := decode[resultFrame](f.Data)
		return strings.TrimSpace(fmt.Sprintf("%s %s %s %s", r.ToolCallID, r.Status, r.Reason, resultText(r.Content)))
	case string(journal.KindMessage):
		if m := decode[messageFrame](f.Data); m.Text != "" {
			return m.Text
		}
	case string(journal.KindDone), string(journal.KindError):
		e := decode[endFrame](f.Data)
		return strings.TrimSpace(fmt.Sprintf("%s (%s) %s%s", e.Status, e.StopReason, e.Message, e.Content))
	}
	raw, err := json.Marshal(f.Data)
	if err != nil {
		return ""
	}
	return string(raw)
}
