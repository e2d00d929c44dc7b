package cli

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/terminal"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/store"
)

// initText is the configuration that init writes. MODEL, SHELL and CONFIRM stand for the
// answers.
//
//go:embed init.yaml
var initText string

// initAnswers are the answers to the questions of init, as --json shows them.
type initAnswers struct {
	Path    string `json:"path"`
	Model   string `json:"model"` // "" = found at each start
	Shell   string `json:"shell"`
	Confirm string `json:"confirm"`
}

// choices are the answers to a question, the usual one first, with what each means.
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
		text += fmt.Sprintf("  %d  %-9s  %s\n", i+1, one[0], one[1])
	}
	return text
}

// of is the choice that a person means by its word or number, or by just pressing enter.
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
		if err == nil {
			err = a.writeInit(c, f)
		}
		return f, func() {
			a.says(pathText(f.Path), "written")
			a.notice("change it as you like; begin with: %s run \"What is in this folder?\"", a.self())
		}, err
	})
}

func staysAsItIs(path string) error {
	return toolcrib.Errorf(toolcrib.CodeConflict,
		"%s exists and stays as it is; edit it, or name another file with --config FILE", pathText(path))
}

// usableModel returns an error if a model cannot be used without a configuration.
func usableModel(text string) (string, error) {
	r, err := config.Default().ResolveModel(text)
	if err == nil && !service.SupportedType(r.Provider.Type) {
		err = fmt.Errorf("this version cannot use models of %s", r.ProviderName)
	}
	return text, err
}

// askInit asks what the flags do not say. Without a terminal the usual answers hold.
func (a *app) askInit(f *initAnswers) error {
	found, why := "", ""
	if f.Model == "" {
		d := a.about(config.Default()).Detect(true)
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
		{
			&f.Shell, "Commands: programs that are not known to be harmless?", shellChoices.text(), shellChoices.of,
		},
		{&f.Confirm, "Which calls wait for your approval?", confirmChoices.text(), confirmChoices.of},
	}
	ask := func(i int) (string, error) { return "", nil } // nobody is there: as if enter was pressed
	all := func() error {
		for i, q := range questions {
			for given := *q.value != ""; !given; {
				text, err := ask(i)
				if err != nil {
					return err
				}
				value, err := q.means(text)
				if given = err == nil; given {
					*q.value = value
				} else {
					fmt.Fprintln(a.err, guard.Visible(err.Error()))
				}
			}
		}
		return nil
	}
	if !a.inTerminal || !a.errTerminal {
		return all()
	}
	err := errors.New("nothing was written")
	a.asking(func(ctx context.Context, answers *terminal.Input) {
		ask = func(i int) (string, error) {
			q := questions[i]
			answers.Settle(ctx, 0)
			fmt.Fprintf(a.err, "%s\n%s%s ", a.style.Bold(fmt.Sprintf("%d of %d · %s", i+1, len(questions), q.head)), q.text,
				a.style.Cyan("❯"))
			line, err := answers.Line()
			if err != nil || ctx.Err() != nil {
				return "", errors.New("nothing was written")
			}
			return strings.TrimSpace(terminal.Pasted(line)), nil
		}
		err = all()
	})
	return err
}

// writeInit writes the configuration, and trusts it: its user has just said what it says.
func (a *app) writeInit(ctx context.Context, f initAnswers) error {
	model := "#model: openai/gpt-5-mini"
	if f.Model != "" {
		model = fmt.Sprintf("model: %q", f.Model)
	}
	text := []byte(strings.NewReplacer("MODEL\n", model+"\n", "SHELL", f.Shell, "CONFIRM", f.Confirm).Replace(initText))
	file, err := os.OpenFile(f.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return staysAsItIs(f.Path)
	}
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Path)) // half a configuration is worse than none
	}
	if !config.Find(a.configFlag, os.Getenv).NeedsTrust() {
		return nil
	}
	folder, err := service.TrustWritten(f.Path, text)
	if err != nil {
		return fmt.Errorf("%s is written, but not trusted yet: %w; review it with: %s trust", f.Path, err, a.self())
	}
	a.recordTrust(ctx, store.SystemTrustGiven, folder)
	return nil
}
