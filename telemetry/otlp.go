package telemetry

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// otlp sends spans to a collector by OTLP over HTTP with protobuf. OpenTelemetry's own exporter would
// add gRPC, 3 MB of code that is never used.
type otlp struct {
	client   *http.Client
	address  string
	header   http.Header
	compress bool
}

const (
	otlpTimeout = 10 * time.Second // timeout of one attempt, unless the environment sets another
	otlpTries   = 3
	otlpPause   = time.Second // before the second attempt, then doubled
	maxHeaders  = 100
)

// newOTLP reads the address and options for sending spans: endpoint, otherwise the OTEL_EXPORTER_OTLP_
// variables of the specification, with those for traces first.
func newOTLP(endpoint string, env func(string) string) (*otlp, error) {
	get := func(name string) string {
		return strings.TrimSpace(cmp.Or(env("OTEL_EXPORTER_OTLP_TRACES_"+name), env("OTEL_EXPORTER_OTLP_"+name)))
	}
	if p := get("PROTOCOL"); p != "" && p != "http/protobuf" {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL: %q is not supported, only http/protobuf", p)
	}
	address := env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") // used unchanged
	if endpoint != "" || address == "" {
		address = cmp.Or(endpoint, env("OTEL_EXPORTER_OTLP_ENDPOINT"), "http://localhost:4318")
		if address = strings.TrimSuffix(address, "/"); !strings.HasSuffix(address, "/v1/traces") {
			address += "/v1/traces"
		}
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("the OTLP endpoint is not an address such as http://localhost:4318")
	}
	o := &otlp{header: http.Header{"Content-Type": {"application/x-protobuf"}}, compress: get("COMPRESSION") == "gzip"}
	if u.User != nil {
		password, _ := u.User.Password() // "" if none
		r := http.Request{Header: o.header}
		r.SetBasicAuth(u.User.Username(), password)
		u.User = nil
	}
	for i, pair := range strings.Split(get("HEADERS"), ",") {
		name, value, ok := strings.Cut(pair, "=")
		text, err := url.PathUnescape(strings.TrimSpace(value))
		if pair != "" && (!ok || err != nil || i >= maxHeaders) {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_HEADERS: must be NAME=VALUE,…")
		} else if ok {
			o.header.Set(strings.TrimSpace(name), text)
		}
	}
	timeout := otlpTimeout
	if ms, err := strconv.Atoi(get("TIMEOUT")); err == nil && ms > 0 {
		timeout = time.Duration(ms) * time.Millisecond
	}
	secure, err := otlpTLS(get("CERTIFICATE"), get("CLIENT_CERTIFICATE"), get("CLIENT_KEY"))
	if err != nil {
		return nil, err
	}
	o.address = u.String()
	o.client = &http.Client{
		Timeout: timeout,
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: secure, MaxIdleConns: 1, IdleConnTimeout: time.Minute,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return o, nil
}

// otlpTLS returns the TLS settings for these files, or nil for the defaults.
func otlpTLS(authority, cert, key string) (*tls.Config, error) {
	if authority == "" && cert == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if authority != "" {
		text, err := os.ReadFile(authority)
		if err != nil {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %w", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: there is no certificate in %s", authority)
		}
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// Start implements [otlptrace.Client].
func (o *otlp) Start(context.Context) error { return nil }

// Stop implements [otlptrace.Client].
func (o *otlp) Stop(context.Context) error {
	o.client.CloseIdleConnections()
	return nil
}

// UploadTraces implements [otlptrace.Client]. It retries if the collector is overloaded.
func (o *otlp) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	// TracesData has the same encoding as ExportTraceServiceRequest.
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return err
	}
	if o.compress {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write(body) // memory writes never fail
		_ = w.Close()        // likewise
		body = b.Bytes()
	}
	for try, pause := 1, otlpPause; ; try, pause = try+1, 2*pause {
		wait, err := o.send(ctx, body)
		if err == nil || wait < 0 || try == otlpTries {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(max(wait, pause)):
		}
	}
}

// maxRetryAfter bounds the delay that a collector can ask for.
const maxRetryAfter = 10 * time.Second

// send makes one attempt. wait is the delay before the next; if negative, another attempt is useless.
func (o *otlp) send(ctx context.Context, body []byte) (wait time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, o.address, bytes.NewReader(body))
	if err != nil {
		return -1, err
	}
	r.Header = o.header.Clone()
	if o.compress {
		r.Header.Set("Content-Encoding", "gzip")
	}
	res, err := o.client.Do(r)
	if err != nil {
		return -1, err // the next batch tries again
	}
	defer res.Body.Close()
	const most = 64 << 10
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, most)) // keeps the connection alive
	switch res.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		return 0, nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil {
			wait = min(time.Duration(s)*time.Second, maxRetryAfter)
		}
	default:
		wait = -1
	}
	return wait, fmt.Errorf("the collector at %s answers %s", r.URL.Host, res.Status)
}
