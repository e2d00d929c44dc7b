package sqlite

import (
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/toolcrib/toolcrib/store"
)

func TestKindOfCode(t *testing.T) {
	for _, c := range []struct {
		code int
		full bool
		want error
	}{
		{13, false, store.ErrFull},
		{4874, false, store.ErrFull}, // SQLITE_IOERR_SHMSIZE
		{778, true, store.ErrFull},   // SQLITE_IOERR_WRITE
		{778, false, store.ErrUnavailable},
		{1034, true, store.ErrFull}, // SQLITE_IOERR_FSYNC
		{1034, false, store.ErrUnavailable},
		{1546, true, store.ErrFull},        // SQLITE_IOERR_TRUNCATE
		{5386, true, store.ErrFull},        // SQLITE_IOERR_SHMMAP
		{266, true, store.ErrUnavailable},  // SQLITE_IOERR_READ
		{11, true, store.ErrCorrupt},       // a full disk is not asked for
		{517, false, store.ErrLocked},      // SQLITE_BUSY_SNAPSHOT
		{1032, false, store.ErrReadOnly},   // SQLITE_READONLY_DBMOVED
		{526, false, store.ErrUnavailable}, // SQLITE_CANTOPEN_ISDIR
		{1, false, nil},
	} {
		if got := kindOfCode(c.code, func() bool { return c.full }); !errors.Is(got, c.want) {
			t.Errorf("code %d, full %v: %v, want %v", c.code, c.full, got, c.want)
		}
	}
	for _, err := range []error{syscall.ENOSPC, syscall.EFBIG} {
		if got := kindOf("x", fmt.Errorf("write: %w", err)); !errors.Is(got, store.ErrFull) {
			t.Errorf("%v: %v", err, got)
		}
	}
	if noRoom(filepath.Join(t.TempDir(), "none.db")) {
		t.Error("the disk of the test's folder is said to be full")
	}
}
