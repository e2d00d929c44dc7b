package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

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
			Args:    cobra.NoArgs,
			RunE:    func(*cobra.Command, []string) error { return a.checkConfig() },
		},
		&cobra.Command{
			Use:     "show",
			Short:   "Print the effective configuration, with secrets masked",
			Example: "toolcrib config show",
			Args:    cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error {
				c, _, err := a.configurationAnyway()
				if err != nil {
					return err
				}
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
			Args:    cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error {
				_, err := a.out.Write(append(config.Schema(), '\n'))
				return err
			},
		},
	)
	return cmd
}

// checkConfig tells every error, and what this version does not act upon.
func (a *app) checkConfig() error {
	c, source, err := a.configurationAnyway()
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
	for _, u := range c.Unsupported() {
		a.notice("%s", u.Error())
	}
	if source.Origin == config.OriginNone {
		fmt.Fprintln(a.out, "no configuration file: every key has its default")
		return nil
	}
	fmt.Fprintf(a.out, "%s: ok\n", guard.Visible(source.Path))
	return nil
}
