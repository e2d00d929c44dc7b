package cli

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/providers"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/internal/terminal"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/service/mcpset"
	"github.com/toolcrib/toolcrib/service/policy"
	"github.com/toolcrib/toolcrib/store"
)

// initText is the configuration that init writes, with MODEL, SHELL and CONFIRM as placeholders for the
// answers.
//
//go:embed init.yaml
var initText string

// initAnswers are the answers to the questions of init in the form of --json.
type initAnswers struct {
	Path    string `json:"path"`
	Model   string `json:"model"` // "" means found at each start
	Shell   string `json:"shell"`
	Confirm string `json:"confirm"`
}

// choices are the answers to a question with their descriptions, the default first.
type choices [][2]string

var (
	shellChoices = choices{
		{"ask", "you are asked about each"},
		{"allowlist", "they are refused"},
		{"any", "they run"},
		{"off", "there is no shell"},
	}
	confirmChoices = choices{
		{"writes", "those that change something"},
		{"always", "all"},
		{"never", "none: only sandbox and rules hold them back"},
	}
)

func (c choices) words() (words []string) {
	for _, one := range c {
		words = append(words, one[0])
	}
	return words
}

func (c choices) text() (text string) {
	for i, one := range c {
		mark := ""
		if i == 0 {
			mark = " (default)"
		}
		text += fmt.Sprintf("  %d  %-9s  %s%s\n", i+1, one[0], one[1], mark)
	}
	return text
}

// of returns the choice for a word or number. An empty text selects the default.
func (c choices) of(text string) (string, error) {
	for i, one := range c {
		if text == one[0] || text == fmt.Sprint(i+1) || text == "" {
			return one[0], nil
		}
	}
	return "", fmt.Errorf("type a number from 1 to %d, or press enter for 1", len(c))
}

func (a *app) initCommand(cmd *cobra.Command) {
	var f initAnswers
	cmd.Flags().Func("model", "", func(text string) (err error) {
		f.Model, err = usableModel(text)
		return err
	})
	choice(cmd, "shell", &f.Shell, shellChoices.words()...)
	choice(cmd, "confirm", &f.Confirm, confirmChoices.words()...)
	a.answering(cmd, nil, func(c call) (any, func(), error) {
		f.Path = cmp.Or(a.configFlag, os.Getenv(config.EnvFile), config.FileName)
		if _, err := os.Lstat(f.Path); !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, staysAsItIs(f.Path)
		}
		err := a.askInit(&f)
		var p initProvider
		if err == nil {
			p, err = a.askProvider(f.Model)
		}
		if err == nil {
			err = a.writeInit(c, f, p)
		}
		return f, func() {
			a.says(policy.PathText(f.Path), "written")
			if p.text != "" {
				a.tell(found(doctorOf(a.service).ExamineProviders(c, localUser())))
			}
			if c, _, err := a.configurationAnyway(); err == nil {
				for _, change := range c.Changes() {
					a.notice("%s", change)
				}
			}
			a.notice("change it as you like; begin with: %s run \"What is in this folder?\"", a.self())
		}, err
	})
}

func staysAsItIs(path string) error {
	return toolcrib.Errorf(toolcrib.CodeConflict,
		"%s exists and stays as it is; edit it, or name another file with --config FILE", policy.PathText(path))
}

// usableModel returns an error if a model cannot be used without a configuration.
func usableModel(text string) (string, error) {
	_, err := config.Default().ResolveModel(text)
	return text, err
}

// askInit asks for everything that the flags do not set. Without a terminal the defaults apply.
func (a *app) askInit(f *initAnswers) error {
	found, why := "", ""
	if f.Model == "" {
		d := a.about(config.Default()).Models.Detect(true)
		if why = d.Why; d.Model.Provider.Type != config.TypeOffline {
			found = d.Model.Ref
		}
	}
	model := func(text string) (string, error) {
		if text == "" {
			return found, nil
		}
		return usableModel(text)
	}
	questions := []struct {
		value      *string
		head, text string
		means      func(string) (string, error)
	}{
		{
			&f.Model, "Which model?", fmt.Sprintf("  enter  %s (%s)\n  or type PROVIDER/MODEL, such as openai/gpt-5-mini\n",
				cmp.Or(found, "look for one at each start"), guard.Visible(why)), model,
		},
		{&f.Shell, "Commands: programs that are not known to be harmless?", shellChoices.text(), shellChoices.of},
		{&f.Confirm, "Which calls wait for your approval?", confirmChoices.text(), confirmChoices.of},
	}
	ask := func(int) (string, error) { return "", nil } // without a terminal: as if enter was pressed
	all := func() (err error) {
		for i, q := range questions {
			for given := *q.value != ""; !given; {
				text, err := ask(i)
				if err != nil {
					return err
				}
				if *q.value, err = q.means(text); err != nil {
					fmt.Fprintln(a.err, guard.Visible(err.Error()))
				}
				given = err == nil
			}
		}
		return nil
	}
	if !a.inTerminal || !a.errTerminal {
		return all()
	}
	nothing := errors.New("nothing was written")
	err := nothing
	a.asking(func(ctx context.Context, answers *terminal.Input) {
		ask = func(i int) (string, error) {
			q := questions[i]
			answers.Settle(ctx, 0)
			fmt.Fprintf(a.err, "%s\n%s%s ", a.style.Bold(fmt.Sprintf("%d of %d · %s", i+1, len(questions), q.head)), q.text,
				a.style.Cyan("❯"))
			line, err := answers.Line()
			if err != nil || ctx.Err() != nil {
				return "", nothing
			}
			return strings.TrimSpace(terminal.Pasted(line)), nil
		}
		err = all()
	})
	return err
}

// initProvider is the answer to the question about the provider of the model.
type initProvider struct {
	text   string // the section providers, or "" for none
	secret string // name under which key is stored, or ""
	key    []byte
}

// askProvider asks for the key of the model's provider, or the address of a server with the same API, if
// the environment has no key.
func (a *app) askProvider(model string) (p initProvider, err error) {
	r, err := config.Default().ResolveModel(model)
	t, _ := providers.Of(r.Provider.Type)
	if err != nil || t.KeyVariable == "" || os.Getenv(t.KeyVariable) != "" || !a.inTerminal || !a.errTerminal {
		return p, nil // no model was chosen, or it needs no key
	}
	key, err := a.typedOrNot(fmt.Sprintf("API key for %s, or the address of a server with its API, or enter for later",
		r.ProviderName))
	given := strings.TrimSpace(string(key))
	switch {
	case err != nil || given == "":
		return p, err
	case strings.HasPrefix(given, "http://"), strings.HasPrefix(given, "https://"):
		p.text = fmt.Sprintf("providers:\n  %s: {type: %s, base_url: %q}\n", r.ProviderName, t.Name, given)
	default:
		p.secret, p.key = t.KeyVariable, []byte(given)
		p.text = fmt.Sprintf("providers:\n  %s: {type: %s, api_key: \"${secret:%s}\"}\n", r.ProviderName, t.Name, p.secret)
	}
	return p, nil
}

// writeInit writes the configuration and trusts it, because its user has just given its content. It
// stores the key.
func (a *app) writeInit(ctx context.Context, f initAnswers, p initProvider) error {
	model := "#model: openai/gpt-5-mini"
	if f.Model != "" {
		model = fmt.Sprintf("model: %q", f.Model)
	}
	text := []byte(strings.NewReplacer("MODEL\n", model+"\n", "SHELL", f.Shell, "CONFIRM", f.Confirm,
		"#providers:\n", cmp.Or(p.text, "#providers:\n")).Replace(initText))
	file, err := os.OpenFile(f.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return staysAsItIs(f.Path)
	}
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Path)) // no configuration is better than half of one
	}
	if err := a.trustWritten(ctx, f.Path, text); err != nil || p.text == "" {
		return err
	}
	s, who, err := a.forAdministrators(a.changing)(ctx)
	if err == nil && p.secret != "" {
		_, err = s.Env.SetSecret(ctx, who, p.secret, p.key)
	}
	return err
}

// trustWritten trusts a configuration that was just written for its user, if it requires trust.
func (a *app) trustWritten(ctx context.Context, path string, text []byte) error {
	if !a.source().NeedsTrust() {
		return nil
	}
	folder, err := policy.TrustWritten(path, text)
	if err != nil {
		return fmt.Errorf("%s is written, but not trusted yet: %w; review it with: %s trust", policy.PathText(path), err, a.self())
	}
	a.recordTrust(ctx, store.SystemTrustGiven, folder)
	return nil
}

func (a *app) trustCommand(cmd *cobra.Command) {
	flags := cmd.Flags()
	list, revoke := flags.Bool("list", false, ""), flags.Bool("revoke", false, "")
	digest := flags.String("digest", "", "")
	a.answering(cmd, nil, func(c call) (any, func(), error) {
		dir := cmp.Or(c.arg(), ".")
		switch {
		case *list && (*revoke || *digest != "" || len(c.args) > 0):
			return nil, nil, usagef("--list: cannot be combined with other flags or DIR")
		case *revoke && *digest != "":
			return nil, nil, usagef("--digest: cannot be combined with --revoke")
		case *list:
			folders, err := policy.TrustedFolders(a.trustStore())
			return folders, func() {
				for _, f := range folders {
					fmt.Fprintln(a.out, policy.PathText(f.Dir))
				}
			}, err
		case *revoke:
			// The store is opened while the folder may still locate it. If that fails, the trust ends
			// anyway, and the notice says why it was not recorded.
			_ = a.storeOfTrust(c)
			folder, err := policy.Distrust(a.trustStore(), dir)
			if err == nil {
				a.recordTrust(c, store.SystemTrustRevoked, folder)
			}
			if _, unknown := a.serviceOfTrust(); err == nil && unknown != nil {
				err = fmt.Errorf("it is no longer trusted on this machine, but the configuration cannot be read; if that names a database, "+
					"correct it and repeat this: %w", unknown)
			}
			return folder, func() { fmt.Fprintf(a.out, "%s: no longer trusted\n", policy.PathText(dir)) }, err
		}
		return a.giveTrust(c, dir, *digest)
	})
}

// giveTrust trusts the content of a folder if it is what the person has reviewed.
func (a *app) giveTrust(c call, dir, digest string) (any, func(), error) {
	folder, err := policy.LookAt(a.trustStore(), dir)
	if err == nil {
		err = folder.Trustable()
	}
	switch {
	case err != nil:
	case digest != "" || folder.Trusted:
		err = a.trust(c, folder, cmp.Or(digest, folder.Digest))
	case a.inTerminal && a.errTerminal && !c.json:
		var agreed bool
		if agreed, err = a.asksToTrust(c, folder); err == nil && !agreed {
			err = errors.New("not trusted")
		}
	default:
		err = &exitError{code: exitUsage, message: fmt.Sprintf("--digest: is required without a terminal, so that what is "+
			"trusted is what was reviewed; for what is shown:\n%s trust %s --digest %s", a.self(), trust.ShellWord(dir),
			folder.Digest)}
	}
	return folder, func() {
		if !folder.Trusted {
			text, _ := reviewText(a.outStyle, folderHead(folder), folder.Files, false)
			fmt.Fprint(a.out, text)
			return
		}
		for _, file := range folder.Files {
			fmt.Fprintf(a.out, "trusted %s %s\n", policy.PathText(file.Path), file.Hash)
		}
	}, err
}

// trust trusts a folder that a person has reviewed, and records that.
func (a *app) trust(ctx context.Context, folder *policy.Folder, digest string) error {
	if err := folder.Trust(digest); err != nil {
		return err
	}
	a.recordTrust(ctx, store.SystemTrustGiven, folder)
	return nil
}

// asksToTrust shows what needs trust in a folder, asks whether to trust it, and trusts it if so.
func (a *app) asksToTrust(ctx context.Context, folder *policy.Folder) (agreed bool, err error) {
	question := "Trust what this folder brings: " + strconv.Quote(folder.Named) + "?"
	if a.agreesTo(question, folderHead(folder), folder.Files) != render.KeyYes {
		return false, nil
	}
	return true, a.trust(ctx, folder, folder.Digest)
}

func folderHead(folder *policy.Folder) string {
	head := policy.PathText(folder.Named) + " brings files that steer toolcrib:\n"
	for _, text := range folder.Differs {
		head += "  " + guard.Visible(text) + "\n"
	}
	return head
}

// changesText formats changes by file. File names are printed before the gutter, where the content of a
// file cannot imitate them.
func changesText(s render.Style, c *policy.Changes) string {
	var b strings.Builder
	for _, f := range c.Files {
		fmt.Fprintf(&b, "  %-8s %s\n%s", f.What, policy.PathText(f.Name),
			s.Preview(&toolcrib.Preview{Kind: "diff", Text: f.Diff}, true))
	}
	return b.String()
}

// reviewText formats the content under review: the difference for files that were trusted before,
// unless whole is set, and the whole of all others. cut is set if something was left out.
func reviewText(s render.Style, head string, files []trust.File, whole bool) (text string, cut bool) {
	var b strings.Builder
	b.WriteString(head)
	for _, f := range files {
		state := "new"
		switch f.State {
		case trust.Trusted:
			state = "trusted"
		case trust.Changed:
			state = "changed since you trusted it"
		}
		fmt.Fprintf(&b, "%s %s  %s\n", s.Bold(policy.PathText(f.Name)), state,
			s.Dim(policy.PathText(cmp.Or(f.Problem, f.Hash))))
		if f.State == trust.Trusted {
			continue
		}
		if whole {
			f.Before = nil
		}
		for _, name := range slices.Sorted(maps.Keys(f.Outside)) {
			text := fmt.Sprintf("%s leads outside of this folder: %s", policy.PathText(name), policy.PathText(f.Outside[name]))
			fmt.Fprintf(&b, "  %s\n", s.Yellow(text))
		}
		cut = cut || f.Before != nil
		b.WriteString(changesText(s, policy.ChangesOf(f.Before, f.Content)))
		if f.Name == ".mcp.json" {
			for _, line := range mcpset.FileUses(f.Content[f.Name]) {
				fmt.Fprintf(&b, "  %s\n", guard.Visible(line))
			}
		}
	}
	return b.String(), cut
}

// agreesTo shows what would be trusted page by page and asks: first the changes, then, on request,
// everything. It returns the key of the answer, yes only to content that was shown; more are further answers, for a
// question in a conversation. The key is unanswered if nobody answers, or not everything was shown.
func (a *app) agreesTo(question, head string, files []trust.File, more ...render.Key) (key string) {
	ask := func(ctx context.Context, answers *terminal.Input) {
		for whole := false; ; whole = true {
			text, cut := reviewText(a.style, head, files, whole)
			if key = unanswered; !a.pages(ctx, answers, text) {
				return
			}
			keys := append(render.YesKeys(cut), more...)
			if key = a.answer(ctx, answers, question, render.KeysText(keys)+"?", terminal.Calm, keys); key != render.KeyShow {
				return
			}
		}
	}
	if len(more) == 0 {
		a.asking(ask)
	} else if a.asked(ask) != nil {
		return unanswered
	}
	return key
}

// pages shows a text page by page. It returns false if the person answers no before the end.
func (a *app) pages(ctx context.Context, answers *terminal.Input, text string) bool {
	_, height, err := term.GetSize(int(a.in.Fd()))
	if err != nil || height < 8 {
		height = 24
	}
	rows, most := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n"), height-4
	for page, of := 1, (len(rows)+most-1)/most; ; page++ {
		n := min(most, len(rows))
		fmt.Fprint(a.err, strings.TrimSuffix(strings.Join(rows[:n], ""), "\n")+"\n")
		if rows = rows[n:]; len(rows) == 0 {
			return true
		}
		at := fmt.Sprintf("page %d of %d ·", page, of)
		switch a.answer(ctx, answers, at, "enter next page · n no?", 0, render.YesKeys(false)) {
		case render.KeyNo, unanswered:
			return false
		}
	}
}
