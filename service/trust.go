package service

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/store"
)

// TrustStore is the record of the folders that this user trusts.
func TrustStore() (trust.Store, error) {
	path, err := trust.DefaultPath(os.Getenv)
	if err != nil {
		return trust.Store{}, err
	}
	return trust.NewStore(path), nil
}

// RecordTrust writes down that files of a folder are trusted now, or no more. It never
// takes trust back, and never keeps it: where it cannot be written down, that is told.
func (s *Service) RecordTrust(ctx context.Context, who toolcrib.Principal, kind toolcrib.Kind, dir, why string, files ...trust.File) {
	if whole, err := filepath.Abs(dir); err == nil {
		dir = whole
	}
	changed := []store.FileChanged{}
	for _, f := range files {
		if f.State != trust.Absent {
			changed = append(changed, store.FileChanged{Path: filepath.Join(dir, f.Name), Hash: f.Hash, Why: why})
		}
	}
	if len(files) == 0 {
		changed = append(changed, store.FileChanged{Path: dir, Why: why})
	}
	err := s.Open(ctx)
	if err == nil {
		err = s.RecordChanged(ctx, who, kind, changed...)
	}
	if err != nil {
		s.Notice("not recorded in the audit log: " + err.Error())
	}
}

// protectedChanged tells the person that a command of theirs changed what steers toolcrib
// or its neighbours, and ends the trust in the folders around it (design.md §7). What was
// renamed afterwards is only told.
func (s *Service) protectedChanged(who toolcrib.Principal, paths, aside []string) {
	tell := func(format string, args ...any) { s.Alert(fmt.Sprintf(format, args...)) }
	if len(aside) > 0 {
		tell("a command made files that would steer toolcrib or programs beside it; they were renamed: %s", pathTexts(aside))
	}
	if len(paths) == 0 {
		return
	}
	names := pathTexts(paths)
	tell("a command changed files that steer toolcrib or programs beside it: %s; look at them before you go on", names)
	trusted, err := TrustStore()
	if err != nil {
		return // there is no record, so nothing is trusted
	}
	folders, err := trusted.RevokeAround(paths...)
	if err != nil {
		tell("the trust in their folder could not be ended: %v", err)
	}
	for _, dir := range folders {
		// The call may have been given up by now; what it did is written down.
		s.RecordTrust(context.Background(), who, store.SystemTrustRevoked, dir, "a command changed "+names)
		tell("%s is no longer trusted; once you have looked at it: toolcrib trust %s", PathText(dir), PathText(dir))
	}
}

func pathTexts(paths []string) string {
	texts := make([]string, len(paths))
	for i, path := range paths {
		texts[i] = PathText(path)
	}
	return strings.Join(texts, ", ")
}

// PathText is a path as it may be shown, in one line.
func PathText(path string) string {
	return guard.Visible(strings.NewReplacer("\n", `\n`, "\r", `\r`).Replace(path))
}
