// Package worker drives runs in the background, and decides which process drives a run.
package worker

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/safefile"
)

// Drivers records which process drives a run, and asks that process to cancel it. [LockFiles] implements it with files
// in the data folder.
type Drivers interface {
	// Take claims a run for this process until leave is called, which may be called more than once. It returns
	// [ErrDriven] if another process has the run. A process may claim a run several times.
	Take(run toolcrib.RunID) (leave func(), err error)
	// Driven reports whether a process has the run, or may have it. Process returns its name.
	Driven(run toolcrib.RunID) bool
	Process(run toolcrib.RunID) string
	// Beat shows other processes that this one is at work, and looks for those that are. A process that calls it from
	// time to time takes over the runs of one that no longer does.
	Beat()
	// Request asks the process that drives a run to cancel it, and RemoveRequest removes the request. Requested
	// returns who asked, once, or nil.
	Request(run toolcrib.RunID, by *agent.CancelError) error
	RemoveRequest(run toolcrib.RunID)
	Requested(run toolcrib.RunID) *agent.CancelError
	// Close frees all runs.
	Close() error
}

// LockFiles are the files that this process has locked for the runs that it drives. The system releases the locks
// however the process ends, so that others can tell a run that continues from one that was cut off. A request of
// another process to cancel the run is a file next to its lock.
//
// A process that is stopped but has not ended keeps its locks. Therefore a process that calls Beat also has a heartbeat
// file, and its locks name it. If the time of that file no longer changes, the next process that takes the run removes
// the lock.
type LockFiles struct {
	dir  string
	name string // of this process

	mu     sync.Mutex
	swept  bool // the files of processes that have died were removed
	files  map[toolcrib.RunID]*lockFile
	spare  []*spareLock
	pulses map[string]pulse // of the other processes, by their names
}

// pulse is the last heartbeat of a process, and how often it was looked at since then. Looks are counted instead of
// time, because a process that was stopped itself has not looked.
type pulse struct {
	at    time.Time
	looks int
}

const (
	// hungAfter is the number of looks at the same heartbeat after which a process is taken to hang.
	hungAfter   = 4
	pulsePrefix = "pulse-"
	takingOver  = "taking-over" // locked while a lock is removed
)

// spareLock is a file that this process has locked for no run. Renaming it for a run takes less work than making,
// locking and removing one.
type spareLock struct {
	*os.File
	path string
}

const maxSpare = 8

// lockFile is a file that this process has locked.
type lockFile struct {
	*os.File
	claims int
}

// NewLockFiles returns the lock files of a data folder. It locks none.
func NewLockFiles(dataDir string) *LockFiles {
	return &LockFiles{
		dir: filepath.Join(dataDir, "drivers"), name: rand.Text(), files: map[toolcrib.RunID]*lockFile{},
	}
}

// path returns the path of a file of a run. It is in the folder for every ID.
func (l *LockFiles) path(run toolcrib.RunID, suffix string) string {
	return filepath.Join(l.dir, url.PathEscape(string(run))+suffix)
}

const (
	lockSuffix   = ".lock"
	cancelSuffix = ".cancel"
)

// ErrDriven says that another process has the run.
var ErrDriven = errors.New("another process is running it")

// Another process that looks at a lock holds it for a moment, so Take tries several times.
const (
	lockAttempts = 10
	lockPause    = 20 * time.Millisecond
)

// Take locks the file of a run, or returns ErrDriven. A run works without a lock if files cannot be locked, since the
// journal keeps two drivers apart; it only shows as interrupted while it continues.
func (l *LockFiles) Take(run toolcrib.RunID) (leave func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := l.files[run]
	switch {
	case held == nil:
		f, err := l.lock(run)
		if f == nil {
			return func() {}, err
		}
		held = &lockFile{File: f}
		l.files[run] = held
	case !current(held.File, l.path(run, lockSuffix)): // it was taken over
		return nil, ErrDriven
	}
	held.claims++
	return sync.OnceFunc(func() { l.leave(run, held) }), nil
}

// lock returns the locked file of a run. It returns nil without an error if files cannot be locked here.
func (l *LockFiles) lock(run toolcrib.RunID) (*os.File, error) {
	path := l.path(run, lockSuffix)
	l.sweep()
	if n := len(l.spare); n > 0 && renameNew(l.spare[n-1].path, path) == nil {
		f := l.spare[n-1].File
		l.spare = l.spare[:n-1]
		l.RemoveRequest(run) // left over from a driver before
		return f, nil
	}
	if os.MkdirAll(l.dir, 0o700) != nil {
		return nil, nil
	}
	for range lockAttempts {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, nil
		}
		err = tryLock(f)
		if err == nil && current(f, path) {
			l.RemoveRequest(run) // left over from a driver before
			if f.Truncate(0) == nil {
				_, _ = fmt.Fprintln(f, os.Getpid(), l.name) // the number is for people
			}
			return f, nil
		}
		_ = f.Close() // nothing was written
		if errors.Is(err, errors.ErrUnsupported) {
			return nil, nil
		}
		if !l.takeOver(run) {
			time.Sleep(lockPause)
		}
	}
	return nil, ErrDriven
}

// takeOver removes the lock of a run whose process hangs. If several processes try, one of them does.
func (l *LockFiles) takeOver(run toolcrib.RunID) bool {
	if !l.hangs(run) {
		return false
	}
	unlock, err := safefile.Lock(filepath.Join(l.dir, takingOver), lockPause)
	if err != nil {
		return false
	}
	defer unlock()
	return l.hangs(run) && os.Remove(l.path(run, lockSuffix)) == nil
}

// hangs reports whether the process that has a run hangs.
func (l *LockFiles) hangs(run toolcrib.RunID) bool {
	_, name := l.holder(run)
	return l.pulses[name].looks >= hungAfter
}

// Beat implements [Drivers].
func (l *LockFiles) Beat() {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := toolcrib.RunID(pulsePrefix + l.name)
	if l.files[own] == nil {
		f, _ := l.lock(own)
		if f == nil {
			return // without a heartbeat
		}
		l.files[own] = &lockFile{File: f, claims: 1}
	}
	now := time.Now()
	_ = os.Chtimes(l.path(own, lockSuffix), now, now) // if this fails, others take the process to hang
	entries, _ := os.ReadDir(l.dir)                   // as many as can be read
	pulses := map[string]pulse{}
	for _, e := range entries {
		file, isLock := strings.CutSuffix(e.Name(), lockSuffix)
		name, isPulse := strings.CutPrefix(file, pulsePrefix)
		info, err := e.Info()
		if !isLock || !isPulse || name == l.name || err != nil || !l.locked(toolcrib.RunID(file)) {
			continue // the locks of a process that died are free
		}
		next := l.pulses[name]
		if next.looks++; !next.at.Equal(info.ModTime()) {
			next = pulse{at: info.ModTime()}
		}
		pulses[name] = next
	}
	l.pulses = pulses
}

// leave ends a claim. With the last one any process may continue the run.
func (l *LockFiles) leave(run toolcrib.RunID, held *lockFile) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if held.claims--; held.claims == 0 && l.files[run] == held && !l.keep(run, held.File) {
		_ = l.free(run, held.File) // a lock that is left behind is free when this process ends
	}
}

// current reports whether f is still the file at path. If its holder has removed it, its lock keeps no process out.
func current(f *os.File, path string) bool {
	held, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(held, there)
}

// maxSwept is the most files that sweep looks at.
const maxSwept = 1000

// sweep removes the files of processes that have died, once. Their runs still show as interrupted, because no process
// has them.
func (l *LockFiles) sweep() {
	if l.swept {
		return
	}
	l.swept = true
	dir, err := os.Open(l.dir)
	if err != nil {
		return
	}
	names, _ := dir.Readdirnames(maxSwept) // as many as can be read
	_ = dir.Close()
	for _, name := range names {
		id, ok := strings.CutSuffix(name, lockSuffix)
		run, path := toolcrib.RunID(id), filepath.Join(l.dir, name)
		if !ok || l.files[run] != nil {
			continue
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if tryLock(f) == nil && current(f, path) {
			_ = l.free(run, f) // a file that remains does no harm
		} else {
			_ = f.Close()
		}
	}
}

// Process returns a name of the process that has a run, for people.
func (l *LockFiles) Process(run toolcrib.RunID) string {
	pid, _ := l.holder(run)
	if pid <= 0 {
		return "another process"
	}
	return fmt.Sprintf("process %d", pid)
}

// holder returns the process that the lock of a run names, as far as it can be read.
func (l *LockFiles) holder(run toolcrib.RunID) (pid int, name string) {
	f, err := os.Open(l.path(run, lockSuffix))
	if err != nil {
		return 0, ""
	}
	defer f.Close()
	_, _ = fmt.Fscan(io.LimitReader(f, maxRequest), &pid, &name)
	return pid, name
}

// Close implements [Drivers].
func (l *LockFiles) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for run, f := range l.files {
		errs = append(errs, l.free(run, f.File))
	}
	for _, f := range l.spare {
		errs = append(errs, os.Remove(f.path), f.Close())
	}
	l.spare = nil
	return errors.Join(errs...)
}

// keep keeps the file of a released run as a spare one.
func (l *LockFiles) keep(run toolcrib.RunID, f *os.File) bool {
	path := filepath.Join(l.dir, fmt.Sprintf("spare-%d-%d%s", os.Getpid(), len(l.spare), lockSuffix))
	of := l.path(run, lockSuffix)
	if len(l.spare) >= maxSpare || !current(f, of) || renameNew(of, path) != nil {
		return false
	}
	delete(l.files, run)
	l.spare = append(l.spare, &spareLock{f, path})
	return true
}

// free releases one run, unless it was taken over.
func (l *LockFiles) free(run toolcrib.RunID, f *os.File) error {
	delete(l.files, run)
	if path := l.path(run, lockSuffix); current(f, path) {
		l.RemoveRequest(run)
		return errors.Join(os.Remove(path), f.Close())
	}
	return f.Close()
}

// Driven implements [Drivers].
func (l *LockFiles) Driven(run toolcrib.RunID) bool {
	if !l.locked(run) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.hangs(run)
}

func (l *LockFiles) locked(run toolcrib.RunID) bool {
	f, err := os.OpenFile(l.path(run, lockSuffix), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if err != nil {
		return true
	}
	defer f.Close()
	return tryLock(f) != nil
}

// Request implements [Drivers].
func (l *LockFiles) Request(run toolcrib.RunID, by *agent.CancelError) error {
	return safefile.Replace(l.path(run, cancelSuffix), "cancel-", []byte(by.By+"\n"+by.Token))
}

// maxRequest is the most bytes of a request that are read.
const maxRequest = 1 << 10

// Requested implements [Drivers].
func (l *LockFiles) Requested(run toolcrib.RunID) *agent.CancelError {
	data, err := safefile.Read(l.path(run, cancelSuffix), maxRequest)
	if err != nil {
		return nil
	}
	l.RemoveRequest(run)
	by, token, _ := strings.Cut(strings.TrimSpace(guard.Visible(strings.ToValidUTF8(string(data), "\uFFFD"))), "\n")
	return &agent.CancelError{By: cmp.Or(by, "somebody with access to the data folder"), Token: token}
}

// RemoveRequest implements [Drivers].
func (l *LockFiles) RemoveRequest(run toolcrib.RunID) {
	_ = syscall.Unlink(l.path(run, cancelSuffix)) // usually missing; os.Remove would make two calls
}
