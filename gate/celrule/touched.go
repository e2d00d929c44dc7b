package celrule

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/toolcrib/toolcrib"
)

// A value that is unknown until a call runs (a word that the shell computes, which of the files
// below a folder are meant) is CEL's unknown. A condition that has the same result for every such
// value is decided; any other condition is unknown itself.

// undecided returns that value.
func undecided() ref.Val { return types.NewUnknown(0, nil) }

const (
	targetType  = "Target"
	programType = "Program"
)

// target is a [toolcrib.Target] as conditions see it.
type target struct {
	Kind  string  `cel:"kind"`
	Name  ref.Val `cel:"name"`
	Path  ref.Val `cel:"path"`
	Write bool    `cel:"write"`

	root, abs string // set only for a file
	tree      bool
	hidden    []string  // paths that the call cannot touch
	asked     *[]string // folders for which within was undecided are added
}

// openFields is a provider of types in which a field that may be undecided has the type of its
// decided values.
type openFields struct{ types.Provider }

// FindStructFieldType implements [types.Provider].
func (p openFields) FindStructFieldType(of, field string) (*types.FieldType, bool) {
	found, ok := p.Provider.FindStructFieldType(of, field)
	if !ok || found.Type != types.DynType {
		return found, ok
	}
	typed := *found
	if typed.Type = types.StringType; field == "args" {
		typed.Type = types.NewListType(types.StringType)
	}
	return &typed, true
}

// targetOf returns t as conditions see it. The name of a file is absolute and has its links
// resolved. The path is relative to the workspace if the file is inside, uses slashes, and ends in
// one for a folder.
func targetOf(t toolcrib.Target, root string, hidden []string, asked *[]string) target {
	out := target{
		Kind: t.Kind, Name: types.String(t.Name), Path: types.String(""), Write: t.Write, hidden: hidden, asked: asked,
	}
	if t.Kind != toolcrib.TargetFile {
		return out
	}
	info, err := os.Lstat(t.Name)
	folder := err == nil && info.IsDir()
	out.root, out.abs, out.tree = root, filepath.Clean(t.Name), t.Tree && folder
	if out.tree {
		out.Name, out.Path = undecided(), undecided()
		return out
	}
	shown := out.abs
	if rel, err := filepath.Rel(root, out.abs); err == nil && filepath.IsLocal(rel) {
		shown = rel
	}
	shown = filepath.ToSlash(shown)
	if folder {
		shown = strings.TrimSuffix(shown, "/") + "/"
	}
	out.Path = types.String(shown)
	return out
}

// within reports whether a target is in a folder of the workspace, or is that folder. The result is
// undecided for a call that may touch anything below a folder that contains it, unless it is hidden from the call.
func within(on, of ref.Val) ref.Val {
	t, ok := on.Value().(target)
	if !ok || t.Kind != toolcrib.TargetFile {
		return types.False
	}
	folder := filepath.FromSlash(path.Clean(text(of)))
	if !filepath.IsAbs(folder) {
		folder = filepath.Join(t.root, folder)
	}
	switch {
	case holds(folder, t.abs):
		return types.True
	case t.tree && holds(t.abs, folder):
		if slices.ContainsFunc(t.hidden, func(path string) bool { return holds(path, folder) }) {
			return types.False
		}
		if t.asked != nil {
			*t.asked = append(*t.asked, folder)
		}
		return undecided()
	}
	return types.False
}

// holds reports whether a path is a folder or below it.
func holds(folder, path string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(rel)
}

// program is a [toolcrib.Program] as conditions see it.
type program struct {
	Name ref.Val `cel:"name"`
	Args ref.Val `cel:"args"`
}

func programOf(p toolcrib.Program) program {
	list := make([]ref.Val, len(p.Args))
	first := len(list)
	for i, w := range p.Args {
		if list[i] = wordOf(w); w.Unknown {
			first = min(first, i)
		}
	}
	made := types.NewRefValList(types.DefaultTypeAdapter, list)
	if first < len(list) {
		made = &openWords{made, first}
	}
	return program{wordOf(p.Name), made}
}

func wordOf(w toolcrib.Word) ref.Val {
	if w.Unknown {
		return undecided()
	}
	return types.String(w.Text)
}

// openWords is the words of a command of which at least one is unknown, so that their number is
// unknown too. The list contains each known word, whatever its position.
type openWords struct {
	traits.Lister
	first int // index of the first unknown word
}

func (w *openWords) known(v ref.Val) bool {
	for it := w.Iterator(); it.HasNext() == types.True; {
		if it.Next().Equal(v) == types.True {
			return true
		}
	}
	return false
}

// Get returns the word at an index before the first unknown one. At any other index the result is
// undecided.
func (w *openWords) Get(index ref.Val) ref.Val {
	if i, err := types.GetOrError(index); err == nil && i >= w.first {
		return undecided()
	}
	return w.Lister.Get(index)
}

// Contains reports whether a word is in the list.
func (w *openWords) Contains(v ref.Val) ref.Val {
	if w.known(v) {
		return types.True
	}
	return undecided()
}

// Equal is always undecided.
func (w *openWords) Equal(ref.Val) ref.Val { return undecided() }

// Fold calls f for each word.
func (w *openWords) Fold(f traits.Folder) {
	types.ToFoldableList(w.Lister).Fold(f)
}

// onWords returns an operation that the library does not do with lists of unknown words, for operands
// that are known. It returns nil for all other operations.
func onWords(name string, operands int) func(...ref.Val) ref.Val {
	switch {
	case name == overloads.Size && operands == 1:
		return func(args ...ref.Val) ref.Val {
			if sizer, ok := args[0].(traits.Sizer); ok {
				return sizer.Size()
			}
			return types.MaybeNoSuchOverloadErr(args[0])
		}
	case operands != 2:
	case name == operators.In:
		return func(args ...ref.Val) ref.Val {
			if container, ok := args[1].(traits.Container); ok {
				return container.Contains(args[0])
			}
			return types.MaybeNoSuchOverloadErr(args[1])
		}
	case name == operators.Equals:
		return func(args ...ref.Val) ref.Val { return types.Equal(args[0], args[1]) }
	case name == operators.NotEquals:
		return func(args ...ref.Val) ref.Val {
			result := types.Equal(args[0], args[1])
			if types.IsUnknownOrError(result) {
				return result
			}
			return types.Bool(result != types.True)
		}
	case name == operators.Add:
		return func(args ...ref.Val) ref.Val {
			if adder, ok := args[0].(traits.Adder); ok {
				return adder.Add(args[1])
			}
			return types.MaybeNoSuchOverloadErr(args[0])
		}
	}
	return nil
}

// open reports whether one of the values is a list with unknown words.
func open(values ...ref.Val) bool {
	return slices.ContainsFunc(values, func(v ref.Val) bool {
		_, is := v.(*openWords)
		return is
	})
}
