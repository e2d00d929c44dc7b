package trust_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/toolcrib/toolcrib/internal/trust"
)

// A record that another user has made trusts nothing, also where its folder is shared.
func TestRecordOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: only root can make a file of another user")
	}
	shared, err := os.MkdirTemp("", "shared")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(shared)
	project, record := filepath.Join(shared, "project"), filepath.Join(shared, "trust.json")
	s := trust.NewStore(record)
	const content = "agents: {}\n"
	for _, err := range []error{
		os.Chmod(shared, 0o755), os.Mkdir(project, 0o755),
		os.WriteFile(filepath.Join(project, "toolcrib.yaml"), []byte(content), 0o644),
		s.TrustFiles(project, []trust.File{{Name: "toolcrib.yaml", Hash: trust.Hash([]byte(content))}}),
		os.Chmod(record, 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	const me, somebody = 65533, 65534
	for owner, trusted := range map[int]bool{0: true, me: true, somebody: false} {
		if err := os.Chown(record, owner, 0); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Seteuid(me); err != nil {
			t.Skip("SKIPPED: ", err)
		}
		state, err := s.State(filepath.Join(project, "toolcrib.yaml"), trust.Hash([]byte(content)))
		if err := syscall.Seteuid(0); err != nil {
			t.Fatal(err)
		}
		if got := state == trust.Trusted && err == nil; got != trusted {
			t.Errorf("of %d: %q, error %v", owner, state, err)
		}
		if !trusted && (err == nil || !strings.Contains(err.Error(), "belongs to another user")) {
			t.Errorf("of %d: error %v", owner, err)
		}
	}
}
