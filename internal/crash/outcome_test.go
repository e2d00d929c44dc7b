package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/guard"
)

// Outcome is the final state of a run, of those below it and of what they changed,
// without what may differ after a cut: usage, times and IDs.
type Outcome struct {
	Ended
	Below   map[string]*Ended // runs, by the call that each answers
	Effects []string          // sorted
	Files   map[string]string // of the workspace
}

// Ended is what has become of one run.
type Ended struct {
	Agent      string
	Status     toolcrib.Status
	Reason     toolcrib.StopReason
	Code       string
	Message    string
	Content    string
	Truncated  bool
	Iterations int
	Calls      []Result
	Transcript []string          // role, text and call IDs of each message
	Taint      []string          // sources
	Kept       map[string]string // whole results, by call
}

// Result is what became of one call.
type Result struct {
	ID, Name  string
	Arguments string
	Status    toolcrib.ResultStatus
	Reason    toolcrib.Reason
	Content   string
	Truncated bool
}

var (
	madeID   = regexp.MustCompile(`\b(res|ref|apr|run)_[0-9A-Za-z]{26}\b`)
	canary   = regexp.MustCompile(guard.CanaryPrefix + `[0-9A-F]+`)
	duration = regexp.MustCompile(`"duration_ms":\d+`)
)

// unmarked takes out what differs from one run to the next.
func unmarked(text string) string {
	text = canary.ReplaceAllString(madeID.ReplaceAllString(text, "${1}_"), guard.CanaryPrefix)
	return duration.ReplaceAllString(text, `"duration_ms":0`)
}

func (s *Story) outcome(ctx context.Context, st *synced, now *scene) (o Outcome, err error) {
	top, err := endOf(ctx, st, now.top)
	if err != nil {
		return o, err
	}
	o = Outcome{Ended: *top, Below: map[string]*Ended{}}
	for _, c := range now.calls() {
		if c.Child == nil || now.runs[c.Child.Run] == nil {
			continue
		}
		if o.Below[c.ID], err = endOf(ctx, st, now.runs[c.Child.Run]); err != nil {
			return o, err
		}
	}
	if o.Effects, err = lines(filepath.Join(s.dir, effectsFile)); err != nil {
		return o, err
	}
	slices.Sort(o.Effects)
	o.Effects = append([]string{}, o.Effects...)
	o.Files, err = treeOf(filepath.Join(s.dir, workspace))
	return o, err
}

func endOf(ctx context.Context, st *synced, state *agent.State) (*Ended, error) {
	o := &Ended{
		Agent: state.Start.Agent.Name, Status: state.Status, Iterations: state.Iterations, Taint: state.Taint, Kept: map[string]string{},
	}
	if d := state.Done; d != nil {
		o.Reason, o.Content, o.Truncated = d.StopReason, d.Content, d.Truncated
	} else if f := state.Failed; f != nil {
		o.Reason, o.Content, o.Truncated, o.Code, o.Message = f.StopReason, f.Content, f.Truncated, f.Code, f.Message
	}
	o.Content = unmarked(o.Content)
	for _, c := range state.Trace {
		r := Result{ID: c.ID, Name: c.Name, Arguments: string(c.Arguments)}
		if c.Result != nil {
			r.Status, r.Reason, r.Content, r.Truncated = c.Result.Status, c.Result.Reason, unmarked(c.Result.Content), c.Result.Truncated
			if c.Result.Ref != "" {
				whole, size, err := st.Range(ctx, state.Run, c.Result.Ref, 0, c.Result.Bytes+1)
				if err != nil || size != c.Result.Bytes {
					return o, fmt.Errorf("the whole result of %s: %d of %d bytes: %w", c.ID, size, c.Result.Bytes, err)
				}
				o.Kept[c.ID] = string(whole)
			}
		}
		o.Calls = append(o.Calls, r)
	}
	for _, m := range state.Messages {
		text := string(m.Role) + " " + m.Text()
		for _, p := range m.Parts {
			if p.ToolCall != nil {
				text += " call " + p.ToolCall.ID
			}
			if p.ToolResult != nil {
				text += " result " + p.ToolResult.CallID
			}
		}
		o.Transcript = append(o.Transcript, text)
	}
	return o, nil
}

// runs are the runs of an outcome, by the call that each answers; "" is the top.
func (o *Outcome) runs() map[string]*Ended {
	all := map[string]*Ended{"": &o.Ended}
	maps.Copy(all, o.Below)
	return all
}

// edit is the note on changed arguments, before a result.
var edit = regexp.MustCompile(`^\[a person changed[^\n]*\n`)

// resultOf is what a person says happened: the result of the call as it is without
// kills, if that was one.
func (o *Outcome) resultOf(id string) json.RawMessage {
	for _, run := range o.runs() {
		for _, c := range run.Calls {
			if c.ID != id || c.Status != toolcrib.ResultOK {
				continue
			}
			if text := edit.ReplaceAllString(c.Content, ""); json.Valid([]byte(text)) {
				return json.RawMessage(text)
			}
		}
	}
	return json.RawMessage(`{"happened":true}`)
}

// canonical is a result with the keys of its JSON in order, as the words of a
// person are kept.
func canonical(content string) string {
	note := edit.FindString(content)
	var v any
	if err := json.Unmarshal([]byte(content[len(note):]), &v); err != nil {
		return content
	}
	text, err := json.Marshal(v)
	if err != nil {
		return content
	}
	return note + string(text)
}

// lines reads a file of lines; one that is absent has none.
func lines(path string) ([]string, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || len(data) == 0 {
		return nil, nil
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n"), err
}

// treeOf reads all files below a folder.
func treeOf(root string) (map[string]string, error) {
	all := map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		all[name] = string(data)
		return err
	})
	return all, err
}

// executions counts how often each call was executed, in all processes.
func (s *Story) executions() (map[string]int, error) {
	ids, err := lines(filepath.Join(s.dir, executedFile))
	times := map[string]int{}
	for _, id := range ids {
		times[id]++
	}
	return times, err
}

// effectOf looks whether a call has had its effect.
func (s *Story) effectOf(id string) (bool, error) {
	effects, err := lines(filepath.Join(s.dir, effectsFile))
	if err != nil {
		return false, err
	}
	shell, err := lines(filepath.Join(s.dir, workspace, "shell.log"))
	for _, l := range append(effects, shell...) {
		if first, _, _ := strings.Cut(l, " "); first == id {
			return true, err
		}
	}
	return false, err
}
