package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// In a conversation the person at the terminal is the one for whom the run
// acts: under four eyes nothing is asked, and who must approve is told.
func TestADR172_ChatOnATerminal(t *testing.T) {
	t.Parallel()
	l := newLab(t, `
- tool_calls: [{name: write_file, arguments: {path: four.txt, content: "x"}}]
- {text: done}
`)
	file, err := os.OpenFile(filepath.Join(l.dir, "c.yaml"), os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString("\napprovals: {four_eyes: true}\n"); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	p := l.chat(120, 40, nil)
	p.wait("/help")
	p.send("write it")
	p.wait("another person than local:")
	text := p.wait("approvals approve") // the line is wrapped where the folder's name is long
	if strings.Contains(text, "y yes") {
		t.Errorf("it is asked:\n%s", text)
	}
	p.keys("C-d")
	p.exits(3)
}
