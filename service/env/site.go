package env

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/internal/safefile"
)

// SiteName is the name of the file that identifies a folder of workspaces.
const SiteName = ".toolcrib-site"

const siteText = `%s
# Servers of one database that find this file have the workspaces beside it in common. A run continues on them only.
# Move the file with the folder. Remove it from a copy that is used beside the original.
`

var siteLine = regexp.MustCompile(`^(site_[0-9A-Z]{26})\n`)

// Workspaces returns the folder that has the workspaces of the users of a server.
func (e *Env) Workspaces() string { return filepath.Join(e.DataDir, "workspaces") }

// Site identifies the folder of the workspaces: servers and command lines of a database that have the same folder,
// or have it in common, have the same site. Runs in other folders of a machine have its site, too. A new folder
// gets a site. With the database in the data folder there is only one, "".
//
// The file is read each time: another folder may have been mounted meanwhile, which is an error.
func (e *Env) Site() (string, error) {
	if e.inFolder() {
		return "", nil
	}
	path := filepath.Join(e.Workspaces(), SiteName)
	e.mu.Lock()
	first := e.site == ""
	e.mu.Unlock()
	site, err := readSite(path)
	if errors.Is(err, fs.ErrNotExist) && first {
		site = agent.NewID("site_")
		if err = os.MkdirAll(e.Workspaces(), 0o700); err == nil {
			err = safefile.Create(path, SiteName+"-", fmt.Appendf(nil, siteText, site))
		}
		if errors.Is(err, fs.ErrExist) { // another process was quicker
			site, err = readSite(path)
		}
	}
	if err != nil {
		return "", fmt.Errorf("the folder of the workspaces needs a file that identifies it, %s: %w", path, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.site = cmp.Or(e.site, site); e.site != site {
		return "", toolcrib.Errorf(toolcrib.CodeOverloaded, "another folder of workspaces than at the start is at %s: its file %s has "+
			"%s, not %s; mount the folder that was there, or restart the server", e.Workspaces(), SiteName, site, e.site)
	}
	return site, nil
}

func readSite(path string) (string, error) {
	text, err := safefile.Read(path, 4096)
	if err != nil {
		return "", err
	}
	found := siteLine.FindSubmatch(text)
	if found == nil {
		return "", errors.New("it was not written by toolcrib, or is damaged; restore it, or remove it if no run waits for it")
	}
	return string(found[1]), nil
}

// CheckSite returns an error unless a run with this site can continue here. One without a site can continue anywhere.
func (e *Env) CheckSite(run toolcrib.RunID, site string) error {
	if site == "" || e.inFolder() {
		return nil
	}
	here, err := e.Site()
	if err == nil && here != site {
		err = toolcrib.Errorf(toolcrib.CodeConflict, "run %s has its workspace in another folder of workspaces (%s) than the one "+
			"here (%s), on another server or in another data folder; continue it there", run, site, here)
	}
	return err
}

// markPath returns the path of the file by which the other servers of a site see that the owner of leases shares it.
func (e *Env) markPath(owner string) string {
	return filepath.Join(e.Workspaces(), SiteName+"-of-"+owner)
}

// MarkSite shows the other servers of a site that this process shares it. It removes marks that nobody has renewed for
// a day.
func (e *Env) MarkSite() error {
	old, _ := filepath.Glob(e.markPath("*"))
	for _, path := range old {
		if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > 24*time.Hour {
			_ = os.Remove(path)
		}
	}
	return e.KeepMark()
}

// KeepMark renews the mark of this process.
func (e *Env) KeepMark() error {
	path, now := e.markPath(e.Owner().ID), time.Now()
	err := os.Chtimes(path, now, now)
	if errors.Is(err, fs.ErrNotExist) {
		err = os.WriteFile(path, nil, 0o600)
	}
	if err != nil {
		return fmt.Errorf("the folder of the workspaces cannot be written: %w", err)
	}
	return nil
}

// markLasts is how long a mark counts after it was renewed. The clocks of two machines may differ by much of it.
const markLasts = 3 * time.Minute

// HasMark reports whether the folder of the workspaces has the mark of another process. A copy of the folder has a mark
// that nobody renews.
func (e *Env) HasMark(owner string) bool {
	info, err := os.Stat(e.markPath(owner))
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	return time.Since(info.ModTime()) < markLasts
}

// ClockAhead returns by how much the clock of this machine is ahead of the clock of the database, as exactly as the
// database answers quickly.
func (e *Env) ClockAhead(ctx context.Context) (ahead, within time.Duration, err error) {
	before := time.Now()
	there, err := e.Store.Clock(ctx)
	took := time.Since(before)
	return before.Add(took / 2).Sub(there), took/2 + time.Millisecond, err
}
