package service

import (
	"context"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// memory keeps approvals that hold for a session or a user, as the loop asks for them
// (contract §6).
type memory struct{ store store.Store }

// Remembered implements [agent.Memory].
func (m memory) Remembered(ctx context.Context, user string, session toolcrib.SessionID) ([]gate.Remembered, error) {
	kept, err := m.store.Remembered(ctx, user, session)
	if err != nil {
		return nil, err
	}
	list := make([]gate.Remembered, len(kept))
	for i, k := range kept {
		list[i] = RememberedCalls(k)
	}
	return list, nil
}

// RememberedCalls are the calls that a remembered approval is about.
func RememberedCalls(k store.Remembered) gate.Remembered {
	return gate.Remembered{
		Tool: k.Tool, Arguments: k.Arguments, Path: k.Path, Folder: k.Folder, Effect: k.Effect, Scope: k.Scope,
		ApprovalID: k.ApprovalID, By: k.By, Workspace: k.Workspace, FolderID: k.FolderID,
	}
}

// Remember implements [agent.Memory].
func (m memory) Remember(
	ctx context.Context, user string, session toolcrib.SessionID, run toolcrib.RunID, approvals []gate.Remembered,
) error {
	for _, r := range approvals {
		keep := store.Remembered{
			Scope: r.Scope, User: user, Tool: r.Tool, Arguments: r.Arguments, Path: r.Path, Folder: r.Folder,
			Workspace: r.Workspace, FolderID: r.FolderID, Effect: r.Effect, Run: run, ApprovalID: r.ApprovalID, By: r.By,
		}
		if r.Scope == journal.RememberSession {
			keep.Session = session
		}
		if _, _, err := m.store.Remember(ctx, keep); err != nil {
			return err
		}
	}
	return nil
}

// Remembered returns the approvals that later calls pass by: who's own, to administrators
// those of everybody; with revoked also those that count no more.
func (s *Service) Remembered(
	ctx context.Context, who toolcrib.Principal, revoked bool, limit int,
) ([]store.Remembered, error) {
	f := store.RememberedFilter{User: who.User, Revoked: revoked, Limit: limit}
	switch {
	case admin(who):
		f.User = ""
	case who.User == "":
		return []store.Remembered{}, nil
	}
	list, err := s.store.ListRemembered(ctx, f)
	return append([]store.Remembered{}, list...), err
}

// Forget revokes a remembered approval, so that such calls are asked about again, also in
// runs that are on their way. It reports whether it still counted.
func (s *Service) Forget(
	ctx context.Context, who toolcrib.Principal, id string,
) (m store.Remembered, changed bool, err error) {
	of := who.User
	if admin(who) {
		of = ""
	} else if of == "" {
		return m, false, noneRemembered(id)
	}
	if m, err = s.rememberedByPart(ctx, of, id); err != nil {
		return m, false, err
	}
	if changed, err = s.store.Forget(ctx, of, m.ID, agent.NameOf(who)); err != nil {
		return m, false, err
	}
	m, err = s.rememberedByPart(ctx, of, m.ID)
	return m, changed, err
}

// rememberedByPart finds a remembered approval by its ID, or the beginning of it.
func (s *Service) rememberedByPart(ctx context.Context, of, part string) (store.Remembered, error) {
	const prefix = "rem_"
	begin := prefix + strings.TrimPrefix(part, prefix)
	list, err := s.store.ListRemembered(ctx, store.RememberedFilter{
		User: of, Revoked: true, After: begin[:len(begin)-1], Limit: store.MaxLimit,
	})
	if err != nil {
		return store.Remembered{}, err
	}
	m, err := byPart("approval", prefix, part, list, func(m store.Remembered) string { return m.ID })
	if toolcrib.CodeOf(err) == toolcrib.CodeNotFound {
		err = noneRemembered(part)
	}
	return m, err
}

func noneRemembered(id string) error {
	return toolcrib.Errorf(toolcrib.CodeNotFound, "no approval is remembered as %s", id)
}
