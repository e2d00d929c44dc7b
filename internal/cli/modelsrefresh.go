package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/internal/safefile"
	"github.com/toolcrib/toolcrib/provider/catalog"
)

func (a *app) modelsRefreshCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "refresh FILE",
		Short: "Take the prices and context sizes of models from a file",
		Long: "Take the prices and context sizes of models from a file, which is kept in the data folder and counts over what " +
			"toolcrib brings, until a later version brings newer ones. FILE is a list as toolcrib writes it, or one of catwalk " +
			"(https://github.com/charmbracelet/catwalk): one of its providers, or an array of them; - reads standard input. " +
			"Runs keep the prices that they began with. For administrators.",
		Example: "toolcrib models refresh providers.json\ntoolcrib models refresh - < providers.json",
		Args:    positional,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.refreshModels(cmd.Context(), args[0], asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON value")
	return cmd
}

func (a *app) refreshModels(ctx context.Context, name string, asJSON bool) error {
	if _, err := a.administrator(ctx); err != nil {
		return err
	}
	kept, err := a.svc()
	if err != nil {
		return err
	}
	path := kept.CatalogPath()
	var in io.Reader = a.in
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return fmt.Errorf("%v", err)
		}
		defer f.Close()
		in = f
	}
	read, err := catalog.Parse(in)
	if err != nil {
		return fmt.Errorf("%s: %v", guard.Visible(name), err)
	}
	if read.Info().Date == "" {
		read = read.Dated(read.Info().Version, time.Now().UTC().Format(time.DateOnly))
	}
	var text bytes.Buffer
	if err := read.Write(&text); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("%v", err)
	}
	if err := safefile.Replace(path, ".toolcrib-", text.Bytes()); err != nil {
		return fmt.Errorf("%v", err)
	}
	info := read.Info()
	if asJSON {
		return printJSON(a.out, info, true)
	}
	fmt.Fprintf(a.out, "%s of %s%s, kept in %s\n", render.Count(info.Models, "model"), guard.Visible(info.Source), dated(info), pathText(path))
	return nil
}
