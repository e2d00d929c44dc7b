package openai_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/openai"
	"github.com/toolcrib/toolcrib/provider/wire"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, target modeltest.Target) *openai.Model {
	t.Helper()
	target.Proxy = wire.ProxyNone
	m, err := openai.New(target)
	return modeltest.Opened(t, m, err)
}

func TestHTTP(t *testing.T) {
	modeltest.RunHTTP(t, modeltest.HTTPSubject{Dialect: modeltest.OpenAI, Refuses: refusesChat, New: func(t *testing.T, target modeltest.Target) toolcrib.Model {
		return open(t, target)
	}})
}
