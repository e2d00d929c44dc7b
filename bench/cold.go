package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib/bench/stat"
)

// coldStart measures a whole `run` of the built binary with a script for a model:
// first on a new data folder, then on one that exists.
func coldStart(binary string) error {
	dir, err := os.MkdirTemp("", "toolcrib-cold-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	files := map[string]string{
		"toolcrib.yaml": "data_dir: " + filepath.Join(dir, "data") +
			"\nproviders:\n  demo: {type: script, file: demo.yaml}\nagents:\n  default: {model: demo/demo}\n",
		"demo.yaml": "- tool_calls: [{name: read_file, arguments: {path: toolcrib.yaml}}]\n- text: done\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	var took []time.Duration
	for i := range 22 {
		cmd := exec.Command(binary, "--config", filepath.Join(dir, "toolcrib.yaml"), "run", "go")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_STATE_HOME="+dir)
		began := time.Now()
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", cmd, err, out)
		}
		if i == 0 {
			fmt.Printf("\ncold start of run: %s with a new data folder", time.Since(began).Round(time.Millisecond))
			continue
		}
		took = append(took, time.Since(began))
	}
	fmt.Printf(", %s with one that exists (median of %d, best %s)\n", stat.Median(took).Round(time.Millisecond), len(took),
		slices.Min(took).Round(time.Millisecond))
	return nil
}
