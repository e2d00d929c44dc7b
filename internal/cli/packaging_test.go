package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The systemd unit is one that systemd takes, and starts the server as docs/serve.md says.
func TestSystemdUnit(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "packaging", "toolcrib.service"))
	if err != nil {
		t.Fatal(err)
	}
	unit := string(text)
	for _, line := range []string{
		"Type=notify", "ExecStart=/usr/local/bin/toolcrib --config /etc/toolcrib/toolcrib.yaml --data-dir /var/lib/toolcrib serve",
		"ExecReload=/bin/kill -HUP $MAINPID", "User=toolcrib", "NoNewPrivileges=yes", "ProtectSystem=strict",
	} {
		if !strings.Contains(unit, "\n"+line+"\n") {
			t.Errorf("there is no %s", line)
		}
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("SKIP: needs systemd-analyze (apt install systemd)")
	}
	path := filepath.Join(t.TempDir(), "toolcrib.service")
	installed := strings.ReplaceAll(unit, "/usr/local/bin/toolcrib", "/bin/true")
	if err := os.WriteFile(path, []byte(installed), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), analyze, "verify", path).CombinedOutput(); err != nil ||
		strings.Contains(string(out), "toolcrib.service:") {
		t.Errorf("%v\n%s", err, out)
	}
}
