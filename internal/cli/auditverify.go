package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/store"
)

func (a *app) auditVerifyCommand() *cobra.Command {
	var f verifyFlags
	var hashesOnly bool
	cmd := &cobra.Command{
		Use:   "verify [FILE]",
		Short: "Check that the audit log was not changed: in the data folder, or an export",
		Long: "Check the chains of everything that is stored, as runs verify does: the system journal, its sealed end, the anchors and all runs. " +
			"With FILE check an export instead, without its database, and with the keys of the data folder, if it has any, that it was sealed there; - reads standard " +
			"input. What was changed, removed, reordered or cut is named. A whole data folder that was put back to an older copy, and an older export, show only against " +
			"a head that was kept elsewhere: runs verify --export-head writes it, --head compares. Exit status: 0 it holds, 1 it does not.",
		Example: `toolcrib audit verify
toolcrib audit verify --head ~/backup/head.json
toolcrib audit verify audit.ndjson`,
		Args: positional,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case cmd.Flags().Changed("head") && f.head == "":
				return usagef("--head: must name a file")
			case len(args) == 1:
				return a.verifyExport(args[0], &f, hashesOnly)
			case hashesOnly:
				return usagef("--hashes-only: is about an export; give its file")
			}
			return a.verifyWhole(cmd.Context(), &f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.head, "head", "", "compare with a head that was exported before: an older copy, or a history written anew, shows")
	flags.BoolVar(&hashesOnly, "hashes-only", false, "with FILE: do not ask who sealed it, for an export of another data folder")
	flags.BoolVar(&f.json, "json", false, "one JSON value")
	return cmd
}

// verifyExport checks an exported audit log.
func (a *app) verifyExport(path string, f *verifyFlags, hashesOnly bool) error {
	var kept store.Head
	if f.head != "" {
		head, err := readHead(f.head)
		if err != nil {
			return err
		}
		kept = *head
	}
	var keys *store.Keys
	if !hashesOnly {
		var err error
		if keys, err = a.keysIfAny(); err != nil {
			return err
		}
	}
	var in io.Reader = a.in
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("%v", err)
		}
		defer file.Close() //nolint:errcheck // only read
		in = file
	}
	v, err := store.VerifyExportAgainst(in, keys, kept)
	var broken *store.ChainError
	switch {
	case errors.As(err, &broken):
		return a.tellChecked([]checkedView{{Run: broken.Run, File: path, Found: broken, Detail: pathText(path) + ": " + broken.Error()}}, f.json, false)
	case err != nil:
		return fmt.Errorf("%s: %v", pathText(path), err)
	}
	text := fmt.Sprintf("%s of the system journal up to event %d, %s with %s, %d with content; ",
		render.Count(v.Events, "event"), v.Head.Seq, render.Count(v.Runs, "run"), render.Count(v.Links, "event"), v.Content)
	if v.Sealed {
		text += "sealed with the keys of this data folder"
	} else {
		text += "the hashes hold, and nobody vouches for who wrote them: it was not compared with the keys that sealed it"
	}
	if f.head != "" {
		text += fmt.Sprintf("; it goes on from the kept head, event %d", kept.Seq)
	}
	return a.tellChecked([]checkedView{{OK: true, File: path, Found: v, Detail: text}}, f.json, false)
}

// keysIfAny are the keys of the data folder; nil = there are none here. Nothing is made.
func (a *app) keysIfAny() (*store.Keys, error) {
	if a.config == nil {
		c, err := config.Load(config.Find(a.configFlag, os.Getenv), a.trustedAlready)
		if err != nil && a.configFlag != "" {
			return nil, err
		}
		if err != nil {
			a.notice("the configuration is not used here: %v", err)
			return nil, nil
		}
		a.config = c
	}
	path, err := a.keysFile()
	if err != nil {
		return nil, err
	}
	if path == "" {
		data, err := a.dataDir()
		if err != nil {
			return nil, err
		}
		path = filepath.Join(data, keysName)
	}
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return a.dataKeys()
}
