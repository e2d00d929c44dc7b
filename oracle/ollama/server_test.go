package ollama

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ollama/ollama/api"
)

const modelName = "played"

// real builds Ollama once, starts it with the model, and returns its address. It
// skips the test with -short, and without what the build needs.
func real(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: NOT TRIED AGAINST A REAL OLLAMA: it is built and started without -short (scripts/sweep)")
	}
	for _, header := range []string{"/usr/include/nlohmann/json.hpp", "/usr/include/stb/stb_image.h"} {
		if _, err := os.Stat(header); err != nil {
			t.Skipf("SKIPPED: NOT TRIED AGAINST A REAL OLLAMA: %v (Debian: apt-get install g++ nlohmann-json3-dev libstb-dev)", err)
		}
	}
	once.Do(func() { address = start(t) })
	if address == "" {
		t.Fatal("Ollama did not start; see the first test that failed")
	}
	return address
}

var (
	once    sync.Once
	address string
	stop    func()
)

func TestMain(m *testing.M) {
	code := m.Run()
	if stop != nil {
		stop()
	}
	os.Exit(code)
}

// start builds and starts the server and gives it the model. The server lives until
// the end of all tests.
func start(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ollama-*")
	if err != nil {
		t.Fatal(err)
	}
	include, err := filepath.Abs("testdata/include")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "ollama")
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/ollama/ollama").Output()
	if err != nil {
		t.Fatal(err)
	}
	// In its own module, so that it has the versions that it was made with.
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = strings.TrimSpace(string(module))
	build.Env = append(os.Environ(), "CGO_ENABLED=1", "CGO_CXXFLAGS=-O2 -I"+include)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build of Ollama: %v\n%s", err, out)
	}

	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	logFile, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	server := exec.CommandContext(ctx, program, "serve")
	server.Env = []string{
		"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "OLLAMA_HOST=" + at, "OLLAMA_MODELS=" + filepath.Join(dir, "models"),
		"OLLAMA_NOPRUNE=1", "OLLAMA_KEEP_ALIVE=10m", "OLLAMA_LLM_LIBRARY=cpu",
	}
	server.Stdout, server.Stderr = logFile, logFile
	server.Cancel = func() error { return server.Process.Signal(os.Interrupt) }
	server.WaitDelay = 10 * time.Second
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	stop = func() {
		cancel()
		_ = server.Wait() // it was interrupted
		_ = os.RemoveAll(dir)
	}
	t.Cleanup(func() {
		if t.Failed() {
			text, _ := os.ReadFile(logFile.Name())
			t.Logf("Ollama's log ends with:\n%s", text[max(0, len(text)-8000):])
		}
	})

	client := api.NewClient(&url.URL{Scheme: "http", Host: at}, http.DefaultClient)
	for deadline := time.Now().Add(time.Minute); client.Heartbeat(t.Context()) != nil; {
		if time.Now().After(deadline) {
			t.Fatal("Ollama does not answer")
		}
		time.Sleep(50 * time.Millisecond) // a process of its own: there is no event to wait for
	}
	gguf, err := os.ReadFile(writeModel(t))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(gguf)
	digest := "sha256:" + hex.EncodeToString(sum[:])
	if err := client.CreateBlob(t.Context(), digest, bytes.NewReader(gguf)); err != nil {
		t.Fatal(err)
	}
	t.Logf("the model has %d bytes", len(gguf))
	err = client.Create(t.Context(), &api.CreateRequest{
		Model: modelName, Files: map[string]string{"model.gguf": digest}, Template: template,
		Parameters: map[string]any{"temperature": 0, "num_thread": 1, "stop": []string{endOfText}},
	}, func(api.ProgressResponse) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return "http://" + at
}
