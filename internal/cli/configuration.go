package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/internal/standin"
	"github.com/toolcrib/toolcrib/internal/terminal"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/service"
)

// configuration returns the configuration, read once. One that lies in the current
// folder counts only if it is trusted (contract §2).
func (a *app) configuration() (*config.Config, error) {
	if a.config != nil {
		return a.config, nil
	}
	source := config.Find(a.configFlag, os.Getenv)
	c, err := config.Load(source, a.trusted)
	if err != nil {
		return nil, err
	}
	a.config = c
	return c, nil
}

// configurationAnyway reads the configuration for commands that only look at it:
// nothing of it takes effect.
func (a *app) configurationAnyway() (*config.Config, config.Source, error) {
	source := config.Find(a.configFlag, os.Getenv)
	c, err := config.Load(source, func(string, []byte) error { return nil })
	return c, source, err
}

// trusted lets a configuration pass if its user trusts it, and asks on a terminal
// if not.
func (a *app) trusted(path string, content []byte) error {
	err := a.trustedAlready(path, content)
	var untrusted *trust.UntrustedError
	if !errors.As(err, &untrusted) || !a.inTerminal || !a.errTerminal {
		return err
	}
	folder, lookErr := service.LookAt(filepath.Dir(path))
	if lookErr != nil {
		return lookErr
	}
	// There is no other context yet.
	if agreed, trustErr := a.asksToTrust(context.Background(), folder); trustErr != nil || !agreed {
		return cmp.Or(trustErr, err)
	}
	// What is used is what was read; another content by now is not trusted.
	return a.trustedAlready(path, content)
}

// trustedAlready lets a configuration pass if its user trusts it; it asks nothing.
func (a *app) trustedAlready(path string, content []byte) error {
	trusted, err := service.TrustStore()
	if err != nil {
		return err
	}
	return trusted.Require(path, content)
}

// confirm asks a yes-or-no question on the terminal; anything but yes is no.
func (a *app) confirm(question string) (yes bool) {
	a.asking(func(ctx context.Context, answers *terminal.Input) {
		yes = a.answer(ctx, answers, question, "[y/N]", terminal.Calm, render.YesKeys(false)) == render.KeyYes
	})
	return yes
}

// notice says something on standard error that ends nothing, also while a run is shown.
func (a *app) notice(format string, args ...any) { a.note(fmt.Sprintf(format, args...)) }

// note is notice for a text as it is.
func (a *app) note(text string) { fmt.Fprint(a.besides(), a.style.Note(shortIDs(a.mask().Mask(text)))) }

// alert says what a person must look at before they go on.
func (a *app) alert(text string) {
	fmt.Fprintf(a.besides(), "%s %s\n", a.style.Red("!"), guard.Visible(shortIDs(a.mask().Mask(text))))
}

// besides is where something can be said while a run is shown.
func (a *app) besides() io.Writer {
	if a.beside != nil {
		return a.beside
	}
	return a.err
}

// passedOver says that the current folder brings a .mcp.json that is not trusted, so not used.
func (a *app) passedOver() {
	if !standin.Exists(".mcp.json") {
		return
	}
	trusted, err := service.TrustStore()
	if err != nil {
		return // nothing is trusted then, and nothing is used
	}
	_, files, _ := trusted.Check(".", ".mcp.json")
	for _, f := range files {
		switch f.State {
		case trust.Absent, trust.Trusted:
		default:
			a.notice("%s", trust.PassedOver(".", f))
		}
	}
}

// svc is the service, made once for the configuration in effect. It opens nothing yet.
func (a *app) svc() (*service.Service, error) {
	c, err := a.configuration()
	if err != nil {
		return nil, err
	}
	if a.service == nil {
		dir, err := a.dataDir()
		if err != nil {
			return nil, err
		}
		a.service = a.newService(c, dir)
		a.closers = append(a.closers, a.service)
	}
	if a.service.Config != c {
		a.service = a.service.Under(c)
	}
	a.api = a.service
	return a.service, nil
}

func (a *app) newService(c *config.Config, dir string) *service.Service {
	o := service.Options{
		Config: c, Source: config.Find(a.configFlag, os.Getenv), DataDir: dir, Mask: &a.masker, Started: a.started,
		Driver: driverName, Self: a.self(), Log: a.plainLogger, NoSandbox: a.noSandbox, Notice: a.note, Alert: a.alert,
		OllamaAt: a.ollamaAt, Observe: a.observe,
	}
	if a.inTerminal && a.errTerminal {
		o.Confirm = a.confirm
	}
	return service.New(o)
}

// about is a service for a configuration that is only looked at. Nothing of it takes
// effect.
func (a *app) about(c *config.Config) *service.Service {
	if a.service != nil {
		return a.service.Under(c)
	}
	dir := a.dataFlag
	if dir == "" {
		dir, _ = c.DataDir.Resolve(config.Resolver{}) // what is wrong with it is told by config check
	}
	return a.newService(c, dir)
}
