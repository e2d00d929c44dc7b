package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/store"
)

// routes returns the table of all routes.
func (s *Server) routes() ([]route, error) {
	run := reflect.TypeFor[service.Run]()
	begins := func(path, summary string, r route) route {
		r.path, r.summary, r.events, r.also, r.answer = path, summary, true, http.StatusAccepted, run
		r.query = []param{onceParam, attendsParam}
		return r
	}
	events := get("/api/runs/{id}/events", "The events of a run so far, then live", (*call).followRun,
		afterParam, param{"Last-Event-ID", kindOrdinal, "the same, as browsers send it"},
		param{"until", kindText, "now, pause or end (default): where the stream ends"}, attendsParam)
	events.events, events.answer = true, nil
	resume := begins("/api/runs/{id}/resume", "Continue a run", send(http.MethodPost, "", "", (*call).resumeRun))
	resume.query = append(resume.query, afterParam)
	open := func(r route) route {
		r.open, r.probe = true, r.path != "/api/openapi.json"
		return r
	}
	ready := open(get("/readyz", "Readiness", (*call).ready))
	ready.also = http.StatusServiceUnavailable
	metrics := get("/metrics", "Metrics in the form of Prometheus, for administrators", (*call).metrics)
	metrics.media = "text/plain"
	// Access tokens of administrators may, whatever their scope.
	metrics.may = func(c *call) error { return c.Service.People.Watches(c, c.who) }
	export := get("/api/runs/{id}/export", "The whole journal of a run, as lines of JSON", (*call).exportRun)
	export.media = "application/x-ndjson"
	socket := get("/api/ws", "Start and follow runs over a WebSocket", (*call).socket)
	socket.also = http.StatusSwitchingProtocols
	list := []route{
		open(get("/healthz", "Liveness", (*call).healthy)),
		ready,
		metrics,
		open(get("/api/openapi.json", "This document", (*call).openAPI)),

		begins("/api/runs", "Start a run", send(http.MethodPost, "", "", (*call).startRun)),
		get(
			"/api/runs", "Runs, newest first", (*call).listRuns,
			param{"status", kindText, "statuses, interrupted or parked, separated by commas"},
			param{"user", kindText, "only of this user"}, param{"agent", kindText, "only of this agent"},
			param{"session", kindText, "only of this session"}, idParam,
			param{"top_level", kindSwitch, "only those that no other run started"},
			param{"prompts", kindSwitch, "with the beginning of what each was asked"},
			param{"parent", kindText, "only those that this run started"},
			sinceParam, limitParam, cursorParam,
		),
		get("/api/runs/{id}", "A run", (*call).showRun),
		events,
		ofRun("/api/runs/{id}/messages", "What was said in a run and before it", (*call).transcript),
		ofRun("/api/runs/{id}/verify", "Check the hash chain of a run", (*call).verifyRun),
		ofRun("/api/runs/{id}/replay", "Go through a run again, without a model and tools", (*call).replayRun),
		export,
		forAdministrators(send(http.MethodPost, "/api/runs/prune", "Remove runs for good, or their content",
			(*call).pruneRuns)),
		forAdministrators(send(http.MethodPost, "/api/runs/import", "Import an exported run", (*call).importRun)),
		send(http.MethodPost, "/api/runs/{id}/cancel", "Cancel a run", (*call).cancelRun),
		send(http.MethodPost, "/api/runs/{id}/tool_results", "Submit results of client tool calls", (*call).toolResults),
		send(http.MethodPost, "/api/runs/{id}/message", "Send a message to a run", (*call).sayToRun),
		resume,
		begins("/api/runs/{id}/fork", "Start a new run from a round of this one",
			send(http.MethodPost, "", "", (*call).forkRun)),
	}
	list = append(list, nouns()...)
	list = append(list, signInRoutes()...)
	list = append(list, busRoutes()...)
	list = append(list, conversationRoutes()...)
	list = append(list, mcpRoutes()...)
	list = append(list, teamRoutes(begins)...)
	list = append(list, channelRoute())
	list = append(list, v1Routes()...)
	list = append(list, socket)
	for i := range list {
		if list[i].body == nil {
			continue
		}
		if err := list[i].compile(); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (c *call) healthy() (api.Health, error) { return api.Health{Status: "ok"}, nil }

// readyFor is how long an answer about readiness is valid, so that probes do not load the store.
const (
	readyFor     = time.Second
	readyTimeout = 5 * time.Second // for the store to answer
)

// readiness caches the last answer about readiness.
type readiness struct {
	mu   sync.Mutex
	at   time.Time
	last api.Readiness
}

func (c *call) ready() (api.Readiness, error) {
	c.readiness.mu.Lock()
	defer c.readiness.mu.Unlock()
	if time.Since(c.readiness.at) > readyFor {
		out := api.Readiness{Ready: true, Missing: []string{}}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c), readyTimeout)
		defer cancel()
		if err := c.Service.Reachable(ctx); err != nil {
			c.Log.Error("the server is not ready", "request_id", c.w.Header().Get("X-Request-ID"), "error", err)
			out = api.Readiness{Missing: []string{"database"}}
			if errors.Is(err, store.ErrFull) {
				out.Missing = []string{"disk space"}
			}
		}
		out.Degraded = c.pool.Degraded()
		c.readiness.at, c.readiness.last = time.Now(), out
	}
	out := c.readiness.last
	if !out.Ready {
		c.wrote = true
		c.w.Header().Set("Retry-After", strconv.Itoa(int(storeRetry/time.Second)))
		c.Server.answer(c.w, http.StatusServiceUnavailable, out)
	}
	return out, nil
}

func (c *call) openAPI() (any, error) {
	at, err := json.Marshal([]object{{"url": c.origin()}})
	if err != nil {
		return nil, err
	}
	c.wrote = true
	written(c.w, http.StatusOK, slices.Concat([]byte(`{"servers":`), at, []byte{','}, c.document[1:]))
	return nil, nil
}
