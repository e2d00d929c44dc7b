//go:build unix

package shell

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/internal/beneath"
)

// runProgram runs a program and collects its output.
func (s *shell) runProgram(ctx context.Context, call toolcrib.Call, p *programPlan, output func([]byte)) (ran, error) {
	l, err := s.launcher(call.Principal.User, p.w.Dir, p.set, p.Sandbox())
	if err != nil {
		return ran{}, err
	}
	defer l.clear(call.Behind)
	l.special, l.shared = p.special, p.shared
	l.Steps, l.bounds = steps(p.Steps), s.bounds(p.Sandbox())
	l.output, l.active, l.work = output, func() {}, s.work
	command := &l.Steps[0].Commands[0]
	if p.Input != nil {
		command.NoInput, command.Input = false, p.Input
	}
	if p.SHA256 != "" {
		if command.Path, err = l.pin(p.path, p.SHA256); err != nil {
			return ran{}, err
		}
	} else {
		l.show(p.path)
	}
	l.concurrent.Go(func() {
		noTelemetry(l.scratch)
		l.linkCargo()
	})
	if p.writes() {
		return s.guarded(ctx, call, p.plan, l)
	}
	l.concurrent.Wait()
	return s.collect(ctx, l)
}

// pin copies a program with this hash into the folder for temporary files, where nothing else can change it, and
// returns the path of the copy in the sandbox.
func (l *launcher) pin(path, sum string) (string, error) {
	folder, err := os.MkdirTemp(l.scratch, ".program-")
	if err != nil {
		return "", fault("the program of this tool cannot be copied", err)
	}
	name := filepath.Join(folder, filepath.Base(path))
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o500)
	if err != nil {
		return "", fault("the program of this tool cannot be copied", err)
	}
	_, err = copyProgram(path, sum, f)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	inside, err := filepath.Rel(l.scratch, name)
	return filepath.Join(l.temporary(), inside), err
}

// show makes a program visible in the sandbox: the folder that it is installed in or, if the user's home is in
// that, the file.
func (l *launcher) show(path string) {
	shown := *l.installed
	shown.read = slices.Clone(shown.read)
	for _, path := range []string{path, beneath.Real(path)} {
		folder := shown.root(filepath.Dir(path))
		if shown.home == "" || within(shown.home, folder) || within(l.Dir, folder) {
			folder = path
		}
		shown.read = append(shown.read, folder)
	}
	l.installed = &shown
}
