package cli_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// house is a data folder that was made by the command line, with an entry of each kind
// that it makes, and the command line itself.
type house struct {
	t     *testing.T
	dir   string
	env   []string
	edits int
}

func newHouse(t *testing.T) *house {
	h := &house{t: t, dir: t.TempDir()}
	h.env = append(os.Environ(), "HOME="+h.dir, "NO_COLOR=1")
	for name, text := range map[string]string{
		"c.yaml":      "data_dir: ./data\nproviders: {demo: {type: script, file: demo.yaml}}\nagents: {default: {model: demo/x}}\n",
		"demo.yaml":   "- {tool_calls: [{name: write_file, arguments: {path: a.txt, content: x}}, {name: read_file, arguments: {path: demo.yaml}}]}\n- {text: done}\n",
		"f/.mcp.json": "{}",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(h.dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h.do(0, "run", "--approve", "all", "go")
	h.do(0, "--as", "guest", "run", "--approve", "deny", "go")
	if err := os.Remove(filepath.Join(h.dir, "a.txt")); err != nil {
		t.Fatal(err)
	}
	h.do(3, "run", "go") // stays parked
	h.do(3, "run", "go")
	h.do(0, "runs", "cancel", "last")
	h.do(0, "tools", "disable", "verify")
	h.do(0, "tools", "reset", "verify")
	h.do(0, "users", "add", "ann")
	h.do(0, "tokens", "create", "--user", "ann")
	// The digest is of the content above, {} in .mcp.json.
	h.do(0, "trust", "f", "--digest", "sha256:6ea2594636c1491b749c6395755ec3f276b08fcba5356cc14102110668ec0a40")
	h.do(0, "trust", "--revoke", "f")
	h.do(0, "tools", "call", "read_file", "--args", `{"path":"demo.yaml"}`)
	h.do(0, "runs", "prune", "--content", "--yes", "last")
	h.do(0, "tools", "call", "read_file", "--args", `{"path":"demo.yaml"}`)
	h.do(0, "runs", "prune", "--yes", "last")
	return h
}

// do runs the command line, wants an exit code, and returns standard output.
func (h *house) do(want int, args ...string) []byte {
	h.t.Helper()
	cmd := exec.Command("toolcrib", append([]string{"--config", "c.yaml"}, args...)...)
	cmd.Dir, cmd.Env = h.dir, h.env
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if got := exitCode(cmd.Run()); got != want {
		h.t.Fatalf("toolcrib %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got, want, &out, &stderr)
	}
	return out.Bytes()
}

// export writes the audit log to log.ndjson.
func (h *house) export() {
	h.t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, "log.ndjson"), h.do(0, "audit", "export", "--content"), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// verify is what audit verify says: what it finds; none = it holds.
func (h *house) verify(args ...string) []store.ChainError {
	h.t.Helper()
	cmd := exec.Command("toolcrib", append([]string{"--config", "c.yaml", "audit", "verify", "--json"}, args...)...)
	cmd.Dir, cmd.Env = h.dir, h.env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var views []struct {
		OK     bool   `json:"ok"`
		Detail string `json:"detail"`
	}
	if json.Unmarshal(out, &views) != nil {
		h.t.Fatalf("audit verify %v: %v: %s%s", args, err, out, &stderr)
	}
	var found []store.ChainError
	for _, v := range views {
		if !v.OK {
			found = append(found, named(v.Detail))
		}
	}
	if want := map[bool]int{true: 1, false: 0}[len(found) > 0]; exitCode(err) != want {
		h.t.Fatalf("audit verify %v: exit code %d with %d problems", args, exitCode(err), len(found))
	}
	return found
}

// tried is how many edits are put before the command itself; the others, before what it
// calls: starting a process for each would take minutes.
const tried = 12

// exportProblems are what is found in an export.
func (h *house) exportProblems(data []byte) []store.ChainError {
	h.t.Helper()
	if h.edits++; h.edits <= tried {
		if err := os.WriteFile(filepath.Join(h.dir, "hostile.ndjson"), data, 0o600); err != nil {
			h.t.Fatal(err)
		}
		return h.verify("hostile.ndjson")
	}
	text, err := os.ReadFile(filepath.Join(h.dir, "data", "keys"))
	if err != nil {
		h.t.Fatal(err)
	}
	keys, err := store.ParseKeys(text)
	if err != nil {
		h.t.Fatal(err)
	}
	_, err = store.VerifyExport(bytes.NewReader(data), keys, store.Head{})
	var broken *store.ChainError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &broken):
		h.t.Fatal(err)
	}
	return []store.ChainError{named(broken.Error())}
}

// storeProblems are what is found in the database.
func (h *house) storeProblems(path string) []store.ChainError {
	h.t.Helper()
	if h.edits++; h.edits <= tried {
		return h.verify()
	}
	s, err := sqlite.Open(h.t.Context(), path, sqlite.Options{ReadOnly: true})
	if err != nil {
		h.t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // only read
	all, err := s.VerifyAll(h.t.Context())
	if err != nil && len(all.Problems) == 0 {
		h.t.Fatal(err)
	}
	var found []store.ChainError
	for _, p := range all.Problems {
		found = append(found, named(p.Error()))
	}
	return found
}

// named reads the chain and the event that a problem names, as a person does.
func named(text string) store.ChainError {
	e := store.ChainError{What: text}
	if m := regexp.MustCompile(`the chain of (\S+) breaks at event (\d+)`).FindStringSubmatch(text); m != nil {
		_, _ = fmt.Sscan(m[1], &e.Run)
		_, _ = fmt.Sscan(m[2], &e.Seq)
	} else if m := regexp.MustCompile(`run (\S+):`).FindStringSubmatch(text); m != nil {
		_, _ = fmt.Sscan(m[1], &e.Run)
	}
	return e
}

// exported is a line of an export.
type exported struct {
	raw []byte
	store.ExportEvent
}

func (h *house) exported(file string) []exported {
	data, err := os.ReadFile(filepath.Join(h.dir, file))
	if err != nil {
		h.t.Fatal(err)
	}
	var lines []exported
	for raw := range bytes.Lines(data) {
		e := exported{raw: raw}
		_ = json.Unmarshal(raw, &e.ExportEvent) // the first and the last line are no events
		if e.Run == "" {
			e.Run = store.SystemChain
		}
		lines = append(lines, e)
	}
	return lines
}

// TestAudit_HostileExport: whatever is changed, removed, put elsewhere or cut off in an
// exported audit log, of each kind of entry, is named, with run and event.
func TestAudit_HostileExport(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.export()
	if found := h.verify("log.ndjson"); found != nil {
		t.Fatalf("what nobody touched: %v", found)
	}
	lines := h.exported("log.ndjson")
	seen, tried := map[string]bool{}, 0
	for i := 1; i < len(lines)-1; i++ {
		e := lines[i]
		where := "of a run"
		if e.Run == store.SystemChain {
			where = "of the system journal"
		}
		if kind := string(e.Kind) + where; seen[kind] {
			continue
		} else {
			seen[kind] = true
		}
		for name, edit := range map[string]func(e *store.ExportEvent){
			"the content":           func(e *store.ExportEvent) { *e.Payload = strings.Replace(*e.Payload, "{", `{"x":1,`, 1) },
			"the content, its hash": func(e *store.ExportEvent) { e.PayloadHash = strings.Repeat("00", 32) },
			"the kind":              func(e *store.ExportEvent) { e.Kind = "notice_2" },
			"the time":              func(e *store.ExportEvent) { e.Time++ },
			"the number":            func(e *store.ExportEvent) { e.Seq++ },
			"the hash":              func(e *store.ExportEvent) { e.Hash = strings.Repeat("11", 32) },
			"the run that it is of": func(e *store.ExportEvent) { e.Run = "run_other" },
		} {
			changed := e.ExportEvent
			if changed.Run == store.SystemChain {
				changed.Run = ""
			}
			if e.Payload == nil && name == "the content" {
				continue // pruned
			}
			if tried++; testing.Short() && tried%8 != 0 {
				continue // in the order of a map: others each time
			}
			if e.Payload != nil {
				text := *e.Payload
				changed.Payload = &text
			}
			edit(&changed)
			raw, err := json.Marshal(changed)
			if err != nil {
				t.Fatal(err)
			}
			h.wants(name+" of a "+string(e.Kind)+" "+where, e, replaced(lines, i, append(raw, '\n')))
		}
		h.wants("no "+string(e.Kind)+" "+where, e, slices.Delete(slices.Clone(lines), i, i+1))
		h.wants("two "+string(e.Kind)+" "+where, e, slices.Insert(slices.Clone(lines), i, e))
		if next := lines[i+1]; next.Run == e.Run && next.Hash != "" {
			swapped := slices.Clone(lines)
			swapped[i], swapped[i+1] = next, e
			h.wants("a later "+string(e.Kind)+" "+where, e, swapped)
		}
		h.wants("cut off behind a "+string(e.Kind)+" "+where, e, lines[:i+1])
	}
	if len(seen) < 25 {
		t.Errorf("only %d kinds of entries were tried", len(seen))
	}
	// The frame of it: its beginning, its end, what follows the end, a whole run.
	frame := func(name string, all []exported) { h.wants(name, exported{}, all) }
	frame("no beginning", lines[1:])
	frame("no end", lines[:len(lines)-1])
	frame("more behind the end", append(slices.Clone(lines), lines[len(lines)-1]))
	frame("another end", replaced(lines, len(lines)-1, bytes.Replace(lines[len(lines)-1].raw, []byte(`"runs":`), []byte(`"runs":1`), 1)))
	run := lines[len(lines)-2].Run
	frame("without a run", slices.DeleteFunc(slices.Clone(lines), func(e exported) bool { return e.Run == run }))
	// Written again from the beginning, with right hashes: the keys tell.
	other := newHouse(t)
	other.export()
	frame("of another house", other.exported("log.ndjson"))
}

func replaced(lines []exported, i int, raw []byte) []exported {
	lines = slices.Clone(lines)
	lines[i].raw = raw
	return lines
}

// wants writes an export and wants it refused, with the entry named; no entry = any
// problem will do.
func (h *house) wants(what string, e exported, lines []exported) {
	h.t.Helper()
	var all []byte
	line := 0 // of the entry that is said to be of another run
	for i, l := range lines {
		all = append(all, l.raw...)
		if line == 0 && bytes.Contains(l.raw, []byte(`"run_other"`)) {
			line = i + 1
		}
	}
	found := h.exportProblems(all)
	switch {
	case found == nil:
		h.t.Errorf("%s: it is not found", what)
	case e.Run == "" || strings.Contains(found[0].What, fmt.Sprintf("run_other breaks at event 1: line %d", line)):
	case found[0].Run != e.Run || found[0].Seq+1 < e.Seq || found[0].Seq > e.Seq+1:
		h.t.Errorf("%s (%s, event %d): it is told as %q", what, e.Run, e.Seq, found[0].What)
	}
}

// TestAudit_HostileDatabase: the same in the database, where somebody has the file and
// SQLite, and not the keys. Of what is put back to an older state, all of it, only a
// kept head tells: that is in the scripts.
func TestAudit_HostileDatabase(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	if found := h.verify(); found != nil {
		t.Fatalf("what nobody touched: %v", found)
	}
	path := filepath.Join(h.dir, "data", "toolcrib.db")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rows := h.rows(path)
	if len(rows) < 25 {
		t.Errorf("only %d kinds of entries are tried", len(rows))
	}
	tried := 0
	for _, r := range rows {
		table, key := "events", "key"
		if r.run == store.SystemChain {
			table, key = "system_events", "seq"
		}
		at := fmt.Sprintf(" WHERE %s = %d", key, r.key)
		edits := map[string]string{
			"the kind":    "UPDATE " + table + " SET kind = 'notice_2'" + at,
			"the time":    "UPDATE " + table + " SET time = time + 1" + at,
			"the hash":    "UPDATE " + table + " SET hash = zeroblob(32)" + at,
			"its removal": "DELETE FROM " + table + at,
			"its place": fmt.Sprintf("UPDATE %[1]s SET %[2]s = -1 WHERE %[2]s = %[3]d; UPDATE %[1]s SET %[2]s = %[3]d WHERE %[2]s = %[4]d; UPDATE %[1]s SET %[2]s = %[4]d WHERE %[2]s = -1",
				table, key, r.key, r.key+1),
			"what comes after it": fmt.Sprintf("DELETE FROM %[1]s WHERE %[2]s > %[3]d AND %[2]s <= %[4]d", table, key, r.key, r.last),
		}
		if !r.pruned {
			edits["the content"] = "UPDATE " + table + " SET payload = replace(payload, '{', '{\"x\":1,')" + at
			edits["the content and its hash"] = "UPDATE " + table + " SET payload = replace(payload, '{', '{\"x\":1,'), payload_hash = zeroblob(32)" + at
		}
		for what, statement := range edits {
			if r.key == r.last && (what == "its place" || what == "what comes after it") {
				continue // there is nothing after it
			}
			if tried++; testing.Short() && tried%8 != 0 {
				continue // in the order of a map: others each time
			}
			h.put(path, whole)
			h.sql(path, statement)
			what += " of a " + r.kind
			found := h.storeProblems(path)
			near := func(e store.ChainError) bool {
				return e.Run == r.run && e.Seq <= r.seq+1 && e.Seq+1 >= r.seq
			}
			if !slices.ContainsFunc(found, near) {
				t.Errorf("%s (%s, event %d): it is told as %v", what, r.run, r.seq, found)
			}
		}
	}
}

// row is one event of the database.
type row struct {
	run       toolcrib.RunID
	kind      string
	key, last int64 // of it, and of the last event of its chain
	seq       toolcrib.Seq
	pruned    bool
}

// rows are the first events of each kind.
func (h *house) rows(path string) []row {
	db := h.open(path)
	defer db.Close() //nolint:errcheck // only read
	found, err := db.Query(`SELECT r.id, e.kind, min(e.key), e.key & 0xffffffff, (SELECT max(key) FROM events l WHERE l.key >> 32 = e.key >> 32), e.payload IS NULL
		FROM events e JOIN runs r ON r.num = e.key >> 32 GROUP BY e.kind, e.payload IS NULL
		UNION ALL SELECT 'system', kind, min(seq), seq, (SELECT max(seq) FROM system_events), 0 FROM system_events GROUP BY kind`)
	if err != nil {
		h.t.Fatal(err)
	}
	defer found.Close() //nolint:errcheck // only read
	var rows []row
	for found.Next() {
		var r row
		if err := found.Scan(&r.run, &r.kind, &r.key, &r.seq, &r.last, &r.pruned); err != nil {
			h.t.Fatal(err)
		}
		rows = append(rows, r)
	}
	if err := found.Err(); err != nil {
		h.t.Fatal(err)
	}
	return rows
}

func (h *house) open(path string) *sql.DB {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		h.t.Fatal(err)
	}
	return db
}

// put puts the database back.
func (h *house) put(path string, whole []byte) {
	for _, name := range []string{path + "-wal", path + "-shm"} {
		_ = os.Remove(name) // mostly it does not exist
	}
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) sql(path, statement string) {
	db := h.open(path)
	if _, err := db.Exec(statement); err != nil {
		h.t.Fatalf("%s: %v", statement, err)
	}
	if err := db.Close(); err != nil {
		h.t.Fatal(err)
	}
}
