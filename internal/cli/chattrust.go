package cli

import (
	"context"
	"errors"
	"strconv"

	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/internal/trust"
)

// reviews shows what the folders of the conversation bring that is not used yet, asks whether to trust it, and returns
// how many folders were asked about, and what could not be read. What the person declined before is asked about only
// if again is set.
func (c *chat) reviews(ctx context.Context, again bool) (asked int, err error) {
	a := c.a
	folders, err := a.service.Policy.Unreviewed(c.workspace)
	for _, folder := range folders {
		if !again && folder.Declined() {
			continue
		}
		asked++
		question := "Trust what this folder brings: " + strconv.Quote(folder.Dir) + "?"
		switch a.agreesTo(question, folderHead(folder), folder.Files, render.Key{Name: render.KeyLater, Word: "later"}) {
		case render.KeyYes:
			if err := a.trust(ctx, folder, folder.Digest); err != nil {
				a.complain(errorText(err))
				continue
			}
			a.notice("trusted, and used from the next message on; a configuration when toolcrib is started again")
		case render.KeyNo:
			a.notice("not used; /trust asks again")
			if err := folder.Decline(); err != nil {
				a.notice("it is asked again at the next start: %v", err)
			}
		default:
			a.notice("not used yet; /trust asks again")
		}
	}
	return asked, err
}

// trust is the command /trust. A conversation on the screen is left for the review, and shown again afterwards.
func (c *chat) trust(ctx context.Context, _ string) error {
	switch _, screen := c.front.(*screenFront); {
	case c.a.remote != nil || !c.a.inTerminal || !c.a.errTerminal:
		return errors.New("trust is given on a terminal, or by: toolcrib trust " + trust.ShellWord(c.workspace))
	case screen:
		c.review = true
		return errLeave
	}
	c.trusts(ctx)
	return nil
}

// trusts reviews, and reports what came of it.
func (c *chat) trusts(ctx context.Context) {
	switch asked, err := c.reviews(ctx, true); {
	case err != nil:
		c.a.complain(errorText(err))
	case asked == 0:
		c.a.notice("this folder brings nothing that is not trusted")
	}
}
