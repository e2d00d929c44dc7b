package acp

import (
	"cmp"
	"encoding/json"
	"path/filepath"
	"strings"

	sdk "github.com/coder/acp-go-sdk"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/journal"
)

// Begin says which run the next frames are of. IDs of calls are unique only within a run.
func (o *Session) Begin(run toolcrib.RunID) { o.run = string(run) }

func (o *Session) callID(id string) sdk.ToolCallId {
	return sdk.ToolCallId(toolcrib.ShortID(o.run) + "/" + id)
}

// Frame shows the next frame of a run. Frames of a run come one at a time.
func (o *Session) Frame(f journal.Frame) {
	switch d := f.Data.(type) {
	case journal.StartedView:
		o.Begin(d.RunID)
	case journal.TextView:
		text := guard.Visible(d.Text)
		if f.Event == journal.FrameThinking {
			o.thought = true
			o.send(sdk.UpdateAgentThoughtText(text))
			return
		}
		o.streamed.WriteString(d.Text)
		o.send(sdk.UpdateAgentMessageText(text))
	case journal.MessageView:
		o.reply(d)
	case journal.CallView:
		o.call(d)
	case journal.CallStartedView:
		o.send(sdk.UpdateToolCall(o.callID(d.ID), sdk.WithUpdateStatus(sdk.ToolCallStatusInProgress)))
	case journal.ProgressView:
		o.send(sdk.UpdateToolCall(o.callID(d.ID), sdk.WithUpdateContent(textContent(d.Message))))
	case journal.ResultView:
		o.result(d)
	case toolcrib.Notice:
		if o.noticed[d.Message] {
			return
		}
		if o.noticed == nil {
			o.noticed = map[string]bool{}
		}
		o.noticed[d.Message] = true
		o.send(sdk.UpdateAgentThoughtText(guard.Visible(d.Message) + "\n"))
	case journal.ErrorView:
		if o.replaying {
			o.Say(d.Message)
		}
	}
}

// reply shows what was not streamed of a complete reply.
func (o *Session) reply(m journal.MessageView) {
	if m.Thinking != "" && !o.thought {
		o.send(sdk.UpdateAgentThoughtText(guard.Visible(m.Thinking)))
	}
	rest, ok := strings.CutPrefix(m.Text, o.streamed.String())
	if !ok { // it was changed after it was streamed
		rest = "\n\n" + m.Text
	}
	if m.Text != "" {
		o.send(sdk.UpdateAgentMessageText(guard.Visible(rest) + "\n\n"))
	}
	o.thought = false
	o.streamed.Reset()
}

// arguments are the arguments of built-in tools that an editor can show in a form of its own.
type arguments struct {
	Path    string `json:"path"`
	Content string `json:"content"`
	Old     string `json:"old_text"`
	New     string `json:"new_text"`
	Command string `json:"command"`
	URL     string `json:"url"`
	Offset  int    `json:"offset"`
	Steps   []struct {
		Step   string `json:"step"`
		Status string `json:"status"`
	} `json:"steps"`
}

// kinds are the kinds of built-in tools.
var kinds = map[string]sdk.ToolKind{
	"read_file": sdk.ToolKindRead, "list_directory": sdk.ToolKindSearch, "search_files": sdk.ToolKindSearch,
	"get_tree": sdk.ToolKindSearch, "write_file": sdk.ToolKindEdit, "edit_file": sdk.ToolKindEdit,
	"exec_shell": sdk.ToolKindExecute, "web_fetch": sdk.ToolKindFetch, "web_search": sdk.ToolKindFetch,
	planTool: sdk.ToolKindThink,
}

const planTool = "update_plan"

// shown is a call in the form of the editor.
type shown struct {
	title     string
	kind      sdk.ToolKind
	content   []sdk.ToolCallContent
	locations []sdk.ToolCallLocation
}

const maxTitle = 160 // characters

// show returns a call as the editor shows it.
func (o *Session) show(name string, raw json.RawMessage) shown {
	var in arguments
	kind := kinds[name]
	v := shown{kind: cmp.Or(kind, sdk.ToolKindOther)}
	if kind == "" || json.Unmarshal(raw, &in) != nil {
		v.title = render.Line(name+" "+render.Arguments(raw, maxTitle), maxTitle)
		return v
	}
	v.title = render.Line(name+" "+cmp.Or(in.Path, in.URL, in.Command), maxTitle)
	switch kind {
	case sdk.ToolKindExecute:
		v.title = render.Line(in.Command, maxTitle)
		return v
	case sdk.ToolKindThink:
		v.title = "plan"
		return v
	}
	if in.Path == "" {
		return v
	}
	at := in.Path
	if !filepath.IsAbs(at) {
		at = filepath.Join(o.folder, filepath.FromSlash(at))
	}
	l := sdk.ToolCallLocation{Path: at}
	if in.Offset > 0 {
		l.Line = &in.Offset
	}
	v.locations = []sdk.ToolCallLocation{l}
	switch name {
	case "write_file":
		v.content = []sdk.ToolCallContent{sdk.ToolDiffContent(at, in.Content)}
	case "edit_file":
		v.content = []sdk.ToolCallContent{sdk.ToolDiffContent(at, in.New, in.Old)}
	}
	return v
}

func (o *Session) call(c journal.CallView) {
	v := o.show(c.Name, c.Arguments)
	if c.Name == planTool {
		o.keepPlan(c)
	}
	o.send(sdk.SessionUpdate{ToolCall: &sdk.SessionUpdateToolCall{
		ToolCallId: o.callID(c.ID), Title: v.title, Kind: v.kind, Status: sdk.ToolCallStatusPending,
		Content: v.content, Locations: v.locations, RawInput: c.Arguments,
	}})
}

// keepPlan keeps the plan that a call sets, until it has succeeded.
func (o *Session) keepPlan(c journal.CallView) {
	var in arguments
	if json.Unmarshal(c.Arguments, &in) != nil {
		return
	}
	var plan []sdk.PlanEntry
	for _, s := range in.Steps {
		status := sdk.PlanEntryStatusPending
		switch s.Status {
		case "in_progress":
			status = sdk.PlanEntryStatusInProgress
		case "done", "completed":
			status = sdk.PlanEntryStatusCompleted
		}
		plan = append(plan, sdk.PlanEntry{
			Content: guard.Visible(s.Step), Status: status, Priority: sdk.PlanEntryPriorityMedium,
		})
	}
	if o.plans == nil {
		o.plans = map[string][]sdk.PlanEntry{}
	}
	o.plans[c.ID] = plan
}

func (o *Session) result(r journal.ResultView) {
	status := sdk.ToolCallStatusCompleted
	if r.Status != toolcrib.ResultOK || r.IsError {
		status = sdk.ToolCallStatusFailed
	} else if plan := o.plans[r.ToolCallID]; plan != nil {
		o.send(sdk.UpdatePlan(plan...))
	}
	options := []sdk.ToolCallUpdateOpt{sdk.WithUpdateStatus(status)}
	edits := r.Name == "write_file" || r.Name == "edit_file"
	if !edits || status == sdk.ToolCallStatusFailed { // the diff of an edit stays
		options = append(options, sdk.WithUpdateContent(textContent(render.ResultText(r.Content, r.Untrusted))))
	}
	o.send(sdk.UpdateToolCall(o.callID(r.ToolCallID), options...))
}

func textContent(text string) []sdk.ToolCallContent {
	return []sdk.ToolCallContent{sdk.ToolContent(sdk.TextBlock(guard.Visible(text)))}
}

// diffs returns the changes of a unified diff, hunk by hunk, or nil if text is not one that is complete.
func diffs(at, text string) (list []sdk.ToolCallContent) {
	lines := strings.SplitAfter(text, "\n")
	if len(lines) < 3 || !strings.HasPrefix(lines[0], "--- ") || !strings.HasPrefix(lines[1], "+++ ") {
		return nil
	}
	var before, after strings.Builder
	end := func() {
		if before.Len()+after.Len() > 0 {
			list = append(list, sdk.ToolDiffContent(at, after.String(), before.String()))
		}
		before.Reset()
		after.Reset()
	}
	trimmed := func(b *strings.Builder) {
		text := strings.TrimSuffix(b.String(), "\n")
		b.Reset()
		b.WriteString(text)
	}
	last := byte(0)
	for _, line := range lines[2:] {
		if line != "" && !strings.HasSuffix(line, "\n") { // the end of the preview
			line += "\n"
		}
		switch {
		case line == "":
			continue
		case line[0] == '\\': // no newline at the end of the file
			if last != '+' {
				trimmed(&before)
			}
			if last != '-' {
				trimmed(&after)
			}
		case strings.HasPrefix(line, "@@"):
			end()
		case line[0] == ' ', line[0] == '\n':
			before.WriteString(line[1:])
			after.WriteString(line[1:])
		case line[0] == '-':
			before.WriteString(line[1:])
		case line[0] == '+':
			after.WriteString(line[1:])
		default:
			return nil // it was cut
		}
		last = line[0]
	}
	end()
	return list
}
