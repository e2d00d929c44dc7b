package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/internal/terminal"
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
		dir := "."
		if len(args) == 1 {
			dir = args[0]
		}
		switch {
		case f.list && (f.revoke || f.digest != "" || len(args) > 0):
			return usagef("--list: cannot be combined with other flags or DIR")
		case f.revoke && f.digest != "":
			return usagef("--digest: cannot be combined with --revoke")
		case f.list:
			return a.listTrust(f.json)
		case f.revoke:
			return a.revokeTrust(cmd.Context(), dir, f.json)
		}
		return a.giveTrust(cmd.Context(), dir, &f)
	}

	flags := cmd.Flags()
	flags.BoolVar(&f.list, "list", false, "")
	flags.BoolVar(&f.revoke, "revoke", false, "")
	flags.StringVar(&f.digest, "digest", "", "")
	flags.BoolVar(&f.json, "json", false, "")
}

func (a *app) listTrust(asJSON bool) error {
	folders, err := service.TrustedFolders()
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(a.out, folders, true)
	}
	for _, f := range folders {
		fmt.Fprintln(a.out, pathText(f.Dir))
	}
	return nil
}

func (a *app) revokeTrust(ctx context.Context, dir string, asJSON bool) error {
	// It is opened as long as the folder may say where it lies; without it the trust
	// ends anyway, and the notice says why it was not recorded.
	_ = a.storeOfTrust(ctx)
	folder, err := service.Distrust(dir)
	if err != nil {
		return err
	}
	if asJSON {
		err = printJSON(a.out, folder, true)
	} else {
		fmt.Fprintf(a.out, "%s: no longer trusted\n", pathText(dir))
	}
	a.recordTrust(ctx, store.SystemTrustRevoked, folder)
	return err
}

// pathText shows a path on one line, whatever characters it has.
func pathText(path string) string { return service.PathText(path) }

// giveTrust trusts the content of a folder if a person has looked at exactly that.
func (a *app) giveTrust(ctx context.Context, dir string, f *trustFlags) error {
	folder, err := service.LookAt(dir)
	if err == nil {
		err = folder.Trustable()
	}
	if err != nil {
		return err
	}
	digest := cmp.Or(f.digest, folder.Digest)
	switch {
	case f.digest != "" || folder.Trusted:
		err = a.trust(ctx, folder, digest)
	case a.inTerminal && a.errTerminal && !f.json:
		var agreed bool
		if agreed, err = a.asksToTrust(ctx, folder); err == nil && !agreed {
			err = errors.New("not trusted")
		}
	case f.json:
		err = printJSON(a.out, folder, true)
	default:
		text, _ := reviewText(a.outStyle, folderHead(folder), folder.Files, false)
		fmt.Fprint(a.out, text)
	}
	if err != nil {
		return err
	}
	if !folder.Trusted {
		return usagef("--digest: is required without a terminal, so that what is trusted is what was reviewed; "+
			"for what is shown:\n%s trust %s --digest %s", a.self(), trust.ShellWord(dir), digest)
	}
	if f.json {
		return printJSON(a.out, folder, true)
	}
	for _, file := range folder.Files {
		fmt.Fprintf(a.out, "trusted %s %s\n", pathText(file.Path), file.Hash)
	}
	return nil
}

// trust trusts a folder that a person has looked at, and writes that down.
func (a *app) trust(ctx context.Context, folder *service.Folder, digest string) error {
	if err := folder.Trust(digest); err != nil {
		return err
	}
	a.recordTrust(ctx, store.SystemTrustGiven, folder)
	return nil
}

// asksToTrust shows what a folder brings, asks whether it is trusted, and trusts it if so.
func (a *app) asksToTrust(ctx context.Context, folder *service.Folder) (agreed bool, err error) {
	if !a.agreesTo(trust.Question(folder.Named), folderHead(folder), folder.Files) {
		return false, nil
	}
	return true, a.trust(ctx, folder, folder.Digest)
}

func folderHead(folder *service.Folder) string {
	return pathText(folder.Named) + " brings files that steer toolcrib:\n"
}

// changesText shows what has changed, file by file: their names stand before the gutter,
// where nothing in a file can put one.
func changesText(s render.Style, c *service.Changes) string {
	var b strings.Builder
	for _, f := range c.Files {
		fmt.Fprintf(&b, "  %-8s %s\n%s", f.What, pathText(f.Name),
			s.Preview(&toolcrib.Preview{Kind: "diff", Text: f.Diff}, true))
	}
	return b.String()
}

// reviewText shows what counts once a person has reviewed it: of a file that was trusted
// before the difference, unless whole is set; of any other file all. cut is set if
// something was left out.
func reviewText(s render.Style, head string, files []trust.File, whole bool) (text string, cut bool) {
	var b strings.Builder
	b.WriteString(head)
	for _, f := range files {
		state := "new"
		switch f.State {
		case trust.Trusted:
			state = "trusted"
		case trust.Changed:
			state = "changed since you trusted it"
		}
		fmt.Fprintf(&b, "%s %s  %s\n", s.Bold(pathText(f.Name)), state, s.Dim(pathText(cmp.Or(f.Problem, f.Hash))))
		if f.State == trust.Trusted {
			continue
		}
		if whole {
			f.Before = nil
		}
		for _, name := range slices.Sorted(maps.Keys(f.Outside)) {
			text := fmt.Sprintf("%s leads outside of this folder: %s", pathText(name), pathText(f.Outside[name]))
			fmt.Fprintf(&b, "  %s\n", s.Yellow(text))
		}
		cut = cut || f.Before != nil
		b.WriteString(changesText(s, service.ChangesOf(f.Before, f.Content)))
		if f.Name == ".mcp.json" {
			for _, line := range service.MCPUses(f.Content[f.Name]) {
				fmt.Fprintf(&b, "  %s\n", guard.Visible(line))
			}
		}
	}
	return b.String(), cut
}

// agreesTo shows what would be trusted, page by page, and asks: first what has changed,
// then, if the person wants to see it, all of it. Nobody agrees to what was not shown.
func (a *app) agreesTo(question, head string, files []trust.File) (agreed bool) {
	a.asking(func(ctx context.Context, answers *terminal.Input) {
		for whole := false; ; whole = true {
			text, cut := reviewText(a.style, head, files, whole)
			if !a.pages(ctx, answers, text) {
				return
			}
			keys := render.YesKeys(cut)
			key := a.answer(ctx, answers, question, render.KeysText(keys)+"?", terminal.Calm, keys)
			if agreed = key == render.KeyYes; key != render.KeyShow {
				return
			}
		}
	})
	return agreed
}

// pages shows a text page by page; false = the person has said no before its end.
func (a *app) pages(ctx context.Context, answers *terminal.Input, text string) bool {
	_, height, err := term.GetSize(int(a.in.Fd()))
	if err != nil || height < 8 {
		height = 24
	}
	rows, most := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n"), height-4
	for page, of := 1, (len(rows)+most-1)/most; ; page++ {
		n := min(most, len(rows))
		fmt.Fprint(a.err, strings.TrimSuffix(strings.Join(rows[:n], ""), "\n")+"\n")
		if rows = rows[n:]; len(rows) == 0 {
			return true
		}
		at := fmt.Sprintf("page %d of %d ·", page, of)
		if a.answer(ctx, answers, at, "enter next page · n no?", 0, render.YesKeys(false)) == render.KeyNo {
			return false
		}
	}
}
