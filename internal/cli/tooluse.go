package cli

import (
	"context"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// toolUse counts the calls of a tool.
type toolUse struct{ calls, errors int }

// countedRuns is how many of the newest runs are counted: a listing must stay
// quick however much is stored.
const countedRuns = 200

// toolUses counts the calls of each tool in the newest runs. An error is what
// failed or was refused.
func toolUses(ctx context.Context, s *sqlite.Store) (map[string]toolUse, error) {
	uses := map[string]toolUse{}
	page, err := s.Runs(ctx, store.Filter{Limit: countedRuns})
	if err != nil {
		return nil, err
	}
	for _, rec := range page.Runs {
		for e, err := range s.Read(ctx, rec.ID, 0) {
			if err != nil {
				break // a journal that cannot be read is told by runs show
			}
			if r, ok := e.Body.(*journal.ToolResult); ok {
				use := uses[r.Name]
				use.calls++
				if r.Status != toolcrib.ResultOK {
					use.errors++
				}
				uses[r.Name] = use
			}
		}
	}
	return uses, nil
}
