package telemetry

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// Bounds of the sent data.
const (
	maxText   = 32 << 10 // bytes of an attribute with content
	flushTime = 2 * time.Second
	sayEvery  = time.Minute // interval of logging that spans cannot be sent
)

// TraceOptions are the options of [OpenTraces].
type TraceOptions struct {
	// Endpoint is telemetry.otlp. If "", the environment applies (OTEL_EXPORTER_OTLP_ENDPOINT).
	Endpoint string
	Content  bool // also send prompts, arguments and results
	Version  string
	Log      *slog.Logger
	Mask     *guard.Masker       // masks data that is sent with Content
	Getenv   func(string) string // if nil, os.Getenv
}

// Traces send spans to a collector, in the background.
type Traces struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	content  bool
	mask     *guard.Masker
}

// Wanted reports whether traces are to be sent: the configuration or the environment names an endpoint,
// and the environment does not disable them.
func (o *TraceOptions) Wanted() bool {
	env := o.env()
	exporter := env("OTEL_TRACES_EXPORTER")
	if strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") || exporter != "" && exporter != "otlp" {
		return false
	}
	return o.Endpoint != "" || exporter == "otlp" || env("OTEL_EXPORTER_OTLP_ENDPOINT") != "" ||
		env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

func (o *TraceOptions) env() func(string) string {
	if o.Getenv == nil {
		return os.Getenv
	}
	return o.Getenv
}

// OpenTraces starts to send spans according to o and the OTEL_ variables of the environment. It does
// not connect yet.
func OpenTraces(ctx context.Context, o TraceOptions) (*Traces, error) {
	client, err := newOTLP(o.Endpoint, o.env())
	if err != nil {
		return nil, err
	}
	exporter, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, err
	}
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "toolcrib"), attribute.String("service.version", o.Version)),
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv())
	if err != nil && about == nil {
		return nil, err
	}
	if o.Log != nil {
		otel.SetErrorHandler(&complaints{log: o.Log})
	}
	p := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about), sdk.WithIDGenerator(given{}))
	return &Traces{
		provider: p, tracer: p.Tracer("github.com/toolcrib/toolcrib"), content: o.Content, mask: o.Mask,
	}, nil
}

// Close sends pending spans, within a bounded time. Spans that cannot be sent are lost, which is logged.
func (t *Traces) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		otel.Handle(err)
	}
	return nil
}

// complaints logs errors of sending at intervals.
type complaints struct {
	log    *slog.Logger
	mu     sync.Mutex
	silent time.Time // do not log before
}

// Handle implements [otel.ErrorHandler].
func (c *complaints) Handle(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.After(c.silent) {
		c.silent = now.Add(sayEvery)
		c.log.Warn("traces cannot be sent", "error", err)
	}
}

// start begins a span with a given ID. Without a span in ctx it is the first of its trace.
func (t *Traces) start(ctx context.Context, name string, kind trace.SpanKind, of trace.TraceID, id trace.SpanID,
	at time.Time, attributes []attribute.KeyValue,
) (context.Context, trace.Span) {
	return t.tracer.Start(context.WithValue(ctx, idsKey{}, ids{of, id}), name,
		trace.WithSpanKind(kind), trace.WithTimestamp(at), trace.WithAttributes(attributes...))
}

// context returns the context of a span that another process may have begun: whether it is sampled
// depends only on the trace.
func (t *Traces) context(of trace.TraceID, id trace.SpanID) trace.SpanContext {
	_, s := t.start(context.Background(), "", trace.SpanKindInternal, of, id, time.Now(), nil)
	return s.SpanContext()
}

// text returns an attribute with content.
func (t *Traces) text(key attribute.Key, content string) attribute.KeyValue {
	return key.String(t.masked(content, maxText))
}

// maxLabel bounds a name chosen by a model, in bytes.
const maxLabel = 128

// label returns an attribute with a name chosen by a model.
func (t *Traces) label(key attribute.Key, name string) attribute.KeyValue {
	return key.String(t.masked(guard.Visible(name), maxLabel))
}

// masked returns content after masking and truncation.
func (t *Traces) masked(content string, most int) string {
	if t.mask != nil {
		content = t.mask.Mask(content)
	}
	return strings.ToValidUTF8(guard.Clip(content, most), "")
}

// why returns the text of a failure: its kind, and the message only with content, since a provider may
// repeat the request in it.
func (t *Traces) why(kind, message string) string {
	if !t.content {
		return kind
	}
	return t.masked(message, maxText)
}

// given generates the IDs that the journal determines.
type given struct{}

type idsKey struct{}

type ids struct {
	trace trace.TraceID
	span  trace.SpanID
}

// NewIDs implements [sdk.IDGenerator].
func (given) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	of, _ := ctx.Value(idsKey{}).(ids) // set by [Traces.start]
	return of.trace, of.span
}

// NewSpanID implements [sdk.IDGenerator].
func (given) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	of, _ := ctx.Value(idsKey{}).(ids)
	return of.span
}

var _ toolcrib.Journal = (*observed)(nil)
