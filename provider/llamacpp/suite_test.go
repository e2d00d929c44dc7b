package llamacpp_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/llamacpp"
	"github.com/toolcrib/toolcrib/provider/wire"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, target modeltest.Target) *llamacpp.Model {
	t.Helper()
	m, err := llamacpp.New(llamacpp.Options{Options: wire.Options{
		BaseURL: target.BaseURL, APIKey: target.APIKey, NoStream: target.NoStream, Transport: target.Transport, Proxy: wire.ProxyNone,
		ConnectTimeout: target.ConnectTimeout, FirstTokenTimeout: target.FirstTokenTimeout, IdleTimeout: target.IdleTimeout,
		MaxReplyBytes: target.MaxReplyBytes,
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func TestModel(t *testing.T) {
	for name, noStream := range map[string]bool{"stream": false, "whole": true} {
		t.Run(name, func(t *testing.T) {
			modeltest.Run(t, modeltest.Subject{Thinking: true, New: func(t *testing.T, replies ...toolcrib.Reply) toolcrib.Model {
				server := modeltest.NewServer(modeltest.LlamaCpp, modeltest.ServerOptions{Steps: modeltest.Steps(replies...), ByTurn: true})
				return open(t, modeltest.Target{BaseURL: server.Start(t), NoStream: noStream})
			}})
		})
	}
}

func TestHTTP(t *testing.T) {
	modeltest.RunHTTP(t, modeltest.HTTPSubject{Dialect: modeltest.LlamaCpp, New: func(t *testing.T, target modeltest.Target) toolcrib.Model {
		return open(t, target)
	}})
}
