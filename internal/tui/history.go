package tui

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/toolcrib/toolcrib/internal/safefile"
)

// Bounds of an input history.
const (
	maxHistory      = 500      // messages
	maxHistoryBytes = 1 << 20  // of the file, beyond which it is rewritten
	maxHistoryLine  = 16 << 10 // of one message; longer ones are not kept
)

// History is what a person has typed, kept in a file that only this user can read:
// one JSON text a line, the oldest first, at most 500.
type History struct {
	// Mask hides secrets in what is kept; nil = none.
	Mask func(string) string

	path  string
	lines []string
}

// OpenHistory reads a history; a file that is not there is an empty one. What
// cannot be read in it is left out.
func OpenHistory(path string) (*History, error) {
	h := &History{path: path}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return h, nil
	}
	if err != nil {
		return h, fmt.Errorf("the input history: %w", err)
	}
	if len(data) > 4*maxHistoryBytes {
		data = data[len(data)-4*maxHistoryBytes:]
	}
	for raw := range bytes.Lines(data) {
		var line string
		if len(raw) <= 8*maxHistoryLine && json.Unmarshal(raw, &line) == nil && line != "" {
			h.lines = append(h.lines, line)
		}
	}
	over := len(h.lines) > 2*maxHistory || len(data) > maxHistoryBytes
	if len(h.lines) > maxHistory {
		h.lines = h.lines[len(h.lines)-maxHistory:]
	}
	if over {
		return h, h.rewrite()
	}
	return h, nil
}

// Lines returns the history, the oldest first.
func (h *History) Lines() []string {
	if h == nil {
		return nil
	}
	return h.lines
}

// Add keeps what was typed, unless it is what was typed last.
func (h *History) Add(line string) error {
	if h != nil && h.Mask != nil {
		line = h.Mask(line)
	}
	if h == nil || line == "" || len(line) > maxHistoryLine || len(h.lines) > 0 && h.lines[len(h.lines)-1] == line {
		return nil
	}
	h.lines = append(h.lines, line)
	if len(h.lines) > maxHistory {
		h.lines = h.lines[1:]
	}
	if h.path == "" {
		return nil
	}
	raw, err := json.Marshal(line)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(h.path), 0o700); err != nil {
		return fmt.Errorf("the input history: %w", err)
	}
	f, err := os.OpenFile(h.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("the input history: %w", err)
	}
	_, err = f.Write(append(raw, '\n'))
	return errors.Join(err, f.Close())
}

// rewrite replaces the file by one that holds no more than is kept. What others
// add at this very moment may be lost; it is only a convenience.
func (h *History) rewrite() error {
	var b bytes.Buffer
	for _, line := range h.lines {
		raw, err := json.Marshal(line)
		if err != nil {
			return err
		}
		b.Write(append(raw, '\n'))
	}
	if err := safefile.Replace(h.path, ".history-", b.Bytes()); err != nil {
		return fmt.Errorf("the input history: %w", err)
	}
	return nil
}
