package cli

import (
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/safefile"
	"github.com/toolcrib/toolcrib/internal/version"
	"github.com/toolcrib/toolcrib/server"
	"github.com/toolcrib/toolcrib/service"
)

// serverDriver marks runs of servers (contract §3).
const serverDriver = "server"

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
		s.Driver, s.Confirm = serverDriver, nil // nobody at this terminal is asked on behalf of others
		if err := s.OpenFor(cmd.Context(), who); err != nil {
			return err
		}
		log, err := a.logger(a.err, false)
		if err != nil {
			return err
		}
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
			if err := a.firstStart(cmd, s, who); err != nil {
				return err
			}
		}
		h, err := server.New(server.Options{Service: s, Log: log, Version: version.Version()})
		if err != nil {
			return err
		}
		scheme := "http"
		if cert != "" {
			scheme = "https"
		}
		fmt.Fprintf(a.err, "toolcrib listens on %s://%s\n", scheme, l.Addr())
		ctx, stop := a.interruptible(cmd.Context(), nameOf(who), a.err)
		defer stop()
		return h.Serve(ctx, l, cert, key)
	}
}

// firstStart makes the first administrator, and shows their token once.
func (a *app) firstStart(cmd *cobra.Command, s *service.Service, who toolcrib.Principal) error {
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
	fmt.Fprintf(a.err, "The administrator is called %s. %s has a token that signs them in.\n", service.FirstAdministrator,
		guard.Visible(path))
	return nil
}
