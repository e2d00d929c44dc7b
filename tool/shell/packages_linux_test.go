package shell_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/tool/shell"
)

// packaged runs lines that download a package from a server, once where it is listed and once where it is not.
func packaged(t *testing.T, program string, serve func(base string) http.HandlerFunc, files map[string]string, line, want string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("SKIP: %s is not installed; with it, it downloads a package through the proxy here", program)
	}
	var handler http.HandlerFunc
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler(w, r) }))
	defer server.Close()
	host := "packages.test" + port(server)
	base := "http://" + host
	handler = serve(base)
	for _, listed := range []bool{true, false} {
		n := shell.Network{Hosts: []string{"other.test"}}
		if listed {
			n.Hosts = []string{host}
		}
		dir := folder(t)
		for name, text := range files {
			write(t, filepath.Join(dir, name), text)
		}
		home, _ := os.UserHomeDir() // without one, only the system's programs are there
		r, err := runIn(t.Context(), t, reaching(t, n, home), callOf(t, dir, strings.ReplaceAll(line, "BASE", base), 200))
		switch {
		case err != nil:
			t.Error(err)
		case listed && (r.ExitCode != 0 || !strings.Contains(r.Stdout, want)):
			t.Errorf("%+v", r)
		case !listed && (r.ExitCode == 0 || !strings.Contains(r.Hint, "The network refused "+host)):
			t.Errorf("not listed: %+v", r)
		}
	}
}

func TestPackages_Go(t *testing.T) {
	t.Parallel()
	const module, version = "example.test/greet", "v1.0.0"
	text := "module " + module + "\n\ngo 1.20\n"
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, content := range map[string]string{"go.mod": text, "greet.go": "package greet\n\nconst Text = \"downloaded\"\n"} {
		w, err := z.Create(module + "@" + version + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(w, content)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	serve := func(string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			switch strings.TrimPrefix(r.URL.Path, "/"+module+"/@v/"+version) {
			case ".info":
				fmt.Fprintf(w, `{"Version": %q, "Time": "2020-01-01T00:00:00Z"}`, version)
			case ".mod":
				fmt.Fprint(w, text)
			case ".zip":
				_, _ = w.Write(b.Bytes())
			default:
				http.NotFound(w, r)
			}
		}
	}
	packaged(t, "go", serve, map[string]string{
		"go.mod": "module x\n\ngo 1.20\n\nrequire " + module + " " + version + "\n",
	}, "export GOPROXY=BASE GONOSUMDB=example.test GOFLAGS=-mod=mod; go mod download && cat $(go list -m -f {{.Dir}} "+module+")/greet.go 2>&1",
		"downloaded")
}

func TestPackages_NPM(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	zipped := gzip.NewWriter(&b)
	w := tar.NewWriter(zipped)
	for _, file := range [][2]string{
		{"package/package.json", `{"name": "greet", "version": "1.0.0", "main": "index.js"}`},
		{"package/index.js", `module.exports = "downloaded"`},
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
	sum := sha512.Sum512(b.Bytes())
	serve := func(base string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/greet":
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(map[string]any{
					"name": "greet", "dist-tags": map[string]string{"latest": "1.0.0"},
					"versions": map[string]any{"1.0.0": map[string]any{
						"name": "greet", "version": "1.0.0", "dist": map[string]string{
							"tarball": base + "/greet.tgz", "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:]),
						},
					}},
				})
			case "/greet.tgz":
				_, _ = w.Write(b.Bytes())
			default:
				http.NotFound(w, r)
			}
		}
	}
	packaged(t, "npm", serve, map[string]string{"package.json": `{"name": "x", "version": "1.0.0"}`},
		`npm install --registry BASE --no-audit --no-fund --fetch-retries 0 greet && node -p 'require("greet")'`, "downloaded")
}

func TestPackages_Pip(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	const info = "greet-1.0.0.dist-info/"
	for _, file := range [][2]string{
		{"greet.py", "text = 'downloaded'\n"},
		{info + "METADATA", "Metadata-Version: 2.1\nName: greet\nVersion: 1.0.0\n"},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "RECORD", "greet.py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n"},
	} {
		w, err := z.Create(file[0])
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(w, file[1])
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	const wheel = "greet-1.0.0-py3-none-any.whl"
	serve := func(base string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/simple/greet/":
				w.Header().Set("Content-Type", "text/html")
				fmt.Fprintf(w, `<!DOCTYPE html><html><body><a href="%s/%s">%s</a></body></html>`, base, wheel, wheel)
			case "/" + wheel:
				_, _ = w.Write(b.Bytes())
			default:
				http.NotFound(w, r)
			}
		}
	}
	packaged(t, "pip", serve, nil, `python3 -m pip install --index-url BASE/simple/ --trusted-host packages.test --retries 0 --target lib greet; `+
		`PYTHONPATH=lib python3 -c 'import greet; print(greet.text)'`, "downloaded")
}
