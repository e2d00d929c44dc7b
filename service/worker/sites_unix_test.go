//go:build unix

package worker_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/internal/natstest"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
)

// site is one of several servers of a database.
type site struct {
	*poolHouse
	data string
}

// onSites returns servers on one PostgreSQL, each with a data folder of its own, and a NATS server if bus is set.
func onSites(t *testing.T, bus bool, folders ...string) (all []*site) {
	t.Helper()
	h := newHouse(t, "")
	if bus {
		h.more = "bus: {url: '" + natstest.Start(t, 1, nil).URL() + "'}\n"
	}
	h.onPostgreSQL()
	h.more += "keys: '" + filepath.Join(h.dir, "data", env.KeysName) + "'\n"
	for _, folder := range folders {
		all = append(all, h.site(folder))
	}
	return all
}

// site starts a server whose data folder is a folder of the house.
func (h *poolHouse) site(folder string) *site {
	h.t.Helper()
	other := *h
	s := &site{&other, filepath.Join(h.dir, folder)}
	s.s, s.pool = other.openIn(s.data, 0, nil)
	return s
}

// ask starts a run in the workspace of its user, which waits for an approval.
func (s *site) ask() toolcrib.RunID {
	s.t.Helper()
	if err := os.RemoveAll(s.written()); err != nil { // a write that changes nothing asks nobody
		s.t.Fatal(err)
	}
	d, err := s.pool.Start(s.t.Context(), ann, s.own("asks"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.becomes(d.ID(), toolcrib.StatusWaitingForApproval)
	return d.ID()
}

func (s *site) own(name string) service.StartRequest {
	s.t.Helper()
	workspace, err := s.s.Policy.OwnWorkspace(ann)
	if err != nil {
		s.t.Fatal(err)
	}
	return service.StartRequest{Agent: name, Prompt: "Go.", Workspace: workspace, Approve: agent.ApproveNone}
}

// approve approves what a run waits for, as a request to this server does.
func (s *site) approve(run toolcrib.RunID) {
	s.t.Helper()
	s.decide(run)
	if _, err := s.pool.Resume(s.t.Context(), ann, service.ResumeRequest{Run: string(run), Decided: true}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) view(run toolcrib.RunID) service.Run {
	s.t.Helper()
	v, err := s.s.FindRun(s.t.Context(), ann, string(run))
	if err != nil {
		s.t.Fatal(err)
	}
	return v
}

func (s *site) written() string { return filepath.Join(s.data, "workspaces", "ann", "out.txt") }

func (s *site) wrote() bool {
	_, err := os.Stat(s.written())
	return err == nil
}

func (s *site) stop() {
	s.t.Helper()
	if err := s.pool.Close(context.Background()); err != nil {
		s.t.Fatal(err)
	}
	if err := s.s.Close(); err != nil {
		s.t.Fatal(err)
	}
}

// A run continues on a server that has its workspace. Without one it waits, which can be seen.
func TestPool_BoundWorkspaces(t *testing.T) {
	for name, bus := range map[string]bool{"": false, "NATS": true} {
		t.Run(name, func(t *testing.T) {
			all := onSites(t, bus, "a", "b")
			a, b := all[0], all[1]
			run := a.ask()
			if rec := b.record(run); rec.Site == "" || b.view(run).Unreachable {
				t.Errorf("site %q, unreachable: %v", rec.Site, b.view(run).Unreachable)
			}
			b.approve(run)
			b.becomes(run, toolcrib.StatusCompleted)
			if !a.wrote() || b.wrote() {
				t.Errorf("written on its server: %v, on the other: %v", a.wrote(), b.wrote())
			}

			inSession := a.own("default")
			inSession.Session = "notes"
			d, err := a.pool.Start(t.Context(), ann, inSession)
			if err != nil {
				t.Fatal(err)
			}
			a.becomes(d.ID(), toolcrib.StatusCompleted)
			ended, run := a.ask(), a.ask()
			a.stop()
			b.approve(run)
			waittest.Until(t, "the run waits for its server", func() bool { return b.view(run).Unreachable })
			if _, err := b.pool.Resume(t.Context(), ann, service.ResumeRequest{Run: string(run)}); toolcrib.CodeOf(err) !=
				toolcrib.CodeConflict || !strings.Contains(err.Error(), "another folder of workspaces") {
				t.Errorf("resumed on the other server: %v", err)
			}
			b.pool.Put(run) // whatever a queue says
			list, _, err := b.s.Runs(t.Context(), ann, service.RunsQuery{})
			if err != nil || len(list) != 4 || !list[0].Unreachable || list[3].Unreachable || list[0].Status != toolcrib.StatusQueued {
				t.Errorf("%+v, %v", list, err)
			}
			refused := b.own("default")
			refused.Session = "notes"
			if _, err := b.pool.Start(t.Context(), ann, refused); toolcrib.CodeOf(err) != toolcrib.CodeConflict ||
				!strings.Contains(err.Error(), "begin another session") {
				t.Errorf("the session continues on the other server: %v", err)
			}
			if _, err := b.pool.Fork(t.Context(), ann, service.ForkRequest{Run: string(run)}); toolcrib.CodeOf(err) !=
				toolcrib.CodeConflict {
				t.Errorf("forked on the other server: %v", err)
			}
			if v, err := b.pool.Cancel(t.Context(), ann, string(ended)); err != nil || v.Status != toolcrib.StatusCancelled {
				t.Errorf("cancelled on the other server: %s, %v", v.Status, err)
			}
			a = b.site("a")
			b.becomes(run, toolcrib.StatusCompleted)
			if b.wrote() || a.takenUp(run) != 2 {
				t.Errorf("written on the other server: %v; taken up %d times", b.wrote(), a.takenUp(run))
			}
		})
	}
}

// Servers with one folder of workspaces continue each other's runs.
func TestPool_SharedWorkspaces(t *testing.T) {
	all := onSites(t, false, "a")
	a := all[0]
	if err := os.MkdirAll(filepath.Join(a.dir, "b"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(a.data, "workspaces"), filepath.Join(a.dir, "b", "workspaces")); err != nil {
		t.Fatal(err)
	}
	b := a.site("b")
	run := a.ask()
	a.stop()
	b.approve(run)
	b.becomes(run, toolcrib.StatusCompleted)
	if !b.wrote() || b.view(run).Unreachable {
		t.Errorf("written: %v, %+v", b.wrote(), b.view(run))
	}
}

// A server does not start with a copy of the workspaces of a running server. After that server has ended, the copy
// takes its place.
func TestPool_CopiedWorkspaces(t *testing.T) {
	all := onSites(t, false, "a")
	a := all[0]
	run := a.ask()
	if err := os.CopyFS(filepath.Join(a.dir, "b", "workspaces"), os.DirFS(filepath.Join(a.data, "workspaces"))); err != nil {
		t.Fatal(err)
	}
	marks, err := filepath.Glob(filepath.Join(a.dir, "b", "workspaces", env.SiteName+"-of-*"))
	if err != nil || len(marks) != 1 {
		t.Fatalf("%q, %v", marks, err)
	}
	// A copy that was made before the server began has no mark of it.
	if err := os.Remove(marks[0]); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the server is known", func() bool { return a.s.Server(t.Context()) != "" })
	if _, _, err := a.tryIn(filepath.Join(a.dir, "b"), 0, nil); err == nil || !strings.Contains(err.Error(), "is a copy") {
		t.Errorf("started with a copy: %v", err)
	}
	a.stop()
	b := a.site("b")
	b.approve(run)
	b.becomes(run, toolcrib.StatusCompleted)
}

// A folder that loses its identity while the server runs, as a share that is unmounted, gets no new one. Neither does a
// copy count whose mark nobody renews.
func TestPool_LostWorkspaces(t *testing.T) {
	a := onSites(t, false, "a")[0]
	file := filepath.Join(a.data, "workspaces", env.SiteName)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if site, err := a.s.Env.Site(); err == nil {
		t.Errorf("a new site: %s", site)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the file was made again")
	}
	if !a.s.Env.HasMark(a.s.Env.Owner().ID) {
		t.Error("no mark")
	}
	mark, old := file+"-of-"+a.s.Env.Owner().ID, time.Now().Add(-time.Hour)
	if err := os.Chtimes(mark, old, old); err != nil {
		t.Fatal(err)
	}
	if a.s.Env.HasMark(a.s.Env.Owner().ID) {
		t.Error("a mark of an hour ago counts")
	}
}
