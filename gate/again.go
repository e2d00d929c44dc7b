package gate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// Does returns what a writing call does, however it is spelled, each thing as a hash: the
// programs that it starts, with their words; what it writes; or both that and the arguments
// that do not name it, such as the content. targets are those of its verdict. nil = nothing
// but its arguments tells it from others. What does all that another call does repeats it.
func (g *Gate) Does(call toolcrib.Call, targets []toolcrib.Target) []string {
	if g == nil {
		return nil
	}
	return g.toolSet().byName[call.Name].does(call, targets)
}

// maxDone bounds what is compared of one call.
const maxDone = 128

func (e *entry) does(call toolcrib.Call, targets []toolcrib.Target) []string {
	if e == nil {
		return nil
	}
	var all []string
	for _, t := range targets {
		if t.Write {
			all = append(all, join("writes", t.Kind, t.Name))
		}
	}
	err := contain(func() (err error) {
		switch {
		case e.commander != nil:
			all, err = e.runs(all, call), nil
		case len(all) > 0:
			slices.Sort(all)
			all, err = e.writes(all, call)
		}
		return err
	})
	if err != nil || len(all) > maxDone {
		return nil
	}
	for i, text := range all {
		sum := sha256.Sum256([]byte(text))
		all[i] = hex.EncodeToString(sum[:16])
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// runs adds the programs of a command line; where none is known, its text is what counts.
func (e *entry) runs(all []string, call toolcrib.Call) []string {
	programs := e.commander.Programs(call)
	if len(programs) == 0 {
		return nil
	}
	for _, p := range programs {
		words := []string{"runs"}
		for _, w := range append([]toolcrib.Word{p.Name}, p.Args...) {
			words = append(words, plain(w, call.Workspace))
		}
		all = append(all, join(words...))
	}
	return all
}

// plain is a word of a command line without what may be written otherwise: a path in the
// workspace is relative and clean.
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

// writes makes one of what is written and the arguments that do not name it. An argument
// that does is found by naming something else with it: then the tool has other targets. What
// may as well be left out is left out.
func (e *entry) writes(all []string, call toolcrib.Call) ([]string, error) {
	var arguments map[string]json.RawMessage
	if err := json.Unmarshal(call.Arguments, &arguments); err != nil {
		return nil, err
	}
	targets, rest := e.targeter.Targets(call), maps.Clone(arguments)
	for name, value := range arguments {
		switch string(value) {
		case "null", "false", `""`, "[]", "{}":
			delete(rest, name)
			continue
		}
		other := json.RawMessage(`"another-name"`)
		if value[0] == '[' {
			other = json.RawMessage(`["another-name"]`)
		}
		changed := maps.Clone(arguments)
		changed[name] = other
		named := call
		var err error
		if named.Arguments, err = json.Marshal(changed); err != nil {
			return nil, err
		}
		if (value[0] == '"' || value[0] == '[') && !slices.Equal(targets, e.targeter.Targets(named)) {
			delete(rest, name)
		}
	}
	b, err := json.Marshal(rest)
	return []string{join(append(all, string(b))...)}, err
}

// join makes one text of several, so that no two lists make the same.
func join(texts ...string) string {
	b, err := json.Marshal(texts)
	if err != nil {
		return strings.Join(texts, "\x00")
	}
	return string(b)
}
