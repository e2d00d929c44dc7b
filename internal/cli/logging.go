package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/service"
)

// logger makes the operator's log. With log.file it goes there, from log.level on.
// Without, standard error gets what somebody at it should know: warnings and
// errors, all of it only with level debug; that of a server gets all of it. What is shown to people anyway, as a
// notice, is not logged in their sight a second time.
func (a *app) logger(stderr io.Writer, people bool) (*slog.Logger, error) {
	c, mask := a.service.Config, a.mask()
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Log.Level)); err != nil {
		return nil, usagef("log.level: %v", err)
	}
	kept := level // what fetch_logs finds without a file, whatever is shown
	w := stderr
	file, err := c.Log.File.Resolve(a.resolver())
	if err != nil {
		return nil, err
	}
	if file != "" {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return nil, fmt.Errorf("log.file: %v", err)
		}
		f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, fmt.Errorf("log.file: %v", err)
		}
		a.closers = append(a.closers, f)
		w, people = f, false
	} else if level > slog.LevelDebug && !a.operates {
		level = max(level, slog.LevelWarn)
	} else {
		people = false
	}
	w = masked{w: w, mask: mask}
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler = slog.NewTextHandler(w, options)
	if c.Log.Format == "json" {
		handler = slog.NewJSONHandler(w, options)
	}
	if file == "" && level > slog.LevelDebug && !a.operates {
		said := []string{service.NoticeNotifyFailed}
		if people {
			said = append(said, requestFailed)
		}
		handler = unsaid{handler, said}
	}
	if file == "" {
		handler = slog.NewMultiHandler(handler, a.service.Ring().Handler(kept))
	}
	return slog.New(handler), nil
}

// plainLogger is the log where no run is shown.
func (a *app) plainLogger() (*slog.Logger, error) { return a.logger(a.err, false) }

// requestFailed is what the loop logs of a failed request (requirement C17).
const requestFailed = "model request failed"

// unsaid passes over what people are told in another way.
type unsaid struct {
	slog.Handler
	said []string // messages
}

// Handle implements [slog.Handler].
func (u unsaid) Handle(ctx context.Context, r slog.Record) error {
	if slices.Contains(u.said, r.Message) {
		return nil
	}
	return u.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (u unsaid) WithAttrs(attrs []slog.Attr) slog.Handler {
	return unsaid{u.Handler.WithAttrs(attrs), u.said}
}

// WithGroup implements [slog.Handler].
func (u unsaid) WithGroup(name string) slog.Handler {
	return unsaid{u.Handler.WithGroup(name), u.said}
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
