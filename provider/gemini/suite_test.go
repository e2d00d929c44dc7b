package gemini_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/gemini"
	"github.com/toolcrib/toolcrib/provider/wire"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, target modeltest.Target) *gemini.Model {
	t.Helper()
	target.Proxy = wire.ProxyNone
	m, err := gemini.New(target)
	return modeltest.Opened(t, m, err)
}

func TestHTTP(t *testing.T) {
	modeltest.RunHTTP(t, modeltest.HTTPSubject{Dialect: modeltest.Gemini, Refuses: refuses, New: func(t *testing.T, target modeltest.Target) toolcrib.Model {
		return open(t, target)
	}})
}

// After any history, every generation of models accepts the next
// request, as a single one or within a conversation (N12, N13).
func TestN12_HostileHistoryOfEveryGeneration(t *testing.T) {
	for name, base := range modeltest.HostileHistories() {
		for _, model := range []string{
			"gemini-3-pro-preview", "gemini-3.1-pro-preview", "gemini-3.5-flash", "gemini-2.5-pro", "gemini-2.5-flash", "gemini-2.5-flash-lite",
			"gemini-2.0-flash", "gemini-flash-latest", "gemma-3-27b-it", "models/gemini-3-flash-preview", "google/gemini-2.5-pro",
		} {
			if model == "gemma-3-27b-it" && len(base.Tools) > 0 {
				continue // not supported: the API reports it, and the loop uses the text protocol
			}
			t.Run(name+"/"+model, func(t *testing.T) {
				server := modeltest.NewServer(modeltest.Gemini, modeltest.ServerOptions{Refuses: refuses})
				m := open(t, modeltest.Target{BaseURL: server.Start(t)})
				req := *base
				req.Model = model
				if _, err := modeltest.Collect(t.Context(), m, &req); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
