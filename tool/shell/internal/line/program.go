package line

import (
	"path"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// Program returns the plan for the program in file, of which nothing is known, without a line. args begin with its
// name. Words that may be files are targets. With strict it runs in the sandbox in which it can only read. If
// inside is set, no target may be outside the workspace.
func (r *Rules) Program(file string, args []string, strict, inside bool) (*Plan, error) {
	if r.Hides(r.Dir) {
		return nil, protects("the workspace is in a protected folder")
	}
	if r.Dir == rootDir {
		return nil, refuse("the workspace is the root of the file system; start in the folder that is worked on")
	}
	d := newDraft(r, &Line{}, map[string]resolved{})
	if err := d.unjudged(args[1:]); err != nil {
		return nil, err
	}
	program := toolcrib.Program{Name: toolcrib.Word{Text: path.Base(args[0])}}
	for _, text := range args[1:] {
		program.Args = append(program.Args, toolcrib.Word{Text: text})
	}
	if d.ReadOnly = MayWrite; strict {
		d.ReadOnly = BySandbox
	}
	d.Programs = []toolcrib.Program{program}
	d.Steps = []Step{{Commands: []Command{{Path: file, Args: args, Out: ToOut, Err: ToErr, NoInput: true}}}}
	for i := range d.Targets {
		t := &d.Targets[i]
		if t.Write = !strict; inside && !within(t.Name, r.Dir) {
			return nil, refuse("a word leads out of the workspace, and there is no sandbox to keep the program in it")
		}
	}
	slices.SortFunc(d.Targets, func(a, b toolcrib.Target) int { return strings.Compare(a.Name, b.Name) })
	return &d.Plan, nil
}
