package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

// vendors are whose keys are looked for in the environment, in their order.
var vendors = []struct{ variable, host, model string }{
	{"ANTHROPIC_API_KEY", "api.anthropic.com", "anthropic/claude-haiku-4-5"},
	{"OPENAI_API_KEY", "api.openai.com", "openai/gpt-5-mini"},
	{"GEMINI_API_KEY", "generativelanguage.googleapis.com", "gemini/gemini-2.5-flash"},
}

// A newcomer with nothing but a key in the environment runs the README's first
// command and gets that vendor's model, said on standard error; doctor tests it, and
// says how to fix a wrong key.
func TestNewcomer_OnlyAKey_N5(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only there a program's own authorities can be named in the environment")
	}
	for _, v := range vendors {
		t.Run(v.variable, func(t *testing.T) {
			env := internet(t)
			out, errs, exit := newcomer(t, append(env, v.variable+"="+testKey), "run", firstCommand(t))
			if exit != 0 || strings.TrimSpace(out) != "There is one." {
				t.Errorf("exit %d, %q\n%s", exit, out, errs)
			}
			if want := "no model is configured: using " + v.model + " (" + v.variable + " is set)"; !strings.Contains(errs, want) {
				t.Errorf("standard error lacks %q:\n%s", want, errs)
			}
			provider, _, _ := strings.Cut(v.model, "/")
			out, _, exit = newcomer(t, append(env, v.variable+"="+testKey), "doctor")
			if exit != 0 || !strings.Contains(out, provider+": answers, and takes the key (used because no model is configured: "+v.variable+" is set)") {
				t.Errorf("doctor: exit %d\n%s", exit, out)
			}
			out, _, exit = newcomer(t, append(env, v.variable+"=sk-wrong-key-456"), "doctor")
			if exit != 1 || !strings.Contains(out, "→ check the key: providers."+provider+".api_key") || strings.Contains(out, "sk-wrong-key-456") {
				t.Errorf("doctor with a wrong key: exit %d\n%s", exit, out)
			}
		})
	}
}

// firstCommand is the prompt of the README's first command.
func firstCommand(t *testing.T) string {
	t.Helper()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "go run ./cmd/toolcrib run \"")
	prompt, _, ok := strings.Cut(rest, "\"\n")
	if !ok {
		t.Fatal("the README's first command is not found")
	}
	return prompt
}

// newcomer runs the binary in a new folder with an empty home.
func newcomer(t *testing.T, env []string, args ...string) (out, errs string, exit int) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "README.md"), []byte("one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Dir = dir
	cmd.Env = append([]string{"HOME=" + filepath.Join(dir, "home"), "PATH=" + os.Getenv("PATH")}, env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var failed *exec.ExitError
	if err := cmd.Run(); errors.As(err, &failed) {
		exit = failed.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	return stdout.String(), stderr.String(), exit
}

// internet plays the vendors' hosts behind a proxy, under an authority of its own,
// and returns the environment in which they are reached.
func internet(t *testing.T) []string {
	t.Helper()
	steps := modeltest.Steps(ask(call("c_1", "search_files", `{"pattern":"test"}`)), say(words("There is one.")))
	hosts := map[string]http.Handler{}
	for _, v := range vendors {
		provider, _, _ := strings.Cut(v.model, "/")
		server := modeltest.NewServer(modeltest.Dialect(provider), modeltest.ServerOptions{Steps: steps, APIKey: testKey})
		t.Cleanup(func() {
			if err := server.Errors(); err != nil {
				t.Error(err)
			}
		})
		hosts[v.host] = server.Handler()
	}
	responses := modeltest.NewServer(modeltest.Responses, modeltest.ServerOptions{Steps: steps, APIKey: testKey})
	chat := hosts["api.openai.com"]
	hosts["api.openai.com"] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/responses") {
			responses.Handler().ServeHTTP(w, r)
			return
		}
		chat.ServeHTTP(w, r)
	})
	cert, authority := certificate(t)
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, authority, 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"SSL_CERT_FILE=" + file, "SSL_CERT_DIR=" + t.TempDir(), "HTTPS_PROXY=" + tunnel(t, cert, hosts)}
}

// certificate makes an authority and a certificate of it for the vendors' hosts.
func certificate(t *testing.T) (leaf tls.Certificate, authority []byte) {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	make := func(of, by *x509.Certificate, signer *ecdsa.PrivateKey) ([]byte, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(err)
		if signer == nil {
			signer = key
		}
		der, err := x509.CreateCertificate(rand.Reader, of, by, &key.PublicKey, signer)
		must(err)
		return der, key
	}
	now := time.Now()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, caKey := make(ca, ca, nil)
	server := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "vendors"}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, v := range vendors {
		server.DNSNames = append(server.DNSNames, v.host)
	}
	der, key := make(server, ca, caKey)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER})
}

// tunnel is a proxy that leads every CONNECT to the handler of its host, and returns
// its address.
func tunnel(t *testing.T, cert tls.Certificate, hosts map[string]http.Handler) string {
	t.Helper()
	var open sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		handler := hosts[host]
		if r.Method != http.MethodConnect || err != nil || handler == nil {
			http.Error(w, "there is no such host", http.StatusBadGateway)
			return
		}
		conn, _, err := w.(http.Hijacker).Hijack() //nolint:forcetypeassert // HTTP/1.1
		if err != nil {
			return
		}
		open.Add(1)
		go func() {
			defer open.Done()
			defer conn.Close()
			unhook := context.AfterFunc(ctx, func() { _ = conn.Close() })
			defer unhook()
			if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n"); err == nil {
				answer(tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{cert}}), handler)
			}
		}()
	}))
	t.Cleanup(func() {
		stop()
		proxy.Close()
		open.Wait()
	})
	return proxy.URL
}

// answer serves the requests of one connection, each answer in one piece.
func answer(conn net.Conn, handler http.Handler) {
	in := bufio.NewReader(conn)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		_, _ = io.Copy(io.Discard, r.Body)
		out := w.Result() //nolint:bodyclose // of a recorder
		out.TransferEncoding = []string{"chunked"}
		if out.Write(conn) != nil {
			return
		}
	}
}
