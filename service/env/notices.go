package env

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
)

// Marked returns the path of the file that represents a text in a folder of the data folder.
func (e *Env) Marked(folder, text string) string {
	sum := sha256.Sum256([]byte(text))
	return filepath.Join(e.DataDir, folder, hex.EncodeToString(sum[:16]))
}

// Mark creates that file, and reports whether it existed before.
func (e *Env) Mark(folder, text string) (known bool, err error) {
	path := e.Marked(folder, text)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return false, err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return true, nil
	}
	if err == nil {
		err = file.Close() // it is empty
	}
	return false, err
}

// LogPanic logs a panic during the judgement of a call.
func (e *Env) LogPanic(ref, detail string) {
	e.LogLine(slog.LevelError, "judging a call panicked", "ref", ref, "error", e.Mask.Clean(detail))
}

// LogLine writes to the operator's log, if there is one.
func (e *Env) LogLine(level slog.Level, message string, args ...any) {
	if e.Log == nil {
		return
	}
	if log, err := e.Log(); err == nil {
		log.Log(context.Background(), level, message, args...)
	}
}

// maxNoticed bounds how many texts [Env.Once] remembers.
const maxNoticed = 10_000

// Once returns a function that passes each text on to tell, unless it was passed on before in this process.
func (e *Env) Once(tell func(string)) func(string) {
	return func(text string) {
		e.mu.Lock()
		known := e.noticed[text]
		if e.noticed == nil || len(e.noticed) >= maxNoticed { // clients choose parts of some texts
			e.noticed = map[string]bool{}
		}
		e.noticed[text] = true
		e.mu.Unlock()
		if !known {
			tell(text)
		}
	}
}

// Serial returns a function that passes texts on to tell one at a time: runs that other runs start have notices at
// the same time.
func (e *Env) Serial(tell func(string)) func(string) {
	return func(text string) {
		e.noticing.Lock()
		defer e.noticing.Unlock()
		tell(text)
	}
}
