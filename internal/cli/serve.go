package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/safefile"
	"github.com/toolcrib/toolcrib/internal/version"
	"github.com/toolcrib/toolcrib/server"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/telemetry"
)

// firstToken is the file in the data folder that has the first token where no terminal
// shows it.
const firstToken = "first-token"

func (a *app) serveCommand(cmd *cobra.Command) {
	var listen string
	cmd.Flags().Func("listen", "", filled(&listen))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, who, err := a.knowing(cmd.Context())
		if err != nil {
			return err
		}
		if _, err := service.Administrator(who); err != nil {
			return err
		}
		s.Driver, s.Confirm = service.DriverServer, nil // nobody at this terminal is asked on behalf of others
		if err := s.OpenFor(cmd.Context(), who); err != nil {
			return err
		}
		a.operates = true
		log, err := a.plainLogger()
		if err != nil {
			return err
		}
		slog.SetDefault(log) // of libraries
		a.metrics = telemetry.NewMetrics(version.Version())
		s.Notice = func(text string) { log.Info(a.mask().Mask(text)) }
		c := s.Config
		if listen == "" {
			if listen, err = c.Listen.Resolve(a.resolver()); err != nil {
				return err
			}
		}
		cert, err := c.Server.TLS.Cert.Resolve(a.resolver())
		if err != nil {
			return err
		}
		key, err := c.Server.TLS.Key.Resolve(a.resolver())
		if err != nil {
			return err
		}
		l, err := net.Listen("tcp", listen)
		if err != nil {
			return fmt.Errorf("listen: %w", err)
		}
		defer l.Close()
		if c.Server.Auth != "none" {
			if err := a.firstStart(cmd, s, who, log); err != nil {
				return err
			}
		}
		h, err := server.New(server.Options{Service: s, Log: log, Version: version.Version(), Metrics: a.metrics})
		if err != nil {
			return err
		}
		scheme := "http"
		if cert != "" {
			scheme = "https"
		}
		a.announce(log, fmt.Sprintf("toolcrib listens on %s://%s", scheme, l.Addr()))
		ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
		if a.errTerminal {
			ends = append(ends, syscall.SIGHUP)
		}
		ctx, stop := a.interruptibleBy(cmd.Context(), nameOf(who), a.err, ends...)
		defer stop()
		watching, unwatch := context.WithCancel(ctx)
		var watch sync.WaitGroup
		watch.Go(func() { (&reloading{a: a, s: s, h: h, who: who, log: log}).watch(watching) })
		defer watch.Wait()
		defer unwatch()
		context.AfterFunc(ctx, func() { notify("STOPPING=1") })
		notify("READY=1")
		return h.Serve(ctx, l, cert, key)
	}
}

// announce says something on standard error, where others read it as a log in its form.
func (a *app) announce(log *slog.Logger, text string) {
	if c := &a.service.Config.Log; c.Format == "json" && c.File.IsEmpty() && !a.errTerminal {
		log.Info(text)
		return
	}
	fmt.Fprintln(a.err, text)
}

// firstStart makes the first administrator, and shows their token once.
func (a *app) firstStart(cmd *cobra.Command, s *service.Service, who toolcrib.Principal, log *slog.Logger) error {
	token, err := s.FirstStart(cmd.Context(), who)
	if toolcrib.CodeOf(err) == toolcrib.CodeConflict {
		return toolcrib.Errorf(toolcrib.CodeConflict, "no user is an administrator; `%s users add NAME --admin` makes one (%v)",
			a.self(), err)
	}
	if err != nil || token == "" {
		return err
	}
	if a.outTerminal {
		fmt.Fprintf(a.err, "The administrator is called %s. This token signs them in; it is shown once:\n",
			service.FirstAdministrator)
		fmt.Fprintln(a.out, token)
		return nil
	}
	path := filepath.Join(s.DataDir, firstToken)
	if err := safefile.Replace(path, firstToken+"-", []byte(token+"\n")); err != nil {
		return err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return err
	}
	a.announce(log, fmt.Sprintf("The administrator is called %s. %s has a token that signs them in.",
		service.FirstAdministrator, guard.Visible(path)))
	return nil
}
