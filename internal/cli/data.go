package cli

import (
	"os"

	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/service"
)

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
	return a.service, nil
}

func (a *app) newService(c *config.Config, dir string) *service.Service {
	o := service.Options{
		Config: c, Source: config.Find(a.configFlag, os.Getenv), DataDir: dir, Mask: &a.masker, Started: a.started,
		Driver: driverName, Self: a.self(), Log: a.plainLogger, NoSandbox: a.noSandbox, Notice: a.note, Alert: a.alert, OllamaAt: a.ollamaAt,
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
