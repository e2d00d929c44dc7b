package cli_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/toolcrib/toolcrib"
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
