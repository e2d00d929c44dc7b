package shell_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/tool/shell"
)

// secured runs a line that downloads from a server over TLS, once where it is listed and once where it is not. BASE in
// the line is the server's address, and ca.pem is its certificate.
func secured(t *testing.T, programs []string, serve func(base string) http.Handler, files map[string]string, line string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("SKIP: %s is not installed; with it, a download through the proxy over TLS is tested here", program)
		}
	}
	var handler http.Handler
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	defer server.Close()
	host := "packages.example.com" + port(server) // the certificate of httptest has *.example.com
	base := "https://" + host
	handler = serve(base)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	for _, listed := range []bool{true, false} {
		n := shell.Network{Hosts: []string{"other.test"}}
		if listed {
			n.Hosts = []string{host}
		}
		dir := folder(t)
		write(t, filepath.Join(dir, "ca.pem"), string(ca))
		for name, text := range files {
			write(t, filepath.Join(dir, name), text)
		}
		home, _ := os.UserHomeDir() // without one, only the system's programs are there
		r, err := runIn(t.Context(), t, reaching(t, n, home), callOf(t, dir, strings.ReplaceAll(line, "BASE", base), 200))
		switch {
		case err != nil:
			t.Error(err)
		case listed && (r.ExitCode != 0 || !strings.Contains(r.Stdout, "downloaded")):
			t.Errorf("%+v", r)
		case !listed && (r.ExitCode == 0 || !strings.Contains(r.Hint, "The network refused "+host)):
			t.Errorf("not listed: %+v", r)
		}
	}
}

// git clones over https, by its own protocol.
func TestPackages_Git(t *testing.T) {
	t.Parallel()
	path, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Skip("SKIP: git is not installed; with it, it clones through the proxy here")
	}
	backend := filepath.Join(strings.TrimSpace(string(path)), "git-http-backend")
	if _, err := os.Stat(backend); err != nil {
		t.Skip("SKIP: git-http-backend is not installed; with it, git clones through the proxy here")
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "greet", "text"), "downloaded\n")
	for _, args := range [][]string{
		{"init", "-q", "greet"},
		{"-C", "greet", "add", "."},
		{"-C", "greet", "-c", "user.name=Ada", "-c", "user.email=ada@example.com", "commit", "-q", "-m", "A text"},
		{"clone", "-q", "--bare", "greet", "greet.git"},
	} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", args, err, out)
		}
	}
	serve := func(string) http.Handler {
		return &cgi.Handler{Path: backend, Env: []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1"}}
	}
	secured(t, nil, serve, nil,
		"export GIT_SSL_CAINFO=$PWD/ca.pem; git clone -q BASE/greet.git && cat greet/text && git -C greet fetch -q")
}

// cargo fetches a crate from a sparse registry.
func TestPackages_Cargo(t *testing.T) {
	t.Parallel()
	version, _ := exec.CommandContext(t.Context(), "cargo", "--version").Output()
	minor := 0
	if _, err := fmt.Sscanf(string(version), "cargo 1.%d", &minor); err != nil || minor < 68 {
		t.Skip("SKIP: cargo 1.68 or newer is not installed; with it, it fetches a crate through the proxy here")
	}
	var b bytes.Buffer
	zipped := gzip.NewWriter(&b)
	w := tar.NewWriter(zipped)
	for _, file := range [][2]string{
		{"greet-1.0.0/Cargo.toml", "[package]\nname = \"greet\"\nversion = \"1.0.0\"\nedition = \"2021\"\n"},
		{"greet-1.0.0/src/lib.rs", "pub const TEXT: &str = \"downloaded\";\n"},
	} {
		if err := w.WriteHeader(&tar.Header{Name: file[0], Mode: 0o644, Size: int64(len(file[1]))}); err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(w, file[1])
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	serve := func(base string) http.Handler {
		m := http.NewServeMux()
		m.HandleFunc("/index/config.json", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"dl": "%s/dl/{crate}-{version}"}`, base)
		})
		m.HandleFunc("/index/gr/ee/greet", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"name": "greet", "vers": "1.0.0", "deps": [], "cksum": "%x", "features": {}, "yanked": false}`,
				sha256.Sum256(b.Bytes()))
		})
		m.HandleFunc("/dl/greet-1.0.0", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(b.Bytes()) })
		return m
	}
	secured(t, []string{"cc"}, serve, map[string]string{
		"Cargo.toml": "[package]\nname = \"x\"\nversion = \"1.0.0\"\nedition = \"2021\"\n\n" +
			"[dependencies]\ngreet = {version = \"1.0.0\", registry = \"packages\"}\n",
		"src/main.rs": "fn main() { println!(\"{}\", greet::TEXT) }\n",
	}, "export CARGO_HTTP_CAINFO=$PWD/ca.pem CARGO_NET_RETRY=0 CARGO_REGISTRIES_PACKAGES_INDEX=sparse+BASE/index/; cargo run -q 2>&1")
}
