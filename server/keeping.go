package server

import (
	"errors"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/store"
)

// PruneRequest chooses runs that are removed for good, or their content.
type PruneRequest struct {
	Runs      []string `json:"runs,omitempty" jsonschema:"the IDs of runs that have ended"`
	OlderThan string   `json:"older_than,omitempty" jsonschema:"instead of runs: all that ended so long ago, such as 720h"`
	Content   bool     `json:"content,omitempty" jsonschema:"only their content"`
	WithLater bool     `json:"with_later,omitempty" jsonschema:"also later runs of the session and forks, which repeat what was said"`
	Check     bool     `json:"check,omitempty" jsonschema:"only say how many runs are named"`
	Named     *int     `json:"named,omitempty" jsonschema:"a conflict if another number of runs is named"`
}

// Pruned is what was removed.
type Pruned struct {
	store.PruneResult
	Session toolcrib.SessionID `json:"session_id,omitempty"`
	Name    string             `json:"name,omitempty" jsonschema:"of the session"`
	Named   int                `json:"named" jsonschema:"how many runs were named; 0 = all of that age"`
	Notices []string           `json:"notices,omitempty" jsonschema:"what a person should know before"`
}

// errChecked ends a pruning before anything is removed.
var errChecked = errors.New("only checked")

// lasting is whole of what is removed: the last one may be another one as soon as somebody has agreed.
func lasting(prefix, id string) (string, error) {
	if id == "last" {
		return "", bad("give the ID of what is removed, not last")
	}
	return whole(prefix, id)
}

// request is what the service is asked, and out is told.
func (b *PruneRequest) request(out *Pruned) (r service.PruneRequest, err error) {
	r = service.PruneRequest{Runs: b.Runs, ContentOnly: b.Content, WithLater: b.WithLater}
	for _, id := range b.Runs {
		if _, err := lasting("run_", id); err != nil {
			return r, err
		}
	}
	if b.OlderThan != "" {
		if r.OlderThan, err = duration("older_than", b.OlderThan); err != nil {
			return r, bad("older_than: must be a time such as 720h")
		}
	}
	if (len(b.Runs) == 0) == (b.OlderThan == "") {
		return r, bad("give runs, or older_than")
	}
	r.Agrees, r.Notice = b.agrees(out), out.notice
	return r, nil
}

func (out *Pruned) notice(text string) { out.Notices = append(out.Notices, text) }

func (b *PruneRequest) agrees(out *Pruned) func(int) error {
	return func(runs int) error {
		out.Named = runs
		switch {
		case b.Check:
			return errChecked
		case b.Named != nil && *b.Named != runs:
			return toolcrib.Errorf(toolcrib.CodeConflict, "these are now %d runs, not %d; look at them again", runs, *b.Named)
		}
		return nil
	}
}

// checked is the answer, which is no error if there was only a check.
func (out *Pruned) checked(err error) (Pruned, error) {
	out.Runs = append([]toolcrib.RunID{}, out.Runs...)
	if errors.Is(err, errChecked) {
		err = nil
	}
	return *out, err
}

func (c *call) pruneRuns(b PruneRequest) (out Pruned, err error) {
	r, err := b.request(&out)
	if err == nil {
		out.PruneResult, err = c.Service.Prune(c.staying(), c.who, r)
	}
	return out.checked(err)
}

// RemoveSessionRequest says how a session is removed.
type RemoveSessionRequest struct {
	WithLater bool `json:"with_later,omitempty" jsonschema:"also forks of its runs"`
	Check     bool `json:"check,omitempty" jsonschema:"only say how many runs it has"`
	Named     *int `json:"named,omitempty" jsonschema:"a conflict if it has another number of runs"`
}

func (c *call) removeSession(b RemoveSessionRequest) (out Pruned, err error) {
	id, err := lasting(store.SessionPrefix, c.r.PathValue("id"))
	if err != nil {
		return out, err
	}
	p := PruneRequest{Check: b.Check, Named: b.Named}
	info, result, err := c.Service.RemoveSession(c.staying(), c.who, id, service.PruneRequest{
		WithLater: b.WithLater, Agrees: p.agrees(&out), Notice: out.notice,
	})
	out.PruneResult, out.Session, out.Name = result, info.ID, info.Name
	return out.checked(err)
}

// ImportRequest is a run that was exported.
type ImportRequest struct {
	Export string `json:"export" jsonschema:"what GET /api/runs/{id}/export has answered"`
}

// Imported is a run that was imported.
type Imported struct {
	Run    toolcrib.RunID `json:"run_id"`
	Events int            `json:"events"`
}

func (c *call) importRun(b ImportRequest) (out Imported, err error) {
	out.Run, out.Events, err = c.Service.ImportRun(c.staying(), c.who, strings.NewReader(b.Export))
	return out, err
}
