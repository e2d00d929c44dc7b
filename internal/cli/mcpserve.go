package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/internal/version"
	"github.com/toolcrib/toolcrib/mcp/serve"
)

func (a *app) mcpServeCommand(cmd *cobra.Command) {
	var f runFlags
	var noElicit bool
	flags := cmd.Flags()
	flags.StringVar(&f.agent, "agent", "", "")
	flags.StringArrayVar(&f.skills, "skill", nil, "")
	flags.BoolVar(&f.readOnly, "read-only", false, "")
	flags.StringVar(&f.tools, "tools", "", "")
	flags.Func("workspace", "", filled(&f.workspace))
	flags.BoolVar(&noElicit, "no-elicit", false, "")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if a.inTerminal {
			fmt.Fprintf(a.err, "%s mcp serve speaks the Model Context Protocol on standard input and output; docs/mcp.md "+
				"says how a client starts it. It ends with ctrl-d.\n", a.self())
		}
		a.inTerminal = false // standard input belongs to the client, so it cannot answer questions
		kept, who, err := a.knowing(cmd.Context())
		if err != nil {
			return err
		}
		r, err := a.request(cmd, &f)
		if err != nil {
			return err
		}
		serving, err := kept.Serve(cmd.Context(), who, r)
		if err != nil {
			return err
		}
		defer serving.Close()
		log, err := a.logger(a.err, true)
		if err != nil {
			return err
		}
		ctx, stop := a.interruptible(cmd.Context(), agent.NameOf(who), a.err)
		defer stop()
		err = serve.New(serve.Options{
			Serving: serving, Version: version.Version(), Self: a.self(), NoElicit: noElicit, Mask: a.mask().Mask, Log: log,
		}).Run(ctx, a.in, a.out)
		if cause := context.Cause(ctx); cause != nil {
			return silent(codeOf(cause))
		}
		return err
	}
}
