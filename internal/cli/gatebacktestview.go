package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// Bounds of what a backtest shows.
const (
	maxChangesShown = 10_000 // in its JSON; on a terminal and in a pipe there is no bound
	maxDamagedShown = 100
)

// backtestView is what a backtest found, as it is shown.
type backtestView struct {
	a     *app
	f     *backtestFlags
	rec   *store.RunRecord // that is looked at
	told  toolcrib.RunID   // the last run that a line was shown of
	shown time.Time        // of the progress

	Config  string          `json:"config"` // "" = no file
	Changes []changedCall   `json:"changes"`
	Offers  []*changedOffer `json:"offers"`
	Summary backtestSummary `json:"summary"`
	offers  map[string]*changedOffer
}

// changedCall is a call that is decided otherwise.
type changedCall struct {
	Change    agent.Change    `json:"change"` // wider | narrower | reason
	Run       toolcrib.RunID  `json:"run_id"`
	Seq       toolcrib.Seq    `json:"seq"` // of the verdicts
	Time      time.Time       `json:"time"`
	User      string          `json:"user"`
	Agent     string          `json:"agent"`
	CallID    string          `json:"call_id"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Old       shownVerdict    `json:"old"`
	New       shownVerdict    `json:"new"`
}

// shownVerdict is a verdict without what only the loop needs.
type shownVerdict struct {
	Decision toolcrib.Decision `json:"decision"` // allow | ask | refuse
	Reason   toolcrib.Reason   `json:"reason,omitempty"`
	Rule     string            `json:"rule,omitempty"`
	Position string            `json:"position,omitempty"` // FILE:LINE
	Message  string            `json:"message,omitempty"`
}

// changedOffer is a tool that would be offered otherwise, in so many runs.
type changedOffer struct {
	Tool     string          `json:"tool"`
	Offered  bool            `json:"offered"` // whether it would be
	Reason   toolcrib.Reason `json:"reason,omitempty"`
	Position string          `json:"position,omitempty"`
	Runs     int             `json:"runs"`
	Run      toolcrib.RunID  `json:"run_id"` // the newest of them
}

type backtestSummary struct {
	Runs      int                    `json:"runs"`   // that were looked at
	Judged    int                    `json:"judged"` // calls
	Unchanged int                    `json:"unchanged"`
	Wider     int                    `json:"wider"`
	Narrower  int                    `json:"narrower"`
	Otherwise int                    `json:"reason"`          // the same decision, for another reason
	Offered   int                    `json:"tools_offered"`   // that were not
	Withdrawn int                    `json:"tools_withdrawn"` // that would not be offered any more
	Unjudged  map[agent.Unjudged]int `json:"unjudged"`
	Pruned    int                    `json:"pruned_runs"`
	Damaged   []damagedRun           `json:"damaged_runs"`
	Omitted   int                    `json:"changes_omitted"` // beyond those in changes
	Limit     int                    `json:"limit"`           // 0 = none
	More      bool                   `json:"more"`            // there are more runs that fit
}

type damagedRun struct {
	Run    toolcrib.RunID `json:"run_id"`
	Detail string         `json:"detail"`
}

func newBacktestView(a *app, file string, f *backtestFlags) *backtestView {
	return &backtestView{
		a: a, f: f, Config: file, Changes: []changedCall{}, Offers: []*changedOffer{}, offers: map[string]*changedOffer{},
		Summary: backtestSummary{Unjudged: map[agent.Unjudged]int{}, Damaged: []damagedRun{}, Limit: f.limit},
	}
}

// begin is told the run that is looked at next.
func (v *backtestView) begin(rec *store.RunRecord) {
	v.rec = rec
	v.Summary.Runs++
	if now := time.Now(); v.a.errTerminal && now.Sub(v.shown) >= progressEvery {
		v.shown = now
		fmt.Fprintf(v.a.err, "\r\x1b[K%s", v.a.style.Dim(fmt.Sprintf("· %s, %s", render.Count(v.Summary.Runs, "run"), render.Count(v.Summary.Judged, "call"))))
	}
}

// progressed takes the progress away.
func (v *backtestView) progressed() {
	if !v.shown.IsZero() {
		fmt.Fprint(v.a.err, "\r\x1b[K")
		v.shown = time.Time{}
	}
}

func (v *backtestView) damaged(run toolcrib.RunID, err error) {
	v.progressed()
	if !v.f.json {
		v.a.complain(err.Error())
	}
	if len(v.Summary.Damaged) < maxDamagedShown {
		v.Summary.Damaged = append(v.Summary.Damaged, damagedRun{run, err.Error()})
	}
}

// call takes what was found about a call.
func (v *backtestView) call(r agent.Rejudged) error {
	s := &v.Summary
	if r.Unjudged != "" {
		s.Unjudged[r.Unjudged]++
		return nil
	}
	s.Judged++
	switch r.Change {
	case agent.Wider:
		s.Wider++
	case agent.Narrower:
		s.Narrower++
	case agent.Otherwise:
		s.Otherwise++
	default:
		s.Unchanged++
		return nil
	}
	c := changedCall{
		Change: r.Change, Run: r.Run, Seq: r.Seq, Time: r.Time, User: v.rec.User, Agent: v.rec.Agent,
		CallID: r.Call.ID, Tool: r.Call.Name, Arguments: r.Call.Arguments, Old: shownOf(&r.Old), New: shownOf(&r.New),
	}
	switch {
	case !v.f.json:
		v.tell(&c)
	case len(v.Changes) < maxChangesShown:
		v.Changes = append(v.Changes, c)
	default:
		s.Omitted++
	}
	return nil
}

func shownOf(v *journal.Verdict) shownVerdict {
	out := shownVerdict{Decision: v.Decision, Reason: v.Reason, Rule: v.Rule, Position: v.Position, Message: v.Message}
	if out.Decision == toolcrib.Refuse {
		out.Decision = "refuse" // the journal leaves it empty
	}
	return out
}

// offer takes a tool that would be offered otherwise.
func (v *backtestView) offer(c agent.OfferChange) error {
	if c.Reason == toolcrib.ReasonRequiresAdmin || c.Reason == toolcrib.ReasonNotPermitted {
		return nil // no configuration decides about that
	}
	key := fmt.Sprint(c.Tool, "\x00", c.Offered, "\x00", c.Reason, "\x00", c.Position)
	o := v.offers[key]
	if o == nil {
		o = &changedOffer{Tool: c.Tool, Offered: c.Offered, Reason: c.Reason, Position: c.Position, Run: c.Run}
		v.offers[key], v.Offers = o, append(v.Offers, o)
	}
	o.Runs++
	return nil
}

// tell shows a call that is decided otherwise.
func (v *backtestView) tell(c *changedCall) {
	v.progressed()
	out, s := v.a.out, v.a.outStyle
	if v.told != c.Run {
		v.told = c.Run
		fmt.Fprintf(out, "%s  %s  %s\n", s.Bold(string(c.Run)), c.Time.Local().Format("2006-01-02 15:04"), guard.Visible(c.User+", "+c.Agent))
	}
	word := map[agent.Change]string{agent.Wider: s.Red("wider"), agent.Narrower: s.Yellow("narrower"), agent.Otherwise: s.Dim("reason")}[c.Change]
	fmt.Fprintf(out, "  %s  %s %s\n", word, guard.Visible(c.Tool), render.Arguments(c.Arguments, argumentsShown))
	fmt.Fprintf(out, "    %s -> %s\n", guard.Visible(c.Old.text(false)), guard.Visible(c.New.text(true)))
}

// argumentsShown is how many characters of a call's arguments a line has.
const argumentsShown = 100

// text is a verdict in words, with where it is decided.
func (v shownVerdict) text(position bool) string {
	text := map[toolcrib.Decision]string{toolcrib.Allow: "allowed", toolcrib.Ask: "asked"}[v.Decision]
	if text == "" {
		text = "refused"
	}
	var why []string
	if v.Reason != "" {
		why = append(why, string(v.Reason))
	}
	if v.Rule != "" {
		why = append(why, "rule "+v.Rule)
	}
	if position && v.Position != "" {
		why = append(why, v.Position)
	}
	if len(why) > 0 {
		text += " (" + strings.Join(why, ", ") + ")"
	}
	return text
}

// end shows the whole, and tells by the exit code what --fail-on asks about.
func (v *backtestView) end() error {
	v.progressed()
	slices.SortStableFunc(v.Offers, func(a, b *changedOffer) int { return cmp.Compare(a.Tool, b.Tool) })
	v.countOffers()
	if v.f.json {
		if err := printJSON(v.a.out, v, true); err != nil {
			return err
		}
	} else {
		v.summarize()
	}
	if len(v.Summary.Damaged) > 0 || len(v.failures()) > 0 {
		return silent(exitFailed)
	}
	return nil
}

// failures are what --fail-on asks about and was found, in words.
func (v *backtestView) failures() (found []string) {
	s := &v.Summary
	add := func(n int, noun, text string) {
		if n > 0 {
			found = append(found, render.Count(n, noun)+" "+text)
		}
	}
	if v.f.failOn == "" {
		return nil
	}
	add(s.Wider, "call", "decided wider")
	add(s.Offered, "tool", "newly offered")
	if v.f.failOn == failChanged {
		add(s.Narrower, "call", "decided narrower")
		add(s.Otherwise, "call", "decided for another reason")
		add(s.Withdrawn, "tool", "not offered any more")
	}
	if s.Judged == 0 { // what nothing was held against has not passed
		found = append(found, "no call was judged")
	}
	return found
}

// countOffers counts the tools that would be offered otherwise.
func (v *backtestView) countOffers() {
	of := map[bool]map[string]bool{true: {}, false: {}}
	for _, o := range v.Offers {
		of[o.Offered][o.Tool] = true
	}
	v.Summary.Offered, v.Summary.Withdrawn = len(of[true]), len(of[false])
}

func (v *backtestView) summarize() {
	out, s := v.a.out, &v.Summary
	v.summarizeOffers()
	under := "no configuration file"
	if v.Config != "" {
		under = pathText(v.Config)
	}
	fmt.Fprintf(out, "%s of %s judged under %s: %d unchanged, %d wider, %d narrower, %d for another reason\n",
		render.Count(s.Judged, "call"), render.Count(s.Runs, "run"), under, s.Unchanged, s.Wider, s.Narrower, s.Otherwise)
	for _, why := range unjudgedWords() {
		if n := s.Unjudged[why.code]; n > 0 {
			fmt.Fprintf(out, "%s could not be judged: %s\n", render.Count(n, "call"), why.text)
		}
	}
	if s.Pruned > 0 {
		fmt.Fprintf(out, "%s could not be judged: the content was pruned\n", render.Count(s.Pruned, "run"))
	}
	if n := len(s.Damaged); n > 0 {
		fmt.Fprintf(out, "%s could not be read to the end\n", render.Count(n, "run"))
	}
	if s.More {
		fmt.Fprintf(out, "there are older runs that fit; --limit looks at more than %s\n", render.Number(int64(s.Limit)))
	}
	if found := v.failures(); len(found) > 0 {
		fmt.Fprintf(out, "--fail-on %s: %s\n", v.f.failOn, strings.Join(found, ", "))
	}
}

// summarizeOffers shows the tools that would be offered otherwise, those of a kind on
// one line.
func (v *backtestView) summarizeOffers() {
	var kinds []string
	tools := map[string][]string{}
	for _, o := range v.Offers {
		kind := "would be offered in " + render.Count(o.Runs, "run")
		if !o.Offered {
			why := shownVerdict{Reason: o.Reason, Position: o.Position}.text(true)
			kind = "would not be offered in " + render.Count(o.Runs, "run") + strings.TrimPrefix(why, "refused")
		}
		if tools[kind] == nil {
			kinds = append(kinds, kind)
		}
		tools[kind] = append(tools[kind], o.Tool)
	}
	for _, kind := range kinds {
		fmt.Fprintln(v.a.out, guard.Visible(kind+": "+strings.Join(tools[kind], ", ")))
	}
}

type unjudgedWord struct {
	code agent.Unjudged
	text string
}

func unjudgedWords() []unjudgedWord {
	return []unjudgedWord{
		{agent.UnjudgedTool, "the tool is not there any more"},
		{agent.UnjudgedCount, "refused for a number of calls or a budget that was used up then"},
		{agent.UnjudgedRights, "what the user might do had changed since the run began"},
		{agent.UnjudgedWorkspace, "the workspace of the run cannot be used any more"},
		{agent.UnjudgedToken, "the access token of the run is not known any more"},
	}
}
