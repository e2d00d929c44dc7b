package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestMain is the program itself where the test starts it.
func TestMain(m *testing.M) {
	if os.Getenv("EXAMPLE_RESUME") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// The program is killed while it measures in the second town. The first is not measured again.
func TestResume(t *testing.T) {
	dir := t.TempDir()
	begin := func() (*exec.Cmd, *bufio.Reader) {
		cmd := exec.CommandContext(t.Context(), os.Args[0], dir)
		cmd.Env = append(os.Environ(), "EXAMPLE_RESUME=1", "OPENAI_API_KEY=")
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, bufio.NewReader(out)
	}

	cmd, out := begin()
	for line := ""; line != "measuring in Bergen\n"; {
		var err error
		if line, err = out.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("the program ended before it was killed")
	}

	cmd, out = begin()
	text, err := io.ReadAll(out)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	want := []string{"measuring in Bergen", "measuring in Tromsø", "It is 4 °C in all of them."}
	if err != nil || !strings.HasPrefix(lines[0], "continues run_") || !slices.Equal(lines[1:], want) {
		t.Errorf("%v\n%s", err, text)
	}
}
