package cli

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"sync"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
)

// driverLocks are the files that this process holds for the runs that it drives.
// The system lets go of them however the process ends, so that others can tell a
// run that goes on from one that was cut off (design.md §6).
type driverLocks struct {
	dir string

	mu    sync.Mutex
	files map[toolcrib.RunID]*os.File
}

func newDriverLocks(dataDir string) *driverLocks {
	return &driverLocks{dir: filepath.Join(dataDir, "drivers"), files: map[toolcrib.RunID]*os.File{}}
}

var plainID = regexp.MustCompile(`^[A-Za-z0-9_]{1,64}$`)

// lockPath is the file of a run.
func (l *driverLocks) lockPath(run toolcrib.RunID) (string, bool) {
	if !plainID.MatchString(string(run)) {
		return "", false
	}
	return filepath.Join(l.dir, string(run)+".lock"), true
}

// take locks the file of a run. Without it a run works all the same; it only
// shows as interrupted while it goes on.
func (l *driverLocks) take(run toolcrib.RunID) {
	path, ok := l.lockPath(run)
	if !ok || os.MkdirAll(l.dir, 0o700) != nil {
		return
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return
	}
	if tryLock(f) != nil {
		_ = f.Close() // nothing was written
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.files[run] = f
}

// Close lets go of all runs.
func (l *driverLocks) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for run, f := range l.files {
		if path, ok := l.lockPath(run); ok {
			errs = append(errs, os.Remove(path))
		}
		errs = append(errs, f.Close())
	}
	clear(l.files)
	return errors.Join(errs...)
}

// interrupted tells whether a run of a command line was cut off: it has not ended
// and nobody holds it.
func (l *driverLocks) interrupted(rec store.RunRecord) bool {
	if rec.Driver != driverName || rec.Status.Ended() || rec.Status.Parked() {
		return false
	}
	path, ok := l.lockPath(rec.ID)
	if !ok {
		return false
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	defer f.Close()
	return tryLock(f) == nil
}
