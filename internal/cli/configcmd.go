package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/gate/celrule"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
)

func (a *app) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "config",
		Short:   "Check and show the configuration",
		Example: "toolcrib config check\ntoolcrib config show\ntoolcrib config schema > toolcrib.schema.json",
		Args:    cobra.ArbitraryArgs,
		RunE:    group,
	}
	cmd.AddCommand(
		&cobra.Command{
			Use:     "check",
			Short:   "Tell everything that is wrong with the configuration",
			Example: "toolcrib config check\ntoolcrib --config new.yaml config check",
			Args: func(_ *cobra.Command, args []string) error {
				if len(args) > 0 {
					return usagef("config check takes no file; use: toolcrib --config %s config check", args[0])
				}
				return nil
			},
			RunE: func(cmd *cobra.Command, _ []string) error { return a.checkConfig(cmd.Context()) },
		},
		&cobra.Command{
			Use:     "show",
			Short:   "Print the effective configuration, with secrets masked",
			Example: "toolcrib config show",
			Args:    positional,
			RunE: func(*cobra.Command, []string) error {
				c, source, err := a.configurationAnyway()
				if err != nil {
					return err
				}
				a.notTrustedYet(source)
				text := string(config.Show(c))
				if a.outTerminal {
					text = guard.Visible(text)
				}
				fmt.Fprint(a.out, text)
				return nil
			},
		},
		&cobra.Command{
			Use:     "schema",
			Short:   "Print the JSON Schema of the configuration",
			Example: "toolcrib config schema > toolcrib.schema.json",
			Args:    positional,
			RunE: func(*cobra.Command, []string) error {
				_, err := a.out.Write(append(config.Schema(), '\n'))
				return err
			},
		},
	)
	return cmd
}

// notTrustedYet tells that a file that is only looked at here is not used yet.
func (a *app) notTrustedYet(source config.Source) {
	if !source.NeedsTrust() {
		return
	}
	content, err := config.ReadFile(source.Path)
	if err != nil {
		return // it was read just now, and has its error elsewhere
	}
	store, err := a.trustStore()
	if err == nil {
		err = store.Require(source.Path, content)
	}
	if err != nil {
		a.notice("%v; until then run refuses, unless another file is named with --config", err)
	}
}

// checkConfig tells every error, and what this version does not act upon.
func (a *app) checkConfig(ctx context.Context) error {
	c, source, err := a.configurationAnyway()
	var warnings celrule.Problems
	if err == nil {
		warnings, err = a.checkRules(ctx, c)
	}
	var all config.Errors
	if errors.As(err, &all) {
		for _, e := range all {
			fmt.Fprintln(a.err, guard.Visible(e.Error()))
		}
		return silent(exitUsage)
	}
	if err != nil {
		return err
	}
	for _, w := range warnings {
		a.notice("%v", w)
	}
	unknown, err := a.unknownInConfig(ctx, c)
	if err != nil {
		return err
	}
	for _, text := range unknown {
		a.notice("%s", text)
	}
	refused := false
	for _, u := range c.Unsupported() {
		if u.Safety {
			refused = true
			fmt.Fprintln(a.err, guard.Visible(u.Error()))
			continue
		}
		a.notice("%s", u.Error())
	}
	for _, text := range append(unusable(c), clearNotify(c)...) {
		a.notice("%s", text)
	}
	a.notTrustedYet(source)
	if refused {
		return silent(exitUsage) // as run does
	}
	if source.Origin == config.OriginNone {
		fmt.Fprintln(a.out, "no configuration file: every key has its default")
		return nil
	}
	fmt.Fprintf(a.out, "%s: ok\n", guard.Visible(source.Path))
	return nil
}
