package service

import (
	"cmp"
	"context"
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
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
)

// Drivers say which process drives a run, and tell it to end one. Lock files in the data
// folder do ([LockFiles]); a queue may.
type Drivers interface {
	// Take claims a run for this process until leave is called, which may be called again;
	// [ErrDriven] if another process has it. A process may claim a run several times.
	Take(run toolcrib.RunID) (leave func(), err error)
	// Driven reports whether a process has the run, or may have it, and Process names it.
	Driven(run toolcrib.RunID) bool
	Process(run toolcrib.RunID) string
	// Beat shows others that this process is at work, and looks which of them are. A process that
	// calls it from time to time takes over what one that has stopped to call it holds.
	Beat()
	// Request asks the process that drives a run to cancel it, and RemoveRequest takes
	// that back. Requested returns who asked, once.
	Request(run toolcrib.RunID, by *agent.CancelError) error
	RemoveRequest(run toolcrib.RunID)
	Requested(run toolcrib.RunID) *agent.CancelError // nil = nobody
	// Close frees all runs.
	Close() error
}

// LockFiles are the files that this process holds for the runs that it drives. The system releases them however the
// process ends, so that others can tell a run that continues from one that was cut off (design.md §6). Beside a
// lock lies, for a moment, the request of another process to cancel the run.
//
// A process that is stopped without ending keeps its locks. So one that calls Beat has a file
// of its own, its pulse, and a lock names it; where the pulse stands still, the lock counts no
// more, and whoever takes the run removes it.
type LockFiles struct {
	dir  string
	name string // of this process

	mu     sync.Mutex
	swept  bool // what dead drivers left is gone
	files  map[toolcrib.RunID]*lockFile
	spare  []*spareLock
	pulses map[string]pulse // of the other processes, by their names
}

// pulse is when a process has shown last that it is at work, and at how many looks since then it
// had not shown it again. Looks are counted instead of time: whoever was stopped itself has not looked.
type pulse struct {
	at    time.Time
	looks int
}

const (
	// hungAfter is at how many looks the pulse of a process that hangs stands still.
	hungAfter   = 4
	pulsePrefix = "pulse-"
	takingOver  = "taking-over" // the lock of whoever removes a lock
)

// spareLock is a file that this process has locked for no run: to give it the name of one is less work
// than to make one, lock it, and remove it.
type spareLock struct {
	*os.File
	path string
}

const maxSpare = 8

// lockFile is a file that this process holds.
type lockFile struct {
	*os.File
	claims int
}

// NewLockFiles returns the lock files of a data folder; none is held yet.
func NewLockFiles(dataDir string) *LockFiles {
	return &LockFiles{
		dir: filepath.Join(dataDir, "drivers"), name: rand.Text(), files: map[toolcrib.RunID]*lockFile{},
	}
}

// path is a file of a run. Whatever the ID, it lies in the folder.
func (l *LockFiles) path(run toolcrib.RunID, suffix string) string {
	return filepath.Join(l.dir, url.PathEscape(string(run))+suffix)
}

const (
	lockSuffix   = ".lock"
	cancelSuffix = ".cancel"
)

// ErrDriven says that another process has the run.
var ErrDriven = errors.New("another process is running it")

// A look of someone else at a lock holds it for a moment, so it is tried for.
const (
	lockAttempts = 10
	lockPause    = 20 * time.Millisecond
)

// Take locks the file of a run, or returns ErrDriven. Where files cannot be locked a run works too, and the
// journal's fence keeps two drivers apart; it only shows as interrupted while it continues.
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

// lock returns the file of a run, locked; nil if files cannot be locked here, or with ErrDriven.
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
				_, _ = fmt.Fprintln(f, os.Getpid(), l.name) // the number is only told to people
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

// takeOver removes the lock of a run that a process holds which hangs. Of several that want to, one does.
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

// hangs reports whether the process that holds a run hangs.
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
			return // as without a pulse
		}
		l.files[own] = &lockFile{File: f, claims: 1}
	}
	now := time.Now()
	_ = os.Chtimes(l.path(own, lockSuffix), now, now) // others see it, or take it for hung
	entries, _ := os.ReadDir(l.dir)                   // what was read of them
	pulses := map[string]pulse{}
	for _, e := range entries {
		file, isLock := strings.CutSuffix(e.Name(), lockSuffix)
		name, isPulse := strings.CutPrefix(file, pulsePrefix)
		info, err := e.Info()
		if !isLock || !isPulse || name == l.name || err != nil || !l.locked(toolcrib.RunID(file)) {
			continue // of the dead nothing is left to take over
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

// current reports whether f is still the file at path: one that its holder removed
// before it let go keeps nobody out.
func current(f *os.File, path string) bool {
	held, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(held, there)
}

// maxSwept bounds how many files one process looks at when it sweeps.
const maxSwept = 1000

// sweep removes, once, the locks that nobody holds: their drivers have died. That a run
// was cut off shows as before, for nobody holds it.
func (l *LockFiles) sweep() {
	if l.swept {
		return
	}
	l.swept = true
	dir, err := os.Open(l.dir)
	if err != nil {
		return
	}
	names, _ := dir.Readdirnames(maxSwept) // what was read of them
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
			_ = l.free(run, f) // what cannot be removed does no harm
		} else {
			_ = f.Close()
		}
	}
}

// Process names the process that holds a run, for people.
func (l *LockFiles) Process(run toolcrib.RunID) string {
	pid, _ := l.holder(run)
	if pid <= 0 {
		return "another process"
	}
	return fmt.Sprintf("process %d", pid)
}

// holder is the process that the lock of a run names, as far as that can be read.
func (l *LockFiles) holder(run toolcrib.RunID) (pid int, name string) {
	f, err := os.Open(l.path(run, lockSuffix))
	if err != nil {
		return 0, ""
	}
	defer f.Close()
	_, _ = fmt.Fscan(io.LimitReader(f, maxRequest), &pid, &name)
	return pid, name
}

// Close releases all runs.
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

// keep keeps the file of a run that is left as a spare one.
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

// Driven reports whether a process holds the run, or may hold it.
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

// Request asks the process that drives a run to cancel it.
func (l *LockFiles) Request(run toolcrib.RunID, by *agent.CancelError) error {
	return safefile.Replace(l.path(run, cancelSuffix), "cancel-", []byte(by.By+"\n"+by.Token))
}

// maxRequest bounds what is read of a request.
const maxRequest = 1 << 10

// Requested returns who asks to cancel the run, once; nil if nobody does.
func (l *LockFiles) Requested(run toolcrib.RunID) *agent.CancelError {
	data, err := safefile.Read(l.path(run, cancelSuffix), maxRequest)
	if err != nil {
		return nil
	}
	l.RemoveRequest(run)
	by, token, _ := strings.Cut(strings.TrimSpace(guard.Visible(strings.ToValidUTF8(string(data), "\uFFFD"))), "\n")
	return &agent.CancelError{By: cmp.Or(by, "somebody with access to the data folder"), Token: token}
}

// RemoveRequest removes a request, if there is one.
func (l *LockFiles) RemoveRequest(run toolcrib.RunID) {
	_ = syscall.Unlink(l.path(run, cancelSuffix)) // usually missing; os.Remove would make two calls
}

// Cancel ends a run, and returns it as [Service.FindRun] does. One that another process
// drives is told, and Cancel waits until it has ended.
func (s *Service) Cancel(ctx context.Context, who toolcrib.Principal, name string) (Run, error) {
	rec, err := s.Env.Find(ctx, who, name)
	if err != nil {
		return Run{}, err
	}
	if rec.Status.Ended() {
		return Run{}, toolcrib.Errorf(toolcrib.CodeConflict, "run %s (%s) has ended; there is nothing to cancel", rec.ID,
			rec.Status)
	}
	leave, driven := s.Drivers.Take(rec.ID)
	switch {
	case driven == nil:
		defer leave()
		err = s.cancelHere(ctx, rec, agent.CancelBy(who))
	case rec.Parent != "":
		err = toolcrib.Errorf(toolcrib.CodeConflict, "run %s is part of run %s; cancel that one", rec.ID, rec.Parent)
	default:
		err = s.cancelThere(ctx, rec, agent.CancelBy(who))
	}
	if err == nil {
		rec, err = s.Env.Store.Run(ctx, rec.ID)
	}
	if err != nil {
		return Run{}, err
	}
	return s.around(ctx, who, rec), nil
}

// cancelHere ends a run that nobody drives.
func (s *Service) cancelHere(ctx context.Context, rec store.RunRecord, by *agent.CancelError) error {
	r, err := s.runner(rec)
	if err != nil {
		return err
	}
	_, err = r.Cancel(ctx, rec.ID, by)
	return err
}

// How long another process may take to end its run, and how often it is looked at.
const (
	cancelWait = 10 * time.Second
	cancelLook = 100 * time.Millisecond
)

// pause waits before the next look at what another process does.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// cancelThere asks the process that drives a run to end it, and waits until it has.
func (s *Service) cancelThere(ctx context.Context, rec store.RunRecord, by *agent.CancelError) error {
	if err := s.Drivers.Request(rec.ID, by); err != nil {
		return &toolcrib.Error{Code: toolcrib.CodeInternal, Message: "run " + string(rec.ID) + " cannot be told to stop: " +
			err.Error(), Err: err}
	}
	defer s.Drivers.RemoveRequest(rec.ID)
	for end := time.Now().Add(cancelWait); ; {
		if err := pause(ctx, cancelLook); err != nil {
			return err
		}
		if time.Now().After(end) {
			return toolcrib.Errorf(toolcrib.CodeTimeout, "run %s was told to stop and has not; its process does not respond", rec.ID)
		}
		now, err := s.Env.Store.Run(ctx, rec.ID)
		if err != nil {
			return err
		}
		if now.Status.Ended() {
			return nil
		}
		if s.Drivers.Driven(rec.ID) {
			continue
		}
		if leave, err := s.Drivers.Take(rec.ID); err == nil {
			defer leave()
			// Its process released it before it saw the request.
			return s.cancelHere(ctx, now, by)
		}
	}
}

// serverLock is the name under which a server holds a lock, as drivers do with runs, so that
// others see that there is one.
const serverLock toolcrib.RunID = "server"

// Detach writes a run down for the server of the data folder, which continues it. Where no server
// runs, the run stays queued until one starts.
func (s *Service) Detach(ctx context.Context, who toolcrib.Principal, r StartRequest) (Run, error) {
	d, task, err := s.ready(ctx, who, r, Front{})
	if err != nil {
		return Run{}, err
	}
	task.Driver = env.DriverServer
	state, err := d.carry(ctx, nil, func(ctx context.Context, r *agent.Runner) (*agent.State, error) {
		return r.Start(ctx, task)
	})
	return s.outcome(ctx, who, state, err)
}

// Server names the process of a server that runs on the data folder; "" = none does.
func (s *Service) Server() string {
	if !s.Drivers.Driven(serverLock) {
		return ""
	}
	return s.Drivers.Process(serverLock)
}

// mark shows other processes that a server runs here, unless another one does already.
func (p *Pool) mark() (unmark func()) {
	if p.s.Env.Driver != env.DriverServer || p.s.Drivers.Driven(serverLock) {
		return nil
	}
	unmark, _ = p.s.Drivers.Take(serverLock) // with an error another server was quicker
	return unmark
}
