package server

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/telemetry"
)

// Bounds of reading the metrics.
const (
	metricsAtOnce = 4
	countEvery    = 5 * time.Second // the greatest age of the number of runs in each status
	countTimeout  = 2 * time.Second
)

// httpMetrics are the metrics of requests.
type httpMetrics struct {
	handler  http.Handler // writes all metrics
	requests *prometheus.CounterVec
	took     *prometheus.HistogramVec
	active   prometheus.Gauge
}

// measure adds the metrics of the server. If m is nil, it returns nil, which counts nothing.
func (s *Server) measure(m *telemetry.Metrics) *httpMetrics {
	if m == nil {
		return nil
	}
	h := &httpMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "toolcrib_http_requests_total", Help: "Requests, by route and status.",
		}, []string{"route", "status"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "toolcrib_http_request_duration_seconds", Help: "Time until a request was answered, streams to their end.",
			Buckets: []float64{.001, .005, .025, .1, .5, 1, 5, 30, 300},
		}, []string{"route"}),
		active: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "toolcrib_http_requests_active", Help: "Requests that are being answered, streams among them.",
		}),
		handler: promhttp.HandlerFor(m.Registry, promhttp.HandlerOpts{
			ErrorLog: nil, MaxRequestsInFlight: metricsAtOnce, Timeout: writeTimeout,
		}),
	}
	open := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "toolcrib_runs", Help: "Runs of the data folder that have not ended, by status.",
	}, []string{"status"})
	m.Registry.MustRegister(h.requests, h.took, h.active, &openRuns{GaugeVec: open, s: s})
	m.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "toolcrib_runs_active", Help: "Runs that this process drives.",
	}, func() float64 { return float64(s.pool.Active()) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "toolcrib_queue_depth", Help: "Runs that are queued and that no worker has taken.",
	}, func() float64 {
		ctx, cancel := context.WithTimeout(context.Background(), countTimeout)
		defer cancel()
		return float64(s.pool.Queued(ctx))
	}))
	return h
}

// counting counts a response as it is written. done must be called.
func (h *httpMetrics) counting(w http.ResponseWriter, r *http.Request) (_ *counted, done func()) {
	c, begun := &counted{ResponseWriter: w, status: http.StatusOK}, time.Now()
	if h == nil {
		return c, func() {}
	}
	h.active.Inc()
	return c, func() {
		route := r.Pattern // the pattern of a route
		if route == "" {
			route = "none"
		}
		h.active.Dec()
		h.requests.WithLabelValues(route, strconv.Itoa(c.status)).Inc()
		h.took.WithLabelValues(route).Observe(time.Since(begun).Seconds())
	}
}

// counted records the status of a response.
type counted struct {
	http.ResponseWriter
	status int
	wrote  bool
	by     sender // who has sent the request, once that is known
}

// WriteHeader implements [http.ResponseWriter].
func (c *counted) WriteHeader(status int) {
	if !c.wrote && status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		c.status, c.wrote = status, true
	}
	c.ResponseWriter.WriteHeader(status)
}

// Unwrap lets [http.ResponseController] reach the connection.
func (c *counted) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// metrics writes all metrics.
func (c *call) metrics() (any, error) {
	if c.http == nil {
		return nil, toolcrib.Errorf(toolcrib.CodeNotFound, "this server has no metrics")
	}
	c.wrote = true
	c.http.handler.ServeHTTP(c.w, c.r)
	return nil, nil
}

// openRuns collects the number of runs that have not ended, by status, from the store.
type openRuns struct {
	*prometheus.GaugeVec
	s  *Server
	mu sync.Mutex
	at time.Time
}

// Collect implements [prometheus.Collector]. If the store cannot be read, it sends nothing.
func (o *openRuns) Collect(to chan<- prometheus.Metric) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Since(o.at) > countEvery {
		ctx, cancel := context.WithTimeout(context.Background(), countTimeout)
		defer cancel()
		open, err := o.s.Service.OpenRuns(ctx)
		if err != nil {
			open = nil
		}
		o.Reset()
		for status, n := range open {
			o.WithLabelValues(string(status)).Set(float64(n))
		}
		o.at = time.Now()
	}
	o.GaugeVec.Collect(to)
}
