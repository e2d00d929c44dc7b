package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/store"
)

func (a *app) rememberedListCommand(cmd *cobra.Command) {
	var limit int
	all := cmd.Flags().Bool("all", false, "")
	limitFlag(cmd.Flags(), &limit, store.DefaultLimit, store.MaxLimit)
	a.answering(cmd, a.reading, func(c call) (any, func(), error) {
		list, err := c.Remembered(c, c.who, *all, limit)
		return list, func() {
			now := time.Now()
			table(a, "REMEMBERED|FOR|CALLS|WORKSPACE|EFFECT|BY|SINCE|REVOKED", list, func(m *store.Remembered) []string {
				revoked := ""
				if !m.RevokedAt.IsZero() {
					revoked = shortTime(m.RevokedAt.Local(), now) + " by " + m.RevokedBy
				}
				return []string{
					short(m.ID), rememberedFor(m), render.RememberedText(service.RememberedCalls(*m)), m.Workspace,
					string(m.Effect), m.By,
					shortTime(m.At.Local(), now), revoked,
				}
			})
		}, err
	})
}

// rememberedFor names whose calls are meant.
func rememberedFor(m *store.Remembered) string {
	if m.Scope == journal.RememberSession {
		return "session " + short(m.Session) + " of " + m.User
	}
	return "user " + m.User
}

func (a *app) rememberedRevokeCommand(cmd *cobra.Command) {
	a.answering(cmd, a.changing, func(c call) (any, func(), error) {
		m, changed, err := c.Forget(c, c.who, c.args[0])
		word := "revoked"
		if !changed {
			word += " already"
		}
		return m, func() { a.says(short(m.ID), word) }, hint(err, c.args[0],
			"`toolcrib approvals remembered list` shows them all")
	})
}
