package agent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// Not every API can make a model call a tool, and not every model that is told to does.
// So the loop looks at what came, whoever the provider is (H13, H14): a request that
// demanded a call and got none gives a notice, and is asked once more in words.

// demandsCall reports whether a request was sent with a tool choice that asks for a call.
func demandsCall(sent *journal.ModelRequest) bool {
	return sent.OfferHash != "" && (sent.Choice.Mode == toolcrib.ChoiceRequired || sent.Choice.Mode == toolcrib.ChoiceName)
}

// choiceIgnored is the notice about a reply without the call that was demanded.
func choiceIgnored(sent *journal.ModelRequest, calls []journal.ToolCall) (n toolcrib.Notice, ignored bool) {
	n.Code = NoticeChoiceIgnored
	named := sent.Choice.Mode == toolcrib.ChoiceName
	switch {
	case !demandsCall(sent):
		return n, false
	case len(calls) == 0:
		n.Message = "the model was told to call " + demanded(sent.Choice) + " and called none"
		return n, true
	case named && !slices.ContainsFunc(calls, func(c journal.ToolCall) bool { return c.Name == sent.Choice.Name }):
		n.Message = fmt.Sprintf("the model was told to call %s and called others", sent.Choice.Name)
		return n, true
	}
	return n, false
}

func demanded(choice toolcrib.ToolChoice) string {
	if choice.Mode == toolcrib.ChoiceName {
		return "the tool " + choice.Name
	}
	return "a tool"
}

// demandAgain decides whether a reply without a call is asked for once more, and what is
// said then; "" = no.
func (s *State) demandAgain(sent *journal.ModelRequest, b *journal.Message) string {
	text := toolcrib.Message{Parts: b.Parts}.Text()
	if !demandsCall(sent) || s.choiceAgain || hasCalls(b) || b.Finish != toolcrib.FinishStop ||
		strings.TrimSpace(text) == "" || b.Iteration >= s.Limits().MaxIterations {
		return ""
	}
	return "You were told to call " + demanded(sent.Choice) + ", and called none. Call it now."
}
