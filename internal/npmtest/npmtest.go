// Package npmtest finds packages that scripts/npm has installed, for tests.
package npmtest

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// at is the folder of scripts/npm. It is determined at the start, because tests set other home folders.
var at = func() string {
	if dir := os.Getenv("TOOLCRIB_NPM"); dir != "" {
		return dir
	}
	cache, _ := os.UserCacheDir() // on error nothing is found
	return filepath.Join(cache, "toolcrib-npm")
}()

// Package returns the folder of a package, such as openai@6.1.0, or of several packages in one word, as
// in scripts/npm. A test is skipped if it is missing.
func Package(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(at, strings.NewReplacer("@", "_", "/", "_", " ", "_").Replace(name))
	if _, err := os.Stat(filepath.Join(dir, "done")); err != nil {
		t.Skipf("SKIPPED: NOT TRIED WITH %s, which is not installed; run scripts/npm", name)
	}
	return dir
}

// Node returns the Node program for current packages.
func Node(t *testing.T) string {
	t.Helper()
	name := "node-" + runtime.GOOS + "-" + strings.Replace(runtime.GOARCH, "amd64", "x64", 1)
	return filepath.Join(Package(t, name+"@22.23.3"), "node_modules", name, "bin", "node")
}

// Conformance returns the official conformance suite of MCP: the program that runs it, and its first argument.
func Conformance(t *testing.T) (node, suite string) {
	t.Helper()
	dir := Package(t, "@modelcontextprotocol/conformance@0.2.0-alpha.12")
	return Node(t), filepath.Join(dir, "node_modules/@modelcontextprotocol/conformance/dist/index.js")
}
