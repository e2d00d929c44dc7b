package cli_test

import (
	"bytes"
	"os"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
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
