package cli

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/server"
	"github.com/toolcrib/toolcrib/service"
)

// watchEvery is how often serve looks whether its configuration has changed. A change counts
// once the file has stayed as it is for that long: it may be written in pieces.
const watchEvery = time.Second

// reloading puts a changed configuration into effect.
type reloading struct {
	a   *app
	s   *service.Service
	h   *server.Server
	who toolcrib.Principal
	log *slog.Logger
}

// watch reloads the configuration when its file changes, and on SIGHUP, until ctx ends.
func (r *reloading) watch(ctx context.Context) {
	hangup := make(chan os.Signal, 1)
	if !r.a.errTerminal { // where closing the terminal ends the server
		signal.Notify(hangup, syscall.SIGHUP)
		defer signal.Stop(hangup)
	}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	source := r.s.Source
	last := stateOf(source.Path)
	for loaded := last; ; {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
			notify("RELOADING=1")
			loaded = stateOf(source.Path)
			r.reload(ctx, true)
			notify("READY=1")
		case <-tick.C:
			if now := stateOf(source.Path); now != last {
				last = now
			} else if now != loaded && source.Path != "" {
				loaded = now
				r.reload(ctx, false)
			}
		}
	}
}

// fileState says whether a file may have changed.
type fileState struct {
	at   time.Time
	size int64
}

func stateOf(path string) (s fileState) {
	if info, err := os.Stat(path); err == nil {
		s = fileState{info.ModTime(), info.Size()}
	}
	return s
}

// reload reads the configuration, and puts it into effect if nothing is wrong with it. asked is
// set if somebody waits for an answer in the log.
func (r *reloading) reload(ctx context.Context, asked bool) {
	c, err := config.Load(r.s.Source, r.a.trustedAlready)
	was := r.s.Current().Config
	if err == nil && c.Hash() == was.Hash() {
		if asked {
			r.log.Info("the configuration has not changed", "file", r.s.Source.Path)
		}
		r.a.metrics.Reloaded(true)
		return
	}
	if err == nil {
		r.a.masker.Learn(c.Secrets()...)
		err = r.check(c)
	}
	if err == nil {
		err = r.h.Reload(ctx, r.who, c)
	}
	r.a.metrics.Reloaded(err == nil)
	var untrusted *trust.UntrustedError
	switch {
	case errors.As(err, &untrusted):
		r.log.Error("the changed configuration is not trusted, and does not count; the one before stays in effect",
			"file", r.s.Source.Path, "do", "toolcrib trust")
	case err != nil:
		r.log.Error("the changed configuration is rejected as a whole; the one before stays in effect",
			"file", r.s.Source.Path, "error", r.a.mask().Mask(err.Error()))
	default:
		r.log.Info("the configuration was reloaded", "file", r.s.Source.Path, "hash", c.Hash())
	}
}

// check returns what is wrong with a configuration, as `config check` does, or what of it
// cannot change while the server runs.
func (r *reloading) check(c *config.Config) error {
	wrong, _, err := r.a.configErrors(c, nil)
	switch {
	case err != nil:
		return err
	case len(wrong) > 0:
		return wrong
	}
	if fixed := r.s.Config.NeedRestart(c); len(fixed) > 0 {
		return toolcrib.Errorf(toolcrib.CodeConflict, "%s cannot change while the server runs; restart it",
			strings.Join(fixed, ", "))
	}
	return nil
}

// notify tells the service manager what becomes of the process (sd_notify(3)), if it asks.
func notify(word string) {
	address := os.Getenv("NOTIFY_SOCKET")
	if address == "" {
		return
	}
	if strings.HasPrefix(address, "@") { // Linux's abstract names
		address = "\x00" + address[1:]
	}
	c, err := net.Dial("unixgram", address)
	if err != nil {
		return // it learns no more than that the process lives
	}
	defer c.Close()
	_, _ = c.Write([]byte(word))
}
