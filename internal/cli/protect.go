package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/store"
)

// protection is what no tool may touch in runs in a workspace.
func (a *app) protection(workspace string) (gate.Protected, error) {
	s, err := a.svc()
	if err != nil {
		return gate.Protected{}, err
	}
	return s.Protection(workspace)
}

// protectedChanged tells the person that a command changed what steers toolcrib or
// its neighbours, and ends the trust in the folders around it (design.md §7). What was
// renamed afterwards is only told.
func (a *app) protectedChanged(paths, aside []string) {
	out := a.besides()
	tell := func(format string, args ...any) {
		fmt.Fprintf(out, "%s %s\n", a.style.Red("!"), guard.Visible(fmt.Sprintf(format, args...)))
	}
	if len(aside) > 0 {
		tell("a command made files that would steer toolcrib or programs beside it; they were renamed: %s", pathTexts(aside))
	}
	if len(paths) == 0 {
		return
	}
	names := pathTexts(paths)
	tell("a command changed files that steer toolcrib or programs beside it: %s; look at them before you go on", names)
	trusted, err := a.trustStore()
	if err != nil {
		return // there is no record, so nothing is trusted
	}
	folders, err := trusted.RevokeAround(paths...)
	if err != nil {
		tell("the trust in their folder could not be ended: %v", err)
	}
	for _, dir := range folders {
		// The call may have been given up by now; what it did is written down.
		a.recordTrust(context.Background(), store.SystemTrustRevoked, dir, "a command changed "+names)
		tell("%s is no longer trusted; once you have looked at it: toolcrib trust %s", pathText(dir), pathText(dir))
	}
}

func pathTexts(paths []string) string {
	texts := make([]string, len(paths))
	for i, path := range paths {
		texts[i] = pathText(path)
	}
	return strings.Join(texts, ", ")
}
