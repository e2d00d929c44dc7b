package render

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// Story prints a stored run from its journal: the prompt, each turn with verdicts and results, its
// cost, and why it ended.
type Story struct {
	Out    io.Writer
	Style  Style
	Whole  bool   // whether results and thoughts are shown completely instead of folded
	Caller string // agent of the run that started this one, or "" if unknown
	Self   string // command to show in hints, toolcrib if ""
	Team   bool   // whether answers of agents are left out, which are shown at the end

	narrator Narrator
}

// Tell prints the next event of the run.
func (t *Story) Tell(e toolcrib.Event) {
	t.narrator.View = View{
		Start: t.start, Head: t.head, Thought: t.thought, Reply: t.reply, Result: t.result,
		Note: t.note, Notice: func(n toolcrib.Notice) { t.note(NoticeText(n)) }, Detail: t.detail,
		Run:   func(id string) { t.detail("its story: " + cmp.Or(t.Self, "toolcrib") + " runs show " + id) },
		Fault: func(text string) { t.print(t.Style.Hanging(t.Style.Red("✗"), Line(text, 4096))) },
		Cost:  func(text string) { t.dim(2, text) },
	}
	t.narrator.Event(e)
}

func (t *Story) print(text string) { fmt.Fprint(t.Out, text) }

// head prints the first line of an item.
func (t *Story) head(h Head) {
	s := t.Style
	switch h.Mark {
	case "❯":
		t.print(s.Hanging(s.Bold(h.Mark), h.Text+" ("+h.Name+")"))
	case "?":
		t.print(s.Hanging(s.Yellow(h.Mark), h.Text+" "+toolcrib.ShortID(h.Name)))
	case "→":
		name := Line(h.Name, 64) + ":"
		fmt.Fprintf(t.Out, "%s %s %s\n", s.Cyan(h.Mark), s.Bold(name), Line(h.Text, s.width()-len(name)-3))
	case "":
		fmt.Fprintf(t.Out, "  %s %s\n", Line(h.Name, 64), Arguments(json.RawMessage(h.Text), s.width()-len(h.Name)-4))
	default: // the end
		mark := map[string]func(string) string{"✓": s.Green, "■": s.Yellow, "✗": s.Red}[h.Mark]
		t.print("\n" + s.Hanging(mark(h.Mark), Line(h.Text, 4096)))
	}
}

func (t *Story) reply(r Reply) {
	if text := strings.TrimSpace(r.Text); text != "" && !t.Team {
		t.print(strings.Join(Wrap(guard.Visible(text), t.Style.columns()), "\n") + "\n")
	}
}

// start prints the inputs of the run.
func (t *Story) start(b *journal.RunStarted) {
	models := make([]string, len(b.Models))
	for i, m := range b.Models {
		models[i] = m.Ref
	}
	skills := make([]string, len(b.Skills))
	for i, s := range b.Skills {
		skills[i] = s.Name
	}
	t.field("agent", b.Agent.Name)
	t.field("model", strings.Join(models, ", then "))
	t.field("user", b.Principal.User+around(" (asked by ", b.Principal.Actor, ")"))
	t.field("session", toolcrib.ShortID(b.Session))
	t.field("started by", when(b.Given != nil, string(b.Parent)))
	caller := around(", called by agent ", t.Caller, "")
	t.field("part of", when(b.Given == nil, around("", toolcrib.ShortID(b.Parent), caller)))
	t.field("workspace", b.Workspace)
	t.field("started", t.narrator.began.Local().Format("2006-01-02 15:04:05 MST"))
	tools := Count(len(b.Offer.Tools), "tool")
	t.field("offered", cmp.Or(around(tools+": ", strings.Join(b.Offer.Names(), ", "), ""), "no tools"))
	t.field("skills", strings.Join(skills, ", "))
	t.field("tainted by", strings.Join(b.Taint, ", "))
	if n := len(b.Input); n > 0 && b.Given == nil {
		t.print("\n" + t.Style.Hanging(t.Style.Bold("❯"), b.Input[n-1].Text()))
		for _, p := range b.Input[n-1].Parts {
			if p.File != nil {
				t.note("attached: " + fileText(*p.File))
			}
		}
	}
	fmt.Fprintln(t.Out)
}

func (t *Story) field(name, value string) {
	if value != "" {
		t.print(t.Style.Hanging(t.Style.Dim(fmt.Sprintf("%-11s", name)), Line(value, 4096)))
	}
}

func (t *Story) note(text string) { t.print(t.Style.Note(Line(text, 4096))) }

// detail prints a line that belongs to the one before.
func (t *Story) detail(text string) { t.dim(4, Line(text, 4096)) }

// dim prints a visible text, indented.
func (t *Story) dim(indent int, text string) {
	for _, row := range Wrap(text, t.Style.columns()-indent) {
		t.print(t.Style.Dim(strings.Repeat(" ", indent)+row) + "\n")
	}
}

// foldedThinking is how many lines of a folded thought are shown.
const foldedThinking = 3

func (t *Story) thought(text string) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if more := len(lines) - foldedThinking; more > 0 && !t.Whole {
		lines = append(lines[:foldedThinking], "… "+Count(more, "more line"))
	}
	t.dim(2, guard.Visible(strings.Join(lines, "\n")))
}

func (t *Story) result(r Result) {
	t.print(t.Style.Call(r.Call.Name, r.Call.Arguments, r.Status))
	if r.Edited != "" {
		t.detail(r.Edited)
	}
	if t.Team && r.Status == toolcrib.ResultOK {
		return
	}
	most := foldedLines
	if t.Whole {
		most = 0
	}
	t.print(t.Style.Fold(r.ResultView, most, ""))
}

// Count formats a number with a noun: 1 round, 2 rounds.
func Count(n int, word string) string { return guard.Count(n, word) }

// Frame formats an event as one line of at most width columns, or of any length if width is 0: its
// number, kind and content.
func Frame(f journal.Frame, width int) string {
	text := fmt.Sprintf("%5d  %-21s  %s", f.Seq, f.Event, frameText(f))
	text = strings.TrimRight(guard.Visible(oneLine(text)), " ")
	if width > 0 {
		text = cut(text, width, false)
	}
	return text
}

// oneLine escapes line breaks.
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
	raw, _ := json.Marshal(f.Data) // none of the views has a value that cannot be marshaled
	return string(raw)
}
