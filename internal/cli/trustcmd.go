package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/store"
)

// trustFlags are the flags of trust.
type trustFlags struct {
	list, revoke, json bool
	digest             string
}

func (a *app) trustCommand(cmd *cobra.Command) {
	var f trustFlags
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		trusted, err := a.trustStore()
		if err != nil {
			return err
		}
		dir := "."
		if len(args) == 1 {
			dir = args[0]
		}
		switch {
		case f.list && (f.revoke || f.digest != "" || len(args) > 0):
			return usagef("--list stands alone")
		case f.revoke && f.digest != "":
			return usagef("--digest: says what is trusted, and goes without --revoke")
		case f.list:
			return a.listTrust(trusted, f.json)
		case f.revoke:
			return a.revokeTrust(cmd.Context(), trusted, dir, f.json)
		}
		return a.giveTrust(cmd.Context(), trusted, dir, &f)
	}

	flags := cmd.Flags()
	flags.BoolVar(&f.list, "list", false, "")
	flags.BoolVar(&f.revoke, "revoke", false, "")
	flags.StringVar(&f.digest, "digest", "", "")
	flags.BoolVar(&f.json, "json", false, "")
}

// trustView is a folder as --json shows it.
type trustView struct {
	Dir     string          `json:"dir"`
	Trusted bool            `json:"trusted"`
	Digest  string          `json:"digest,omitempty"` // of all that is there
	Files   []trustFileView `json:"files,omitempty"`  // those that are there; not in lists
}

type trustFileView struct {
	Path string `json:"path"`
	Hash string `json:"hash"`
}

// wholePath returns the absolute path of a folder, or the path as it is.
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
	// ends anyway, and the notice says why it was not recorded.
	_ = a.storeOfTrust(ctx)
	err := trusted.Revoke(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return toolcrib.Errorf(toolcrib.CodeNotFound, "%s is not trusted", dir)
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

// pathText shows a path on one line, whatever characters it has.
func pathText(path string) string {
	return service.PathText(path)
}

// giveTrust trusts the content of a folder if a person has looked at exactly that.
func (a *app) giveTrust(ctx context.Context, trusted trust.Store, dir string, f *trustFlags) error {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return toolcrib.Errorf(toolcrib.CodeNotFound, "%s is no folder", dir)
	}
	state, files, err := trusted.Check(dir)
	if err != nil {
		return err
	}
	if state == trust.Absent {
		return toolcrib.Errorf(toolcrib.CodeNotFound, "%s brings no toolcrib.yaml, .mcp.json, skills or notes (AGENTS.md, CLAUDE.md)", dir)
	}
	for _, file := range files {
		if file.State != trust.Absent && file.Problem != "" {
			return fmt.Errorf("%s in %s cannot be trusted: it %s", file.Name, dir, file.Problem)
		}
	}
	view := viewOfTrust(dir, state, files)
	switch {
	case f.digest != "" && f.digest != view.Digest:
		return toolcrib.Errorf(toolcrib.CodeConflict, "what %s brings has the digest %s now, not %s; look at it again",
			dir, view.Digest, f.digest)
	case f.digest != "" || state == trust.Trusted:
	case a.inTerminal && a.errTerminal && !f.json:
		if !a.agreesToFolder(trusted, dir, files) {
			return fmt.Errorf("not trusted")
		}
	default:
		if err := a.tellTrust(trusted, dir, files, &view, f.json); err != nil {
			return err
		}
		return usagef("--digest: is required without a terminal, so that what is trusted is what was looked at; "+
			"for what is shown:\n%s trust %s --digest %s", a.self(), trust.ShellWord(dir), view.Digest)
	}
	if err := trusted.TrustFiles(dir, files); err != nil {
		return err
	}
	a.recordTrust(ctx, store.SystemTrustGiven, dir, "", files...)
	view.Trusted = true
	if f.json {
		return printJSON(a.out, view, true)
	}
	for _, file := range view.Files {
		fmt.Fprintf(a.out, "trusted %s %s\n", pathText(file.Path), file.Hash)
	}
	return nil
}

// tellTrust shows what would be trusted to somebody who is not at a terminal.
func (a *app) tellTrust(trusted trust.Store, dir string, files []trust.File, view *trustView, asJSON bool) error {
	if asJSON {
		return printJSON(a.out, view, true)
	}
	text, _ := folderText(a.outStyle, trusted, dir, files, false)
	fmt.Fprint(a.out, text)
	return nil
}

func viewOfTrust(dir string, state trust.State, files []trust.File) trustView {
	view := trustView{Dir: wholePath(dir), Trusted: state == trust.Trusted, Digest: trust.Digest(files)}
	for _, f := range files {
		if f.State != trust.Absent {
			view.Files = append(view.Files, trustFileView{Path: filepath.Join(view.Dir, f.Name), Hash: f.Hash})
		}
	}
	return view
}
