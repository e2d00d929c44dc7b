package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/internal/standin"
	"github.com/toolcrib/toolcrib/internal/terminal"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/internal/tui"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/policy"
)

func (a *app) configSchemaCommand(cmd *cobra.Command) {
	alwaysJSON(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		_, err := a.out.Write(append(config.Schema(), '\n'))
		return err
	}
}

func (a *app) configCheckCommand(cmd *cobra.Command) {
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usagef("config check takes no file; use: toolcrib --config %s config check", args[0])
		}
		return nil
	}
	a.answering(cmd, nil, func(call) (any, func(), error) { return a.checkConfig() })
}

// serverKeys are the top-level keys of a configuration that only a server uses.
var serverKeys = []string{"database", "listen", "bus", "telemetry", "keys", "team", "channels", "server"}

// withoutServer removes from a shown configuration the keys that only a server uses and that no file
// sets.
func withoutServer(c *config.Config, text string) string {
	var b strings.Builder
	kept := true
	for line := range strings.Lines(text) {
		if key, _, top := strings.Cut(line, ":"); top && !strings.HasPrefix(line, " ") {
			kept = !slices.Contains(serverKeys, key) || c.IsSet(key)
		}
		if kept {
			b.WriteString(line)
		}
	}
	return b.String()
}

func (a *app) configShowCommand(cmd *cobra.Command) {
	all, origin := cmd.Flags().Bool("all", false, ""), cmd.Flags().Bool("origin", false, "")
	a.answering(cmd, nil, func(call) (any, func(), error) {
		c, source, err := a.configurationAnyway()
		if err != nil {
			return nil, nil, err
		}
		a.notTrustedYet(source)
		var value any = config.ShowJSON(*c)
		if *origin {
			value = map[string]any{"config": value, "origin": c.Origins()}
		}
		return value, func() {
			text := string(config.Show(c))
			if *origin {
				text = string(config.ShowOrigin(c))
			}
			if !*all {
				text = withoutServer(c, text)
				defer a.notice("keys that only a server uses have their defaults: %s config show --all", a.self())
			}
			if a.outTerminal {
				text = guard.Visible(text)
			}
			fmt.Fprint(a.out, text)
		}, nil
	})
}

// configProblems shows errors. If there are any, the exit status is 2, as for run.
func (a *app) configProblems(all config.Errors) (any, func(), error) {
	var err error
	if len(all) > 0 {
		err = silent(exitUsage)
	}
	return append(config.Errors{}, all...), func() {
		for _, e := range all {
			fmt.Fprintln(a.err, guard.Visible(e.Error()))
		}
	}, err
}

// notTrustedYet gives a notice if the file is not trusted and therefore not used.
func (a *app) notTrustedYet(source config.Source) {
	if !source.NeedsTrust() {
		return
	}
	content, err := config.ReadFile(source.Path)
	if err != nil {
		return // it was just read; an error has been reported
	}
	if err := a.trustedAlready(source.Path, content); err != nil {
		a.notice("%v; until then run refuses, unless another file is named with --config", err)
	}
}

// configErrors returns all errors in a configuration. known are the errors of reading it; the others
// are those that its runs would report, missing values, and more.
func (a *app) configErrors(
	c *config.Config, known config.Errors, more ...config.Error,
) (all, warnings config.Errors, err error) {
	kept := a.about(c)
	warnings, err = kept.Policy.CheckRules()
	var found config.Errors
	if err != nil && !errors.As(err, &found) && len(known) == 0 {
		return nil, nil, err // the cause is what could not be read
	}
	skills, err := kept.Policy.SkillProblems()
	if err != nil && len(known) == 0 {
		return nil, nil, err
	}
	found = slices.Concat(found, skills, kept.FileProblems(), more)
	all = known
	for _, e := range found {
		key := e.Key
		if strings.HasPrefix(key, "rules[") { // a rule is checked as a whole
			key, _, _ = strings.Cut(key, ".")
		}
		if !slices.ContainsFunc(known, func(k config.Error) bool { return config.About(k, key) }) {
			all = append(all, e)
		}
	}
	return all.Sorted(), warnings, nil
}

// checkConfig prints every error, and notices about settings that this version does not support.
func (a *app) checkConfig() (any, func(), error) {
	source := a.source()
	c, known := config.Examine(source)
	if c == nil {
		return a.configProblems(known)
	}
	all, warnings, err := a.configErrors(c, known, a.about(c).PlaceProblems()...)
	if err != nil {
		return nil, nil, err
	}
	var notices []string
	for _, w := range warnings {
		notices = append(notices, w.Error())
	}
	if len(known) == 0 {
		unknown, wrong, err := a.unknownInConfig(c)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, wrong...).Sorted()
		notices = slices.Concat(notices, unknown, env.ClearNotify(c))
	}
	for _, text := range notices {
		a.note(text)
	}
	a.notTrustedYet(source)
	list, text, err := a.configProblems(all)
	switch {
	case len(all) > 0:
	case source.Origin == config.OriginNone:
		text = func() { fmt.Fprintln(a.out, "no configuration file: every key has its default") }
	default:
		text = func() { a.says(source.Path, "ok") }
	}
	return list, text, err
}

// source returns where the configuration is.
func (a *app) source() config.Source { return config.FindIn(a.folder, a.configFlag, os.Getenv) }

// configuration returns the configuration, which is read once. A configuration in the current folder is
// used only if it is trusted.
func (a *app) configuration() (*config.Config, error) {
	if a.config != nil {
		return a.config, nil
	}
	source := a.source()
	c, err := config.Load(source, a.trusted)
	if err != nil {
		return nil, err
	}
	a.config = c
	return c, nil
}

// configurationAnyway reads the configuration for commands that only inspect it: it does not take
// effect.
func (a *app) configurationAnyway() (*config.Config, config.Source, error) {
	source := a.source()
	c, err := config.Load(source, func(string, []byte) error { return nil })
	return c, source, err
}

// trusted accepts a configuration that its user trusts. On a terminal it asks the user otherwise.
func (a *app) trusted(path string, content []byte) error {
	err := a.trustedAlready(path, content)
	var untrusted *trust.UntrustedError
	if !errors.As(err, &untrusted) || !a.inTerminal || !a.errTerminal {
		return err
	}
	folder, lookErr := policy.LookAt(env.TrustStore(), filepath.Dir(path))
	if lookErr != nil {
		return lookErr
	}
	// No context exists yet.
	if agreed, trustErr := a.asksToTrust(context.Background(), folder); trustErr != nil || !agreed {
		return cmp.Or(trustErr, err)
	}
	// The content that was read is the content that is used: if the file has changed since, it is not
	// trusted.
	return a.trustedAlready(path, content)
}

// trustedAlready accepts a configuration that its user trusts, without asking.
func (a *app) trustedAlready(path string, content []byte) error {
	return env.TrustStore().Require(path, content)
}

// confirm asks a yes-or-no question on the terminal. Any answer but yes is no.
func (a *app) confirm(question string) (yes bool) {
	a.asking(func(ctx context.Context, answers *terminal.Input) {
		yes = a.answer(ctx, answers, question, "[y/N]", terminal.Calm, render.YesKeys(false)) == render.KeyYes
	})
	return yes
}

// notice writes a notice to standard error, also while a run is shown.
func (a *app) notice(format string, args ...any) { a.note(fmt.Sprintf(format, args...)) }

// note writes a notice without formatting.
func (a *app) note(text string) {
	text = shortIDs(a.mask().Mask(text))
	if screen, ok := a.noticeTo.(*tui.Screen); ok { // it wraps the text
		screen.Note(text)
		return
	}
	fmt.Fprint(a.notices(), a.style.Note(text))
}

// alert writes a warning that a person must see before continuing.
func (a *app) alert(text string) {
	fmt.Fprintf(a.notices(), "%s %s\n", a.style.Red("!"), guard.Visible(shortIDs(a.mask().Mask(text))))
}

// notices returns the writer for messages that are written while a run is shown.
func (a *app) notices() io.Writer {
	if a.noticeTo != nil {
		return a.noticeTo
	}
	return a.err
}

// passedOver gives a notice that .mcp.json of the project's folder is not trusted and therefore not used.
func (a *app) passedOver() {
	folder := cmp.Or(a.folder, ".")
	if !standin.Exists(filepath.Join(folder, ".mcp.json")) {
		return
	}
	files, _ := env.TrustStore().Check(folder, ".mcp.json") // if the record cannot be read, nothing is trusted
	for _, f := range files {
		switch f.State {
		case trust.Absent, trust.Trusted:
		default:
			a.notice("%s", trust.PassedOver(folder, f))
		}
	}
}

// svc returns the service, which is made once for the configuration in effect. It opens nothing yet.
func (a *app) svc() (*service.Service, error) {
	c, err := a.configuration()
	if err != nil {
		return nil, err
	}
	if a.service == nil {
		dir, err := a.dataDir()
		if err != nil {
			return nil, err
		}
		a.service = a.newService(c, dir)
		a.closers = append(a.closers, a.service)
	}
	if a.service.Env.Config != c {
		a.service, a.api = a.service.Under(c), nil
	}
	if a.api == nil { // sessions of an editor read it meanwhile
		a.api = localBackend(a.service)
	}
	return a.service, nil
}

func (a *app) newService(c *config.Config, dir string) *service.Service {
	if a.before != nil {
		a.before(c, dir)
	}
	o := env.Options{
		Config: c, Source: a.source(), DataDir: dir, Mask: a.masker, Started: a.started,
		Driver: driverName, Self: a.self(), Log: a.plainLogger, NoSandbox: a.noSandbox, Notice: a.note, Alert: a.alert,
		OllamaAt: a.ollamaAt, Observe: a.observe, Tools: a.tools,
	}
	if a.inTerminal && a.errTerminal {
		o.Confirm = a.confirm
	}
	return service.New(o)
}

// about returns a service for a configuration that is only inspected. The configuration does not take
// effect.
func (a *app) about(c *config.Config) *service.Service {
	if a.service != nil {
		return a.service.Under(c)
	}
	dir := a.dataFlag
	if dir == "" {
		dir, _ = c.DataDir.Resolve(config.Resolver{}) // config check reports errors of it
	}
	return a.newService(c, dir)
}
