package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/journal"
)

func (a *app) runsEventsCommand(cmd *cobra.Command) {
	cmd.Flags().Bool("json", false, "")
	follow := cmd.Flags().Bool("follow", false, "")
	after := cmd.Flags().Uint64("after", 0, "")
	a.doing(cmd, a.reading, func(c call) error {
		return noRun(c.Events(c, c.who, c.arg(), toolcrib.Seq(*after), *follow, a.eventWriter(c.json)), c.arg())
	})
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
