package sqlite_test

import (
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/toolcribtest/storetest"
)

// Tables and triggers of others are found: they could change what is written.
func TestTamperedSchema(t *testing.T) {
	path := finished(t)
	for name, change := range map[string]string{
		"trigger": "CREATE TRIGGER x AFTER INSERT ON events BEGIN UPDATE runs SET user = 'eve'; END",
		"table":   "CREATE TABLE x (a)",
		"view":    "DROP VIEW journal; CREATE VIEW other AS SELECT 1",
		"index":   "DROP INDEX runs_user",
	} {
		path := copied(t, path)
		execAt(t, path, change)
		if verdict, detail := judge(t.Context(), path, filepath.Join(filepath.Dir(path), "keys"), rows{}); verdict != byChain {
			t.Errorf("%s: %s: %s", name, verdict, detail)
		}
	}
}

// Each change of rows is found, and is one.
func TestTamperedRows(t *testing.T) {
	path := finished(t)
	before, err := readRows(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for name, change := range storetest.Edits() {
		t.Run(name, func(t *testing.T) {
			path := copied(t, path)
			execAt(t, path, change)
			after, err := readRows(t.Context(), path)
			if err != nil || after == before {
				t.Fatalf("it has changed nothing (error %v)", err)
			}
			verdict, detail := judge(t.Context(), path, filepath.Join(filepath.Dir(path), "keys"), before)
			if verdict != byChain && verdict != byRead {
				t.Errorf("%s: %s", verdict, detail)
			}
			if strings.ContainsAny(detail, "{}") {
				t.Errorf("it is not said in words: %s", detail)
			}
			counts[verdict]++
		})
	}
	report(t, counts)
}

// An attacker who can compute the hashes, but has no key, rewrites a run, which its anchor reveals;
// with a rewritten anchor, the seal reveals it.
func TestTamperedWithRightHashes(t *testing.T) {
	path := copied(t, finished(t))
	db := outside(t, path)
	rechain(t, db, "events", "run_twin", "SELECT key, kind, time, replace(payload, 'ready', 'READY') FROM events WHERE key >> 32 = (SELECT num FROM runs WHERE id = 'run_twin') ORDER BY key")
	for _, change := range []string{
		"UPDATE runs SET content = 'READY', last_hash = (SELECT hash FROM events WHERE key = " + storetest.KeyOf("run_twin", "3") + ") WHERE id = 'run_twin'",
	} {
		if _, err := db.ExecContext(t.Context(), change); err != nil {
			t.Fatal(err)
		}
	}
	s := openAt(t, path, readOnly())
	_, err := s.VerifyAll(t.Context())
	wantBroken(t, err, "run_twin breaks at event 3: the anchor in the system journal has another hash")

	var hash []byte
	if err := db.QueryRowContext(t.Context(), "SELECT last_hash FROM runs WHERE id = 'run_twin'").Scan(&hash); err != nil {
		t.Fatal(err)
	}
	rechain(t, db, "system_events", string(store.SystemChain), `SELECT seq, kind, time, CASE WHEN kind = 'anchor' AND payload ->> 'run_id' = 'run_twin'
		THEN json_set(payload, '$.hash', '`+hex.EncodeToString(hash)+`') ELSE payload END FROM system_events ORDER BY seq`)
	if _, err := db.ExecContext(t.Context(), "UPDATE system_head SET hash = (SELECT hash FROM system_events ORDER BY seq DESC LIMIT 1)"); err != nil {
		t.Fatal(err)
	}
	_, err = s.Verify(t.Context(), "run_twin")
	wantBroken(t, err, "its row is not as it was sealed")
	_, err = s.VerifyAll(t.Context())
	wantBroken(t, err, "not sealed with this key")
}

// rechain rewrites rows of a chain, with payloads from query.
func rechain(t *testing.T, db *sql.DB, table, run, query string) {
	t.Helper()
	type event struct {
		key, time int64
		kind      toolcrib.Kind
		payload   string
	}
	var events []event
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var e event
		if err := rows.Scan(&e.key, &e.kind, &e.time, &e.payload); err != nil {
			t.Fatal(err)
		}
		if !json.Valid([]byte(e.payload)) {
			t.Fatal(e.payload)
		}
		events = append(events, e)
	}
	if err := rows.Err(); err != nil || len(events) == 0 {
		t.Fatalf("%d events, error %v", len(events), err)
	}
	key := map[string]string{"events": "key", "system_events": "seq"}[table]
	var prev []byte
	for i, e := range events {
		hash := journal.PayloadHash([]byte(e.payload))
		prev = journal.ChainHash(prev, toolcrib.RunID(run), toolcrib.Seq(i+1), e.kind, time.UnixMicro(e.time), hash)
		_, err := db.ExecContext(t.Context(), "UPDATE "+table+" SET payload = ?, payload_hash = ?, hash = ? WHERE "+key+" = ?", e.payload, hash, prev, e.key)
		if err != nil {
			t.Fatal(err)
		}
	}
}
