package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/internal/tui"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/policy"
	"github.com/toolcrib/toolcrib/store"
)

// slash is a command of a conversation.
type slash struct {
	name, args, does string
	do               func(c *chat, ctx context.Context, args string) error
}

// errLeave ends a conversation.
var errLeave = errors.New("leave")

// slashes are the commands, in the order in which /help lists them.
func slashes() []slash {
	return []slash{
		{"/help", "", "this list", (*chat).help},
		{"/model", "[MODEL]", "which model answers; with a name, change it", (*chat).model},
		{"/agent", "[NAME]", "which agent answers; with a name, change it", (*chat).answering},
		{"/mode", "[MODE]", strings.Join(modes[:], ", ") + "; or shift-tab", (*chat).setMode},
		{"/tools", "[a,b|all|none]", "what may be called; with a list, change it", (*chat).tools},
		{"/cost", "", "tokens and cost of this session", (*chat).cost},
		{"/memory", "[KEY]", "notes that models keep about you", (*chat).memory},
		{"/attach", "[FILE|none]", "an image, PDF, text or SERVER:URI goes with the next message", (*chat).attach},
		{"/compact", "", "condense what was said so far", (*chat).condense},
		{"/retry", "", "send the last message once more, without its answer", (*chat).retry},
		{"/undo", "", "put back the files that the last turn changed", (*chat).undo},
		{"/show", "[N]", "show something folded whole; ctrl-o shows the last", (*chat).show},
		{"/decide", "", "continue with a turn that waits for you", (*chat).goOn},
		{"/cancel", "", "end a turn that waits", (*chat).cancelLast},
		{"/clear", "", "begin a new session", (*chat).clear},
		{"/resume", "[NAME]", "list sessions; with a name or number, continue one", (*chat).sessions},
		{"/sessions", "[NAME]", "the same as /resume", (*chat).sessions},
		{"/trust", "", "review what this folder brings, and trust it", (*chat).trust},
		{"/quit", "", "leave; exit and ctrl-d do too", func(*chat, context.Context, string) error { return errLeave }},
	}
}

// habits maps commands of other programs to ours.
var habits = map[string]string{
	"exit": "/quit", "quit": "/quit", "/exit": "/quit", "/q": "/quit", "?": "/help", "/new": "/clear", "/reset": "/clear",
	"/models": "/model", "/context": "/cost", "/usage": "/cost", "/status": "/cost",
}

// do handles one line of input: a command or a message. A message that starts with a slash is typed
// with two.
func (c *chat) do(ctx context.Context, line string) error {
	line = strings.TrimSpace(line)
	if to, ok := habits[line]; ok {
		if own, _ := c.customs(); own[line].whose == "" {
			line = to
		}
	}
	if strings.HasPrefix(line, "//") {
		return c.say(ctx, line[1:])
	}
	if command, ok := strings.CutPrefix(line, "!"); ok && strings.TrimSpace(command) != "" {
		return c.command(ctx, strings.TrimSpace(command))
	}
	if !strings.HasPrefix(line, "/") {
		return c.say(ctx, line)
	}
	name, args, _ := strings.Cut(line, " ")
	var names []string
	for _, s := range slashes() {
		if s.name == name {
			return s.do(c, ctx, strings.TrimSpace(args))
		}
		names = append(names, s.name)
	}
	customs, unread := c.customs()
	if own, ok := customs[name]; ok {
		if own.prompt != nil {
			return c.prompt(ctx, *own.prompt, args)
		}
		return c.say(ctx, withArguments(own.text, strings.TrimSpace(args)))
	}
	text := fmt.Sprintf("there is no command %s", store.TitleOf(name))
	if near := guard.Nearest(name, names); near != "" {
		text += fmt.Sprintf("; did you mean %s?", near)
	}
	return errors.New(strings.Join(append(unread, text+" (/help lists them; type // to begin a message with a slash)"), "\n"))
}

func (c *chat) help(context.Context, string) error {
	var rows [][2]string
	for _, s := range slashes() {
		rows = append(rows, [2]string{s.name + " " + s.args, s.does})
	}
	own, unread := c.customs()
	for _, text := range unread {
		c.front.Warn(text)
	}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		o := own[name]
		does := "(" + o.whose + ") " + store.TitleOf(guard.Visible(o.does))
		rows = append(rows, [2]string{name + " " + guard.Visible(o.args), does})
	}
	c.list(append(rows, [][2]string{
		{"!COMMAND", "run a command yourself, in the sandbox, without a question"},
		{"@FILE", "a file of the workspace goes with the message"},
		{"enter", "send; alt-enter or \\ and enter: a new line"},
		{"up, down, ctrl-r", "what you sent before; search in it"},
		{"tab", "complete a command, or a file after @"},
		{"shift-tab", "change the mode"},
		{"esc, ctrl-c", "stop the turn; ctrl-c twice without one: leave"},
	}...))
	return nil
}

// list writes names and their descriptions.
func (c *chat) list(rows [][2]string) {
	style := c.a.helpStyle()
	style.Color = false
	c.front.Text(strings.TrimRight(twoColumns(style, rows), "\n"))
}

func (c *chat) model(ctx context.Context, name string) error {
	if name == "" {
		text := "model: " + c.agent.Model
		if len(c.agent.Fallback) > 0 {
			text += ", then " + strings.Join(c.agent.Fallback, ", ")
		}
		if names := c.modelNames(); len(names) > 0 {
			text += "\nconfigured: " + strings.Join(names, ", ")
		}
		c.front.Text(text + "\nany other: PROVIDER/MODEL; `toolcrib models list` shows what is known")
		return nil
	}
	r := c.start
	r.Model = name
	return c.change(ctx, r, func(toolcrib.Agent) string {
		c.full = ""
		return name + " answers"
	})
}

// modelNames returns the names of the configured models.
func (c *chat) modelNames() (names []string) {
	models, _ := c.a.api.Models(c.who, "", true) // on error the list is empty
	for _, m := range models {
		if m.Detected == "" {
			names = append(names, m.Name)
		}
	}
	return names
}

func (c *chat) tools(ctx context.Context, list string) error {
	r := c.start
	switch list {
	case "":
	case "all":
		r.Tools = nil
	case "none":
		r.Tools = []string{}
	default:
		r.Tools = splitList(list)
	}
	c.set(r, c.agent)
	specs, err := c.offered(ctx)
	if err != nil {
		return err
	}
	if len(specs) == 0 {
		c.front.Text("no tools are offered; `toolcrib tools explain` says why")
		return nil
	}
	var rows [][2]string
	for _, s := range specs {
		effect := "reads  "
		if s.Effect.Writes() {
			effect = "writes "
		}
		about, _, _ := strings.Cut(strings.Join(strings.Fields(s.Description), " "), ". ")
		rows = append(rows, [2]string{s.Name, effect + strings.TrimSuffix(about, ".")})
	}
	c.list(rows)
	return nil
}

// offered returns the tools that the next run may call.
func (c *chat) offered(ctx context.Context) (specs []policy.Tool, err error) {
	c.mu.Lock()
	r := c.start
	c.mu.Unlock()
	r.ReadOnly = r.ReadOnly || c.mode.Load() >= modeReadOnly
	x, err := c.a.api.Explain(ctx, c.who, r.Explain())
	if err != nil {
		return nil, err
	}
	tools, err := c.a.api.Tools(ctx, c.who)
	for _, one := range x.Tools {
		i := slices.IndexFunc(tools, func(t policy.Tool) bool { return t.Name == one.Tool })
		if one.Offered && i >= 0 {
			specs = append(specs, tools[i])
		}
	}
	return specs, err
}

func (c *chat) cost(context.Context, string) error {
	u := c.spent.usage
	cost := render.Cost(u, c.spent.known)
	if cost == "?" {
		cost = "no price is known"
	}
	c.front.Text(fmt.Sprintf("%s of this session: %s, %s, %s", render.Count(c.spent.runs, "turn"),
		render.Count(u.Requests, "request"), render.Tokens(u, u.Estimated), cost))
	return nil
}

func (c *chat) attach(ctx context.Context, path string) error {
	switch {
	case path == "none":
		c.with = service.StartRequest{}
	case path == "" && len(c.with.Files) == 0:
		c.front.Note("nothing is attached; /attach FILE does")
		return nil
	case path != "":
		if err := c.a.attachTo(ctx, c.who, &c.with, "/attach", path); err != nil {
			return err
		}
	}
	names := make([]string, len(c.with.Files))
	for i, f := range c.with.Files {
		names[i] = fmt.Sprintf("%s (%s, %s bytes)", f.Name, f.MediaType, render.Number(int64(len(f.Data))))
	}
	c.front.Note("with the next message: " + strings.Join(append(names, "")[:max(len(names), 1)], ", "))
	c.showStatus()
	return nil
}

func (c *chat) show(context.Context, string) error {
	return fmt.Errorf("nothing is folded here; `toolcrib runs show last --whole` shows a run whole")
}

func (c *chat) clear(context.Context, string) error {
	c.session, c.spent, c.full = &service.Session{}, spent{known: true}, ""
	c.with, c.undone, c.waits = service.StartRequest{}, nil, false
	c.front.Note("a new session begins with your next message")
	c.showStatus()
	return nil
}

// condense condenses the session in a run of its own, which records it in the journal and keeps the
// taint of untrusted data. Its notice reports how much was saved.
func (c *chat) condense(ctx context.Context, _ string) error {
	if c.session.Info.ID == "" {
		c.front.Note("nothing was said in this session yet")
		return nil
	}
	if err := c.free(ctx); err != nil {
		return err
	}
	return c.run(ctx, service.StartRequest{Compact: true})
}

// sessionsShown bounds the list of sessions.
const sessionsShown = 20

func (c *chat) sessions(ctx context.Context, name string) error {
	if n, err := strconv.Atoi(name); err == nil && 1 <= n && n <= len(c.listed) {
		name = string(c.listed[n-1])
	}
	if name != "" {
		session, err := c.a.api.EnterSession(ctx, c.who, name)
		if err != nil {
			return err
		}
		c.session, c.with, c.undone = session, service.StartRequest{}, nil
		if session.Info.ID == "" {
			c.front.Note("a new session " + name + " begins with your next message")
		}
		return c.began(ctx)
	}
	page, err := c.a.api.Sessions(ctx, c.who, store.SessionFilter{User: c.who.User, Limit: sessionsShown})
	if err != nil {
		return err
	}
	if len(page.Sessions) == 0 {
		c.front.Note("there is no session yet")
		return nil
	}
	b := strings.Builder{}
	rows := [][]string{{"", "CHANGED", "STATUS", "NAME", "BEGINS WITH"}}
	c.listed = nil
	for i, s := range page.Sessions {
		number, name := fmt.Sprintf("  %2d", i+1), s.Name
		if s.ID == c.session.Info.ID {
			number = fmt.Sprintf("> %2d", i+1)
		}
		c.listed = append(c.listed, s.ID)
		rows = append(rows, []string{number, day(s.UpdatedAt), words(s.Status), name, s.Title})
	}
	style := c.a.outStyle
	style.Color = false
	style.Table(&b, rows)
	c.front.Text(b.String() + "\n/resume NUMBER or NAME continues one; with a new name it begins another")
	return nil
}

// complete returns the completions of a line.
func (c *chat) complete(line string) (all []string) {
	if at := strings.LastIndexAny(line, " \n") + 1; strings.HasPrefix(line[at:], "@") {
		return c.completeFile(line[:at], line[at+1:])
	}
	var words []string
	name, _, args := strings.Cut(line, " ")
	switch {
	case !args:
		for _, s := range slashes() {
			words = append(words, s.name+" ")
		}
		customs, _ := c.customs()
		for _, custom := range slices.Sorted(maps.Keys(customs)) {
			words = append(words, custom+" ")
		}
	case name == "/model":
		words = c.modelNames()
		if c.a.remote == nil {
			for _, p := range c.a.config.ProviderNames() {
				words = append(words, p+"/")
			}
		}
	case name == "/agent":
		all, err := c.a.agents(context.Background(), c.who)
		words, _ = listed(all, func(g shownAgent) string { return g.Name }, err)
	case name == "/mode":
		words = modes[:]
	case name == "/tools":
		words = []string{"all", "none"}
		specs, _ := c.offered(context.Background()) // on error there are no completions
		for _, s := range specs {
			words = append(words, s.Name)
		}
	}
	for _, word := range words {
		if args {
			word = name + " " + word
		}
		if strings.HasPrefix(word, line) && !slices.Contains(all, word) {
			all = append(all, word)
		}
	}
	return all
}

// began shows the state of the conversation and asks what it waits for.
func (c *chat) began(ctx context.Context) error {
	screen := (*tui.Screen)(nil)
	if on, ok := c.front.(*screenFront); ok {
		screen = on.Screen
	}
	if err := c.recall(ctx, screen); err != nil {
		return err
	}
	c.showStatus()
	c.waits = false
	rec, err := c.unfinished(ctx)
	if err != nil {
		return nil //nolint:nilerr // no run is unfinished
	}
	c.waits = rec.Status.Parked()
	switch {
	case rec.Driven:
		c.front.Note(fmt.Sprintf("another process is continuing the last turn (%s)", rec.ID))
	case rec.Status == toolcrib.StatusRunning || rec.Status == toolcrib.StatusQueued:
		c.front.Note("the last turn was cut off; /decide continues it, /cancel ends it")
	case screen != nil && rec.Status != toolcrib.StatusWaitingForProvider:
		return c.goOn(ctx, "")
	default:
		c.front.Note(fmt.Sprintf("the last turn waits (%s); /decide continues it, /cancel ends it", words(rec.Status)))
	}
	return nil
}
