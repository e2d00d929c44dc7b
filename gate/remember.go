package gate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// remembered returns the remembered approval that answers the question about this call, or nil.
func (j *judgement) remembered() *journal.Remembered {
	known := func() []journal.Remembered { return j.facts.Remembered }
	for _, all := range [...]func() []journal.Remembered{known, j.facts.Lasting} {
		if all == nil {
			continue
		}
		for _, m := range all() {
			if j.lifts(&m) {
				return &m
			}
		}
	}
	return nil
}

// lifts reports whether m answers the question about this call.
func (j *judgement) lifts(m *journal.Remembered) bool {
	switch {
	case m.Tool != j.call.Name && (!m.AnyWriter() || j.entry.spec.Source != builtin || j.plan.Files == nil),
		m.Source != j.entry.spec.Source && !j.facts.Past,
		m.Path == "" && !j.facts.Past && j.plan.Files != nil && j.writesFiles(),
		m.Arguments != nil && !bytes.Equal(m.Arguments, j.call.Arguments),
		m.Program != "" && !covers(m.Program, j.plan.Scope),
		m.Arguments == nil && severity(j.effect) > severity(m.Effect),
		m.Path != "" && !j.writesOnly(m):
		return false
	}
	return j.facts.Past || validAt(j.scope.Workspace, j.workspace(), m)
}

// covers reports whether an approval of programs applies to a line with this scope ([toolcrib.Plan.Scope]).
func covers(programs, scope string) bool {
	approved := strings.Split(programs, ", ")
	for one := range strings.SplitSeq(scope, ", ") {
		if !slices.Contains(approved, one) {
			return false
		}
	}
	return true
}

// ValidIn reports whether a remembered approval is valid in a workspace as it is now.
func ValidIn(workspace string, m *journal.Remembered) bool {
	return validAt(workspace, lookUp(workspace), m)
}

func validAt(workspace string, at *whereabouts, m *journal.Remembered) bool {
	return (at.leadsTo != "" || workspace == "") && at.leadsTo == m.Workspace && at.folderID == m.FolderID
}

// writesFiles reports whether the call writes a file.
func (j *judgement) writesFiles() bool {
	return slices.ContainsFunc(j.targets, func(t toolcrib.Target) bool { return t.Kind == toolcrib.TargetFile && t.Write })
}

// writesOnly reports whether the call writes files, and only files that were approved.
func (j *judgement) writesOnly(m *journal.Remembered) bool {
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

// severity orders effects by how much they may change.
func severity(e toolcrib.Effect) int {
	switch e {
	case toolcrib.EffectReadOnly:
		return 0
	case toolcrib.EffectIdempotentWrite:
		return 1
	}
	return 2
}

// Does returns the actions of a call, as hashes that do not depend on how the call is spelled. For
// a command line these are the programs that it starts, with their words, and the targets that it
// writes; for another call, the written targets together with the content. targets are those of its
// verdict. Does returns nil if only the arguments distinguish the call from others. A call repeats
// another one if it has all actions of the other.
func (g *Gate) Does(ctx context.Context, call toolcrib.Call, targets []toolcrib.Target) []string {
	if g == nil {
		return nil
	}
	j := judgement{policy: &policy{gate: g}, ctx: ctx, call: call, entry: g.toolSet().byName[call.Name]}
	if j.entry == nil || contain(j.makePlan) != nil {
		return nil
	}
	return does(&j.plan, call.Workspace, targets)
}

// maxDone bounds the actions of one call that are compared.
const maxDone = 128

func does(plan *toolcrib.Plan, workspace string, targets []toolcrib.Target) []string {
	var all []string
	for _, t := range targets {
		if t.Write {
			all = append(all, join("writes", t.Kind, t.Name))
		}
	}
	switch {
	case plan.CommandLine:
		all = runs(all, plan.Programs, workspace)
	case len(all) == 0 || plan.Content == nil:
		return nil
	default:
		slices.Sort(all)
		all = []string{join(append(all, plan.Content...)...)}
	}
	if len(all) > maxDone {
		return nil
	}
	for i, text := range all {
		sum := sha256.Sum256([]byte(text))
		all[i] = hex.EncodeToString(sum[:16])
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// runs adds the programs of a command line. It returns nil if no program is known.
func runs(all []string, programs []toolcrib.Program, workspace string) []string {
	if len(programs) == 0 {
		return nil
	}
	for _, p := range programs {
		words := []string{"runs"}
		for _, w := range append([]toolcrib.Word{p.Name}, p.Args...) {
			words = append(words, plain(w, workspace))
		}
		all = append(all, join(words...))
	}
	return all
}

// plain returns a word of a command line in one spelling: a path in the workspace is relative and
// clean.
func plain(w toolcrib.Word, workspace string) string {
	text := w.Text
	if strings.Contains(text, "/") {
		if rel, err := filepath.Rel(workspace, text); err == nil && filepath.IsAbs(text) && filepath.IsLocal(rel) {
			text = filepath.ToSlash(rel)
		}
		text = path.Clean(text)
	}
	return text
}

// join encodes texts as one text, so that different lists have different results.
func join(texts ...string) string {
	b, err := json.Marshal(texts)
	if err != nil {
		return strings.Join(texts, "\x00")
	}
	return string(b)
}
