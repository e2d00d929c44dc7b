package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/store"
)

func (a *app) trustCommand() *cobra.Command {
	var list, revoke, asJSON bool
	cmd := &cobra.Command{
		Use:   "trust [DIR]",
		Short: "Trust what a folder brings: configuration, .mcp.json, skills",
		Long: "Trust what a folder brings now: its toolcrib.yaml, .mcp.json and skills, by their content. " +
			"A file that changes must be trusted again. Without DIR it is the current folder. On a terminal it asks first.",
		Example: "toolcrib trust\ntoolcrib trust ~/src/project\ntoolcrib trust --list --json\ntoolcrib trust --revoke ~/src/project",
		Args:    positional,
		RunE: func(cmd *cobra.Command, args []string) error {
			trusted, err := a.trustStore()
			if err != nil {
				return err
			}
			dir := "."
			if len(args) == 1 {
				dir = args[0]
			}
			switch {
			case list && revoke, list && len(args) > 0:
				return usagef("--list stands alone")
			case list:
				return a.listTrust(trusted, asJSON)
			case revoke:
				return a.revokeTrust(cmd.Context(), trusted, dir, asJSON)
			}
			return a.giveTrust(cmd.Context(), trusted, dir, asJSON)
		},
	}
	cmd.Flags().BoolVar(&list, "list", false, "list the folders that are trusted")
	cmd.Flags().BoolVar(&revoke, "revoke", false, "trust the folder no more")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON value")
	return cmd
}

// trustView is a folder as --json shows it.
type trustView struct {
	Dir     string          `json:"dir"`
	Trusted bool            `json:"trusted"`
	Files   []trustFileView `json:"files,omitempty"` // those that are trusted now; not in lists
}

type trustFileView struct {
	Path string `json:"path"`
	Hash string `json:"hash"`
}

// wholePath is a folder as it is told: absolute, where that is known.
func wholePath(dir string) string {
	if whole, err := filepath.Abs(dir); err == nil {
		return whole
	}
	return dir
}

func (a *app) listTrust(store trust.Store, asJSON bool) error {
	folders, err := store.Folders()
	if err != nil {
		return err
	}
	if asJSON {
		views := make([]trustView, len(folders))
		for i, dir := range folders {
			views[i] = trustView{Dir: dir, Trusted: true}
		}
		return printJSON(a.out, views, true)
	}
	for _, dir := range folders {
		fmt.Fprintln(a.out, pathText(dir))
	}
	return nil
}

func (a *app) revokeTrust(ctx context.Context, trusted trust.Store, dir string, asJSON bool) error {
	// It is opened as long as the folder may say where it lies; without it the trust
	// ends all the same, and the record of it says why there is none.
	_, _ = a.storeOfTrust(ctx)
	err := trusted.Revoke(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return failedf("not found: %s is not trusted", dir)
	}
	if err != nil {
		return err
	}
	if asJSON {
		err = printJSON(a.out, trustView{Dir: wholePath(dir)}, true)
	} else {
		fmt.Fprintf(a.out, "%s: no longer trusted\n", pathText(dir))
	}
	a.recordTrust(ctx, store.SystemTrustRevoked, dir, "")
	return err
}

// pathText shows a path on one line, whatever stands in it.
func pathText(path string) string {
	return guard.Visible(strings.NewReplacer("\n", `\n`, "\r", `\r`).Replace(path))
}

// giveTrust trusts what lies there now; on a terminal it shows that and asks.
func (a *app) giveTrust(ctx context.Context, trusted trust.Store, dir string, asJSON bool) error {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return failedf("not found: %s is no folder", dir)
	}
	state, files, err := trusted.Check(dir)
	if err != nil {
		return err
	}
	if state == trust.Absent {
		return failedf("not found: %s brings no toolcrib.yaml, no .mcp.json and no skills", dir)
	}
	for _, f := range files {
		if f.State != trust.Absent && f.Problem != "" {
			return failedf("%s in %s cannot be trusted: it %s", f.Name, dir, f.Problem)
		}
	}
	if state != trust.Trusted && a.inTerminal && a.errTerminal {
		a.showFolder(dir, files)
		if !a.confirm(trust.Question(dir)) {
			return failedf("not trusted")
		}
	}
	if err := trusted.TrustFiles(dir, files); err != nil {
		return err
	}
	a.recordTrust(ctx, store.SystemTrustGiven, dir, "", files...)
	view := trustView{Dir: wholePath(dir), Trusted: true}
	for _, f := range files {
		if f.State != trust.Absent {
			view.Files = append(view.Files, trustFileView{Path: filepath.Join(view.Dir, f.Name), Hash: f.Hash})
		}
	}
	if asJSON {
		return printJSON(a.out, view, true)
	}
	for _, f := range view.Files {
		fmt.Fprintf(a.out, "trusted %s %s\n", pathText(f.Path), f.Hash)
	}
	return nil
}
