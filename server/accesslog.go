package server

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/service/people"
)

// maxLoggedPath bounds the path in a line of the access log.
const maxLoggedPath = 256

// sender is who has sent a request: the user, and the ID of the access token or of the session.
type sender struct{ user, token, session string }

// sentBy records who has sent the request of a call, for the access log.
func (c *call) sentBy(who toolcrib.Principal) {
	for w := c.w; ; {
		switch of := w.(type) {
		case *counted:
			of.by = sender{user: who.User, token: who.TokenID()}
			if cookie := c.sessionOf(c.r); cookie != "" {
				of.by.session = people.SessionID(cookie)
			}
			return
		case interface{ Unwrap() http.ResponseWriter }:
			w = of.Unwrap()
		default:
			return
		}
	}
}

// logRequest writes a line about a request that was answered. The query is left out, since it may hold what only the
// user may read.
func (s *Server) logRequest(w *counted, r *http.Request, id string, began time.Time) {
	if !s.Service.Current().Env.Config.Log.Requests {
		return
	}
	level := slog.LevelInfo
	polled := strings.HasPrefix(r.URL.Path, "/assets/") || r.URL.Path == "/metrics" || r.URL.Path == "/healthz" ||
		r.URL.Path == "/readyz"
	if polled && w.status < http.StatusBadRequest {
		level = slog.LevelDebug
	}
	attrs := []slog.Attr{
		slog.String("method", guard.Clip(r.Method, 16)), slog.String("path", guard.Clip(r.URL.Path, maxLoggedPath)),
		slog.Int("status", w.status), slog.Int64("duration_ms", time.Since(began).Milliseconds()),
		slog.String("user", cmp.Or(w.by.user, "-")), slog.String("address", s.web.Address(r)),
		slog.String("request_id", id),
	}
	if w.by.token != "" {
		attrs = append(attrs, slog.String("token", w.by.token))
	}
	if w.by.session != "" {
		attrs = append(attrs, slog.String("session", w.by.session))
	}
	s.Log.LogAttrs(context.WithoutCancel(r.Context()), level, "request", attrs...)
}
