package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/internal/tui"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/mcpset"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/tool/shell"
)

// say sends a message: one run of the session.
func (c *chat) say(ctx context.Context, text string) error {
	if err := c.free(ctx); err != nil {
		return err
	}
	files, err := c.named(text)
	if err != nil {
		return err
	}
	return c.send(ctx, service.StartRequest{Prompt: text, Files: files})
}

// send starts a run of the session with the attachments of the next message.
func (c *chat) send(ctx context.Context, r service.StartRequest) error {
	if len(c.undone) > 0 {
		r.Prompt = fmt.Sprintf("(%s)\n\n%s", strings.Join(c.undone, "\n"), r.Prompt)
	}
	if c.mode.Load() == modePlan {
		r.Prompt = planText + r.Prompt
	}
	attachRead(&r, mcpset.Read{Files: c.with.Files, Taint: c.with.Taint})
	if err := c.run(ctx, r); err != nil {
		return err
	}
	c.with, c.undone = service.StartRequest{}, nil
	return nil
}

// free reports whether the session can start another run. If a run has not ended, it says how to
// continue.
func (c *chat) free(ctx context.Context) error {
	if c.session.Info.ID == "" {
		return nil
	}
	info, err := c.a.api.Session(ctx, c.who, string(c.session.Info.ID))
	if err != nil {
		return err
	}
	c.session.Info = info
	if !info.Busy() {
		return nil
	}
	return fmt.Errorf("the last turn (%s) has not ended: it is %s. /decide continues it, /cancel ends it", info.LastRun,
		words(info.Status))
}

// words returns a status in plain words.
func words(s toolcrib.Status) string { return strings.ReplaceAll(string(s), "_", " ") }

// run starts a run of the session and drives it to its end.
func (c *chat) run(ctx context.Context, r service.StartRequest) error {
	run, err := c.carry(ctx, c.start.Approve, nil, func(ctx context.Context, f service.Front) (service.Run, error) {
		return c.begin(ctx, r, f)
	})
	return c.ended(ctx, &run, err)
}

// ended reports the outcome of a turn.
func (c *chat) ended(ctx context.Context, run *service.Run, err error) error {
	if run.ID != "" {
		_, _ = c.runs(context.WithoutCancel(ctx)) // on error the status line keeps its text
		c.full = contextText(run)
	}
	c.showStatus()
	if err != nil {
		if cause := c.ctxCause(ctx); cause != nil {
			return cause
		}
		return c.a.cutOff(run, err)
	}
	c.leaves(exitOf(run))
	c.waits = run.Status.Parked()
	if run.Compact && run.Condensed == 0 && run.Status == toolcrib.StatusCompleted {
		c.front.Note("what was said is too short to be worth condensing")
	}
	if text := c.a.unknownModel(run); text != "" {
		c.front.Note(text)
	}
	if text := incomplete(run); text != "" {
		c.front.Note(text)
	}
	if run.Status.Parked() {
		c.front.parked(ctx, run)
	}
	if run.Usage.Requests > 0 || run.Status != toolcrib.StatusCompleted {
		c.front.costs(run)
	}
	c.a.keepNoLonger(context.WithoutCancel(ctx))
	return nil
}

// leaves records the first nonzero exit code.
func (c *chat) leaves(code int) {
	if c.exit == exitOK && code != exitCanceled {
		c.exit = code
	}
}

// left says how to continue a conversation that the user leaves, and what waits for a decision. It
// returns the exit code.
func (c *chat) left(ctx context.Context) error {
	a := c.a
	if id := c.session.Info.ID; id != "" {
		name := cmp.Or(c.session.Info.Name, toolcrib.ShortID(string(id)))
		fmt.Fprintf(a.err, "To continue: %s chat --session %s\n", a.self(), trust.ShellWord(name))
	}
	open, _ := a.api.Approvals(ctx, c.who) // if that fails, none is listed
	open = slices.DeleteFunc(open, func(v *service.Approval) bool { return v.Status != api.ApprovalPending })
	for _, v := range open[:min(len(open), maxLeft)] {
		fmt.Fprint(a.err, a.style.Hanging(a.style.Yellow("Waits:"), fmt.Sprintf("%s (%s)", callsText(v), short(v.ID))))
	}
	if len(open) > 0 {
		fmt.Fprintf(a.err, "See: %s approvals list\n", a.self())
	}
	if c.waits {
		return silent(exitParked)
	}
	return nil
}

// maxLeft bounds the approvals that are named at the end of a conversation.
const maxLeft = 3

// summary returns the cost of a turn.
func summary(run *service.Run) string {
	parts := []string{render.Number(run.Usage.TotalTokens) + " tokens"}
	if run.TokensEstimated && run.Usage.TotalTokens > 0 {
		parts[0] = "~" + parts[0]
	}
	if !run.Unpriced || run.Usage.CostUSD > 0 {
		parts = append(parts, render.Cost(run.Usage, !run.Unpriced))
	}
	if run.Duration() >= worthTelling {
		parts = append(parts, render.Duration(run.Duration()))
	}
	if run.Status == toolcrib.StatusCancelled {
		parts = append([]string{"stopped"}, parts...)
	}
	return strings.Join(parts, " · ")
}

// worthTelling is the least duration of a turn that is shown.
const worthTelling = 100 * time.Millisecond

// runs returns the runs of the session, oldest first, and sums up their cost.
func (c *chat) runs(ctx context.Context) (runs []service.Run, err error) {
	if c.session.Info.ID != "" {
		runs, err = c.a.api.SessionRuns(ctx, c.who, c.session.Info.ID)
	}
	c.spent = spent{known: true, runs: len(runs)}
	for _, rec := range runs {
		c.spent.usage = c.spent.usage.Plus(rec.Usage)
		c.spent.known = c.spent.known && !(rec.Usage.Estimated && rec.Usage.CostUSD == 0 && rec.Usage.TotalTokens > 0)
	}
	return runs, err
}

// contextText says how full the model's context is. It returns "" if its size is unknown.
func contextText(run *service.Run) string {
	if run.ContextSize <= 0 {
		return ""
	}
	return fmt.Sprintf("context %d %%", min(100*run.Context/run.ContextSize, 100))
}

// showStatus writes the status line.
func (c *chat) showStatus() {
	parts := []string{c.agent.Model, c.full}
	if u := c.spent.usage; u.TotalTokens > 0 {
		parts = append(parts, render.Number(u.TotalTokens)+" tokens")
		if c.spent.known || u.CostUSD > 0 {
			parts = append(parts, render.Cost(u, c.spent.known))
		}
	}
	name := c.session.Name
	if name == "" && c.session.Info.ID == "" {
		name = "new session"
	} else if name == "" || strings.HasPrefix(name, store.SessionPrefix) {
		name = c.session.Info.Name
	}
	parts = append(parts, name)
	if c.agent.Name != "default" {
		parts = append(parts, c.agent.Name)
	}
	if n := len(c.with.Files); n > 0 {
		parts = append(parts, render.Count(n, "file")+" attached")
	}
	c.front.Status(append(parts, "/help"))
}

// goOn continues the last run of the session and shows the user what it waits for.
func (c *chat) goOn(ctx context.Context, _ string) error {
	rec, err := c.unfinished(ctx)
	if err != nil {
		return err
	}
	q := service.ResumeRequest{Run: string(rec.ID), Approve: c.start.Approve}
	kept, err := c.a.api.KeptApprove(ctx, c.who, q)
	if err != nil {
		return err
	}
	run, err := c.carry(ctx, cmp.Or(kept, c.start.Approve), nil,
		func(ctx context.Context, f service.Front) (service.Run, error) {
			return c.a.api.Resume(ctx, c.who, q, f)
		})
	return c.ended(ctx, &run, err)
}

// unfinished returns the run that keeps the session busy.
func (c *chat) unfinished(ctx context.Context) (service.Run, error) {
	none := fmt.Errorf("no turn of this session waits for anything")
	if c.session.Info.ID == "" {
		return service.Run{}, none
	}
	rec, err := c.a.api.LastRun(ctx, c.who, c.session.Info.ID)
	if errors.Is(err, toolcrib.ErrNotFound) || err == nil && rec.Status.Ended() {
		return rec, none
	}
	return rec, err
}

// cancelLast ends the run that keeps the session busy.
func (c *chat) cancelLast(ctx context.Context, _ string) error {
	rec, err := c.unfinished(ctx)
	if err == nil {
		rec, err = c.a.api.Cancel(ctx, c.who, string(rec.ID))
	}
	if err != nil {
		return err
	}
	c.waits = false
	c.front.Note("the turn is " + string(rec.Status))
	return nil
}

// retry sends the last message again, without the answer it had.
func (c *chat) retry(ctx context.Context, _ string) error {
	if err := c.free(ctx); err != nil {
		return err
	}
	none := toolcrib.Errorf(toolcrib.CodeConflict, "there is no message to send once more")
	if c.session.Info.ID == "" {
		return none
	}
	q := service.RunsQuery{Filter: store.Filter{Session: c.session.Info.ID, TopLevel: true, Limit: 1}, Prompts: true}
	runs, _, err := c.a.api.Runs(ctx, c.who, q)
	if err != nil {
		return err
	}
	if len(runs) == 0 {
		return none
	}
	if runs[0].Prompt != "" {
		c.front.Note("once more: " + store.TitleOf(runs[0].Prompt))
	}
	return c.run(ctx, service.StartRequest{Again: true})
}

// earlier bounds the runs that are shown when a session is continued.
const earlier = 10

// recall shows the last messages of the session and what it waits for.
func (c *chat) recall(ctx context.Context, s *tui.Screen) error {
	c.full = ""
	runs, err := c.runs(ctx)
	if err != nil {
		return err
	}
	if len(runs) == 0 || s == nil || runs[len(runs)-1].PrunedAt != nil {
		return nil // pruned messages are reported with the next one
	}
	last, err := c.a.api.Run(ctx, c.who, string(runs[len(runs)-1].ID))
	if err != nil {
		return err
	}
	c.full = contextText(&last)
	if n := len(runs) - earlier; n > 0 {
		s.Note(fmt.Sprintf("%s before; toolcrib sessions show %s", render.Count(n, "turn"), c.session.Info.ID))
		runs = runs[n:]
	}
	return c.retell(ctx, runs, s.Said, func(f journal.Frame) { s.Frame(f) })
}

// retell shows what was said in runs, without those that were pruned.
func (c *chat) retell(ctx context.Context, runs []service.Run, said func(string), frame func(journal.Frame)) error {
	for _, rec := range runs {
		for e, err := range c.a.api.Journal(ctx, c.who, rec.ID) {
			if errors.Is(err, store.ErrPruned) {
				break
			}
			if err != nil {
				return err
			}
			switch b := e.Body.(type) {
			case *journal.RunStarted:
				if b.Given == nil && len(b.Input) > 0 {
					said(b.Input[len(b.Input)-1].Text())
				}
			case *journal.Said:
				said(b.Text)
			}
			if f, ok := journal.View(rec.ID, e); ok {
				frame(f)
			}
		}
	}
	return nil
}

// undoLooked bounds the turns of a session that are searched for one that wrote files.
const undoLooked = 50

// undo restores the files that the last writing turn changed. Each file is restored by a call of
// write_file through the gate; a file that the turn created is removed once that call has emptied it.
func (c *chat) undo(ctx context.Context, _ string) error {
	runs, err := c.runs(ctx)
	if err != nil {
		return err
	}
	for i := len(runs) - 1; i >= 0 && len(runs)-i <= undoLooked; i-- {
		if runs[i].PrunedAt != nil {
			break
		}
		files, err := c.a.api.Undoable(ctx, c.who, runs[i].ID, c.workspace)
		if err != nil {
			return err
		}
		if len(files) > 0 {
			return c.undoTurn(ctx, runs[i].ID, files)
		}
	}
	c.front.Note("no turn of this session has changed a file that is still as it left it")
	return nil
}

// undoTurn restores the files that one turn wrote.
func (c *chat) undoTurn(ctx context.Context, run toolcrib.RunID, files []api.Undo) error {
	var back []string
	for _, u := range files {
		if u.Problem != "" {
			c.front.Warn(u.Problem)
			continue
		}
		ok, err := c.putBack(ctx, run, u)
		if err != nil {
			return err
		}
		if ok {
			back = append(back, u.Path)
		}
	}
	if len(back) > 0 {
		c.undone = append(c.undone, "Your changes of "+strings.Join(back, ", ")+" were undone.")
		c.front.Note("the model will be told with your next message")
	}
	return nil
}

// putBack restores the former content of a file by a call through the gate.
func (c *chat) putBack(ctx context.Context, of toolcrib.RunID, u api.Undo) (ok bool, err error) {
	raw, err := json.Marshal(map[string]string{"path": u.Path, "content": u.Content})
	if err != nil {
		return false, err
	}
	run, err := c.givenCall(ctx, undoTool, raw)
	if err != nil || run == nil {
		return false, err
	}
	ok, removal := run.Trace[0].Status == toolcrib.ResultOK, error(nil)
	if u.Made && ok {
		removal = c.a.api.RemoveMade(ctx, c.who, of, u.Path, run.ID)
	}
	switch {
	case run.Status.Parked():
		c.front.Note("the undo waits for a decision: toolcrib approvals show last")
		return false, nil
	case !ok:
		c.front.Warn(u.Path + " is left as it is")
		return false, nil
	case removal != nil:
		c.front.Warn(fmt.Sprintf("%s did not exist before, but stays: %v", u.Path, removal))
	case u.Made:
		c.front.Note(u.Path + " did not exist before; it is removed")
	default:
		c.front.Note(fmt.Sprintf("%s is as it was (%d bytes)", u.Path, len(u.Content)))
	}
	return true, nil
}

// undoTool is the tool that restores a file.
const undoTool = "write_file"

// givenCall makes one call without a model, like the command tools call. It returns nil if the call was
// interrupted, which has been reported.
func (c *chat) givenCall(ctx context.Context, name string, raw []byte) (*service.Run, error) {
	start := service.StartRequest{Given: c.a.api.GivenCall(name, raw)}
	if name == shell.Name {
		start.Approve = agent.ApproveAsk // [ownCommand] answers
	}
	do := func(ctx context.Context, f service.Front) (service.Run, error) { return c.begin(ctx, start, f) }
	run, err := c.carry(ctx, c.start.Approve, start.Given, do)
	if err != nil {
		c.front.Warn(strings.TrimSpace(c.a.cutOff(&run, err).Error()))
		return nil, c.ctxCause(ctx)
	}
	return &run, nil
}
