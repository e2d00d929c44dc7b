package server

import (
	"context"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
)

// If the tokens cannot be read after the password was set, the error says that it is set.
func TestPassword_TokensUnread(t *testing.T) {
	s := service.New(env.Options{Config: &config.Config{}, DataDir: t.TempDir(), NoSandbox: func() string { return "" }})
	t.Cleanup(func() { _ = s.Close() })
	if err := s.Env.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, revoke := range []bool{false, true} {
		_, err := (&call{Context: ctx, Service: s}).passwordSet(toolcrib.Principal{User: "ann"}, revoke)
		if err == nil || !strings.Contains(err.Error(), "the password is set") {
			t.Errorf("revoke %t: %v", revoke, err)
		}
	}
}
