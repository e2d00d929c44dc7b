package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"syscall"

	"github.com/toolcrib/toolcrib/guard"
)

// output is standard output. It remembers the first error, so that a full disk is
// told and a reader that has gone is not.
type output struct {
	w io.Writer

	mu  sync.Mutex
	err error
}

// Write drops everything after the first error; the command goes on.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		_, o.err = o.w.Write(p)
	}
	return len(p), nil
}

// failure is an error that somebody should know about.
func (o *output) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if errors.Is(o.err, syscall.EPIPE) {
		return nil
	}
	return o.err
}

// printJSON writes one JSON value, indented for people or on one line. Nothing in it acts
// on a terminal.
func printJSON(w io.Writer, v any, indent bool) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if indent {
		enc.SetIndent("", "  ")
	}
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(guard.EscapeJSON(b.Bytes()))
	return err
}
