package cli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/internal/tui"
	"github.com/toolcrib/toolcrib/store"
)

func (a *app) chatCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "chat",
		Short: "Talk with an agent on the terminal",
		Long: "Talk with an agent: each message is a run, all of them share a session, which can be gone on with later. /help tells the " +
			"commands. Without a terminal each line of standard input is a message, and the answers go to standard output.",
		Example: `toolcrib chat
toolcrib chat --session trip
toolcrib chat --session last --workspace ./site
toolcrib chat --attach plan.pdf --max-iterations 5
printf '%s\n' "What is in this folder?" "Which file is the largest?" | toolcrib chat`,
		Args: positional,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.chat(cmd, &f) },
	}
	flags := cmd.Flags()
	a.askingFlags(cmd, &f, "the first message", "the first request of each turn")
	flags.StringVar(&f.session, "session", "", "session to go on with: its ID, a name of yours (made if it is new), or last")
	flags.BoolVar(&f.json, "json", false, "without a terminal: events as JSON, one a line")
	return cmd
}

// chat is a conversation: what holds for its next turn.
type chat struct {
	*preparation // of its next turn
	front        front

	session *joining
	files   []toolcrib.OutputFile // go with the next message
	undone  []string              // files that were put back, of which the model does not know

	gate  *gate.Gate // that the turns stand on
	spent spent
	waits bool // the last turn of the session waits for somebody
	exit  int  // the first exit code of a turn that was not 0
}

// front is where a conversation takes place.
type front interface {
	// carry drives a run, and puts what it waits for to the person. given says that
	// it is one call without a model.
	carry(ctx context.Context, c *chat, d *drive, given bool, begin begin) (*agent.State, error)
	note(text string)  // an aside
	warn(text string)  // what went wrong
	print(text string) // what a command has to say
	status(parts []string)
	parked(d *drive, s *agent.State) // a turn is left waiting
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
	history, err := a.inputHistory(c.who)
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
	p, err := a.begin(cmd, f)
	if err != nil {
		return nil, err
	}
	c := &chat{preparation: p, session: &joining{}, spent: spent{known: true}}
	if len(f.attach) > maxAttached {
		return nil, usagef("--attach: %d files, at most %d go with a message", len(f.attach), maxAttached)
	}
	if c.files, err = attached("--attach", f.attach); err != nil {
		return nil, err
	}
	if _, err := a.database(cmd.Context()); err != nil {
		return nil, err
	}
	if cmd.Flags().Changed("session") {
		if c.session, err = a.enter(cmd.Context(), f.session, c.who); err != nil {
			return nil, err
		}
	}
	return c, a.openHere(cmd.Context(), p)
}

// enter finds a session to talk in. Unlike a run, a conversation takes one that is
// busy: it can decide what that waits for.
func (a *app) enter(ctx context.Context, name string, who toolcrib.Principal) (*joining, error) {
	if name == "last" {
		info, err := a.findSession(ctx, name)
		return &joining{name: cmp.Or(info.Name, string(info.ID)), info: info}, err
	}
	info, err := a.store.Session(ctx, who.User, name)
	if errors.Is(err, toolcrib.ErrNotFound) {
		if err := store.CheckSessionName(name); err != nil {
			return nil, usagef("--session: %v", err)
		}
		return &joining{name: name}, nil
	}
	if err == nil {
		err = a.service.Joinable(ctx, who, name, &info)
	}
	return &joining{name: name, info: info}, err
}

// inputHistory is what the user has typed in conversations before.
func (a *app) inputHistory(who toolcrib.Principal) (*tui.History, error) {
	dir, err := a.dataDir()
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

// drive makes the drive of the next run. The gate is the same for all of them: it
// reads what changes at each offer and each call anew.
func (c *chat) drive(ctx context.Context, task *agent.Task) (*drive, error) {
	a, set := c.a, c.setup(task)
	if c.gate == nil {
		// Tools of the gate read the store with the context that it was made with: it
		// must not end with the turn.
		d, err := a.newDrive(context.WithoutCancel(ctx), c.config, set)
		if err != nil {
			return nil, err
		}
		c.gate = d.gate
		return d, nil
	}
	return &drive{setup: set, a: a, gate: c.gate, config: c.config, dbPath: a.store.Path(), locks: a.service.Drivers}, nil
}

// carry drives one run. What it opened for itself is closed with it, and not only
// when the conversation ends; others may take up what it leaves.
func (c *chat) carry(ctx context.Context, d *drive, given bool, begin begin) (*agent.State, error) {
	before := len(c.a.closers)
	state, err := c.front.carry(ctx, c, d, given, begin)
	for _, one := range c.a.closers[before:] {
		if closing := one.Close(); closing != nil {
			c.front.note(closing.Error())
		}
	}
	c.a.closers = c.a.closers[:before]
	c.letGo()
	return state, err
}

// letGo lets go of the run that was driven. The next one is the first of locks of
// its own.
func (c *chat) letGo() {
	if err := c.a.service.Drivers.Close(); err != nil {
		c.front.note(err.Error())
	}
}

// ctxCause is why ctx ended, if that ends the conversation too.
func ctxCause(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil && !errors.Is(err, tui.ErrStopped) {
		return err
	}
	return nil
}
