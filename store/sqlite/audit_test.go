package sqlite_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// audited is a store in which bob's run asks ann for an approval, root acts for bob,
// and people change this and that.
func audited(t testing.TB) *sqlite.Store {
	t.Helper()
	now := saturday
	s, err := sqlite.Open(t.Context(), t.TempDir()+"/toolcrib.db", sqlite.Options{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // nothing is written any more
	tick := func() time.Time { now = now.Add(time.Second); return now }
	a := &spender{t: t, run: "run_a"}
	a.start(s, tick(), "bob", "default", "ses_1", "")
	a.add(s, tick(), &journal.Verdicts{Verdicts: []journal.Verdict{
		{CallID: "c1", Tool: "write_file", Decision: toolcrib.Ask, Reason: toolcrib.ReasonNeedsConfirmation, Effect: toolcrib.EffectIdempotentWrite},
		{CallID: "c2", Tool: "read_file", Decision: toolcrib.Allow},
		{CallID: "c3", Tool: "exec_shell", Reason: toolcrib.ReasonRuleDenied, Rule: "pushes", Position: "toolcrib.yaml:7", Message: "no"},
	}})
	a.add(s, now, &journal.ConfirmationRequired{ApprovalID: "apr_1", Reason: "writes", Calls: []journal.ApprovalItem{{ID: "c1", Name: "write_file", Effect: toolcrib.EffectIdempotentWrite}}},
		&journal.Paused{Status: toolcrib.StatusWaitingForApproval, Pending: journal.Pending{ApprovalID: "apr_1"}})
	set(t.(*testing.T), s, store.Override{Kind: store.OverrideTool, Name: "exec_shell", By: "root"}, true) // at the same time
	a.add(s, tick(), &journal.ConfirmationResolved{ApprovalID: "apr_1", Decision: journal.DecisionApprove, By: "ann", Reason: "fine"})
	tick()
	if _, err := s.Access().AddUser(t.Context(), access.NewUser{User: access.User{Name: "ann"}}, "root"); err != nil {
		t.Fatal(err)
	}
	a.add(s, tick(), &journal.Granted{Iterations: 5, By: "ann"}, &journal.Stopping{Reason: toolcrib.StopCancelled, By: "bob"})
	a.end(s, now)
	b := &spender{t: t, run: "run_b"}
	start := started("bob", "default", "", "")
	start.Principal.Actor = "root"
	b.add(s, tick(), start, &journal.Verdicts{Verdicts: []journal.Verdict{{CallID: "c1", Tool: "read_file", Decision: toolcrib.Allow}}})
	b.end(s, now)
	tick()
	prune(t, s, store.PruneOptions{Runs: []toolcrib.RunID{"run_b"}, ContentOnly: true})
	return s
}

func auditLines(entries []store.AuditEntry) []string {
	lines := []string{}
	for _, e := range entries {
		text := fmt.Sprintf("%s %s/%d.%d %s", e.Time.Sub(saturday), e.Chain, e.Seq, e.Index, e.Kind)
		for _, part := range []string{e.User, e.Actor, e.By, e.Tool, e.Decision, e.Reason, e.Rule, e.ApprovalID, e.Subject} {
			text += " " + part
		}
		if e.Pruned {
			text += " pruned"
		}
		lines = append(lines, strings.Join(strings.Fields(text), " "))
	}
	return lines
}

func audit(t testing.TB, s *sqlite.Store, f store.AuditFilter) store.AuditPage {
	t.Helper()
	page, err := s.Audit(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return page
}

func TestAudit(t *testing.T) {
	s := audited(t)
	all := []string{
		"1s run_a/1.0 run_started bob",
		"2s run_a/2.0 asked bob write_file needs_confirmation",
		"2s run_a/2.1 allowed bob read_file",
		"2s run_a/2.2 refused bob exec_shell rule_denied pushes",
		"2s run_a/3.0 approval_required bob write_file apr_1",
		"2s system/3.0 override_set root exec_shell",
		"3s run_a/5.0 approval_decided bob ann approve apr_1",
		"4s system/4.0 user_added root ann",
		"5s run_a/6.0 limits_raised bob ann",
		"5s run_a/7.0 stopped bob bob cancelled",
		"6s run_b/1.0 run_started bob root",
		"6s run_b/2.0 verdicts bob root pruned",
		"7s system/7.0 content_pruned ann run_b",
	}
	only := func(which ...int) []string {
		list := []string{}
		for _, i := range which {
			list = append(list, all[i])
		}
		return list
	}
	type filtered struct {
		f    store.AuditFilter
		want []string
	}
	check := func(name string, c filtered) {
		t.Helper()
		c.f.OldestFirst = true
		if diff := cmp.Diff(c.want, auditLines(audit(t, s, c.f).Entries)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
		c.f.OldestFirst = false
		slices.Reverse(c.want)
		if diff := cmp.Diff(c.want, auditLines(audit(t, s, c.f).Entries)); diff != "" {
			t.Errorf("%s, newest first (-want +got)\n%s", name, diff)
		}
		slices.Reverse(c.want)
	}
	filters := map[string]filtered{
		"all":                  {store.AuditFilter{}, all},
		"since":                {store.AuditFilter{Since: saturday.Add(5 * time.Second)}, all[8:]},
		"until":                {store.AuditFilter{Until: saturday.Add(2 * time.Second)}, all[:1]},
		"refusals":             {store.AuditFilter{Kinds: []toolcrib.Kind{store.AuditRefused}}, only(3, 11)}, // the pruned ones may have been some
		"changes":              {store.AuditFilter{Kinds: []toolcrib.Kind{store.SystemOverrideSet, access.UserAdded}}, only(5, 7)},
		"of ann":               {store.AuditFilter{User: "ann"}, only(6, 7, 8, 12)},
		"of root":              {store.AuditFilter{User: "root"}, only(5, 7, 10, 11)},
		"of bob":               {store.AuditFilter{User: "bob"}, only(0, 1, 2, 3, 4, 6, 8, 9, 10, 11)},
		"of nobody":            {store.AuditFilter{User: "eve"}, only()},
		"of a run":             {store.AuditFilter{Run: "run_b"}, only(10, 11, 12)},
		"of a run that is not": {store.AuditFilter{Run: "run_x"}, only()},
		"approvals of a run":   {store.AuditFilter{Run: "run_a", Kinds: []toolcrib.Kind{store.AuditApprovalDecided}}, only(6)},
		"between":              {store.AuditFilter{Since: saturday.Add(3 * time.Second), Until: saturday.Add(5 * time.Second)}, only(6, 7)},
	}
	for name, c := range filters {
		check(name, c)
	}
	// Users with very many events have the same ones.
	for user, actor := range map[string]string{"ann": "", "bob": "root"} {
		busy, start := &spender{t: t, run: toolcrib.RunID("run_busy_" + user)}, started(user, "default", "", "")
		start.Principal.Actor = actor
		busy.add(s, saturday.Add(time.Hour), start)
		for range 5 {
			busy.add(s, saturday.Add(time.Hour),
				slices.Repeat([]toolcrib.Body{&journal.ToolStarted{ID: "c1", Name: "read_file"}}, 5000)...)
		}
	}
	for name, c := range filters {
		if c.f.Until.IsZero() {
			c.f.Until = saturday.Add(time.Hour)
		}
		check(name+", of many", c)
	}
	for _, cursor := range []string{"x", "1.2.3", "1.9.3.4", "1.0.!.4"} {
		if _, err := s.Audit(t.Context(), store.AuditFilter{Cursor: cursor}); !errors.Is(err, store.ErrBadCursor) {
			t.Errorf("cursor %q: error %v", cursor, err)
		}
	}
	if _, err := s.Audit(t.Context(), store.AuditFilter{Since: sunday, Until: saturday}); err == nil {
		t.Error("until before since is taken")
	}
	// Each entry names its event and its hash.
	e := audit(t, s, store.AuditFilter{Kinds: []toolcrib.Kind{store.AuditRefused}, Run: "run_a"}).Entries[0]
	if e.Position != "toolcrib.yaml:7" || e.CallID != "c3" || e.Agent != "default" || e.Session != "ses_1" || e.Message != "no" {
		t.Errorf("%+v", e)
	}
	for ev, err := range s.Read(t.Context(), "run_a", e.Seq-1) {
		if err != nil || fmt.Sprintf("%x", ev.Hash) != e.Hash {
			t.Errorf("hash %s, error %v", e.Hash, err)
		}
		break
	}
}

// Whatever the pages, together they are the whole log, each entry once, in both orders;
// also where many things happened at the same time.
func TestAuditPages(t *testing.T) {
	s := open(t)
	random := rand.New(rand.NewPCG(1, 2))
	var runs []*spender
	for i := range 12 {
		p := &spender{t: t, run: toolcrib.RunID(fmt.Sprint("run_", i))}
		p.start(s, saturday, []string{"ann", "bob"}[i%2], "default", "", "")
		runs = append(runs, p)
	}
	events := 200
	if testing.Short() {
		events = 60
	}
	for range events {
		at := saturday.Add(time.Duration(random.IntN(20)) * time.Second) // clocks may go back
		p := runs[random.IntN(len(runs))]
		if random.IntN(8) == 0 {
			if err := s.AppendSystem(t.Context(), store.SystemEvent{Time: at, Kind: store.SystemConfigChanged, Payload: json.RawMessage(`{"path":"x","by":"ann"}`)}); err != nil {
				t.Fatal(err)
			}
			continue
		}
		p.add(s, at, &journal.Verdicts{Verdicts: make([]journal.Verdict, random.IntN(4))}, &journal.Notice{}, &journal.ConfirmationResolved{By: "bob"})
	}
	whole := map[string][]string{}
	pages := func(f store.AuditFilter, limit func() int) []string {
		lines := []string{}
		for {
			f.Limit = limit()
			page := audit(t, s, f)
			lines = append(lines, auditLines(page.Entries)...)
			if page.Next == "" {
				return lines
			}
			if len(page.Entries) != f.Limit {
				t.Fatalf("a page of %d entries, %d were asked for, and there are more", len(page.Entries), f.Limit)
			}
			f.Cursor = page.Next
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		f := store.AuditFilter{
			OldestFirst: rapid.Bool().Draw(rt, "oldest first"), User: rapid.SampledFrom([]string{"", "ann", "bob"}).Draw(rt, "user"),
			Run: rapid.SampledFrom([]toolcrib.RunID{"", "", "run_3"}).Draw(rt, "run"),
		}
		if rapid.Bool().Draw(rt, "some time") {
			f.Since, f.Until = saturday.Add(3*time.Second), saturday.Add(15*time.Second)
		}
		key := fmt.Sprint(f)
		if whole[key] == nil {
			whole[key] = pages(f, func() int { return store.MaxLimit })
			opposite := f
			opposite.OldestFirst = !f.OldestFirst
			other := pages(opposite, func() int { return store.MaxLimit })
			slices.Reverse(other)
			if diff := cmp.Diff(whole[key], other); diff != "" {
				rt.Fatalf("the other way around (-one +other)\n%s", diff)
			}
		}
		size := rapid.IntRange(1, 40).Draw(rt, "limit")
		if diff := cmp.Diff(whole[key], pages(f, func() int { return size })); diff != "" {
			rt.Errorf("by pages of %d (-whole +pages)\n%s", size, diff)
		}
	})
}

func export(t testing.TB, s *sqlite.Store, o store.ExportOptions) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := s.ExportAudit(t.Context(), &b, o); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestAuditExport(t *testing.T) {
	path := copied(t, finished(t))
	s := openAt(t, path, sqlite.Options{})
	all := verifyAll(t, s)
	keys, err := s.ExportKeys()
	if err != nil {
		t.Fatal(err)
	}
	head, err := s.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range []bool{false, true} {
		b := export(t, s, store.ExportOptions{Content: content})
		v, err := store.VerifyExport(bytes.NewReader(b), keys, store.Head{})
		if err != nil {
			t.Fatal(err)
		}
		head.Time = v.Head.Time
		if v.Runs != all.Runs || v.Links != all.Events || v.Events != all.System.Events || v.Head != head || !v.Sealed {
			t.Errorf("%+v, store %+v", v, all)
		}
		if want := all.System.Events + all.Events - all.Pruned; content && v.Content != want {
			t.Errorf("content of %d events, want %d", v.Content, want)
		}
		if has := bytes.Contains(b, []byte("the task")) || bytes.Contains(b, []byte("content content")); has != content {
			t.Errorf("results are in the export: %v, want %v", has, content)
		}
		if _, err := store.VerifyExport(bytes.NewReader(b), store.NewKeys(), store.Head{}); err == nil {
			t.Error("other keys have sealed it")
		}
		if v, err := store.VerifyExport(bytes.NewReader(b), nil, store.Head{}); err != nil || v.Sealed {
			t.Errorf("%+v, error %v", v, err)
		}
	}
	some := export(t, s, store.ExportOptions{Since: time.Now().Add(time.Hour)})
	if v, err := store.VerifyExport(bytes.NewReader(some), keys, store.Head{}); err != nil || v.Runs == 0 || v.Runs >= all.Runs {
		t.Errorf("those that have not ended: %+v, error %v", v, err)
	}
	execAt(t, path, "UPDATE system_head SET record = zeroblob(150)")
	err = s.ExportAudit(t.Context(), new(bytes.Buffer), store.ExportOptions{})
	wantBroken(t, err, "not sealed")
	if err := openAt(t, copied(t, finished(t)), readOnly()).ExportAudit(t.Context(), failing{}, store.ExportOptions{}); !errors.Is(err, errDisk) {
		t.Errorf("error %v of a file that cannot be written", err)
	}
}

var errDisk = errors.New("no disk")

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errDisk }

// Whatever is changed in an exported log, removed, put elsewhere or cut off is found,
// with the line that does not fit; without keys too, unless the whole is rewritten.
func TestAuditExportTampered(t *testing.T) {
	s := openAt(t, finished(t), readOnly())
	whole := export(t, s, store.ExportOptions{})
	lines := bytes.SplitAfter(whole, []byte("\n"))
	lines = lines[:len(lines)-1]
	check := func(name string, b []byte) {
		t.Helper()
		_, err := store.VerifyExport(bytes.NewReader(b), nil, store.Head{})
		var broken *store.ChainError
		if !errors.As(err, &broken) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	joined := func(parts ...[][]byte) []byte { return bytes.Join(slices.Concat(parts...), nil) }
	for i := range lines {
		check(fmt.Sprintf("line %d is gone", i), joined(lines[:i], lines[i+1:]))
		check(fmt.Sprintf("line %d is there twice", i), joined(lines[:i+1], lines[i:]))
		if i+1 < len(lines) {
			check(fmt.Sprintf("lines %d and %d are swapped", i, i+1), joined(lines[:i], lines[i+1:i+2], lines[i:i+1], lines[i+2:]))
		}
		check(fmt.Sprintf("cut off before line %d", i), joined(lines[:i]))
		check(fmt.Sprintf("cut off in line %d", i), append(joined(lines[:i]), lines[i][:len(lines[i])/2]...))
	}
	check("something behind the end", append(slices.Clone(whole), "{}\n"...))
	check("empty", nil)
	random := rand.New(rand.NewPCG(3, 4))
	macAt := bytes.LastIndex(whole, []byte(`"mac"`)) // of the seals nothing can be said without keys
	headMAC := bytes.LastIndex(whole[:macAt], []byte(`"mac"`))
	changes := 2000
	if testing.Short() {
		changes = 400
	}
	for range changes {
		i := random.IntN(headMAC)
		b := slices.Clone(whole)
		b[i] ^= 1 << random.IntN(8)
		check(fmt.Sprintf("byte %d: %q became %q", i, whole[i], b[i]), b)
	}
	keys, err := s.ExportKeys()
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		i := headMAC + random.IntN(len(whole)-headMAC-1)
		b := slices.Clone(whole)
		b[i] ^= 1 << random.IntN(8)
		if _, err := store.VerifyExport(bytes.NewReader(b), keys, store.Head{}); err == nil {
			t.Errorf("byte %d of the end: %q became %q", i, whole[i], b[i])
		}
	}
}

// resealed ends an export as it would end if it had been written without keys: with the
// digest of its lines.
func resealed(t testing.TB, lines [][]byte) []byte {
	t.Helper()
	body := bytes.Join(lines[:len(lines)-1], nil)
	var last struct {
		End store.ExportEnd `json:"end"`
	}
	if err := json.Unmarshal(lines[len(lines)-1], &last); err != nil {
		t.Fatal(err)
	}
	last.End.Digest = fmt.Sprintf("%x", sha256.Sum256(body))
	end, err := json.Marshal(last)
	if err != nil {
		t.Fatal(err)
	}
	return append(append(body, end...), '\n')
}

// The content of audit entries cannot be removed from an export, even if its hash remains and the end
// is made to match: the event is reported, with keys and without. Content that was pruned may be
// missing.
func TestAuditExport_ContentTakenOut(t *testing.T) {
	s := audited(t)
	keys, err := s.ExportKeys()
	if err != nil {
		t.Fatal(err)
	}
	tried := map[toolcrib.Kind]bool{}
	for _, content := range []bool{false, true} {
		lines := bytes.SplitAfter(export(t, s, store.ExportOptions{Content: content}), []byte("\n"))
		lines = lines[:len(lines)-1]
		if _, err := store.VerifyExport(bytes.NewReader(resealed(t, lines)), keys, store.Head{}); err != nil {
			t.Fatalf("what nobody touched: %v", err)
		}
		for i := 1; i < len(lines)-1; i++ {
			var e store.ExportEvent
			if err := json.Unmarshal(lines[i], &e); err != nil {
				t.Fatal(err)
			}
			if e.Payload == nil || e.Run == "" || e.Kind == journal.KindRunStarted || !slices.Contains(store.AuditedEvents(), e.Kind) {
				continue
			}
			tried[e.Kind] = true
			e.Payload = nil
			raw, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			changed := slices.Clone(lines)
			changed[i] = append(raw, '\n')
			for _, k := range []*store.Keys{nil, keys} {
				_, err := store.VerifyExport(bytes.NewReader(resealed(t, changed)), k, store.Head{})
				var broken *store.ChainError
				if !errors.As(err, &broken) || broken.Run != e.Run || broken.Seq != e.Seq || !strings.Contains(broken.What, "content is missing") {
					t.Errorf("%s, event %d of %s, keys %v: error %v", e.Kind, e.Seq, e.Run, k != nil, err)
				}
			}
		}
	}
	if want := len(store.AuditedEvents()) - 1; len(tried) != want {
		t.Errorf("%d kinds of events were tried, want %d: %v", len(tried), want, tried)
	}
}

// What was written last counts, though the clock was set back before it, and whatever
// came after it.
func TestLastChanged(t *testing.T) {
	now := saturday
	s, err := sqlite.Open(t.Context(), t.TempDir()+"/toolcrib.db", sqlite.Options{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // nothing is written any more
	put := func(kind toolcrib.Kind, payload string) {
		t.Helper()
		if err := s.AppendSystem(t.Context(), store.SystemEvent{Kind: kind, Payload: json.RawMessage(payload)}); err != nil {
			t.Fatal(err)
		}
	}
	wants := func(hash string) {
		t.Helper()
		last, err := s.LastChanged(t.Context(), store.SystemConfigChanged, "/etc/a.yaml")
		if err != nil || last.Hash != hash {
			t.Errorf("%+v, error %v, want the hash %q", last, err, hash)
		}
	}
	wants("")
	for _, step := range []struct {
		hash string
		ago  time.Duration
	}{{"A", 0}, {"B", -time.Hour}, {"A", time.Hour}, {"B", 2 * time.Hour}} {
		now = saturday.Add(-step.ago)
		put(store.SystemConfigChanged, `{"path":"/etc/a.yaml","hash":"`+step.hash+`","by":"ann"}`)
		wants(step.hash)
	}
	now = saturday.Add(24 * time.Hour)
	put(store.SystemConfigChanged, `{"path":"/etc/b.yaml","hash":"C","by":"ann"}`)
	put(store.SystemTrustGiven, `{"path":"/etc/a.yaml","hash":"D","by":"ann"}`)
	others := make([]store.SystemEvent, 3000)
	for i := range others {
		others[i] = store.SystemEvent{Kind: store.SystemTrustRevoked, Payload: json.RawMessage(`{}`)}
	}
	if err := s.AppendSystem(t.Context(), others...); err != nil {
		t.Fatal(err)
	}
	wants("B")
}
