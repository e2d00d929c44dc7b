package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aymanbagabas/go-udiff"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/propose"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/policy"
	"github.com/toolcrib/toolcrib/store"
)

// Bounds of trials of rules.
const (
	MaxRulesText  = 256 << 10 // bytes
	maxTrialTime  = 5 * time.Second
	maxTrialRuns  = 500
	maxTrialShown = 100 // changed calls
	maxTrialText  = 2000
	// maxTrialNotices bounds the notices of a trial.
	maxTrialNotices = 5
	maxLookTime     = 3 * time.Second
	maxLookRuns     = 500
)

// RulesText is the key rules of the configuration in effect.
type RulesText struct {
	Text string
	Line int    // where it begins in the file
	File string // "" without a file
}

// Rules returns the rules of the configuration in effect, for administrators. Secrets that toolcrib knows are masked.
func (s *Service) Rules(who toolcrib.Principal) (r RulesText, err error) {
	if _, err := env.Administrator(who); err != nil {
		return r, err
	}
	var ok bool
	if r.Text, r.Line, ok = s.Env.Config.RulesText(); !ok {
		return r, toolcrib.Errorf(toolcrib.CodeConflict, "%s is written in a way that cannot be edited in part",
			s.Env.Config.File())
	}
	s.Env.LearnSecrets()
	r.Text, r.File = s.Env.Mask.Mask(r.Text), s.Env.Config.File()
	return r, nil
}

// Trial is the result of a trial of rules.
type Trial struct {
	Problems []config.Error // if there are any, nothing was judged
	Warnings []config.Error
	policy.Backtest
	Stopped bool // after the time for a trial
	Took    time.Duration
	Notices []string
}

// TryRules judges the calls of the newest stored runs under the configuration with other rules, for administrators. It
// applies nothing. An administrator has one trial at a time: a new one ends the one before with a conflict.
func (s *Service) TryRules(ctx context.Context, who toolcrib.Principal, text string) (t Trial, err error) {
	name, err := env.Administrator(who)
	if err != nil {
		return t, err
	}
	under, t, err := s.withRules(text)
	if err != nil || len(t.Problems) > 0 {
		return t, err
	}
	asked := ctx
	ctx, end, err := s.trials.begin(ctx, name)
	if err != nil {
		return t, err
	}
	defer end()
	began := time.Now()
	said := heard{most: maxTrialNotices}
	under.Env.Notice, under.Env.Alert = said.add, said.add
	var changes []policy.ChangedCall
	omitted := 0
	changed := func(c policy.ChangedCall) {
		if len(changes) == maxTrialShown {
			omitted++
			return
		}
		c.Arguments = []byte(guard.Clip(string(c.Arguments), maxTrialText))
		changes = append(changes, c)
	}
	b, err := under.Policy.Backtest(ctx, who, policy.BacktestRequest{Limit: maxTrialRuns, Changed: changed})
	t.Backtest, t.Took, t.Notices = b, time.Since(began), said.texts()
	t.Changes, t.Summary.Omitted = changes, omitted
	switch cause := context.Cause(ctx); {
	case err == nil:
	case errors.Is(cause, context.DeadlineExceeded) && asked.Err() == nil:
		t.Stopped, err = true, nil
	case cause != nil:
		err = cause
	}
	return t, err
}

// heard collects the first notices.
type heard struct {
	most int
	mu   sync.Mutex
	all  []string
}

func (h *heard) add(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.all) < h.most {
		h.all = append(h.all, text)
	}
}

func (h *heard) texts() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.all)
}

// withRules returns a service under the configuration with other rules, with what it keeps of its own.
func (s *Service) withRules(text string) (under *Service, t Trial, err error) {
	if len(text) > MaxRulesText {
		return nil, t, toolcrib.Errorf(toolcrib.CodeTooLarge, "rules: more than %d bytes", MaxRulesText)
	}
	c, _, err := s.Env.Config.WithRules(text)
	var problems config.Errors
	if errors.As(err, &problems) {
		t.Problems = problems
		return nil, t, nil
	}
	if err != nil {
		return nil, t, err
	}
	under = s.Under(c)
	under.Policy = policy.New(under.Env, under.MCP, under.People)
	warnings, err := under.Policy.CheckRules()
	t.Warnings = warnings
	if errors.As(err, &problems) {
		t.Problems, err = problems, nil
	}
	return under, t, err
}

// trials are the trials of rules in progress, by administrator.
type trials struct {
	mu      sync.Mutex
	running map[string]*trial
}

type trial struct {
	replace context.CancelCauseFunc
	over    chan struct{}
}

// begin ends the trial before, and returns the context of the next one, which the caller ends.
func (t *trials) begin(ctx context.Context, name string) (context.Context, func(), error) {
	ctx, replace := context.WithCancelCause(ctx)
	own := &trial{replace, make(chan struct{})}
	t.mu.Lock()
	if t.running == nil {
		t.running = map[string]*trial{}
	}
	before := t.running[name]
	t.running[name] = own
	t.mu.Unlock()
	leave := func() {
		replace(nil)
		close(own.over)
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.running[name] == own {
			delete(t.running, name)
		}
	}
	if before != nil {
		before.replace(toolcrib.Errorf(toolcrib.CodeConflict, "a newer trial of yours has taken the place of this one"))
		select {
		case <-before.over:
		case <-ctx.Done():
			leave()
			return nil, nil, context.Cause(ctx)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, maxTrialTime)
	return ctx, func() { cancel(); leave() }, nil
}

// RulesChange returns other rules as a change of the configuration: a unified diff of its file, or the file if there is
// none. It is for administrators, and applies nothing.
func (s *Service) RulesChange(who toolcrib.Principal, text string) (name string, content []byte, err error) {
	old, err := s.Rules(who)
	if err != nil {
		return "", nil, err
	}
	_, t, err := s.withRules(text)
	switch {
	case err != nil:
		return "", nil, err
	case len(t.Problems) > 0:
		return "", nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "%v", config.Errors(t.Problems))
	}
	text = strings.ReplaceAll(text, "\r\n", "\n")
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if old.File == "" {
		return config.FileName, []byte(text), nil
	}
	if text == old.Text {
		return "", nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "these are the rules of the configuration: nothing has changed")
	}
	content, err = rulesDiff(filepath.Base(old.File), old, text)
	return "toolcrib-rules.diff", content, err
}

// rulesDiff returns a change of a file as the program patch takes it in the folder of the file. It has the lines of the
// rules only, since those around them may have secrets.
func rulesDiff(file string, old RulesText, text string) ([]byte, error) {
	d, err := udiff.ToUnifiedDiff(file, file, old.Text, udiff.Lines(old.Text, text), udiff.DefaultContextLines)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "--- %s\n+++ %s\n", file, file)
	for _, h := range d.Hunks {
		var lines strings.Builder
		from, to := 0, 0
		for _, l := range h.Lines {
			sign := map[udiff.OpKind]string{udiff.Delete: "-", udiff.Insert: "+", udiff.Equal: " "}[l.Kind]
			lines.WriteString(sign + l.Content)
			if l.Kind != udiff.Insert {
				from++
			}
			if l.Kind != udiff.Delete {
				to++
			}
		}
		begin := func(line, count int) int { // of no lines, the line before them
			return line + old.Line - 1 - max(1-count, 0)
		}
		fmt.Fprintf(&out, "@@ -%d,%d +%d,%d @@\n%s", begin(h.FromLine, from), from, begin(h.ToLine, to), to, lines.String())
	}
	return out.Bytes(), nil
}

// AddRule returns the text of rules with a proposed rule added.
func (s *Service) AddRule(who toolcrib.Principal, text, entry string) (string, error) {
	if _, err := env.Administrator(who); err != nil {
		return "", err
	}
	if strings.ContainsAny(entry, "\r\n") || !strings.HasPrefix(entry, "- ") {
		return "", toolcrib.Errorf(toolcrib.CodeBadRequest, "the rule is not an entry of one line")
	}
	return config.AddRule(strings.ReplaceAll(text, "\r\n", "\n"), entry), nil
}

// ProposedRule is a rule that would have allowed calls that people approved.
type ProposedRule struct {
	api.Rule
	Calls int // that people approved
	Run   toolcrib.RunID
	Last  time.Time // the newest of them
	By    string    // who approved it
}

// ProposeRules returns the narrowest rules for calls that people approved in the newest runs, those for the most calls
// first, for administrators. stopped reports that there was no time for all of these runs.
func (s *Service) ProposeRules(
	ctx context.Context, who toolcrib.Principal,
) (list []*ProposedRule, runs int, stopped bool, err error) {
	if _, err := env.Administrator(who); err != nil {
		return nil, 0, false, err
	}
	asked := ctx
	ctx, cancel := context.WithTimeout(ctx, maxLookTime)
	defer cancel()
	byName := map[string]*ProposedRule{}
	for rec, err := range s.Env.EachRun(ctx, who, store.Filter{}) {
		if err != nil && ctx.Err() == nil {
			return nil, runs, false, err
		}
		if runs == maxLookRuns {
			break
		}
		if stopped = ctx.Err() != nil; stopped {
			break
		}
		runs++
		all, _ := s.approvalsOf(ctx, who, rec) // one that cannot be read proposes nothing; the backtest names it
		for _, a := range all {
			a.proposes(byName)
		}
	}
	if err := asked.Err(); err != nil {
		return nil, runs, stopped, err
	}
	for _, r := range byName {
		known := func(have config.Rule) bool { return have.Name == r.Name }
		if !slices.ContainsFunc(s.Env.Config.Rules, known) {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b *ProposedRule) int {
		if a.Calls != b.Calls {
			return b.Calls - a.Calls
		}
		return strings.Compare(a.Name, b.Name)
	})
	return list[:min(len(list), maxTrialShown)], runs, stopped, nil
}

// proposes adds the rules for the calls of an approval that a person approved as they were.
func (v *Approval) proposes(to map[string]*ProposedRule) {
	for _, c := range v.Calls {
		by := v.approvedBy()
		if c.Decision != journal.DecisionApprove || c.Edited != nil || by == "" {
			continue
		}
		r := propose.Asked(&c.ApprovalItem)
		if r == nil {
			continue
		}
		if to[r.Name] == nil {
			to[r.Name] = &ProposedRule{Rule: *r, Run: v.Run, Last: v.CreatedAt, By: by}
		}
		to[r.Name].Calls++
	}
}

// approvedBy returns who approved calls, or "" if no person did.
func (v *Approval) approvedBy() string {
	for _, d := range v.Decisions {
		if d.By != core.ByAll {
			return d.By
		}
	}
	return ""
}
