package serve_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/internal/npmtest"
)

// asked are tools that need an approval: in their scenarios it is toolcrib that needs an input, and whose
// state of a request is tampered with.
const asked = "    fix__test_input_required_result_elicitation: {confirm: always}\n" +
	"    fix__test_input_required_result_tampered_state: {confirm: always}\n"

// fixtures builds the official Go SDK's server for the suite.
func fixtures(t *testing.T) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "everything-server")
	build := exec.Command("go", "build", "-o", to, "github.com/modelcontextprotocol/go-sdk/conformance/everything-server")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // compiled as for the checks
	if out, err := build.CombinedOutput(); err != nil {
		t.Skipf("SKIP: the suite's fixtures cannot be built: %v\n%s", err, out)
	}
	return to
}

// behind is a home with a server that was reviewed, and is trusted, as fix.
func behind(t *testing.T, server, settings string) *home {
	t.Helper()
	h := newHome(t, fmt.Sprintf("tools:\n  confirm: never\n%smcpServers: {fix: {command: %s, trusted: true}}\n", settings, server))
	shown, err := h.command("mcp", "review", "fix").CombinedOutput() // exits with 2: nobody accepts it
	digest := regexp.MustCompile(`sha256:[0-9a-f]{64}`).Find(shown)
	if digest == nil {
		t.Fatalf("%s %v", shown, err)
	}
	h.toolcrib(0, "mcp", "review", "fix", "--digest", string(digest))
	return h
}

// TestConformance runs the official conformance suite through the whole of toolcrib: its fixtures are
// the official Go SDK's server for the suite, whose tools pass the gate, behind toolcrib serve. The
// suite knows the tools by their own names, so a proxy removes the server's name. Scenarios that do
// not pass are listed with reasons in testdata/conformance.yml; one that passes unexpectedly fails the
// test. With -short it is one scenario of about forty.
func TestConformance(t *testing.T) {
	node, suite := npmtest.Conformance(t)
	fixtures := fixtures(t)
	expected, err := filepath.Abs("testdata/conformance.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			h := behind(t, fixtures, "  settings:\n"+asked)
			server := h.house().fixtures()
			scenarios := []string{"--suite", "all", "--expected-failures", expected}
			if testing.Short() {
				scenarios = []string{"--scenario", "tools-call-with-progress"}
			}
			command := exec.Command(node, append([]string{
				suite, "server", "--url", server.URL,
				"--spec-version", version,
			}, scenarios...)...)
			command.Dir = h.work
			out, err := command.CombinedOutput()
			if _, summary, ok := strings.Cut(string(out), "SUMMARY"); ok {
				t.Logf("%s", summary)
			}
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
