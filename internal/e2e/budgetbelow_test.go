package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

const (
	spendingProcesses = 4
	requestsADay      = 10
)

// spender plays the models: the one at the top calls two agents at the same time, then
// answers; each of them reads a file, then answers.
func spender(_ int, body []byte) modeltest.Step {
	var req struct {
		Model    string
		Messages []struct{ Role string }
	}
	if err := json.Unmarshal(body, &req); err != nil {
		return modeltest.Step{Status: 400, ErrorText: err.Error()}
	}
	answered := slices.ContainsFunc(req.Messages, func(m struct{ Role string }) bool { return m.Role == "tool" })
	switch {
	case answered:
		return modeltest.Step{Reply: modeltest.Text("done")}
	case req.Model == "top":
		task := `{"agent":"helper","task":"Look."}`
		return modeltest.Step{Reply: ask(call("a", "spawn", task), call("b", "spawn", task))}
	}
	return modeltest.Step{Reply: ask(call("c", "list_directory", `{"path":"."}`))}
}

// N11: of four processes at the same time, each with a run that calls agents, all of
// one user with 10 requests a day, exactly 10 requests are sent, to a server that
// counts them; every run ends, and each journal comes out the same.
func TestN11_ProcessesWithSubAgentsShareABudget(t *testing.T) {
	server := modeltest.NewServer(modeltest.OpenAI, modeltest.ServerOptions{Next: spender})
	listener := httptest.NewServer(server.Handler())
	defer listener.Close()
	dir := t.TempDir()
	config := fmt.Sprintf(`
providers: {p: {type: openai, base_url: %s/v1, api_key: none}}
agents:
  default: {model: p/top}
  helper: {model: p/sub}
budgets: [{user: "*", requests_per_day: %d}]
`, listener.URL, requestsADay)
	path := filepath.Join(dir, "c.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	program := func(args ...string) (string, int) {
		cmd := exec.CommandContext(t.Context(), binary, append([]string{"--config", path}, args...)...)
		cmd.Dir = dir
		cmd.Env = []string{"HOME=" + filepath.Join(dir, "home"), "PATH=" + os.Getenv("PATH")}
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &said
		_ = cmd.Run() // its exit code tells
		return said.String(), cmd.ProcessState.ExitCode()
	}
	today := time.Now().UTC().YearDay()
	var work sync.WaitGroup
	for range spendingProcesses {
		work.Go(func() {
			if said, exit := program("run", "go"); exit != 0 && exit != 4 {
				t.Errorf("exit %d\n%s", exit, said)
			}
		})
	}
	work.Wait()
	if time.Now().UTC().YearDay() != today {
		t.Skip("a new day began meanwhile, and with it a new budget")
	}
	if err := server.Errors(); err != nil || server.Count() != requestsADay {
		t.Errorf("%d requests were sent, want %d (%v)", server.Count(), requestsADay, err)
	}
	var used struct{ Total struct{ Requests int } }
	said, _ := program("usage", "--by", "user", "--json")
	if err := json.Unmarshal([]byte(said), &used); err != nil || used.Total.Requests != requestsADay {
		t.Errorf("usage tells (%v)\n%s", err, said)
	}
	for _, verb := range []string{"verify", "replay"} {
		if said, exit := program("runs", verb, "--all"); exit != 0 {
			t.Errorf("runs %s: exit %d\n%s", verb, exit, said)
		}
	}
	if said, _ := program("runs", "list", "--status", "running,queued,parked,interrupted", "--json"); strings.TrimSpace(said) != "[]" {
		t.Errorf("not all runs have ended:\n%s", said)
	}
}
