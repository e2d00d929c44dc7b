// Package npmtest finds what scripts/npm has installed, for tests.
package npmtest

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// at is where scripts/npm installs. It is looked for at the start: tests have homes of their own.
var at = func() string {
	if dir := os.Getenv("TOOLCRIB_NPM"); dir != "" {
		return dir
	}
	cache, _ := os.UserCacheDir() // then nothing is found
	return filepath.Join(cache, "toolcrib-npm")
}()

// Package is the folder of a package, such as openai@6.1.0, or of several in one word, as in
// scripts/npm. A test without it is skipped.
func Package(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(at, strings.NewReplacer("@", "_", "/", "_", " ", "_").Replace(name))
	if _, err := os.Stat(filepath.Join(dir, "done")); err != nil {
		t.Skipf("SKIPPED: NOT TRIED WITH %s, which is not installed; run scripts/npm", name)
	}
	return dir
}

// Node is the Node that current packages run on.
func Node(t *testing.T) string {
	t.Helper()
	name := "node-" + runtime.GOOS + "-" + strings.Replace(runtime.GOARCH, "amd64", "x64", 1)
	return filepath.Join(Package(t, name+"@22.23.3"), "node_modules", name, "bin", "node")
}

// Conformance returns the official conformance suite of MCP: the program that runs it, and its first
// argument.
func Conformance(t *testing.T) (node, suite string) {
	t.Helper()
	dir := Package(t, "@modelcontextprotocol/conformance@0.2.0-alpha.12")
	return Node(t), filepath.Join(dir, "node_modules/@modelcontextprotocol/conformance/dist/index.js")
}
