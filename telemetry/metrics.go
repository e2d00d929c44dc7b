package telemetry

import (
	"cmp"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// maxValues bounds the values of a label that configuration, tools or models name; further values become other.
const maxValues = 200

// Metrics count events of the runs in this process.
type Metrics struct {
	Registry *prometheus.Registry

	runs, over, parks        *prometheus.CounterVec
	resumed                  prometheus.Counter
	requests, tokens, cost   *prometheus.CounterVec
	tools, refusals, answers *prometheus.CounterVec
	approvals                *prometheus.CounterVec
	took, first, ran         *prometheus.HistogramVec
	lasted, waited           prometheus.Histogram
	reloads                  *prometheus.CounterVec
	reloaded                 prometheus.Gauge

	agents, models, names bounded
}

// seconds are the buckets of durations from milliseconds to minutes.
var seconds = []float64{.005, .025, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// long are the buckets of durations up to days.
var long = []float64{1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 72 * 3600}

// NewMetrics returns metrics, including those of the process.
func NewMetrics(version string) *Metrics {
	m := &Metrics{Registry: prometheus.NewRegistry()}
	count := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "toolcrib_" + name, Help: help}, labels)
		m.Registry.MustRegister(c)
		return c
	}
	times := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "toolcrib_" + name, Help: help, Buckets: buckets,
		}, labels)
		m.Registry.MustRegister(h)
		return h
	}
	m.runs = count("runs_started_total", "Runs that were started, by agent.", "agent")
	m.over = count("runs_ended_total", "Runs that ended, by agent, status and stop reason.",
		"agent", "status", "stop_reason")
	m.parks = count("runs_parked_total", "How often a run parked, by what it waits for.", "status")
	m.resumed = count("runs_taken_up_total", "How often a run that was parked or cut off continued.").WithLabelValues()
	m.requests = count("model_requests_total", "Requests to models, by model and outcome (ok or an error class).",
		"model", "outcome")
	m.tokens = count("tokens_total", "Tokens, by model and kind (input, of which cached_input; output).", "model", "kind")
	m.cost = count("cost_usd_total", "Cost in US dollars, by model; of models without a known price 0.", "model")
	m.tools = count("tool_calls_total", "Calls of tools that ended, by tool and status; of refused ones without the tool.",
		"tool", "status")
	m.refusals = count("refusals_total", "Calls that the gate refused, by layer and reason.", "layer", "reason")
	m.approvals = count("approvals_requested_total", "Questions to a person, by kind.", "kind")
	m.answers = count("approvals_decided_total", "Decisions of people about them, by decision.", "decision")
	m.took = times("model_request_duration_seconds", "Time from a request to the end of its reply.", seconds, "model")
	m.first = times("model_first_token_seconds", "Time from a request to the first token of its reply.", seconds, "model")
	m.ran = times("tool_duration_seconds", "Time that calls of tools ran.", seconds, "tool")
	m.lasted = times("run_duration_seconds", "Time from the start of a run to its end, pauses included.",
		long).WithLabelValues().(prometheus.Histogram)
	m.waited = times("approval_wait_seconds", "Time until a decision.", long).WithLabelValues().(prometheus.Histogram)
	m.reloads = count("config_reloads_total", "Reloads of the configuration, by outcome (ok or rejected).", "outcome")
	m.reloaded = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "toolcrib_config_last_reload_successful", Help: "1 if the newest version of the configuration is in effect.",
	})
	m.reloaded.Set(1)
	built := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "toolcrib_build_info", Help: "1."}, []string{"version"})
	built.WithLabelValues(version).Set(1)
	m.Registry.MustRegister(m.reloaded, built, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Reloaded counts a reload of the configuration.
func (m *Metrics) Reloaded(ok bool) {
	outcome, now := "rejected", 0.0
	if ok {
		outcome, now = "ok", 1
	}
	m.reloads.WithLabelValues(outcome).Inc()
	m.reloaded.Set(now)
}

// bounded is a bounded set of values of a label.
type bounded struct {
	mu   sync.Mutex
	seen map[string]bool
}

func (b *bounded) of(value string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seen[value] {
		return value
	}
	if len(b.seen) >= maxValues || value == "" {
		return other
	}
	if b.seen == nil {
		b.seen = map[string]bool{}
	}
	b.seen[value] = true
	return value
}

// count counts an event. A call that was not executed may have any name.
func (m *Metrics) count(r *run, e toolcrib.Event) {
	switch b := e.Body.(type) {
	case *journal.RunStarted:
		m.runs.WithLabelValues(m.agents.of(r.agent)).Inc()
	case *journal.TakenUp:
		if b.Epoch > 1 {
			m.resumed.Inc()
		}
	case *journal.ModelFailed:
		if r.request != nil {
			m.requests.WithLabelValues(m.models.of(r.model().Ref), string(b.Class)).Inc()
		}
	case *journal.Usage:
		if r.request != nil {
			m.used(r, b)
		}
	case *journal.Verdicts:
		for i := range b.Verdicts {
			if v := &b.Verdicts[i]; v.Decision != toolcrib.Allow && v.Decision != toolcrib.Ask {
				m.refusals.WithLabelValues(layerOf(v.Reason), cmp.Or(string(v.Reason), other)).Inc()
			}
		}
	case *journal.ConfirmationRequired:
		m.approvals.WithLabelValues(string(b.Kind)).Inc()
	case *journal.ConfirmationResolved:
		if r.answers(b) {
			decision, _ := b.Overall()
			m.answers.WithLabelValues(decision).Inc()
			m.waited.Observe(e.Time.Sub(r.askedAt).Seconds())
		}
	case *journal.ToolResult:
		c, tool := r.calls[b.ToolCallID], other
		if c != nil && !c.began.IsZero() {
			tool = m.names.of(b.Name)
			m.ran.WithLabelValues(tool).Observe(float64(b.DurationMS) / 1000)
		}
		m.tools.WithLabelValues(tool, string(b.Status)).Inc()
	case *journal.Paused:
		m.parks.WithLabelValues(string(b.Status)).Inc()
	case *journal.Done:
		m.ended(r, e.Time, b.Status, b.StopReason)
	case *journal.Error:
		m.ended(r, e.Time, b.Status, b.StopReason)
	}
}

func (m *Metrics) used(r *run, b *journal.Usage) {
	model := m.models.of(r.model().Ref)
	m.requests.WithLabelValues(model, "ok").Inc()
	for kind, n := range map[string]int64{
		"input": b.Tokens.InputTokens, "cached_input": b.Tokens.CachedInputTokens, "output": b.Tokens.OutputTokens,
	} {
		if n > 0 {
			m.tokens.WithLabelValues(model, kind).Add(float64(n))
		}
	}
	if b.CostUSD > 0 {
		m.cost.WithLabelValues(model).Add(b.CostUSD)
	}
	if r.reply == nil {
		return
	}
	m.took.WithLabelValues(model).Observe(float64(r.reply.DurationMS) / 1000)
	if r.reply.FirstMS > 0 {
		m.first.WithLabelValues(model).Observe(float64(r.reply.FirstMS) / 1000)
	}
}

func (m *Metrics) ended(r *run, at time.Time, status toolcrib.Status, stop toolcrib.StopReason) {
	m.over.WithLabelValues(m.agents.of(r.agent), string(status), string(stop)).Inc()
	m.lasted.Observe(at.Sub(r.began).Seconds())
}
