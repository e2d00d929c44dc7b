package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// verifyFlags are the flags of runs verify. A head is where the system journal
// stood, kept by the user elsewhere (design.md §2, Chains).
type verifyFlags struct {
	all, json, adopt, yes bool
	head, exportHead      string
}

func (a *app) runsVerifyCommand() *cobra.Command {
	var f verifyFlags
	cmd := &cobra.Command{
		Use:   "verify [RUN]",
		Short: "Check the hash chains: that nothing stored was changed",
		Long: "Check the hash chain of a run against its events, its kept results and its anchors in the system journal, and " +
			"that journal's own chain and sealed end; without RUN everything that is stored. What was changed, removed, " +
			"reordered or cut is named. A whole data folder put back to an older copy shows only against a head that was " +
			"kept elsewhere: --export-head writes it, --head compares. --adopt accepts what is stored as it is where its " +
			"key or its seal was lost, and lets new runs be started in spite of damage that is found; from there on the journal says so, and by whom. RUN is an ID, the beginning of one, or last.",
		Example: `toolcrib runs verify last
toolcrib runs verify
toolcrib runs verify --export-head ~/backup/head.json
toolcrib runs verify --head ~/backup/head.json --export-head ~/backup/head.json`,
		Args: positional,
		RunE: func(cmd *cobra.Command, args []string) error {
			flags := cmd.Flags()
			if len(args) == 1 && (f.all || f.adopt || flags.Changed("head") || flags.Changed("export-head")) {
				return usagef("--all, --adopt, --head and --export-head are about everything that is stored; leave RUN out")
			}
			for _, name := range []string{"head", "export-head"} {
				if flags.Changed(name) && flags.Lookup(name).Value.String() == "" {
					return usagef("--%s: must name a file", name)
				}
			}
			if len(args) == 1 {
				return a.check(cmd.Context(), a.verifying(), args, f.json)
			}
			return a.verifyWhole(cmd.Context(), &f)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.all, "all", false, "everything that is stored, as without RUN")
	flags.StringVar(&f.head, "head", "", "compare with a head that was exported before: an older copy, or a history written anew, shows")
	flags.StringVar(&f.exportHead, "export-head", "", "write the head to a file to keep elsewhere (- = standard output); one that is there already must be given with --head, too")
	flags.BoolVar(&f.adopt, "adopt", false, "accept what is stored as it is where its key or its seal was lost, or damage was found")
	flags.BoolVar(&f.yes, "yes", false, "do not ask before --adopt")
	flags.BoolVar(&f.json, "json", false, "one JSON value")
	return cmd
}

// verifyWhole checks everything, and keeps or compares the head.
func (a *app) verifyWhole(ctx context.Context, f *verifyFlags) error {
	if _, err := a.administrator(ctx); err != nil {
		return err
	}
	if f.json && f.exportHead == "-" {
		return usagef("--export-head -: goes without --json, which writes to standard output too")
	}
	if f.exportHead != "-" && f.exportHead != "" && !sameFile(f.exportHead, f.head) {
		if _, err := os.Lstat(f.exportHead); !errors.Is(err, fs.ErrNotExist) {
			return usagef("--export-head: %s is there already, and knows something that the new head would not; compare with it first: --head %s --export-head %s", f.exportHead, f.exportHead, f.exportHead)
		}
	}
	var kept *store.Head
	if f.head != "" {
		var err error
		if kept, err = readHead(f.head); err != nil {
			return err
		}
	}
	s, err := a.databaseToVerify(ctx, f)
	if err != nil {
		return err
	}
	views, err := a.verifyAll(ctx, s)
	if err != nil {
		return err
	}
	if kept != nil {
		_, err := s.VerifySystemAgainst(ctx, *kept)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		views = append(views, checked(store.SystemChain, nil, fmt.Sprintf("it goes on from the kept head, event %d", kept.Seq), err))
	}
	toErr := f.exportHead == "-"
	if err := a.tellChecked(views, f.json, toErr); err != nil {
		return err
	}
	if f.exportHead == "" {
		return nil
	}
	return a.exportHead(ctx, s, f.exportHead)
}

func sameFile(a, b string) bool { return b != "" && filepath.Clean(a) == filepath.Clean(b) }

// databaseToVerify opens the store; with --adopt after its administrator agreed.
func (a *app) databaseToVerify(ctx context.Context, f *verifyFlags) (*sqlite.Store, error) {
	if !f.adopt {
		return a.databaseToRead(ctx)
	}
	by, err := a.administrator(ctx)
	if err != nil {
		return nil, err
	}
	if a.store != nil { // it was opened to find out who acts
		return nil, usagef("--adopt: goes without --as")
	}
	const question = "Accept what is stored as it is? Nobody vouches for what stood in it before."
	if a.inTerminal && a.errTerminal && !f.yes && !a.confirm(question) {
		return nil, fmt.Errorf("nothing was accepted")
	}
	s, err := a.openWith(ctx, sqlite.Options{AdoptBy: by})
	if err == nil {
		_, err = s.AcceptDamage(ctx, by)
	}
	return s, err
}

// maxHeadBytes bounds the file of a head.
const maxHeadBytes = 4 << 10

func readHead(path string) (*store.Head, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--head: %v", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxHeadBytes+1))
	if err != nil {
		return nil, fmt.Errorf("--head: %v", err)
	}
	var h store.Head
	if len(data) > maxHeadBytes || json.Unmarshal(data, &h) != nil || h.MAC == "" {
		return nil, usagef("--head: %s is no head; --export-head writes one", path)
	}
	return &h, nil
}

// exportHead writes where the system journal stands.
func (a *app) exportHead(ctx context.Context, s *sqlite.Store, path string) error {
	h, err := s.Head(ctx)
	if err != nil {
		return err
	}
	if path == "-" {
		return printJSON(a.out, h, true)
	}
	text, err := json.MarshalIndent(h, "", "  ")
	if err != nil {
		return err
	}
	if err := replaceFile(path, append(text, '\n')); err != nil {
		return fmt.Errorf("--export-head: %v", err)
	}
	a.notice("the head (event %d) is in %s; keep it where whoever can write the data folder cannot write", h.Seq, path)
	return nil
}

// replaceFile writes a file whole or not at all.
func replaceFile(path string, data []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".toolcrib-*") // 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if _, err = f.Write(data); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
