package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/internal/chattest"
	"github.com/toolcrib/toolcrib/internal/waittest"
)

// TestMain makes the test binary the program if it is called as that.
func TestMain(m *testing.M) {
	if os.Getenv("BOT") != "" {
		main()
	}
	os.Exit(m.Run())
}

// TestBot writes to the bot, approves its call by the button, and reads its answer.
func TestBot(t *testing.T) {
	tg := chattest.NewTelegram(t)
	dir := t.TempDir()
	page, err := os.ReadFile("toolcrib.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"toolcrib.yaml": strings.Replace(string(page), "  desk:\n", "  desk:\n    model: s/x\n", 1) +
			"data_dir: data\nlisten: 127.0.0.1:0\nproviders: {s: {type: script, file: script.yaml}}\n",
		"script.yaml": "- tool_calls: [{name: refund, arguments: {order: 17, eur: 20}}]\n- text: Done.\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "--config", "toolcrib.yaml", "serve")
	cmd.Dir, cmd.Env, cmd.Stderr = dir, append(os.Environ(), "BOT="+tg.Address(), "HOME="+dir), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Signal(os.Interrupt); _ = cmd.Wait() })

	me := chattest.Person{ID: "12345", Name: "Ann"}
	tg.Write(me, chattest.Message{Chat: "5", Text: "Refund order 17."})
	waittest.Until(t, "the call is asked about", func() bool { return len(tg.Sent()) == 1 })
	q := tg.Sent()[0]
	if !strings.Contains(q.Text, "refund") || !strings.Contains(q.Text, "17") {
		t.Errorf("%+v", q)
	}
	tg.Press(me, q, q.Buttons["Approve"])
	waittest.Until(t, "it is answered", func() bool {
		for _, one := range tg.Sent() {
			if one.Text == "Done." && one.Chat == "5" {
				return true
			}
		}
		return false
	})
}
