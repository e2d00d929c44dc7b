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
	switch d := f.Data.(type) {
	case journal.CallView:
		return d.ID + " " + d.Name + " " + string(d.Arguments)
	case journal.CallStartedView:
		return d.ID + " " + d.Name
	case journal.ResultView:
		return strings.TrimSpace(fmt.Sprintf("%s %s %s %s", d.ToolCallID, d.Status, d.Reason, resultText(d.Content)))
	case journal.MessageView:
		if d.Text != "" {
			return d.Text
		}
	case journal.DoneView:
		return fmt.Sprintf("%s (%s) %s", d.Status, d.StopReason, d.Content)
	case journal.ErrorView:
		return fmt.Sprintf("%s (%s) %s", d.Status, d.StopReason, d.Message)
	}
	raw, err := json.Marshal(f.Data)
	if err != nil {
		return ""
	}
	return string(raw)
}
