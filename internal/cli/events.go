package cli

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

func (a *app) runsEventsCommand() *cobra.Command {
	var asJSON, follow bool
	var after uint64
	cmd := &cobra.Command{
		Use:   "events RUN",
		Short: "Write the events of a run",
		Long:  "Write the kept events of a run, a line each; with --json as clients see them. --follow goes on until it ends. RUN is an ID, the beginning of one, or last.",
		Example: `toolcrib runs events last
toolcrib runs events last --json --after 12
toolcrib runs events run_01K --follow`,
		Args: positional,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, _, err := a.storedRuns(cmd.Context())
			if err != nil {
				return err
			}
			rec, err := a.findRun(cmd.Context(), s, args[0])
			if err != nil {
				return err
			}
			return a.events(cmd.Context(), s, rec.ID, toolcrib.Seq(after), follow, a.eventWriter(asJSON))
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&asJSON, "json", false, "one JSON event a line")
	flags.BoolVar(&follow, "follow", false, "go on until the run ends")
	flags.Uint64Var(&after, "after", 0, "only events after this number")
	return cmd
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

// followEvery is how often a run of another process is looked at.
const followEvery = 250 * time.Millisecond

func (a *app) events(ctx context.Context, s *sqlite.Store, run toolcrib.RunID, after toolcrib.Seq, follow bool, write func(journal.Frame) error) error {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		ended := false
		for e, err := range s.Read(ctx, run, after) {
			if err != nil {
				return err
			}
			after = e.Seq
			if f, ok := journal.View(run, e); ok {
				if err := write(f); err != nil {
					return err
				}
			}
			switch e.Body.(type) {
			case *journal.Done, *journal.Error:
				ended = true
			}
		}
		if !follow || ended {
			return nil
		}
		if rec, err := s.Run(ctx, run); err != nil || rec.Status.Ended() && rec.LastSeq <= after {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
