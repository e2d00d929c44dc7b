//go:build unix

package shell

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolcrib/toolcrib"
)

// ran is how a call went.
type ran struct {
	result
	stopped bool
}

// launcher has what a job needs to be started.
type launcher struct {
	job
	writes         bool
	scratch        string
	report         Report
	options        *Options
	bounds         bounds
	root           atomic.Int64 // the process under which the job runs, and its group; 0 = not yet
	stdout, stderr *os.File
	null           *os.File
}

// environment is what programs get, with that folder for temporary files.
func (l *launcher) environment(temporary string) []string {
	return []string{"PATH=" + searchPath, "HOME=" + temporary, "TMPDIR=" + temporary, "LANG=C.UTF-8", "TERM=dumb"}
}

// direct runs the job from this process.
func (l *launcher) direct() (func(stop <-chan struct{}) outcome, error) {
	r := &runner{job: l.job, stdout: l.stdout, stderr: l.stderr, null: l.null}
	r.grouped = func(group int) { l.root.Store(int64(group)) }
	return r.run, nil
}

// run runs a plan and collects what it prints. It returns when everything has
// ended, at most a little after ctx.
func (s *shell) run(ctx context.Context, call toolcrib.Call, p *plan) (ran, error) {
	s.sweep.Do(func() { sweep(time.Now()) })
	temporary, err := newScratch()
	if err != nil {
		return ran{}, fault("no folder for temporary files", err)
	}
	defer temporary.remove()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return ran{}, fault("no "+os.DevNull, err)
	}
	defer func() { _ = null.Close() }()
	l := &launcher{
		job:    job{Dir: p.w.Dir, Steps: p.steps, Watch: p.writes, Offline: !s.options.Network},
		writes: p.writes, scratch: temporary.path, report: s.report(), options: p.set, null: null, bounds: s.bounds(p.writes),
	}
	l.Env = l.environment(temporary.path)
	if !p.writes {
		return s.collect(ctx, l)
	}
	return s.guarded(ctx, call, p, l)
}

// guarded runs a job that may write. Protected files are kept from it where that can be
// done, and looked at afterwards where it cannot.
func (s *shell) guarded(ctx context.Context, call toolcrib.Call, p *plan, l *launcher) (ran, error) {
	g := &guarded{set: p.set, w: p.w, seen: p.set.survey(p.w.Dir), kept: l.report.Helper && l.report.Bubblewrap != ""}
	if g.kept {
		release, err := l.hold(g.seen)
		if err != nil {
			return ran{}, err
		}
		defer release()
		if g.seen.unsure == "" {
			g.held = slices.DeleteFunc(slices.Concat(g.seen.found, g.seen.absent), func(path string) bool {
				_, link := g.seen.links[path]
				return link || foundAfterwards(path)
			})
		}
		if slices.Contains(g.seen.absent, filepath.Join(p.w.Dir, ".git")) {
			l.Env = append(l.Env, "GOFLAGS=-buildvcs=false") // go would ask git about the stand-in
		}
	}
	g.before = g.look(g.seen)
	res, err := s.collect(ctx, l)
	changed, unsure := g.changed()
	changed, aside := g.undo(changed)
	if len(changed) > 0 {
		res.warn("The command changed what is protected: " + p.named(changed) +
			". These files steer toolcrib or programs beside it; tell the user, and do not rely on them.")
	}
	if len(aside) > 0 {
		res.warn("The command made or replaced what is protected. That has been undone; what it made is now called " + p.named(aside) + ".")
	}
	if len(changed)+len(aside) > 0 && s.options.OnProtectedChange != nil {
		s.options.OnProtectedChange(call, changed, aside)
	}
	if unsure != "" {
		res.warn("Whether the command changed what is protected is not known for all of it: " + unsure + ".")
	}
	return res, err
}

func (r *ran) warn(text string) { r.Warning = strings.TrimSpace(r.Warning + " " + text) }

func fault(text string, err error) error {
	return &toolcrib.ToolError{Kind: toolcrib.ExecutionFailed, Message: text, Err: err}
}

// collect starts the job, reads its output, and waits for its end.
func (s *shell) collect(ctx context.Context, l *launcher) (ran, error) {
	outRead, outWrite, err := os.Pipe()
	if err != nil {
		return ran{}, fault("no pipe", err)
	}
	defer func() { _ = outRead.Close() }()
	errRead, errWrite, err := os.Pipe()
	if err != nil {
		_ = outWrite.Close()
		return ran{}, fault("no pipe", err)
	}
	defer func() { _ = errRead.Close() }()
	l.stdout, l.stderr = outWrite, errWrite
	work, err := s.launch(l)
	if err != nil {
		_, _ = outWrite.Close(), errWrite.Close()
		return ran{}, err
	}
	limited, stop := context.WithCancelCause(ctx)
	watched := l.watch(limited, stop)
	var (
		stdout, stderr keeper
		read           atomic.Int64
		readers        sync.WaitGroup
	)
	flooded := func() { stop(exceeded("it wrote more than 64 MiB.")) }
	readers.Go(func() { stdout.drain(outRead, &read, flooded) })
	readers.Go(func() { stderr.drain(errRead, &read, flooded) })
	out := work(limited.Done())
	_, _ = outWrite.Close(), errWrite.Close()
	// What escaped everything else may still hold the pipes: it is not waited for.
	_, _ = outRead.SetReadDeadline(time.Now().Add(pipeGrace)), errRead.SetReadDeadline(time.Now().Add(pipeGrace))
	readers.Wait()
	cause := context.Cause(limited)
	stop(nil)
	<-watched
	res := ran{stopped: out.Stopped, result: result{
		ExitCode: out.Exit, Signal: out.Signal, Stdout: stdout.text(), Stderr: stderr.text(),
		StdoutTruncated: stdout.cut(), StderrTruncated: stderr.cut(),
	}}
	return res, res.judge(out, cause)
}

const pipeGrace = 500 * time.Millisecond

// judge turns the end of a job into what the model reads.
func (r *ran) judge(out outcome, cause error) error {
	if over := exceeded(""); errors.As(cause, &over) {
		r.ExitCode, r.Warning = -1, "The command was killed: "+string(over)
		return nil
	}
	switch {
	case out.Setup != "":
		return &toolcrib.ToolError{
			Kind: toolcrib.ExecutionFailed, Message: "the sandbox could not be made, so nothing was run",
			Err: errText(out.Setup + " " + quoteText(r.Stderr)), // bubblewrap says why there
		}
	case out.Problem != "":
		return &toolcrib.ToolError{
			Kind: toolcrib.ExecutionFailed, Message: quote(out.Program) + " could not be started", Err: errText(out.Problem),
		}
	}
	return nil
}

type errText string

func (e errText) Error() string { return string(e) }
