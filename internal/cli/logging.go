package cli

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
)

// logger makes the operator's log as the configuration says. Without a word from
// it a person at a terminal is only told of warnings. Secrets are masked in the
// finished line, wherever they stand in it.
func (a *app) logger(c *config.Config, mask *guard.Masker, stderr io.Writer) (*slog.Logger, error) {
	level := slog.LevelWarn
	if c.IsSet("log.level") {
		if err := level.UnmarshalText([]byte(c.Log.Level)); err != nil {
			return nil, usagef("log.level: %v", err)
		}
	}
	w := stderr
	file, err := c.Log.File.Resolve(a.resolver())
	if err != nil {
		return nil, err
	}
	if file != "" {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return nil, failedf("log.file: %v", err)
		}
		f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, failedf("log.file: %v", err)
		}
		a.closers = append(a.closers, f)
		w = f
	}
	w = masked{w: w, mask: mask}
	options := &slog.HandlerOptions{Level: level}
	if c.Log.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return slog.New(slog.NewTextHandler(w, options)), nil
}

// masked hides secrets in what is written; slog writes one line at a time.
type masked struct {
	w    io.Writer
	mask *guard.Masker
}

func (m masked) Write(p []byte) (int, error) {
	if _, err := m.w.Write(m.mask.MaskBytes(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}
