package server

import (
	"errors"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/store"
)

// errChecked ends pruning before anything is removed.
var errChecked = errors.New("only checked")

// lasting is [whole] for a removal: last may be another one by the time a person has agreed.
func lasting(prefix, id string) (string, error) {
	if id == "last" {
		return "", bad("give the ID of what is removed, not last")
	}
	return whole(prefix, id)
}

// prune removes runs, or with check only counts them. named is the number of runs that a person agreed to,
// or nil.
func (c *call) prune(
	r service.PruneRequest, check bool, named *int, remove func(service.PruneRequest, *api.Pruned) error,
) (out api.Pruned, err error) {
	r.Notice = func(text string) { out.Notices = append(out.Notices, text) }
	r.Agrees = func(runs int) error {
		out.Named = runs
		switch {
		case check:
			return errChecked
		case named != nil && *named != runs:
			return toolcrib.Errorf(toolcrib.CodeConflict, "these are now %d runs, not %d; look at them again", runs, *named)
		}
		return nil
	}
	if err = remove(r, &out); errors.Is(err, errChecked) {
		err = nil
	}
	out.Runs = append([]toolcrib.RunID{}, out.Runs...)
	return out, err
}

func (c *call) pruneRuns(b api.PruneRequest) (out api.Pruned, err error) {
	r := service.PruneRequest{Runs: b.Runs, ContentOnly: b.Content, WithLater: b.WithLater}
	for _, id := range b.Runs {
		if _, err := lasting("run_", id); err != nil {
			return out, err
		}
	}
	if b.OlderThan != "" {
		if r.OlderThan, err = duration("older_than", b.OlderThan); err != nil {
			return out, bad("older_than: must be a time such as 720h")
		}
	}
	if (len(b.Runs) == 0) == (b.OlderThan == "") {
		return out, bad("give runs, or older_than")
	}
	return c.prune(r, b.Check, b.Named, func(r service.PruneRequest, out *api.Pruned) (err error) {
		out.PruneResult, err = c.Service.Prune(c.staying(), c.who, r)
		return err
	})
}

func (c *call) removeSession(b api.RemoveSessionRequest) (out api.Pruned, err error) {
	id, err := lasting(store.SessionPrefix, c.r.PathValue("id"))
	if err != nil {
		return out, err
	}
	r := service.PruneRequest{WithLater: b.WithLater}
	return c.prune(r, b.Check, b.Named, func(r service.PruneRequest, out *api.Pruned) error {
		info, result, err := c.Service.RemoveSession(c.staying(), c.who, id, r)
		out.PruneResult, out.Session, out.Name = result, info.ID, info.Name
		return err
	})
}

func (c *call) importRun(b api.ImportRequest) (out api.Imported, err error) {
	out.Run, out.Events, err = c.Service.ImportRun(c.staying(), c.who, strings.NewReader(b.Export))
	return out, err
}
