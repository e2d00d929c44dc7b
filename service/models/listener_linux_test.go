package models

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/config"
)

// A listener of another login user is neither detected nor sent anything, even if it was confirmed. A system user may
// listen.
func TestDetectOllama_OtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give a socket to somebody else")
	}
	for _, name := range []string{"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"} {
		t.Setenv(name, "")
	}
	for _, k := range []struct {
		uid   int
		model string
	}{{0, "ollama/only"}, {999, "ollama/only"}, {61200, "ollama/only"}, {12345, "offline/offline"}} {
		var asked atomic.Int64
		// A socket of multipath TCP keeps the owner that it was created with.
		var plain net.ListenConfig
		plain.SetMultipathTCP(false)
		listener, err := plain.Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		raw, err := listener.(*net.TCPListener).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var owned error
		if err := raw.Control(func(fd uintptr) { owned = syscall.Fchown(int(fd), k.uid, -1) }); err != nil || owned != nil {
			t.Fatal(err, owned)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			fmt.Fprint(w, `{"models":[{"name":"only"}]}`)
		})}
		go server.Serve(listener)
		t.Cleanup(func() { server.Close() })
		at := "http://" + listener.Addr().String()
		a := detecting(t, at)
		if _, err := a.env.Mark(confirmedFolder, at); err != nil {
			t.Fatal(err)
		}
		found := a.Detect(false)
		foreign := strings.Contains(found.Why, "belongs to user 12345")
		if found.Model.Name() != k.model || foreign != (k.uid == 12345) || (asked.Load() > 0) == foreign {
			t.Errorf("uid %d: %s (%s), asked %d times", k.uid, found.Model.Name(), found.Why, asked.Load())
		}
		// If it is named by its type alone, it is not asked either.
		t.Setenv("OLLAMA_HOST", at)
		model, err := a.Adapter("ollama", config.Provider{Type: config.TypeOllama})
		if err != nil {
			t.Fatal(err)
		}
		var failed *toolcrib.ModelError
		err = model.(interface{ Check(context.Context) error }).Check(t.Context())
		if refused := errors.As(err, &failed) && failed.Class == toolcrib.ErrAuth; refused != foreign {
			t.Errorf("uid %d: %v", k.uid, err)
		}
	}
}
