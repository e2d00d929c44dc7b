package cli_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// cmdSpoil overwrites the last page of a database with garbage, or cuts it and a
// part of the one before off: spoil [-cut] FILE.
func cmdSpoil(ts *testscript.TestScript, _ bool, args []string) {
	const page = 4096
	path := ts.MkAbs(args[len(args)-1])
	info, err := os.Stat(path)
	ts.Check(err)
	if args[0] == "-cut" {
		ts.Check(os.Truncate(path, info.Size()-page-page/2))
		return
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	ts.Check(err)
	_, err = f.WriteAt(bytes.Repeat([]byte{0xa5}, page), info.Size()-page)
	ts.Check(err)
	ts.Check(f.Close())
}

// cmdFileLimit runs a program that may write no file larger than so many units of
// 512 or 1,024 bytes, as the shell counts, and wants an exit code: filelimit UNITS
// CODE toolcrib ARGS. The limit holds for root too.
func cmdFileLimit(ts *testscript.TestScript, _ bool, args []string) {
	line := "ulimit -f " + args[0] + " && exec"
	for _, word := range args[2:] {
		line += " '" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	cmdExits(ts, false, []string{args[1], "sh", "-c", line})
}

// cmdBigFile makes a text file: bigfile FILE LINES.
func cmdBigFile(ts *testscript.TestScript, _ bool, args []string) {
	lines, err := strconv.Atoi(args[1])
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Repeat(strings.Repeat("x", 79)+"\n", lines)), 0o600))
}

// cmdAheadClock copies the runs of a data folder to a new one as a machine would
// have kept them whose clock is a day ahead: aheadclock FROM TO.
func cmdAheadClock(ts *testscript.TestScript, _ bool, args []string) {
	const ahead = 24 * time.Hour
	ctx := context.Background()
	from, err := sqlite.Open(ctx, filepath.Join(ts.MkAbs(args[0]), "toolcrib.db"), sqlite.Options{})
	ts.Check(err)
	defer from.Close()
	to, err := sqlite.Open(ctx, filepath.Join(ts.MkAbs(args[1]), "toolcrib.db"), sqlite.Options{
		Now: func() time.Time { return time.Now().Add(ahead) },
	})
	ts.Check(err)
	defer to.Close()
	page, err := from.Runs(ctx, store.Filter{})
	ts.Check(err)
	for _, rec := range page.Runs {
		var events []toolcrib.Event
		for e, err := range from.Read(ctx, rec.ID, 0) {
			ts.Check(err)
			events = append(events, toolcrib.Event{Time: e.Time.Add(ahead), Body: e.Body})
		}
		ts.Check(to.Append(ctx, rec.ID, 0, events...))
	}
}

// cmdBinary makes a file of bytes, given in base64: binary FILE BASE64.
func cmdBinary(ts *testscript.TestScript, _ bool, args []string) {
	data, err := base64.StdEncoding.DecodeString(args[1])
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), data, 0o600))
}

// cmdForge puts a decision for what a run waits for behind its last event, with right
// hashes: forge FILE RUN.
func cmdForge(ts *testscript.TestScript, _ bool, args []string) {
	db, err := sql.Open("sqlite", ts.MkAbs(args[0]))
	ts.Check(err)
	defer db.Close()
	var num, seq int64
	var hash []byte
	body := &journal.ConfirmationResolved{Decision: journal.DecisionApprove, By: "ann"}
	ts.Check(db.QueryRow("SELECT num, last_seq, last_hash, pending ->> 'approval_id', pending ->> 'digest' FROM runs WHERE id = ?", args[1]).
		Scan(&num, &seq, &hash, &body.ApprovalID, &body.Digest))
	payload, err := journal.Encode(body)
	ts.Check(err)
	at := time.Now()
	payloadHash := journal.PayloadHash(payload)
	hash = journal.ChainHash(hash, toolcrib.RunID(args[1]), toolcrib.Seq(seq+1), body.EventKind(), at, payloadHash)
	_, err = db.Exec("INSERT INTO events (key, kind, time, payload, payload_hash, hash) VALUES (?,?,?,?,?,?)",
		num<<32|(seq+1), string(body.EventKind()), at.UnixMicro(), string(payload), payloadHash, hash)
	ts.Check(err)
	_, err = db.Exec("UPDATE runs SET last_seq = ?, last_hash = ?, status = 'queued', pending = NULL WHERE num = ?", seq+1, hash, num)
	ts.Check(err)
}

// cmdPutBack gives a run its row and events of a copy of the database: putback FILE COPY RUN.
func cmdPutBack(ts *testscript.TestScript, _ bool, args []string) {
	db, err := sql.Open("sqlite", ts.MkAbs(args[0]))
	ts.Check(err)
	defer db.Close()
	db.SetMaxOpenConns(1)
	for _, q := range []string{
		"ATTACH '" + ts.MkAbs(args[1]) + "' AS old",
		"DELETE FROM events WHERE key >> 32 = (SELECT num FROM runs WHERE id = '" + args[2] + "')",
		"INSERT INTO events SELECT * FROM old.events WHERE key >> 32 = (SELECT num FROM runs WHERE id = '" + args[2] + "')",
		"INSERT OR REPLACE INTO runs SELECT * FROM old.runs WHERE id = '" + args[2] + "'",
	} {
		_, err := db.Exec(q)
		ts.Check(err)
	}
}
