package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/safefile"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/internal/version"
	"github.com/toolcrib/toolcrib/server"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/people"
	"github.com/toolcrib/toolcrib/telemetry"
)

// firstToken is the file in the data folder that contains the first token if it cannot be shown on a
// terminal.
const firstToken = "first-token"

func (a *app) serveCommand(cmd *cobra.Command) {
	var listen string
	cmd.Flags().Func("listen", "", func(text string) error { listen = text; return config.CheckListen(text) })
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		// Signals first, because they may arrive at any time; then everything that must be ready before
		// the port is open.
		hangup := make(chan os.Signal, 1)
		ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
		if a.errTerminal {
			ends = append(ends, syscall.SIGHUP) // closing the terminal ends the server
		} else {
			signal.Notify(hangup, syscall.SIGHUP)
			defer signal.Stop(hangup)
		}
		s, who, err := a.knowing(cmd.Context())
		if err != nil {
			return err
		}
		if _, err := env.Administrator(who); err != nil {
			return err
		}
		// Remote users are not asked on this terminal, and see no paths
		s.Env.Driver, s.Env.Confirm, s.Env.Self = env.DriverServer, nil, program()
		if err := s.Env.OpenFor(cmd.Context(), who); err != nil {
			return err
		}
		a.operates = true
		log, err := a.plainLogger()
		if err != nil {
			return err
		}
		slog.SetDefault(log) // for libraries
		a.metrics = telemetry.NewMetrics(version.Version())
		s.Env.Log = func() (*slog.Logger, error) { return log, nil }
		s.Env.Notice = func(text string) { log.Info(a.mask().Mask(text)) }
		c := s.Env.Config
		if listen == "" {
			if listen, err = c.Listen.Resolve(a.resolver()); err != nil {
				return err
			}
		}
		cert, key, err := s.Env.Certificate()
		if err != nil {
			return err
		}
		ctx, stop := a.interruptible(cmd.Context(), agent.NameOf(who), a.err, ends...)
		defer stop()
		l, err := net.Listen("tcp", listen) // a server that cannot start creates no user
		if err == nil && c.Server.Auth != "none" {
			_ = l.Close() // and the port is open before the token can be read
			if err := a.firstStart(cmd, s, who, log, listen); err != nil {
				return err
			}
			l, err = net.Listen("tcp", listen)
		}
		if err != nil {
			return listening(listen, err)
		}
		defer l.Close()
		at := l.Addr().String()
		h, err := server.New(server.Options{Service: s, Log: log, Version: version.Version(), Metrics: a.metrics, Listen: at})
		if err != nil {
			return err
		}
		scheme := "http"
		if cert != "" {
			scheme = "https"
		}
		s.Policy.TellNoSandbox(s.Env.Once(func(text string) { log.Warn(text) }))
		a.announce(log, fmt.Sprintf("toolcrib listens on %s://%s", scheme, l.Addr()))
		watching, unwatch := context.WithCancel(ctx)
		var watch sync.WaitGroup
		watch.Go(func() { (&reloading{a: a, s: s, h: h, who: who, log: log}).watch(watching, hangup) })
		defer watch.Wait()
		defer unwatch()
		context.AfterFunc(ctx, func() { notify("STOPPING=1") })
		notify("READY=1")
		return h.Serve(ctx, l, cert, key)
	}
}

// listening explains why listening on an address fails.
func listening(address string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("listen: %s is in use by another program, which may be another toolcrib serve; end that one, or "+
			"choose another address with --listen", address)
	}
	return fmt.Errorf("listen: %w", err)
}

// announce writes to standard error, in the form of the log if that is where the log goes.
func (a *app) announce(log *slog.Logger, text string) {
	if c := &a.service.Env.Config.Log; c.Format == "json" && c.File.IsEmpty() && !a.errTerminal {
		log.Info(text)
		return
	}
	fmt.Fprintln(a.err, text)
}

// firstStart creates the first administrator and shows the token once.
func (a *app) firstStart(
	cmd *cobra.Command, s *service.Service, who toolcrib.Principal, log *slog.Logger, listen string,
) error {
	if err := os.MkdirAll(s.Env.DataDir, 0o700); err != nil { // where a token is kept that exists only once
		return err
	}
	token, err := s.People.FirstStart(cmd.Context(), who)
	if toolcrib.CodeOf(err) == toolcrib.CodeConflict { // another server may have been quicker
		token, err = s.People.FirstStart(cmd.Context(), who)
	}
	if toolcrib.CodeOf(err) == toolcrib.CodeConflict {
		return toolcrib.Errorf(toolcrib.CodeConflict, "no user is an administrator; `%s users add NAME --admin` makes one (%v)",
			a.self(), err)
	}
	if err != nil || token == "" {
		return err
	}
	page := ", also at " + a.publicAddress(s, listen)
	if strings.HasSuffix(page, ":0") { // the port is not known yet
		page = ""
	}
	if a.outTerminal {
		fmt.Fprintf(a.err, "The administrator is called %s. This token signs them in%s; it is shown once:\n",
			people.FirstAdministrator, page)
		fmt.Fprintln(a.out, token)
		return nil
	}
	path := filepath.Join(s.Env.DataDir, firstToken)
	if err := safefile.Replace(path, firstToken+"-", []byte(token+"\n")); err != nil {
		return err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return err
	}
	a.announce(log, fmt.Sprintf("The administrator is called %s. %s has a token that signs them in%s.",
		people.FirstAdministrator, guard.Visible(path), page))
	return nil
}

// watchEvery is the interval at which serve checks its configuration for changes. A change takes effect
// once the file is unchanged for that long, because it may be written in pieces.
const watchEvery = time.Second

// reloading applies a changed configuration.
type reloading struct {
	a   *app
	s   *service.Service
	h   *server.Server
	who toolcrib.Principal
	log *slog.Logger
}

// watch reloads the configuration when its file changes and on a signal, until ctx ends.
func (r *reloading) watch(ctx context.Context, hangup <-chan os.Signal) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	files := r.s.Env.Source.Files()
	last := stateOf(files)
	for loaded := last; ; {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
			notify("RELOADING=1")
			loaded = stateOf(files)
			r.reload(ctx, true)
			notify("READY=1")
		case <-tick.C:
			if now := stateOf(files); now != last {
				last = now
			} else if now != loaded {
				loaded = now
				r.reload(ctx, false)
			}
		}
	}
}

// stateOf returns the times and sizes of files, from which it is seen that one may have changed.
func stateOf(files []string) (state string) {
	for _, file := range files {
		if info, err := os.Stat(file); err == nil {
			state += fmt.Sprintln(info.ModTime(), info.Size())
		} else {
			state += "absent\n"
		}
	}
	return state
}

// reload reads the configuration and applies it if it has no errors. asked is set if an operator
// expects an answer in the log.
func (r *reloading) reload(ctx context.Context, asked bool) {
	c, err := config.Load(r.s.Env.Source, r.a.trustedAlready)
	was := r.s.Current().Env.Config
	if err == nil && c.Hash() == was.Hash() {
		if asked {
			r.log.Info("the configuration has not changed", "file", r.s.Env.Source.Path)
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
			"file", r.s.Env.Source.Path, "do", "toolcrib trust")
	case err != nil:
		r.log.Error("the changed configuration is rejected as a whole; the one before stays in effect",
			"file", r.s.Env.Source.Path, "error", r.a.mask().Mask(err.Error()))
	default:
		r.log.Info("the configuration was reloaded", "file", r.s.Env.Source.Path, "hash", c.Hash())
	}
}

// check returns the errors in a configuration that `config check` reports, or the changes that need a
// restart of the server.
func (r *reloading) check(c *config.Config) error {
	wrong, _, err := r.a.configErrors(c, nil)
	switch {
	case err != nil:
		return err
	case len(wrong) > 0:
		return wrong
	}
	if fixed := r.s.Env.Config.NeedRestart(c); len(fixed) > 0 {
		return toolcrib.Errorf(toolcrib.CodeConflict, "%s cannot change while the server runs; restart it",
			strings.Join(fixed, ", "))
	}
	return nil
}

// notify informs the service manager of the state of the process (sd_notify(3)) if it has asked for
// that.
func notify(word string) {
	address := os.Getenv("NOTIFY_SOCKET")
	if address == "" {
		return
	}
	if strings.HasPrefix(address, "@") { // Linux's abstract namespace
		address = "\x00" + address[1:]
	}
	c, err := net.Dial("unixgram", address)
	if err != nil {
		return // the service manager only learns that the process lives
	}
	defer c.Close()
	_, _ = c.Write([]byte(word)) // as above
}
