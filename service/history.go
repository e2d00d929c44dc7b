package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/tool/spawn"
)

// NoticeTaintedHistory is the code of the notice that messages from a client contain untrusted data.
const NoticeTaintedHistory = "tainted_history"

const (
	// earlierConversation is the source of messages that are in no stored run.
	earlierConversation = "earlier conversation"
	// namedRuns bounds the runs that the notice names.
	namedRuns = 5
)

// traced taints a task with the untrusted data in the messages of the request's client.
func (s *Service) traced(ctx context.Context, who toolcrib.Principal, r *StartRequest, task *agent.Task) error {
	prompt := r.Prompt
	if r.Given != nil {
		var given struct{ Task string }
		if r.Given.Name != spawn.Name || json.Unmarshal(r.Given.Arguments, &given) != nil {
			return nil
		}
		prompt = given.Task
	}
	if err := s.Env.OpenFor(ctx, who); err != nil {
		return err
	}
	messages := append(slices.Clone(r.Messages), toolcrib.TextMessage(toolcrib.RoleUser, prompt),
		toolcrib.TextMessage(toolcrib.RoleUser, r.System))
	if t := r.Team; t != nil {
		for _, text := range []string{t.Question, t.Context, t.Subject} {
			messages = append(messages, toolcrib.TextMessage(toolcrib.RoleUser, text))
		}
	}
	taint, why, err := s.retrace(ctx, who.User, messages)
	if err != nil || why == nil {
		return err
	}
	task.Taint, task.Notices = append(task.Taint, taint...), append(task.Notices, *why)
	return nil
}

// replaces adds to a task the untrusted data and the calls of the run whose conversation it replaces. A run that does
// not exist, or that belongs to another user, has none.
func (s *Service) replaces(ctx context.Context, who toolcrib.Principal, run toolcrib.RunID, task *agent.Task) error {
	if run == "" {
		return nil
	}
	rec, err := s.Env.Find(ctx, who, string(run))
	if toolcrib.CodeOf(err) == toolcrib.CodeNotFound {
		return nil
	} else if err != nil {
		return err
	}
	state, err := agent.Load(ctx, s.Env.Store, rec.ID)
	if errors.Is(err, store.ErrPruned) {
		return nil
	} else if err != nil {
		return err
	}
	for _, source := range state.Taint {
		if !slices.Contains(task.Taint, source) {
			task.Taint = append(task.Taint, source)
		}
	}
	task.Ran, err = (&agent.Runner{Options: agent.Options{Journal: s.Env.Store}}).Ran(ctx, state)
	return err
}

// retrace returns the sources of untrusted data in messages from a client: in what tainted runs of the user have said
// or read, or in what no stored run has, if the user has a tainted run. The notice says why. It is nil if nothing is
// untrusted.
func (s *Service) retrace(
	ctx context.Context, user string, messages []toolcrib.Message,
) (taint []string, why *toolcrib.Notice, err error) {
	tainted := store.Filter{User: user, Tainted: true, Limit: 1}
	page, err := s.Env.Store.Runs(ctx, tainted)
	if err != nil || len(page.Runs) == 0 {
		return nil, nil, err
	}
	found, err := store.Retrace(ctx, s.Env.Store, user, messages)
	if err != nil {
		return nil, nil, err
	}
	runs, what := found.Tainted, "the messages hold what earlier runs have said or read"
	for i := range runs {
		taint = append(taint, runs[i].Sources()...)
	}
	if found.Unknown {
		tainted.Limit = store.MaxOrigins
		if page, err = s.Env.Store.Runs(ctx, tainted); err != nil {
			return nil, nil, err
		}
		sources, unclear := []string(nil), page.Next != ""
		for i := range page.Runs {
			for _, source := range page.Runs[i].Sources() {
				unclear = unclear || source == gate.Source(source)
				sources = append(sources, source)
			}
		}
		if unclear { // otherwise the client itself has returned all of it
			sources = []string{earlierConversation}
		}
		if taint = append(taint, sources...); len(runs) == 0 {
			runs, what = page.Runs, "the messages are of no stored run, and may hold what earlier runs have read"
		}
	}
	if len(taint) == 0 {
		return nil, nil, nil
	}
	slices.SortFunc(runs, func(a, b store.RunRecord) int { return a.CreatedAt.Compare(b.CreatedAt) })
	names := make([]string, 0, namedRuns)
	for i := range runs[:min(len(runs), namedRuns)] {
		names = append(names, string(runs[i].ID))
	}
	slices.Sort(taint)
	return slices.Compact(taint), &toolcrib.Notice{
		Code: NoticeTaintedHistory, Message: fmt.Sprintf("%s (%s), so this run is tainted", what, strings.Join(names, ", ")),
	}, nil
}
