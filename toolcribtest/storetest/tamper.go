package storetest

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/toolcribtest/journaltest"
)

// Fill fills an empty store with runs of every kind, that are over, parked, pruned and removed, and with
// people, tokens, switches and approvals.
func Fill(t *testing.T, s store.Store) {
	t.Helper()
	all := journaltest.Bodies()
	add(t, s, "run_all", 0, all[:17]...)
	must(t, s.Put(t.Context(), "run_all", "res_1", []byte(strings.Repeat("the whole result\n", 400))))
	must(t, s.Put(t.Context(), "run_all", "res_2", []byte("another")))
	add(t, s, "run_all", 17, all[17:]...)
	paused := &journal.Paused{
		Status:  toolcrib.StatusWaitingForApproval,
		Pending: journal.Pending{Kind: "approval", ApprovalID: "apr_1"},
	}
	add(t, s, "run_done", 0, opened("ann", "ses_1", ""), &journal.TakenUp{Worker: "w", Epoch: 1},
		&journal.ToolResult{
			ToolCallID: "c1", Name: "read_file", Status: toolcrib.ResultOK,
			Content: strings.Repeat("content ", 50),
		}, paused)
	add(t, s, "run_done", 4,
		&journal.ConfirmationResolved{ApprovalID: "apr_1", Decision: journal.DecisionApprove, By: "ann"}, done())
	add(t, s, "run_twin", 0, opened("ann", "", "run_done"), &journal.TakenUp{Worker: "w", Epoch: 1}, done())
	add(t, s, "run_ruled", 0, opened("bob", "", ""), &journal.ModelRequest{Request: 1},
		&journal.Usage{Request: 1, Tokens: toolcrib.TokenUsage{InputTokens: 5}},
		&journal.Verdicts{Iteration: 1, Verdicts: []journal.Verdict{{CallID: "c1", Tool: "exec_shell", Rule: "pushes"}}},
		done())
	add(t, s, "run_parked", 0, opened("bob", "", ""), paused)
	below := partOf("run_all")
	below.Depth = 2
	add(t, s, "run_b", 0, below, &journal.TakenUp{Worker: "w", Epoch: 1}, done())
	add(t, s, "run_lead", 0, opened("ann", "", ""), &journal.ToolStarted{ID: "c1", Name: "spawn"},
		&journal.ChildStarted{ID: "c1", Run: "run_part", Agent: "helper"})
	add(t, s, "run_part", 0, partOf("run_lead"), &journal.TakenUp{Worker: "w", Epoch: 1}, paused)
	waits := journal.Pending{Kind: "approval", Run: "run_part", ApprovalID: "apr_1"}
	add(t, s, "run_lead", 3,
		&journal.ChildParked{ID: "c1", Run: "run_part", Status: toolcrib.StatusWaitingForApproval, Pending: waits},
		&journal.Paused{Status: toolcrib.StatusWaitingForApproval, Pending: waits})
	for _, run := range []toolcrib.RunID{"run_pruned", "run_removed"} {
		must(t, s.Put(t.Context(), run, "res_1", []byte("kept")))
		add(t, s, run, 0, opened("bob", "ses_2", ""), &journal.ModelRequest{Request: 1}, &journal.Usage{
			Request: 1,
			Tokens:  toolcrib.TokenUsage{InputTokens: 9, OutputTokens: 9}, Estimated: true, Sum: toolcrib.Usage{
				Requests: 1, InputTokens: 9, CachedInputTokens: 2, CacheWriteTokens: 3, OutputTokens: 9, ReasoningTokens: 4,
				TotalTokens: 18, CostUSD: 0.5, Estimated: true,
			},
		}, &journal.ToolResult{Name: "web_fetch", Status: toolcrib.ResultError}, &journal.Done{
			Status: toolcrib.StatusCompleted, StopReason: toolcrib.StopCompleted, Content: "done", Usage: toolcrib.Usage{
				Requests: 1, InputTokens: 9, CachedInputTokens: 2, CacheWriteTokens: 3, OutputTokens: 9, ReasoningTokens: 4,
				TotalTokens: 18, CostUSD: 0.5, Estimated: true,
			},
		})
	}
	for _, o := range []store.PruneOptions{
		{Runs: []toolcrib.RunID{"run_pruned"}, ContentOnly: true, By: "ann"},
		{Runs: []toolcrib.RunID{"run_removed"}, By: "ann"},
	} {
		_, err := s.Prune(t.Context(), o)
		must(t, err)
	}
	for _, o := range []store.Override{
		{Kind: store.OverrideTool, Name: "x", By: "ann"},
		{Kind: store.OverrideGroup, Name: "web", Enabled: true, By: "ann"},
	} {
		_, err := s.SetOverride(t.Context(), o)
		must(t, err)
	}
	for _, content := range []string{"earlier", "secret", "whole"} {
		must(t, s.ChangeFile(t.Context(), "secrets.age", func([]byte) ([]byte, error) { return []byte(content), nil }))
		must(t, s.ChangeFile(t.Context(), "memory/ann/"+content,
			func([]byte) ([]byte, error) { return []byte(content), nil }))
	}
	login(t, s, "ann")
	fillPeople(t, s)
}

func opened(user string, session toolcrib.SessionID, parent toolcrib.RunID) *journal.RunStarted {
	return &journal.RunStarted{
		Agent: toolcrib.Agent{Name: "default", Model: "small"}, Principal: toolcrib.Principal{User: user}, Session: session,
		Parent: parent,
	}
}

// partOf is how a run begins that another one has started.
func partOf(parent toolcrib.RunID) *journal.RunStarted {
	b := opened("ann", "", parent)
	b.Agent.Name, b.Depth, b.Above = "helper", 1, &journal.Above{TaintWrites: "ask"}
	return b
}

// fillPeople adds users, a group, tokens and remembered approvals.
func fillPeople(t *testing.T, s store.Store) {
	t.Helper()
	a, ctx := s.Access(), t.Context()
	ok := func(_ any, err error) {
		t.Helper()
		must(t, err)
	}
	ok(a.PutGroup(ctx, "readers", access.GroupEdit{Grants: &[]string{"read_file"}}, "root"))
	ok(a.AddUser(ctx, access.NewUser{User: access.User{Name: "ann", Roles: []string{"dev"}, Groups: []string{"readers"}}},
		"root"))
	ok(a.AddUser(ctx, access.NewUser{User: access.User{Name: "gone"}}, "root"))
	ok(a.RemoveUser(ctx, "gone", "root"))
	for _, id := range []string{"tok_1", "tok_2"} {
		ok(a.AddToken(ctx, access.Issued{Claims: access.Claims{
			Issuer: "root", Subject: "ann", Audience: "toolcrib", IssuedAt: 1, NotBefore: 1, Expires: 1 << 31, ID: id,
			Via: "cli", Scope: access.Scope{Tools: []string{"read_file"}},
		}}, "root"))
	}
	ok(a.RevokeToken(ctx, "tok_2", "root"))
	tool := store.Remembered{
		Scope: journal.RememberUser, User: "ann", Tool: "write_file", Effect: toolcrib.EffectIdempotentWrite, Run: "run_a",
		ApprovalID: "apr_1", By: "ann",
		Path: filepath.Join(t.TempDir(), "notes"), Folder: true, Workspace: t.TempDir(), FolderID: "7@1.000000001",
	}
	session := tool
	session.Scope, session.Session, session.Arguments = journal.RememberSession, "ses_1", []byte(`{"path":"a <b>.txt"}`)
	session.Path, session.Folder, session.Workspace, session.FolderID = "", false, "", ""
	for _, m := range []store.Remembered{tool, session} {
		_, _, err := s.Remember(ctx, m)
		must(t, err)
	}
	ok(s.Forget(ctx, "ann", session.MakeID(), "ann"))
}

// KeyOf returns the key of an event of a run of [Fill] in SQL.
func KeyOf(run, seq string) string {
	return "(((SELECT num FROM runs WHERE id = '" + run + "') << 32) + " + seq + ")"
}

// Edits returns changes of the rows of [Fill], by name, that a person with the database but without its
// keys could make, in the SQL of SQLite. Each must be found by VerifyAll.
func Edits() map[string]string {
	all := map[string]string{}
	for _, edits := range []map[string]string{
		eventEdits(), rowEdits(), keptEdits(), usageEdits(), peopleEdits(),
		fileEdits(),
	} {
		maps.Copy(all, edits)
	}
	return all
}

func fileEdits() map[string]string {
	set := func(what string) string { return "UPDATE files SET " + what + " WHERE name = 'secrets.age'" }
	return map[string]string{
		"file: content":           set("content = x'00'"),
		"file: content of others": set("content = (SELECT content FROM files WHERE name = 'memory/ann/secret')"),
		"file: at":                set("at = at + 1"),
		"file: seal":              set("seal = zeroblob(32)"),
		"file: name":              set("name = 'other'"),
		"file: removed":           "DELETE FROM files WHERE name = 'secrets.age'",
		"file: inserted":          "INSERT INTO files SELECT 'other', at, seal, content FROM files WHERE name = 'secrets.age'",
		"file: put from another":  "UPDATE files SET at = (SELECT at FROM files WHERE name = 'memory/ann/whole'), seal = (SELECT seal FROM files WHERE name = 'memory/ann/whole'), content = (SELECT content FROM files WHERE name = 'memory/ann/whole') WHERE name = 'secrets.age'",
	}
}

func eventEdits() map[string]string {
	set := func(what string) string {
		return "UPDATE events SET " + what + " WHERE key = " + KeyOf("run_done", "3")
	}
	row := editRow
	return map[string]string{
		"event: payload":           set("payload = replace(payload, 'content', 'CONTENT')"),
		"event: payload with hash": set("payload = '{}', payload_hash = x'44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a'"),
		"event: payload as blob":   set("payload = CAST(payload AS BLOB)"),
		"event: payload gone":      set("payload = NULL"),
		"event: kind":              set("kind = 'notice'"),
		"event: kind as blob":      set("kind = CAST(kind AS BLOB)"),
		"event: time":              set("time = time - 1"),
		"event: hash":              set("hash = zeroblob(32)"),
		"event: payload hash":      set("payload_hash = zeroblob(32)"),
		"event: removed":           "DELETE FROM events WHERE key = " + KeyOf("run_done", "3"),
		"event: first removed":     "DELETE FROM events WHERE key = " + KeyOf("run_done", "1"),
		"event: end cut":           "DELETE FROM events WHERE key = " + KeyOf("run_done", "6"),
		"event: end cut, row put": "DELETE FROM events WHERE key = " + KeyOf("run_done", "6") + "; " +
			row("last_seq = 5, last_hash = (SELECT hash FROM events WHERE key = "+KeyOf("run_done", "5")+")"),
		"event: all removed": "DELETE FROM events WHERE key BETWEEN " + KeyOf("run_done", "0") + " AND " +
			KeyOf("run_done", "99"),
		"event: two swapped": "UPDATE events SET key = key + 100 WHERE key = " + KeyOf("run_done", "2") +
			"; UPDATE events SET key = key - 1 WHERE key = " + KeyOf("run_done", "3") +
			"; UPDATE events SET key = key - 99 WHERE key = " + KeyOf("run_done", "102"),
		"event: inserted":             "INSERT INTO events SELECT key + 1, kind, time, payload, payload_hash, hash FROM events WHERE key = " + KeyOf("run_done", "6"),
		"event: inserted far behind":  "INSERT INTO events SELECT key + 1000, kind, time, payload, payload_hash, hash FROM events WHERE key = " + KeyOf("run_done", "6"),
		"event: inserted as number 0": "INSERT INTO events SELECT key - 6, kind, time, payload, payload_hash, hash FROM events WHERE key = " + KeyOf("run_done", "6"),
		"event: of no run":            "INSERT INTO events SELECT 999 << 32 | 1, kind, time, payload, payload_hash, hash FROM events WHERE key = " + KeyOf("run_done", "6"),
		"event: another run's":        "UPDATE events SET (kind, time, payload, payload_hash, hash) = (SELECT kind, time, payload, payload_hash, hash FROM events WHERE key = " + KeyOf("run_twin", "2") + ") WHERE key = " + KeyOf("run_done", "2"),
		"part: removed, all": "DELETE FROM events WHERE key BETWEEN " + KeyOf("run_part", "0") + " AND " +
			KeyOf("run_part", "99") + "; DELETE FROM runs WHERE id = 'run_part'",
		"part: of another run": "UPDATE runs SET parent_id = 'run_done' WHERE id = 'run_part'",
		"part: of none":        "UPDATE runs SET parent_id = '' WHERE id = 'run_part'",
		"part: another is named": "UPDATE events SET payload = replace(payload, 'run_part', 'run_twin') WHERE key = " +
			KeyOf("run_lead", "3"),
		"part: above it, removed": "DELETE FROM events WHERE key BETWEEN " + KeyOf("run_lead", "0") + " AND " +
			KeyOf("run_lead", "99") + "; DELETE FROM runs WHERE id = 'run_lead'",
		"said: removed": "DELETE FROM said",
		"said: added":   "INSERT INTO said SELECT num, zeroblob(16) FROM runs WHERE id = 'run_done'",
	}
}

// editRow changes the row of a run.
func editRow(what string) string { return "UPDATE runs SET " + what + " WHERE id = 'run_done'" }

func rowEdits() map[string]string {
	row := editRow
	return map[string]string{
		"run: tainted": row("taint = 'web_fetch'"),
		"run: removed": "DELETE FROM runs WHERE id = 'run_done'",
		"run: removed, all": "DELETE FROM events WHERE key BETWEEN " + KeyOf("run_done", "0") + " AND " +
			KeyOf("run_done", "99") + "; DELETE FROM runs WHERE id = 'run_done'",
		"run: renamed":          row("id = 'run_other'"),
		"runs: swapped names":   "UPDATE runs SET id = 'run_x' WHERE id = 'run_done'; UPDATE runs SET id = 'run_done' WHERE id = 'run_twin'; UPDATE runs SET id = 'run_twin' WHERE id = 'run_x'",
		"runs: swapped numbers": "UPDATE runs SET num = 99 WHERE id = 'run_done'; UPDATE runs SET num = num - 1 WHERE id = 'run_twin'; UPDATE runs SET num = num + 1 WHERE num = 98; UPDATE runs SET num = 3 WHERE num = 99",
		"run: another number": "UPDATE events SET key = key + (90 << 32) WHERE key BETWEEN " + KeyOf("run_done", "0") +
			" AND " + KeyOf("run_done", "99") + "; " + row("num = num + 90"),
		"run: inserted, empty":   "INSERT INTO runs (id, status, last_seq, last_hash, kept_seq, seal) VALUES ('run_new', 'completed', 0, x'', 0, x'')",
		"run: inserted as copy":  "INSERT INTO runs (num, id, status, ended_at, last_seq, last_hash, kept_seq, seal) SELECT 99, 'run_new', status, ended_at, last_seq, last_hash, kept_seq, seal FROM runs WHERE id = 'run_twin'; INSERT INTO events SELECT (99 << 32) + (key & 0xffffffff), kind, time, payload, payload_hash, hash FROM events WHERE key >> 32 = (SELECT num FROM runs WHERE id = 'run_twin')",
		"run: waits itself":      "UPDATE runs SET pending = json_remove(pending, '$.run_id') WHERE id = 'run_lead'",
		"run: status":            row("status = 'failed'"),
		"run: stop_reason":       row("stop_reason = 'budget'"),
		"run: agent":             row("agent = 'x'"),
		"run: model":             row("model = 'x'"),
		"run: user":              row("user = 'eve'"),
		"run: actor":             row("actor = 'eve'"),
		"run: session":           row("session_id = ''"),
		"run: parent":            row("parent_id = 'run_all'"),
		"run: driver":            row("driver = 'server'"),
		"run: workspace":         row("workspace = '/'"),
		"run: content":           row("content = 'other'"),
		"run: content as blob":   row("content = CAST(content AS BLOB)"),
		"run: truncated":         row("truncated = 1"),
		"run: truncated, odd":    row("truncated = 2"),
		"run: iterations":        row("iterations = iterations + 1"),
		"run: input_tokens":      row("input_tokens = 1"),
		"run: cached_tokens":     row("cached_tokens = 1"),
		"run: write_tokens":      row("write_tokens = 1"),
		"run: output_tokens":     row("output_tokens = 1"),
		"run: reason_tokens":     row("reason_tokens = 1"),
		"run: total_tokens":      row("total_tokens = 1"),
		"run: requests":          row("requests = requests + 1"),
		"run: cost_usd":          row("cost_usd = 0.01"),
		"run: estimated":         row("estimated = 1"),
		"run: no price":          row("unpriced = 1"),
		"run: no price, odd":     row("unpriced = 2"),
		"run: pending":           row("pending = '{}'"),
		"run: pending, spelling": "UPDATE runs SET pending = replace(pending, 'kind', 'Kind') WHERE id = 'run_parked'",
		"run: pending gone":      "UPDATE runs SET pending = NULL WHERE id = 'run_parked'",
		"run: error":             row(`error = '{"error":"x","message":""}'`),
		"run: created_at":        row("created_at = created_at + 1"),
		"run: ended_at":          row("ended_at = ended_at + 1"),
		"run: not ended":         row("ended_at = NULL"),
		"run: last_seq":          row("last_seq = 5"),
		"run: last_hash":         row("last_hash = zeroblob(32)"),
		"run: pruned_at":         row("pruned_at = 1"),
		"run: place":             row("kept_seq = 1"),
		"run: seal":              row("seal = zeroblob(32)"),
		"run: another's seal":    row("seal = (SELECT seal FROM runs WHERE id = 'run_twin')"),
	}
}

func keptEdits() map[string]string {
	return map[string]string{
		"pruned: status":          "UPDATE runs SET status = 'failed' WHERE id = 'run_pruned'",
		"pruned: content":         "UPDATE runs SET content = 'x' WHERE id = 'run_pruned'",
		"pruned: cost":            "UPDATE runs SET cost_usd = 1 WHERE id = 'run_pruned'",
		"pruned: when":            "UPDATE runs SET pruned_at = pruned_at + 1 WHERE id = 'run_pruned'",
		"pruned: not":             "UPDATE runs SET pruned_at = NULL WHERE id = 'run_pruned'",
		"pruned: event back":      "UPDATE events SET payload = '{}' WHERE key = " + KeyOf("run_pruned", "2"),
		"pruned: event cut":       "DELETE FROM events WHERE key = " + KeyOf("run_pruned", "3"),
		"pruned: result back":     "INSERT INTO contents (run_id, ref, size, hash) VALUES ('run_pruned', 'res_1', 0, x'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855')",
		"removed: is back":        "INSERT INTO runs (id, status, last_seq, last_hash, kept_seq, seal) VALUES ('run_removed', 'completed', 0, x'', 0, x'')",
		"removed: result":         "INSERT INTO contents (run_id, ref, size, hash) VALUES ('run_removed', 'res_1', 0, x'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855')",
		"kept: bytes":             "UPDATE content_pieces SET data = CAST(replace(data, 'whole', 'WHOLE') AS BLOB)",
		"kept: bytes with hash":   "UPDATE contents SET size = 0, hash = x'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855' WHERE ref = 'res_1'; DELETE FROM content_pieces WHERE key >> 32 = (SELECT num FROM contents WHERE ref = 'res_1')",
		"kept: removed":           "DELETE FROM content_pieces WHERE key >> 32 = (SELECT num FROM contents WHERE ref = 'res_2'); DELETE FROM contents WHERE ref = 'res_2'",
		"kept: names swapped":     "UPDATE contents SET ref = 'x' WHERE ref = 'res_1'; UPDATE contents SET ref = 'res_1' WHERE ref = 'res_2'; UPDATE contents SET ref = 'res_2' WHERE ref = 'x'",
		"kept: given to another":  "UPDATE contents SET run_id = 'run_done' WHERE ref = 'res_2'",
		"kept: inserted":          "INSERT INTO contents (run_id, ref, size, hash) VALUES ('run_done', 'res_9', 0, x'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855')",
		"kept: size":              "UPDATE contents SET size = size + 1 WHERE ref = 'res_1'",
		"kept: piece inserted":    "INSERT INTO content_pieces SELECT key + 1, x'00' FROM content_pieces LIMIT 1",
		"kept: piece of nothing":  "INSERT INTO content_pieces VALUES (99 << 32, x'00')",
		"kept: of no run, broken": "INSERT INTO contents (run_id, ref, size, hash) VALUES ('run_later', 'r', 5, zeroblob(32))",
		"system: payload":         "UPDATE system_events SET payload = replace(payload, 'ann', 'eve')",
		"system: anchor's hash":   "UPDATE system_events SET payload = json_set(payload, '$.hash', '00') WHERE kind = 'anchor'",
		"system: removed":         "DELETE FROM system_events WHERE seq = 2",
		"system: end cut":         "DELETE FROM system_events WHERE seq = (SELECT max(seq) FROM system_events)",
		"system: end cut, head":   "DELETE FROM system_events WHERE seq = (SELECT max(seq) FROM system_events); UPDATE system_head SET (seq, hash) = (SELECT seq, hash FROM system_events ORDER BY seq DESC LIMIT 1)",
		"system: end inserted":    "INSERT INTO system_events SELECT seq + 1, kind, time, payload, payload_hash, hash FROM system_events ORDER BY seq DESC LIMIT 1",
		"system: kind":            "UPDATE system_events SET kind = 'x' WHERE seq = 1",
		"system: time":            "UPDATE system_events SET time = 1 WHERE seq = 1",
		"system: as blob":         "UPDATE system_events SET payload = CAST(payload AS BLOB) WHERE seq = 1",
		"system: kind as blob":    "UPDATE system_events SET kind = CAST(kind AS BLOB) WHERE seq = 1",
		"system: emptied":         "DELETE FROM system_events; DELETE FROM system_head; DELETE FROM docs WHERE kind = 'override'; UPDATE counters SET value = 0",
		"head: number":            "UPDATE system_head SET seq = seq + 1",
		"head: seal":              "UPDATE system_head SET record = zeroblob(150)",
		"head: key":               "UPDATE system_head SET key_id = zeroblob(16)",
		"head: no key":            "UPDATE system_head SET key_id = x''",
		"head: gone":              "DELETE FROM system_head",
	}
}

func usageEdits() map[string]string {
	return map[string]string{
		"override: switched":        "UPDATE docs SET doc = json_set(doc, '$.enabled', json('true')) WHERE kind = 'override'",
		"override: who":             "UPDATE docs SET doc = json_set(doc, '$.by', 'eve') WHERE kind = 'override'",
		"override: when":            "UPDATE docs SET at = at + 1 WHERE kind = 'override'",
		"override: when, doc":       "UPDATE docs SET doc = json_set(doc, '$.at', '2020-01-01T00:00:00Z') WHERE kind = 'override'",
		"override: other tool":      "UPDATE docs SET id = 'tool y' WHERE id = 'tool x'",
		"override: other tool, doc": "UPDATE docs SET doc = json_set(doc, '$.name', 'y') WHERE kind = 'override' AND id = 'tool x'",
		"override: removed":         "DELETE FROM docs WHERE kind = 'override' AND id = 'tool x'",
		"override: inserted":        "INSERT INTO docs SELECT kind, 'tool exec_shell', user, 'tool exec_shell', 'tool exec_shell', at, gone, doc, last FROM docs WHERE kind = 'override' LIMIT 1",
		"override: counter":         "UPDATE counters SET value = value + 1",
		"override: counter gone":    "DELETE FROM counters",
		"counters: inserted":        "INSERT INTO counters VALUES ('x', 1)",
		"tool: calls":               "UPDATE usage SET calls = calls + 1 WHERE kind = 2 AND tool = 'web_fetch'",
		"tool: errors":              "UPDATE usage SET errors = errors + 1 WHERE kind = 2",
		"tool: refused":             "UPDATE usage SET refused = 1 WHERE kind = 2 AND tool = 'read_file'",
		"tool: duration":            "UPDATE usage SET duration_ms = 7 WHERE kind = 2 AND tool = 'read_file'",
		"tool: day":                 "UPDATE usage SET day = day + 1 WHERE kind = 2 AND tool = 'read_file'",
		"tool: user":                "UPDATE usage SET user = 'eve' WHERE kind = 2 AND tool = 'read_file'",
		"tool: name":                "UPDATE usage SET tool = 'x' WHERE kind = 2 AND tool = 'read_file'",
		"tool: removed":             "DELETE FROM usage WHERE kind = 2 AND tool = 'read_file'",
		"tool: inserted":            "INSERT INTO usage SELECT 2, '', 0, '', '', '', '', '', 'x', '', '', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0",
		"usage: day":                "UPDATE usage SET day = day + 1 WHERE kind = 1",
		"usage: run":                "UPDATE usage SET run_id = 'run_x' WHERE kind = 4",
		"usage: provider":           "UPDATE usage SET provider = 'x' WHERE kind = 1",
		"usage: model":              "UPDATE usage SET model = 'x' WHERE kind = 1",
		"usage: user":               "UPDATE usage SET user = 'eve' WHERE kind = 4",
		"usage: agent":              "UPDATE usage SET agent = 'x' WHERE kind = 1",
		"usage: session":            "UPDATE usage SET session_id = 'x' WHERE kind = 4",
		"usage: runs":               "UPDATE usage SET runs = runs + 1 WHERE kind = 1",
		"session: newest run":       "UPDATE docs SET last = last + 1 WHERE kind = 'session'",
		"override: newest run":      "UPDATE docs SET last = 1 WHERE kind = 'override'",
		"usage: requests":           "UPDATE usage SET requests = requests + 1 WHERE kind = 4",
		"usage: input_tokens":       "UPDATE usage SET input_tokens = 0 WHERE kind = 4",
		"usage: cached_tokens":      "UPDATE usage SET cached_tokens = 0 WHERE kind = 4",
		"usage: write_tokens":       "UPDATE usage SET write_tokens = 0 WHERE kind = 4",
		"usage: output_tokens":      "UPDATE usage SET output_tokens = 0 WHERE kind = 4",
		"usage: reason_tokens":      "UPDATE usage SET reason_tokens = 0 WHERE kind = 4",
		"usage: cost":               "UPDATE usage SET nano_usd = nano_usd - 1 WHERE kind = 4",
		"usage: estimated":          "UPDATE usage SET estimated = 0 WHERE kind = 4",
		"usage: no price":           "UPDATE usage SET unpriced = 0 WHERE kind = 4",
		"usage: marks":              "UPDATE usage SET estimated = 16 WHERE kind = 4",
		"usage: removed":            "DELETE FROM usage WHERE kind = 4",
		"usage: inserted":           "INSERT INTO usage SELECT kind, user, day, 'run_x', session_id, agent, provider, model, '', '', '', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 FROM usage WHERE kind = 4 LIMIT 1",
		"spent: requests":           "UPDATE usage SET requests = requests - 1 WHERE kind = 1 AND user = 'bob' AND requests > 0",
		"spent: tokens":             "UPDATE usage SET input_tokens = input_tokens + 1 WHERE kind = 1",
		"spent: cost":               "UPDATE usage SET nano_usd = 7 WHERE kind = 1",
		"spent: day":                "UPDATE usage SET day = day - 1 WHERE kind = 4",
		"spent: user":               "UPDATE usage SET user = 'eve' WHERE kind = 1 AND user = 'bob' AND requests > 0",
		"spent: removed":            "DELETE FROM usage WHERE kind = 1",
		"spent: inserted":           "INSERT INTO usage SELECT 1, 'eve', 1, '', '', '', '', '', '', '', '', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0",
		"rule: calls":               "UPDATE usage SET calls = calls + 1 WHERE kind = 3",
		"rule: name":                "UPDATE usage SET rule = 'x' WHERE kind = 3",
		"rule: decision":            "UPDATE usage SET decision = 'allow' WHERE kind = 3",
		"rule: tool":                "UPDATE usage SET tool = 'x' WHERE kind = 3",
		"rule: day":                 "UPDATE usage SET day = 1 WHERE kind = 3",
		"rule: last":                "UPDATE usage SET last = 1 WHERE kind = 3",
		"rule: removed":             "DELETE FROM usage WHERE kind = 3",
		"rule: inserted":            "INSERT INTO usage SELECT 3, '', 1, '', '', '', '', '', 'x', 'x', '', 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1",
		"session: removed":          "DELETE FROM docs WHERE id = 'ses_1'",
		"session: renamed":          "UPDATE docs SET doc = json_set(doc, '$.name', 'x') WHERE kind = 'session' AND id = 'ses_1'",
		"session: given away":       "UPDATE docs SET user = 'eve' WHERE id = 'ses_1'",
		"session: another ID":       "UPDATE docs SET id = 'ses_2' WHERE id = 'ses_1'",
		"session: when":             "UPDATE docs SET at = 1 WHERE kind = 'session'",
		"session: inserted":         `INSERT INTO docs VALUES ('session', 'ses_9', 'eve', '', '', 1, 0, '{"session_id":"ses_9","user":"eve","name":""}', 0)`,
	}
}

func peopleEdits() map[string]string {
	return map[string]string{
		"user: rights":            `UPDATE docs SET doc = replace(doc, '"roles":["dev"]', '"roles":["ops"]') WHERE kind = 'user'`,
		"user: admin":             "UPDATE docs SET doc = json_set(doc, '$.admin', json('true')) WHERE kind = 'user'",
		"user: removed":           "UPDATE docs SET gone = 1 WHERE kind = 'user' AND id = 'ann'",
		"user: back":              "UPDATE docs SET gone = 0 WHERE kind = 'user'",
		"user: renamed":           "UPDATE docs SET id = 'eve' WHERE kind = 'user' AND id = 'ann'",
		"user: looks":             "UPDATE docs SET look = 'x' WHERE kind = 'user' AND id = 'ann'",
		"user: folded":            "UPDATE docs SET folded = 'x' WHERE kind = 'user' AND id = 'ann'",
		"user: gone":              "DELETE FROM docs WHERE kind = 'user' AND id = 'ann'",
		"user: inserted":          "INSERT INTO docs SELECT kind, 'eve', user, 'eve', 'eve', at, gone, doc, last FROM docs WHERE kind = 'user' AND id = 'ann' LIMIT 1",
		"group: grants":           "UPDATE docs SET doc = replace(doc, 'read_file', 'exec_shell') WHERE kind = 'group'",
		"group: renamed":          "UPDATE docs SET id = 'x' WHERE kind = 'group'",
		"group: looks":            "UPDATE docs SET look = 'x' WHERE kind = 'group'",
		"group: gone":             "DELETE FROM docs WHERE kind = 'group'",
		"token: not revoked":      "UPDATE docs SET gone = 0 WHERE kind = 'token'",
		"token: not revoked, doc": "UPDATE docs SET doc = json_remove(doc, '$.revoked_at', '$.revoked_by'), gone = 0 WHERE kind = 'token'",
		"token: scope":            "UPDATE docs SET doc = json_remove(doc, '$.claims.scope.tools') WHERE kind = 'token'",
		"token: user":             "UPDATE docs SET user = 'eve' WHERE kind = 'token'",
		"token: ID":               "UPDATE docs SET id = 'tok_x' WHERE id = 'tok_1'",
		"token: gone":             "DELETE FROM docs WHERE id = 'tok_1'",
		"token: inserted":         "INSERT INTO docs SELECT kind, 'tok_x', user, folded, look, at, gone, doc, last FROM docs WHERE id = 'tok_1'",
		"access: counter":         "UPDATE counters SET value = value - 1 WHERE name = 'access'",
		"remembered: scope":       "UPDATE docs SET doc = json_remove(json_set(doc, '$.scope', 'user'), '$.session_id') WHERE kind = 'remembered'",
		"remembered: user":        "UPDATE docs SET user = 'eve' WHERE kind = 'remembered'",
		"remembered: user, doc":   "UPDATE docs SET doc = json_set(doc, '$.user', 'eve') WHERE kind = 'remembered'",
		"remembered: tool":        "UPDATE docs SET doc = json_set(doc, '$.tool', 'x') WHERE kind = 'remembered'",
		"remembered: any":         "UPDATE docs SET doc = json_remove(doc, '$.arguments') WHERE kind = 'remembered'",
		"remembered: arguments":   "UPDATE docs SET doc = json_set(doc, '$.arguments', json('{}')) WHERE kind = 'remembered'",
		"remembered: path":        "UPDATE docs SET doc = json_set(doc, '$.path', '/w') WHERE kind = 'remembered'",
		"remembered: folder":      "UPDATE docs SET doc = json_set(doc, '$.folder', json('true')) WHERE kind = 'remembered'",
		"remembered: workspace":   "UPDATE docs SET doc = json_set(doc, '$.workspace', '/elsewhere') WHERE kind = 'remembered'",
		"remembered: folder id":   "UPDATE docs SET doc = json_set(doc, '$.folder_id', 'x') WHERE kind = 'remembered'",
		"remembered: effect":      "UPDATE docs SET doc = json_set(doc, '$.effect', 'read_only') WHERE kind = 'remembered'",
		"remembered: run":         "UPDATE docs SET doc = json_set(doc, '$.run_id', 'x') WHERE kind = 'remembered'",
		"remembered: approval":    "UPDATE docs SET doc = json_set(doc, '$.approval_id', 'x') WHERE kind = 'remembered'",
		"remembered: who":         "UPDATE docs SET doc = json_set(doc, '$.by', 'eve') WHERE kind = 'remembered'",
		"remembered: when":        "UPDATE docs SET at = 1 WHERE kind = 'remembered'",
		"remembered: when, doc":   "UPDATE docs SET doc = json_set(doc, '$.at', '2020-01-01T00:00:00Z') WHERE kind = 'remembered'",
		"remembered: holds again": "UPDATE docs SET gone = 0, doc = json_remove(doc, '$.revoked_at', '$.revoked_by') WHERE kind = 'remembered'",
		"remembered: who revoked": "UPDATE docs SET doc = json_set(doc, '$.revoked_by', 'eve') WHERE kind = 'remembered'",
		"remembered: gone":        "DELETE FROM docs WHERE kind = 'remembered'",
		"remembered: ID":          "UPDATE docs SET id = 'rem_x' WHERE kind = 'remembered' AND gone = 0",
		"remembered: inserted":    "INSERT INTO docs SELECT kind, 'rem_x', user, folded, look, at, gone, doc, last FROM docs WHERE kind = 'remembered' LIMIT 1",
		"remembered: counter":     "UPDATE counters SET value = value - 1 WHERE name = 'remembered'",
		"schema: version":         "UPDATE state SET version = version + 1",
		"schema: oldest":          "UPDATE state SET oldest = oldest - 1",
		"schema: seal":            "UPDATE state SET seal = zeroblob(32)",
		"user: from a session":    "UPDATE docs SET kind = 'user' WHERE kind = 'session' AND id = 'ses_1'",
		"remembered: in force":    "UPDATE docs SET gone = 0 WHERE kind = 'remembered'",
	}
}
