package cli

import (
	"context"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/version"
	"github.com/toolcrib/toolcrib/telemetry"
)

// observe returns a journal that is heard by whatever the configuration and the environment ask
// for; j itself if that is nothing. It is set up at its first use.
func (a *app) observe(j toolcrib.Journal) toolcrib.Journal {
	a.observing.Do(func() {
		traces, err := a.openTraces()
		if err != nil {
			a.notice("no traces are sent: %v", err)
		}
		if traces != nil || a.metrics != nil {
			a.observer = &telemetry.Observer{Traces: traces, Metrics: a.metrics}
			a.observer.Log, _ = a.plainLogger() // its error ends the command, where it is needed first
		}
	})
	return a.observer.Journal(j)
}

// openTraces begins to send traces; nil = nobody wants them.
func (a *app) openTraces() (*telemetry.Traces, error) {
	c := a.service.Config.Telemetry
	endpoint, err := c.OTLP.Resolve(a.resolver())
	if err != nil {
		return nil, err
	}
	o := telemetry.TraceOptions{Endpoint: endpoint, Content: c.Content, Version: version.Version(), Mask: a.mask()}
	if !o.Wanted() {
		return nil, nil
	}
	if o.Log, err = a.plainLogger(); err != nil {
		return nil, err
	}
	traces, err := telemetry.OpenTraces(context.Background(), o)
	if err == nil {
		a.closers = append(a.closers, traces)
	}
	return traces, err
}
