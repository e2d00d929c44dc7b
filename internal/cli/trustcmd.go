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
	var list, revoke bool
	cmd := &cobra.Command{
		Use:   "trust [DIR]",
		Short: "Trust what a folder brings: configuration, .mcp.json, skills",
		Long: "Trust what a folder brings now: its toolcrib.yaml, .mcp.json and skills, by their content. " +
			"A file that changes must be trusted again. Without DIR it is the current folder. On a terminal it asks first.",
		Example: "toolcrib trust\ntoolcrib trust ~/src/project\ntoolcrib trust --list\ntoolcrib trust --revoke ~/src/project",
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
				return a.listTrust(trusted)
			case revoke:
				return a.revokeTrust(cmd.Context(), trusted, dir)
			}
			return a.giveTrust(cmd.Context(), trusted, dir)
		},
	}
	cmd.Flags().BoolVar(&list, "list", false, "list the folders that are trusted")
	cmd.Flags().BoolVar(&revoke, "revoke", false, "trust the folder no more")
	return cmd
}

func (a *app) listTrust(store trust.Store) error {
	folders, err := store.Folders()
	if err != nil {
		return err
	}
	for _, dir := range folders {
		fmt.Fprintln(a.out, pathText(dir))
	}
	return nil
}

func (a *app) revokeTrust(ctx context.Context, trusted trust.Store, dir string) error {
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
	fmt.Fprintf(a.out, "%s: no longer trusted\n", pathText(dir))
	a.recordTrust(ctx, store.SystemTrustRevoked, dir, "")
	return nil
}

// pathText shows a path on one line, whatever stands in it.
func pathText(path string) string {
	return guard.Visible(strings.NewReplacer("\n", `\n`, "\r", `\r`).Replace(path))
}

// giveTrust trusts what lies there now; on a terminal it shows that and asks.
func (a *app) giveTrust(ctx context.Context, trusted trust.Store, dir string) error {
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
	whole, err := filepath.Abs(dir)
	if err != nil {
		whole = dir
	}
	for _, f := range files {
		if f.State != trust.Absent {
			fmt.Fprintf(a.out, "trusted %s %s\n", pathText(filepath.Join(whole, f.Name)), f.Hash)
		}
	}
	return nil
}
