package gate

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// Remembered is an approval that a person made to hold for later calls, too
// (contract §6). It holds in its workspace only, and lifts what a rule's allow may
// lift, and no more: never a refusal, never what settings.X.confirm: always asks.
type Remembered struct {
	Tool string
	// Arguments are the canonical arguments that it holds for; nil = any.
	Arguments json.RawMessage
	// Path is the only file that a call may write, or with Folder the folder in which
	// all of them are; absolute, symbolic links resolved. "" = the call writes no files
	// that an approval is bound to.
	Path   string
	Folder bool
	// Effect is the effect of the calls that were approved: with any arguments, a
	// call with a worse one is asked about.
	Effect     toolcrib.Effect
	Scope      string // run | session | user
	ApprovalID string
	By         string
	// Workspace is the folder in which it holds, symbolic links resolved, and FolderID
	// tells it from another one of the same name; "" = in runs without a workspace.
	Workspace, FolderID string
}

// RememberKinds returns what an approval of a call can be remembered for, the narrowest
// that is usual first: a file write for its path or folder, a command line for that
// line, a call that may be repeated safely for its tool, another one for its arguments.
// It is empty for a call of which nothing can be remembered.
func RememberKinds(c *journal.ApprovalItem) []string {
	switch b := c.Binding; {
	case b == nil || len(b.Files) > 1 || b.Workspace != "" && b.LeadsTo == "":
		return nil
	case len(b.Files) == 1:
		return []string{journal.RememberPath, journal.RememberFolder, journal.RememberArguments}
	case b.CommandLine:
		return []string{journal.RememberArguments}
	case c.Effect.OrStrictest() == toolcrib.EffectNonIdempotentWrite:
		return []string{journal.RememberArguments, journal.RememberTool}
	}
	return []string{journal.RememberTool, journal.RememberArguments}
}

// Remember makes what an approval of this call says about later ones; ok is false if
// nothing can be remembered of it, or not for what r says.
func Remember(r journal.Remember, approval *journal.ConfirmationResolved, c *journal.ApprovalItem) (m Remembered, ok bool) {
	kinds := RememberKinds(c)
	kind := r.Calls
	if kind == "" && len(kinds) > 0 {
		kind = kinds[0]
	}
	if !slices.Contains(kinds, kind) {
		return m, false
	}
	m = Remembered{
		Tool: c.Name, Effect: c.Effect.OrStrictest(), Scope: r.Scope, ApprovalID: approval.ApprovalID, By: approval.By,
		Workspace: c.Binding.LeadsTo, FolderID: c.Binding.FolderID,
	}
	for _, f := range c.Binding.Files {
		m.Path = f.Path
	}
	switch kind {
	case journal.RememberFolder:
		m.Path, m.Folder = filepath.Dir(m.Path), true
	case journal.RememberArguments:
		m.Arguments = c.Arguments
	}
	return m, true
}

// remembered is the approval that answers the question about this call; nil =
// none.
func (j *judgement) remembered() *Remembered {
	for i := range j.facts.Remembered {
		if m := &j.facts.Remembered[i]; j.lifts(m) {
			return m
		}
	}
	return nil
}

// lifts reports whether the question about this call was answered before.
func (j *judgement) lifts(m *Remembered) bool {
	switch {
	case m.Tool != j.call.Name,
		m.Arguments != nil && !bytes.Equal(m.Arguments, j.call.Arguments),
		m.Arguments == nil && severity(j.effect) > severity(m.Effect),
		m.Path != "" && !j.writesOnly(m):
		return false
	}
	return j.facts.Past || m.holdsAt(j.scope.Workspace, j.workspace())
}

// HoldsIn reports whether it holds in a workspace, as things are now.
func (m *Remembered) HoldsIn(workspace string) bool {
	at := lookUp(workspace)
	return m.holdsAt(workspace, &at)
}

func (m *Remembered) holdsAt(workspace string, at *whereabouts) bool {
	return (at.leadsTo != "" || workspace == "") && at.leadsTo == m.Workspace && at.folderID == m.FolderID
}

// writesOnly reports whether the call writes files, and no others than those that were
// approved.
func (j *judgement) writesOnly(m *Remembered) bool {
	wrote := false
	for _, t := range j.targets {
		if t.Kind != toolcrib.TargetFile || !t.Write {
			continue
		}
		if t.Tree || t.Name != m.Path && !m.Folder || m.Folder && !within(m.Path, t.Name) {
			return false
		}
		wrote = true
	}
	return wrote
}

func (m *Remembered) detail() string {
	return "remembered for the " + m.Scope + ": approval " + m.ApprovalID + " by " + m.By
}

// severity orders effects by what they may do.
func severity(e toolcrib.Effect) int {
	switch e {
	case toolcrib.EffectReadOnly:
		return 0
	case toolcrib.EffectIdempotentWrite:
		return 1
	}
	return 2
}
