package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/acp"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/internal/ulid"
	"github.com/toolcrib/toolcrib/internal/version"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/store"
)

func (a *app) acpCommand(cmd *cobra.Command) {
	var f runFlags
	flags := cmd.Flags()
	flags.Func("agent", "", filled(&f.agent))
	flags.FuncP("model", "m", "", filled(&f.model))
	flags.StringArrayVar(&f.skills, "skill", nil, "")
	flags.BoolVar(&f.readOnly, "read-only", false, "")
	flags.StringVar(&f.tools, "tools", "", "")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if a.inTerminal {
			fmt.Fprintf(a.err, "%s acp speaks the Agent Client Protocol on standard input and output; docs/acp.md says how an "+
				"editor starts it. It ends with ctrl-d.\n", a.self())
		}
		a.inTerminal = false // standard input belongs to the editor
		ctx, stop := a.interruptible(cmd.Context(), "a signal", a.err)
		defer stop()
		host := &editorHost{a: a, cmd: cmd, flags: f, folders: map[string]*editorFolder{}}
		err := acp.New(acp.Options{Host: host, Version: version.Version(), Mask: a.masker.Mask}).Run(ctx, a.in, a.out)
		err = errors.Join(err, host.close())
		if cause := context.Cause(ctx); cause != nil {
			return silent(codeOf(cause))
		}
		return err
	}
}

// editorHost opens the conversations of an editor.
type editorHost struct {
	a     *app // has the data folder, which it opens under the configuration of the first folder
	cmd   *cobra.Command
	flags runFlags

	mu      sync.Mutex // held while a session is opened
	folders map[string]*editorFolder
}

// editorFolder has the configuration, the skills and the MCP servers of a folder. It is kept while it has sessions.
type editorFolder struct {
	*app
	uses int
}

// use returns the app for a folder, until the caller calls release.
func (h *editorHost) use(folder string) (*editorFolder, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.folders[folder]
	if f == nil {
		f = &editorFolder{app: h.a.elsewhere(folder)}
		c, err := f.configuration()
		if err != nil {
			return nil, err
		}
		if h.a.service == nil {
			h.a.folder, h.a.config = folder, c
		}
		data, _, err := h.a.knowing(h.cmd.Context())
		if err != nil {
			return nil, err
		}
		f.acting, f.service = h.a.acting, data.Beside(c, f.source())
		if _, _, err = f.knowing(h.cmd.Context()); err != nil {
			return nil, err
		}
		f.mask() // learns the secrets of the configuration
		h.folders[folder] = f
	}
	f.uses++
	return f, nil
}

// release ends the MCP servers and the logs of a folder that is no longer in use. A later session reads its
// configuration again.
func (h *editorHost) release(f *editorFolder) {
	h.mu.Lock()
	f.uses--
	unused := f.uses == 0 && h.folders[f.folder] == f
	if unused {
		delete(h.folders, f.folder)
	}
	h.mu.Unlock()
	if unused {
		f.service.MCP.Close()
		_ = f.close() // logs
	}
}

// close closes the data folder, and the MCP servers and logs of the folders.
func (h *editorHost) close() (err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.folders {
		f.service.MCP.Close()
		err = errors.Join(err, f.close())
	}
	clear(h.folders)
	return errors.Join(err, h.a.close())
}

// editorSession begins the names of sessions that began in an editor, which knows them by these names.
const editorSession = "acp-"

// Open implements [acp.Host].
func (h *editorHost) Open(_ context.Context, q acp.OpenRequest, to *acp.Session) (acp.Conversation, error) {
	a, err := h.use(q.Folder)
	if err != nil {
		return nil, err
	}
	e, err := h.open(a, q, to)
	if err != nil {
		h.release(a)
		return nil, err
	}
	return e, nil
}

func (h *editorHost) open(a *editorFolder, q acp.OpenRequest, to *acp.Session) (*editor, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.flags
	f.workspace, f.session = q.Folder, q.Session
	c, err := a.newChat(h.cmd, &f)
	if err != nil {
		return nil, err
	}
	c.start.Approve, c.approve = agent.ApproveAsk, agent.ApproveAsk
	e := &editor{chat: c, to: to, pending: map[string]string{}, close: func() { h.release(a) }}
	switch {
	case q.Session == "":
		c.session = &service.Session{Name: editorSession + strings.ToLower(ulid.New("", time.Now()))}
	case c.session.Info.ID == "":
		return nil, toolcrib.Errorf(toolcrib.CodeNotFound, "there is no session %s", q.Session)
	}
	if e.log, err = a.logger(a.err, false); err != nil {
		return nil, err
	}
	e.notes = a.unused(q.Servers)
	c.front = e
	return e, nil
}

// unused returns what the person should know of MCP servers of an editor.
func (a *app) unused(servers []acp.MCPServer) (notes []string) {
	for _, m := range servers {
		if a.service.MCP.Has(m.Name, m.Command, m.Args, m.URL) {
			continue
		}
		name, add := trust.ShellWord(m.Name), m.URL
		if m.Command != "" {
			add = "-- " + trust.ShellWord(m.Command)
			for _, arg := range m.Args {
				add += " " + trust.ShellWord(arg)
			}
		}
		notes = append(notes, fmt.Sprintf("The MCP server %s of the editor is not used, because it is not in your configuration. "+
			"To use it: `%s mcp add %s %s`, then `%s mcp review %s`.", m.Name, a.self(), name, add, a.self(), name))
	}
	return notes
}

// sessionsListed bounds a page of sessions.
const sessionsListed = 50

// List implements [acp.Host].
func (h *editorHost) List(ctx context.Context, folder, cursor string) (list []acp.Listed, next string, err error) {
	a, err := h.use(folder)
	if err != nil {
		return nil, "", err
	}
	defer h.release(a)
	at, who, err := a.opened(ctx, a.reading)
	if err != nil {
		return nil, "", err
	}
	page, err := at.Sessions(ctx, who, store.SessionFilter{User: who.User, Limit: sessionsListed, Cursor: cursor})
	if err != nil {
		return nil, "", err
	}
	for _, s := range page.Sessions {
		q := service.RunsQuery{Filter: store.Filter{Session: s.ID, TopLevel: true, Limit: 1}}
		runs, _, err := at.Runs(ctx, who, q)
		if err != nil {
			return nil, "", err
		}
		if len(runs) == 0 || folder != "" && runs[0].Workspace != folder {
			continue
		}
		one := acp.Listed{ID: string(s.ID), Folder: runs[0].Workspace, Title: s.Title, Updated: s.UpdatedAt}
		if strings.HasPrefix(s.Name, editorSession) {
			one.ID = s.Name
		}
		list = append(list, one)
	}
	return list, page.Next, nil
}

// editor is a conversation in an editor.
type editor struct {
	*chat
	to    *acp.Session
	log   *slog.Logger
	notes []string     // for the person, with the first turn
	last  *service.Run // of this turn
	close func()
	reply string // answers the question of the model that the last turn waits for

	turn    sync.Mutex // held during a turn
	quiet   bool       // the editor shows the effect of a setting itself
	setting sync.Mutex
	pending map[string]string // settings that were changed during a turn
}

// ID implements [acp.Conversation].
func (e *editor) ID() string { return cmp.Or(e.session.Name, string(e.session.Info.ID)) }

// Stopped implements [acp.Conversation].
func (e *editor) Stopped() error { return e.stopped }

// Close implements [acp.Conversation].
func (e *editor) Close() { e.close() }

// Turn implements [acp.Conversation].
func (e *editor) Turn(ctx context.Context, m acp.Message) (*service.Run, error) {
	e.turn.Lock()
	defer e.turn.Unlock()
	for _, note := range e.notes {
		e.to.Say(note)
	}
	e.last, e.reply, e.notes = nil, "", nil
	e.settle(ctx)
	before := e.with
	e.with.Files = append(slices.Clip(before.Files), m.Files...)
	err := e.input(ctx, m.Text)
	if err != nil {
		e.with = before
	}
	return e.last, err
}

// input carries out a line: it answers a question of the model that waits, or is a message or a command.
func (e *editor) input(ctx context.Context, line string) error {
	rec, err := e.unfinished(ctx)
	if err == nil && rec.Status == toolcrib.StatusWaitingForInput && !strings.HasPrefix(line, "/") {
		e.reply = line
		return e.goOn(ctx, "")
	}
	name, _, _ := strings.Cut(line, " ")
	if slices.Contains(notInEditors, cmp.Or(habits[line], name)) {
		return toolcrib.Errorf(toolcrib.CodeBadRequest, "%s is for the terminal; the editor has a way of its own", name)
	}
	return e.do(ctx, line)
}

// notInEditors are the commands that an editor has itself.
var notInEditors = []string{"/help", "/attach", "/show", "/clear", "/resume", "/sessions", "/trust", "/quit"}

// Commands implements [acp.Conversation].
func (e *editor) Commands() (list []acp.Command) {
	for _, s := range slashes() {
		if !slices.Contains(notInEditors, s.name) {
			list = append(list, acp.Command{Name: s.name[1:], Args: s.args, Does: s.does})
		}
	}
	own, _ := e.customs()
	for _, name := range slices.Sorted(maps.Keys(own)) {
		if !slices.ContainsFunc(slashes(), func(s slash) bool { return s.name == name }) {
			list = append(list, acp.Command{Name: name[1:], Args: own[name].args, Does: store.TitleOf(own[name].does)})
		}
	}
	return list
}

// agentChoice is the ID of the choice of an agent.
const agentChoice = "agent"

// Choices implements [acp.Conversation].
func (e *editor) Choices() []acp.Choice {
	e.setting.Lock()
	pending := maps.Clone(e.pending)
	e.setting.Unlock()
	e.mu.Lock()
	model, name := e.agent.Model, e.agent.Name
	e.mu.Unlock()
	mode := acp.Choice{ID: acp.Mode, Name: "Mode", Current: modes[e.mode.Load()]}
	for i, m := range modes {
		mode.Options = append(mode.Options, acp.Option{Value: m, Does: modeTexts[i]})
	}
	list := []acp.Choice{mode}
	agents, _ := e.a.agents(context.Background(), e.who) // on error there is no choice
	agentNames, _ := listed(agents, func(g shownAgent) string { return g.Name }, nil)
	for _, c := range []acp.Choice{
		{ID: acp.Model, Name: "Model", Current: cmp.Or(pending[acp.Model], model), Options: optionsOf(e.modelNames())},
		{ID: agentChoice, Name: "Agent", Current: cmp.Or(pending[agentChoice], name), Options: optionsOf(agentNames)},
	} {
		if !slices.ContainsFunc(c.Options, func(o acp.Option) bool { return o.Value == c.Current }) {
			c.Options = append(c.Options, acp.Option{Value: c.Current})
		}
		if c.ID == acp.Model || len(c.Options) > 1 {
			list = append(list, c)
		}
	}
	return list
}

func optionsOf(names []string) (list []acp.Option) {
	for _, name := range names {
		list = append(list, acp.Option{Value: name})
	}
	return list
}

// Choose implements [acp.Conversation]. During a turn, a model or agent is for the next one.
func (e *editor) Choose(ctx context.Context, id, value string) error {
	switch id {
	case acp.Mode:
		i := slices.Index(modes[:], value)
		if i < 0 {
			return toolcrib.Errorf(toolcrib.CodeBadRequest, "the mode must be one of %s", strings.Join(modes[:], ", "))
		}
		e.mode.Store(int32(i))
		return nil
	case acp.Model, agentChoice:
	default:
		return toolcrib.Errorf(toolcrib.CodeBadRequest, "there is no setting %s", id)
	}
	if e.turn.TryLock() {
		defer e.turn.Unlock()
		return e.setTo(ctx, id, value)
	}
	e.mu.Lock()
	r := e.start
	e.mu.Unlock()
	if id == acp.Model {
		r.Model = value
	} else {
		r.Agent, r.Model = value, ""
	}
	if _, err := e.a.api.Ready(ctx, e.who, r); err != nil {
		return err
	}
	e.setting.Lock()
	defer e.setting.Unlock()
	e.pending[id] = value
	return nil
}

func (e *editor) setTo(ctx context.Context, id, value string) error {
	e.quiet = true
	defer func() { e.quiet = false }()
	if id == acp.Model {
		return e.model(ctx, value)
	}
	return e.answering(ctx, value)
}

// settle changes what was chosen during the last turn.
func (e *editor) settle(ctx context.Context) {
	e.setting.Lock()
	pending := e.pending
	e.pending = map[string]string{}
	e.setting.Unlock()
	for _, id := range []string{agentChoice, acp.Model} { // an agent has a model of its own
		if value := pending[id]; value != "" {
			if err := e.setTo(ctx, id, value); err != nil {
				e.Warn(err.Error())
			}
		}
	}
}

// Story implements [acp.Conversation].
func (e *editor) Story(ctx context.Context) error {
	runs, err := e.runs(ctx)
	if err == nil {
		err = e.retell(ctx, runs, e.to.Said, e.to.Frame)
	}
	if err != nil {
		return err
	}
	return e.began(ctx)
}

// Note implements [front].
func (e *editor) Note(text string) {
	if !e.quiet {
		e.to.Say(text)
	}
}

// Warn implements [front].
func (e *editor) Warn(text string) { e.to.Say(text) }

// Text implements [front].
func (e *editor) Text(text string) { e.to.Say("```\n" + strings.Trim(text, "\n") + "\n```") }

// Status implements [front].
func (e *editor) Status([]string) {}

func (e *editor) costs(*service.Run) {} // the end of the turn reports them

func (e *editor) parked(ctx context.Context, run *service.Run) {
	a, why := e.a, words(run.Status)
	at := a.waitsIn(ctx, e.who, run)
	switch {
	case run.Pending != nil && run.Pending.Error != nil:
		why = "for " + outageText(&run.Pending.Pending)
	case at != nil && at.Pending != nil && at.Pending.Ask().Secret():
		_, commands := service.NextCommands(a.self(), a.self(), at.ID, at.Pending.Ask(), true)
		e.Note("The answer is a secret, so give it on a terminal:\n  " + commands[0])
	case run.Status == toolcrib.StatusWaitingForInput:
		e.Note("Your next message is the answer; /cancel ends the turn.")
		return
	case at != nil && at.Pending != nil:
		if text := a.anotherText(e.who, at.User, at.Pending.Ask().Kind); text != "" {
			e.Note(text)
		}
	}
	e.Note("This turn waits (" + why + "); /decide continues it, /cancel ends it.")
}

// carry implements [front].
func (e *editor) carry(ctx context.Context, _ *chat, _ agent.Approve, given *toolcrib.ToolCall,
	do driving,
) (service.Run, error) {
	f := service.Front{
		Watch: e.to.Frame, Person: e, Buffers: e.to, Log: e.log, Named: e.to.Begin,
		Driving: func(before *service.Run) {
			if before != nil {
				e.to.Begin(before.ID)
			}
			for _, c := range openCalls(before) {
				e.to.Frame(journal.Frame{Event: string(journal.KindToolCall), Data: c})
			}
		},
	}
	if given != nil {
		f.Watch = nil // the command shows its result
	}
	run, err := do(ctx, f)
	e.last = &run
	return run, err
}

// Answer implements [service.Person].
func (e *editor) Answer(ctx context.Context, q service.Question) (service.Answer, bool, error) {
	if q.Ask.Kind == journal.ApprovalInput && q.Limit == nil && e.reply != "" && !q.Ask.Secret() {
		a := service.Answer{Decision: journal.DecisionAnswer, Text: e.reply}
		e.reply = ""
		return a, true, nil
	}
	return e.to.Answer(ctx, q)
}
