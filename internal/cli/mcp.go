package cli

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/mcpset"
)

func (a *app) mcpListCommand(cmd *cobra.Command) {
	listing(a, cmd, a.reading, "NAME|STATE|TOOLS|TO REVIEW|WHERE|FROM|DETAIL", func(c call) ([]mcpset.Info, error) {
		a.passedOver()
		return c.MCP.Servers(c, c.who, mcpset.LookTime)
	}, func(v *mcpset.Info) []string {
		return []string{
			v.Name, v.State, fmt.Sprint(v.Tools), fmt.Sprint(v.Unlooked), v.Where, v.From,
			cmp.Or(v.Detail, strings.Join(v.Problems, "; ")),
		}
	})
}

func (a *app) mcpToolsCommand(cmd *cobra.Command) {
	listing(a, cmd, a.reading, "NAME|STATE|DESCRIPTION", func(c call) ([]mcpset.Tool, error) {
		r, err := c.MCP.Review(c, c.who, c.arg())
		if err != nil {
			return nil, err
		}
		return r.Tools, nil
	}, func(t *mcpset.Tool) []string {
		about, _, _ := strings.Cut(t.Description, "\n")
		return []string{t.Name, t.State, about}
	})
}

func (a *app) mcpReviewCommand(cmd *cobra.Command) {
	digest := cmd.Flags().String("digest", "", "")
	a.answering(cmd, a.reading, func(c call) (any, func(), error) {
		names := c.args
		if len(names) == 0 {
			if *digest != "" {
				return nil, nil, usagef("--digest is about one server; give its name")
			}
			list, err := c.MCP.Servers(c, c.who, mcpset.InstallTime)
			if err != nil {
				return nil, nil, err
			}
			for _, v := range list {
				if v.Unlooked > 0 {
					names = append(names, v.Name)
				}
			}
		}
		reviews := []*mcpset.Review{}
		for _, name := range names {
			r, err := c.MCP.Review(c, c.who, name)
			if err == nil {
				err = a.reviewMCP(c, r, *digest)
			}
			if err != nil {
				return nil, nil, err
			}
			reviews = append(reviews, r)
		}
		return reviews, func() {
			if len(reviews) == 0 {
				fmt.Fprintln(a.out, "nothing to review")
			}
			for _, r := range reviews {
				if r.Server.Unlooked == 0 {
					a.says(r.Server.Name, render.Count(r.Server.Tools, "tool")+" reviewed, "+r.Digest)
				}
			}
		}, nil
	})
}

// reviewMCP shows the offer of a server, and accepts it if the user agrees.
func (a *app) reviewMCP(c call, r *mcpset.Review, digest string) error {
	name := r.Server.Name
	for i := range r.Tools {
		if t := &r.Tools[i]; len(t.Unchecked) > 0 {
			a.notice("%s: %s", guard.Visible(t.Name), guard.Visible(gate.UncheckedText(t.Unchecked)))
		}
	}
	head := fmt.Sprintf("MCP server %s (%s) offers:\n", guard.Visible(name), guard.Visible(r.Server.Where))
	switch {
	case digest != "":
		return c.MCP.Accept(c, c.who, r, digest)
	case r.Server.Unlooked == 0 || c.json:
		return nil
	case a.inTerminal && a.errTerminal:
		if _, err := env.Administrator(c.who); err != nil {
			return err
		}
		question := fmt.Sprintf("Offer the tools of %s as they are now?", guard.Visible(name))
		if a.agreesTo(question, head, []trust.File{r.File}) != render.KeyYes {
			return fmt.Errorf("the tools of %s were not accepted", name)
		}
		return c.MCP.Accept(c, c.who, r, r.Digest)
	}
	text, _ := reviewText(a.outStyle, head, []trust.File{r.File}, false)
	fmt.Fprint(a.out, text)
	return usagef("--digest: is required without a terminal, so that what is accepted is what was looked at; for what is "+
		"shown:\n%s mcp review %s --digest %s", a.self(), trust.ShellWord(name), r.Digest)
}
