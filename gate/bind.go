package gate

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate/folderid"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// maxShownPath bounds a path in a text, in bytes.
const maxShownPath = 1024

// whereabouts identifies the workspace of a run as it is now. It is looked up at most once for each
// judgement of a turn, and only if an approval is bound to it.
type whereabouts struct {
	leadsTo, folderID string // "" if the path cannot be resolved
}

// workspace returns the folder that the path of the workspace leads to, and looks it up at the
// first call.
func (p *policy) workspace() *whereabouts {
	if p.here == nil {
		p.here = lookUp(p.scope.Workspace)
	}
	return p.here
}

// lookUp resolves the path of a workspace. If it cannot be resolved, the result is the zero value,
// which is compared like any other.
func lookUp(workspace string) *whereabouts {
	w := &whereabouts{}
	if workspace == "" {
		return w
	}
	if real, err := filepath.EvalSymlinks(workspace); err == nil {
		if id, err := folderid.Of(real); err == nil {
			w.leadsTo, w.folderID = real, id
		}
	}
	return w
}

// Bind returns the state that a person's decision on a call is bound to now. If it cannot be
// determined, Bind returns nil, and the decision applies to no call.
func (g *Gate) Bind(ctx context.Context, who toolcrib.Principal, scope Scope,
	call *toolcrib.ToolCall,
) *journal.Binding {
	p, _ := g.policyOf(ctx, &who, &scope) // nothing is decided here
	j := judgement{policy: p, ctx: ctx, asked: call, entry: p.tools.byName[call.Name]}
	b, _ := guard.Contain(func() (b *journal.Binding, err error) { // a tool that panics binds nothing
		if j.entry != nil && j.argumentsStep() == nil && j.planStep() == nil {
			b, _ = j.bind()
		}
		return b, nil
	})
	return b
}

// bind returns the state that an approval of the call is bound to now. If it cannot be determined,
// the call is refused, because no approval could be compared with it.
func (j *judgement) bind() (*journal.Binding, *refusal) {
	at := j.workspace()
	b := &journal.Binding{
		Workspace: j.scope.Workspace, LeadsTo: at.leadsTo, FolderID: at.folderID,
		CommandLine: j.plan.CommandLine, Scope: j.plan.Scope, Source: j.entry.spec.Source,
	}
	if j.plan.Files == nil {
		return b, nil
	}
	ctx, cancel := context.WithTimeout(j.ctx, previewTimeout)
	defer cancel()
	files, err := contained(j.gate, func() ([]toolcrib.FileState, error) { return j.plan.Files(ctx) })
	if b.Files = files; err == nil {
		return b, nil
	}
	r := refuse("%s was not run: what it would change could not be looked at. Continue without it, or try again.", j.name())
	if told := forModel(err); told != nil {
		r.message = told.Error()
	}
	return nil, r.because(toolcrib.ReasonToolPolicy, err.Error())
}

// changedSince describes what has changed since an approval was bound. It returns "" if nothing
// has.
func changedSince(then, now *journal.Binding) string {
	switch {
	case then == nil:
		return "it is not known what the approval is bound to"
	case then.Workspace != now.Workspace:
		return fmt.Sprintf("the workspace is %s now, not %s", shownPath(now.Workspace), shownPath(then.Workspace))
	case then.LeadsTo != now.LeadsTo && now.LeadsTo == "":
		return fmt.Sprintf("the workspace %s is gone", shownPath(now.Workspace))
	case then.LeadsTo != now.LeadsTo:
		return fmt.Sprintf("the workspace %s leads to %s now, not to %s",
			shownPath(now.Workspace), shownPath(now.LeadsTo), shownPath(then.LeadsTo))
	case then.FolderID != now.FolderID:
		return fmt.Sprintf("the workspace %s is another folder of the same name now", shownPath(now.Workspace))
	case then.Source != "" && then.Source != now.Source:
		return "the tool is another one of this name now"
	case then.CommandLine != now.CommandLine || len(then.Files) != len(now.Files):
		return "the call changes other files now"
	}
	for i, f := range now.Files {
		was, name := then.Files[i], below(now.LeadsTo, f.Path)
		switch {
		case was.Path != f.Path:
			return fmt.Sprintf("the call writes %s now, not %s", name, below(then.LeadsTo, was.Path))
		case was.State == f.State:
		case was.State == toolcrib.FileAbsent:
			return name + " has been made since it was approved"
		case f.State == toolcrib.FileAbsent:
			return name + " is gone since it was approved"
		default:
			return name + " has been changed since it was approved"
		}
	}
	return ""
}

// below returns a path relative to folder if it is inside, otherwise the whole path.
func below(folder, name string) string {
	if rel, err := filepath.Rel(folder, name); err == nil && filepath.IsLocal(rel) {
		name = filepath.ToSlash(rel)
	}
	return shownPath(name)
}

// shownPath returns a path as it is shown to a person.
func shownPath(name string) string { return guard.Cut(guard.Visible(name), maxShownPath) }

// within reports whether a clean absolute path is in a folder, at any depth.
func within(folder, name string) bool {
	rest, ok := strings.CutPrefix(name, strings.TrimRight(folder, `/\`))
	return ok && rest != "" && (rest[0] == '/' || rest[0] == filepath.Separator)
}
