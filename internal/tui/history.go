package tui

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/toolcrib/toolcrib/internal/safefile"
)

// Bounds of an input history.
const (
	lockPatience   = 5 * time.Second
	maxHistory     = 500      // messages
	maxHistoryLine = 16 << 10 // bytes of one message; longer ones are not stored
)

// History is the input history of a user, stored in a file that only this user can read: one JSON
// string per line, the oldest first, at most 500.
type History struct {
	// Mask hides secrets in stored lines. It may be nil.
	Mask func(string) string

	path  string // if "", the history is only in memory
	lines []string
}

// OpenHistory reads a history. A missing file is an empty history. Lines that cannot be read are
// skipped.
func OpenHistory(path string) (*History, error) {
	h := &History{path: path}
	return h, h.read()
}

func (h *History) read() error {
	if h.path == "" {
		return nil
	}
	data, err := os.ReadFile(h.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the input history: %w", err)
	}
	h.lines = nil
	for raw := range bytes.Lines(data) {
		var line string
		if json.Unmarshal(raw, &line) == nil && line != "" {
			h.lines = append(h.lines, line)
		}
	}
	h.lines = h.lines[max(len(h.lines)-maxHistory, 0):]
	return nil
}

// Lines returns the history, oldest first.
func (h *History) Lines() []string { return h.lines }

// Add stores a line after those of other processes, unless it repeats the last one.
func (h *History) Add(line string) error {
	if h.Mask != nil {
		line = h.Mask(line)
	}
	if line == "" || len(line) > maxHistoryLine {
		return nil
	}
	if h.path != "" {
		dir := filepath.Dir(h.path)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("the input history: %w", err)
		}
		unlock, err := safefile.Lock(filepath.Join(dir, ".lock"), lockPatience)
		if err != nil {
			return fmt.Errorf("the input history: %w", err)
		}
		defer unlock()
	}
	if err := h.read(); err != nil {
		return err
	}
	if n := len(h.lines); n > 0 && h.lines[n-1] == line {
		return nil
	}
	h.lines = append(h.lines[max(len(h.lines)+1-maxHistory, 0):], line)
	if h.path == "" {
		return nil
	}
	var b bytes.Buffer
	for _, line := range h.lines {
		if err := json.NewEncoder(&b).Encode(line); err != nil {
			return err
		}
	}
	if err := safefile.Replace(h.path, ".history-", b.Bytes()); err != nil {
		return fmt.Errorf("the input history: %w", err)
	}
	return nil
}
