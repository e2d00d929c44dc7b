package server_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/internal/npmtest"
)

// The document has nothing that generators of clients are known to reject.
func TestContract9_Document(t *testing.T) {
	h := open(t, "")
	_, _, text := h.ask("GET", "/api/openapi.json", "", "")
	var doc struct {
		Servers []struct{ URL string }
		Paths   map[string]map[string]struct {
			OperationID string
			Tags        []string
			Security    *[]any
			Responses   map[string]struct{ Content map[string]any }
		}
	}
	var whole map[string]any
	if json.Unmarshal(text, &doc) != nil || json.Unmarshal(text, &whole) != nil {
		t.Fatalf("%s", text)
	}
	if len(doc.Servers) != 1 || doc.Servers[0].URL != h.url {
		t.Errorf("servers: %+v, want %s, where the client has found it", doc.Servers, h.url)
	}
	noBooleans(t, "", whole["components"].(map[string]any)["schemas"])
	ids := map[string]string{}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			name := method + " " + path
			if op.OperationID == "" || ids[op.OperationID] != "" || len(op.Tags) != 1 {
				t.Errorf("%s: operationId %q, also of %q, tags %q", name, op.OperationID, ids[op.OperationID], op.Tags)
			}
			ids[op.OperationID] = name
			for status, answer := range op.Responses {
				if len(answer.Content) > 1 {
					t.Errorf("%s: %s has several types: %v", name, status, answer.Content)
				}
			}
			for _, status := range []string{"400", "401", "429", "500"} {
				_, ok := op.Responses[status]
				if open := op.Security != nil; !ok && (!open || status == "400" || status == "500") {
					t.Errorf("%s: no %s", name, status)
				}
			}
		}
	}
}

// noBooleans rejects schemas that are true or false; only additionalProperties may be.
func noBooleans(t *testing.T, at string, value any) {
	t.Helper()
	switch v := value.(type) {
	case map[string]any:
		for key, one := range v {
			if _, is := one.(bool); is && key != "additionalProperties" {
				t.Errorf("%s/%s is %v", at, key, one)
			}
			noBooleans(t, at+"/"+key, one)
		}
	case []any:
		for _, one := range v {
			noBooleans(t, at, one)
		}
	}
}

// generators generate clients.
const generators = "@redocly/cli@2.77.0 openapi-typescript@7.13.0 openapi-fetch@0.17.0 @hey-api/openapi-ts@0.99.0 " +
	"typescript@5.9.3"

// The document passes a linter, and the clients of three generators start a run, read it and its events, list it, and
// have the type of an error.
func TestContract9_GeneratedClients(t *testing.T) {
	h := open(t, "")
	h.script("demo.script", "- {text: hello}\n")
	token := h.token("ann", access.Scope{})
	_, _, document := h.ask("GET", "/api/openapi.json", "", "")
	prepare := func(t *testing.T) (dir string, run func(name string, args ...string) []byte) {
		dir = t.TempDir()
		if err := os.CopyFS(dir, os.DirFS("testdata/openapi")); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "openapi.json"), document, 0o600); err != nil {
			t.Fatal(err)
		}
		return dir, func(name string, args ...string) []byte {
			t.Helper()
			command := exec.Command(name, args...)
			var stderr bytes.Buffer
			command.Dir, command.Stderr = dir, &stderr
			out, err := command.Output()
			if err != nil {
				t.Fatalf("%s %q: %v\n%s%s", name, args, err, out, stderr.Bytes())
			}
			return out
		}
	}
	holds := func(t *testing.T, out []byte) {
		t.Helper()
		want := `{"content":"hello","last":"done","listed":true,"missing":"not_found","status":"completed"}`
		var got map[string]any
		_ = json.Unmarshal(out, &got)
		if text, err := json.Marshal(got); err != nil || string(text) != want {
			t.Errorf("%s\nwant %s", out, want)
		}
	}
	t.Run("oapi-codegen", func(t *testing.T) {
		t.Parallel()
		dir, run := prepare(t)
		download := exec.Command("go", "mod", "download")
		if download.Dir = dir; download.Run() != nil {
			t.Skip("SKIP: the modules of server/testdata/openapi/go.mod cannot be downloaded")
		}
		if err := os.Mkdir(filepath.Join(dir, "toolcrib"), 0o700); err != nil {
			t.Fatal(err)
		}
		run("go", "tool", "oapi-codegen", "-generate", "types,client", "-package", "toolcrib",
			"-o", "toolcrib/client.go", "openapi.json")
		holds(t, run("go", "run", ".", h.url, token))
	})
	t.Run("typescript", func(t *testing.T) {
		t.Parallel()
		modules, node := filepath.Join(npmtest.Package(t, generators), "node_modules"), npmtest.Node(t)
		dir, run := prepare(t)
		if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
			t.Fatal(err)
		}
		js := func(script string, args ...string) []byte {
			t.Helper()
			return run(node, slices.Insert(args, 0, filepath.Join("node_modules", script))...)
		}
		js("@redocly/cli/bin/cli.js", "lint", "openapi.json") // it fails for errors, not for warnings
		js("openapi-typescript/bin/cli.js", "openapi.json", "-o", "schema.d.ts")
		js("@hey-api/openapi-ts/bin/run.js", "-i", "openapi.json", "-o", "sdk", "-c", "@hey-api/client-fetch")
		js("typescript/bin/tsc", "--strict", "--skipLibCheck", "--target", "es2022", "--lib", "es2022,dom,dom.iterable",
			"--module", "node16", "--outDir", "out", "--rootDir", ".", "fetch.ts", "hey.ts")
		for _, client := range strings.Fields("fetch hey") {
			holds(t, run(node, "out/"+client+".js", h.url, token))
		}
	})
}
