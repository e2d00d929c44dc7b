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

// Bounds of what is sent.
const (
	maxText   = 32 << 10 // bytes of an attribute with content
	flushTime = 2 * time.Second
	sayEvery  = time.Minute // how often it is logged that spans cannot be sent
)

// TraceOptions say where traces go.
type TraceOptions struct {
	// Endpoint is telemetry.otlp; "" = what the environment says (OTEL_EXPORTER_OTLP_ENDPOINT).
	Endpoint string
	Content  bool // prompts, arguments and results are sent, too
	Version  string
	Log      *slog.Logger
	Mask     *guard.Masker       // of what is sent with Content
	Getenv   func(string) string // nil = os.Getenv
}

// Traces send spans to a collector, in the background.
type Traces struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	content  bool
	mask     *guard.Masker
}

// Wanted reports whether traces are to be sent: the configuration or the environment names an
// endpoint, and the environment does not turn them off.
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

// OpenTraces begins to send spans as o and the OTEL_ variables of the environment say. It
// connects to nobody yet.
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

// Close sends what waits, within a bounded time. What cannot be sent is logged, and lost.
func (t *Traces) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		otel.Handle(err)
	}
	return nil
}

// complaints log what goes wrong with sending, now and then.
type complaints struct {
	log    *slog.Logger
	mu     sync.Mutex
	silent time.Time // until then
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

// start begins a span with an ID of ours; without a span in ctx it is the first of its trace.
func (t *Traces) start(ctx context.Context, name string, kind trace.SpanKind, of trace.TraceID, id trace.SpanID,
	at time.Time, attributes []attribute.KeyValue,
) (context.Context, trace.Span) {
	return t.tracer.Start(context.WithValue(ctx, idsKey{}, ids{of, id}), name,
		trace.WithSpanKind(kind), trace.WithTimestamp(at), trace.WithAttributes(attributes...))
}

// context is that of a span which another process may have begun: whether its trace is
// sampled follows from the trace.
func (t *Traces) context(of trace.TraceID, id trace.SpanID) trace.SpanContext {
	_, s := t.start(context.Background(), "", trace.SpanKindInternal, of, id, time.Now(), nil)
	return s.SpanContext()
}

// text is an attribute with content.
func (t *Traces) text(key attribute.Key, content string) attribute.KeyValue {
	return key.String(t.masked(content, maxText))
}

// maxLabel bounds what a model names, in bytes.
const maxLabel = 128

// label is an attribute with a name that a model gives.
func (t *Traces) label(key attribute.Key, name string) attribute.KeyValue {
	return key.String(t.masked(guard.Visible(name), maxLabel))
}

// masked is content, masked and cut.
func (t *Traces) masked(content string, most int) string {
	if t.mask != nil {
		content = t.mask.Mask(content)
	}
	return strings.ToValidUTF8(guard.Clip(content, most), "")
}

// why is the text of a failure: its kind, and its message only with content, since a provider may
// repeat what it was sent.
func (t *Traces) why(kind, message string) string {
	if !t.content {
		return kind
	}
	return t.masked(message, maxText)
}

// given is a generator of IDs that hands out those that the journal gives.
type given struct{}

type idsKey struct{}

type ids struct {
	trace trace.TraceID
	span  trace.SpanID
}

// NewIDs implements [sdk.IDGenerator].
func (given) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	of, _ := ctx.Value(idsKey{}).(ids) // [Traces.start] set them
	return of.trace, of.span
}

// NewSpanID implements [sdk.IDGenerator].
func (given) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	of, _ := ctx.Value(idsKey{}).(ids)
	return of.span
}

var _ toolcrib.Journal = (*observed)(nil)
