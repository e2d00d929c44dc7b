package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/journal"
)

func (a *app) runsEventsCommand(cmd *cobra.Command) {
	var asJSON, follow bool
	var after uint64
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, who, err := a.reading(cmd.Context())
		if err != nil {
			return err
		}
		err = s.Events(cmd.Context(), who, args[0], toolcrib.Seq(after), follow, a.eventWriter(asJSON))
		return hint(err, args[0], "`toolcrib runs list` shows what there is")
	}

	flags := cmd.Flags()
	flags.BoolVar(&asJSON, "json", false, "")
	flags.BoolVar(&follow, "follow", false, "")
	flags.Uint64Var(&after, "after", 0, "")
}

// eventWriter writes frames as NDJSON, or a line each for people.
func (a *app) eventWriter(asJSON bool) func(journal.Frame) error {
	if asJSON {
		w := &jsonWatcher{out: a.out}
		return func(f journal.Frame) error {
			w.Frame(f)
			return nil
		}
	}
	width := 0
	if a.outTerminal {
		width = a.outStyle.Width
	}
	return func(f journal.Frame) error {
		_, err := io.WriteString(a.out, render.Frame(f, width)+"\n")
		return err
	}
}
