package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/service"
)

func (a *app) runsExportCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "export RUN",
		Short: "Write the whole journal of a run, with hashes and kept contents",
		Long: "Write the whole journal of a run as JSON, one value a line: a header, every event with its hashes, " +
			"the results that were kept whole, and an end. RUN is an ID, the beginning of one, or last.",
		Example: "toolcrib runs export last > run.ndjson",
		Args:    positional,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, who, err := a.reading(cmd.Context())
			if err != nil {
				return err
			}
			return a.noRun(s.ExportRun(cmd.Context(), who, args[0], a.out), args)
		},
	}
}

func (a *app) runsImportCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "import FILE",
		Short: "Import a run that runs export wrote",
		Long: "Import a run that runs export wrote, under the same ID and with the same hashes. It must have ended, must not " +
			"have been here before, and must not belong to a run tree. What it used counts here too. The hashes show that the " +
			"file is whole, not who wrote it: import only what you trust. For administrators.",
		Example: "toolcrib runs import run.ndjson",
		Args:    positional,
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := a.input(args[0])
			if err != nil {
				return fmt.Errorf("%s: %v", pathText(args[0]), plainCause(err))
			}
			defer func() { _ = in.Close() }() // read only
			s, who, err := a.changing(cmd.Context())
			if err != nil {
				return err
			}
			run, events, err := s.ImportRun(cmd.Context(), who, in)
			var wrong *service.ImportError
			switch {
			case errors.As(err, &wrong):
				return fmt.Errorf("%s: %v", pathText(args[0]), wrong)
			case err != nil:
				return err
			}
			a.says(string(run), render.Count(events, "event"))
			return nil
		},
	}
}
