package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/tui"
	"github.com/toolcrib/toolcrib/service"
)

func (a *app) chatCommand(cmd *cobra.Command) {
	var f runFlags
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.chat(cmd, &f) }

	flags := cmd.Flags()
	a.askingFlags(cmd, &f)
	a.sessionFlags(cmd, &f)
	flags.BoolVar(&f.json, "json", false, "")
}

// chat is a conversation: what holds for its next turn.
type chat struct {
	a     *app
	p     *service.Prepared // of its next turn
	front front

	files    []toolcrib.OutputFile // go with the next message
	taint    []string              // untrusted data that is in them
	undone   []string              // what was done of which the model does not know
	mode     atomic.Int32          // index into modes; the screen changes it at any time
	readOnly bool                  // the agent is, or was told to be
	told     bool                  // it was
	approve  agent.Approve         // as the conversation began

	spent  spent
	full   string               // how full the model's context is; "" = unknown
	listed []toolcrib.SessionID // by the last /sessions
	waits  bool                 // the last turn of the session waits for a person
	exit   int                  // the first exit code of a turn that was not 0
}

// front is where a conversation takes place.
type front interface {
	// carry drives a run, and puts what it waits for to the person. given is its one call
	// without a model; nil = it has one.
	carry(ctx context.Context, c *chat, approve agent.Approve, given *toolcrib.ToolCall, do driving) (service.Run, error)
	note(text string)  // an aside
	warn(text string)  // what went wrong
	print(text string) // what a command has to say
	status(parts []string)
	parked(ctx context.Context, run *service.Run) // a turn is left waiting
}

// spent sums up what the session has cost.
type spent struct {
	usage toolcrib.Usage
	known bool // the price of every model
	runs  int
}

func (a *app) chat(cmd *cobra.Command, f *runFlags) error {
	ctx := cmd.Context()
	c, err := a.newChat(cmd, f)
	if err != nil {
		return err
	}
	screen := a.inTerminal && a.outTerminal && a.errTerminal
	if screen && f.json {
		return usagef("--json: is for scripts; give the messages on standard input")
	}
	history, err := a.inputHistory(c.p.Who)
	if err != nil {
		return err
	}
	if name := os.Getenv("TERM"); screen && name != "dumb" && (name != "" || runtime.GOOS == "windows") {
		return a.chatOnScreen(ctx, c, history)
	}
	return a.chatInLines(ctx, c, history, f.json)
}

// newChat reads what a conversation begins with; what is wrong with it is told
// before anything is said.
func (a *app) newChat(cmd *cobra.Command, f *runFlags) (*chat, error) {
	if len(f.attach) > maxAttached {
		return nil, usagef("--attach: %d files, at most %d go with a message", len(f.attach), maxAttached)
	}
	prepare := a.prepare
	if a.remote != nil {
		prepare = a.prepareThere
	}
	p, err := prepare(cmd, f, false)
	if err != nil {
		return nil, err
	}
	c := &chat{
		a: a, p: p, spent: spent{known: true}, readOnly: p.Agent.ReadOnly, told: p.Agent.ToldReadOnly, approve: p.Approve,
	}
	var first agent.Task
	if err := a.attachTo(cmd.Context(), p.Who, &first, "--attach", f.attach...); err != nil {
		return nil, err
	}
	c.files, c.taint = first.Files, first.Taint
	if _, _, err := a.opened(cmd.Context(), a.changing); err != nil {
		return nil, err
	}
	switch p.Session = (&service.Session{}); {
	case f.last:
		p.Session, err = a.api.LastConversation(cmd.Context(), p.Who)
	case f.session != "":
		p.Session, err = a.api.EnterSession(cmd.Context(), p.Who, f.session)
	}
	if err != nil || a.remote != nil {
		return c, err
	}
	return c, a.openHere(cmd.Context(), p)
}

// begin starts a run of the conversation.
func (c *chat) begin(ctx context.Context, task agent.Task, f service.Front) (service.Run, error) {
	if c.a.remote == nil {
		return c.p.Run(ctx, task, f)
	}
	return c.a.remote.RunOf(ctx, c.p, task, f)
}

// inputHistory is what the user has typed in conversations before.
func (a *app) inputHistory(who toolcrib.Principal) (*tui.History, error) {
	dir, err := "", error(nil)
	if a.remote == nil {
		dir, err = a.dataDir()
	} else {
		dir, err = config.Default().DataDir.Resolve(config.Resolver{}) // what is typed here stays here
	}
	if err != nil {
		return nil, err
	}
	// A user's name may hold characters that no file's name can.
	sum := sha256.Sum256([]byte(who.User))
	h, err := tui.OpenHistory(filepath.Join(dir, "chat", "history-"+hex.EncodeToString(sum[:8])+".ndjson"))
	if err != nil {
		a.notice("%v", err)
	}
	h.Mask = func(line string) string { return a.mask().Mask(line) }
	return h, nil
}

// carry drives one run. What it opened for itself is closed with it, and not only when the
// conversation ends.
func (c *chat) carry(
	ctx context.Context, approve agent.Approve, given *toolcrib.ToolCall, do driving,
) (service.Run, error) {
	before := len(c.a.closers)
	run, err := c.front.carry(ctx, c, approve, given, func(ctx context.Context, f service.Front) (service.Run, error) {
		if f.Person != nil {
			f.Person = modePerson{f.Person, c}
		}
		if f.Approver != nil {
			f.Approver = modeApprover{f.Approver, c}
		}
		return do(ctx, f)
	})
	for _, one := range c.a.closers[before:] {
		if closing := one.Close(); closing != nil {
			c.front.note(closing.Error())
		}
	}
	c.a.closers = c.a.closers[:before]
	return run, err
}

// ctxCause is why ctx ended, if that ends the conversation too.
func ctxCause(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil && !errors.Is(err, tui.ErrStopped) {
		return err
	}
	return nil
}
