package cli_test

import (
	"strings"
	"testing"
)

// Without a command a terminal has a conversation (contract §3).
func TestTerminal_WithoutCommand(t *testing.T) {
	t.Parallel()
	l := newLab(t, `- {text: "Good day."}`)
	p := l.start(80, 24, nil, "--config", "c.yaml")
	p.wait("/help lists the commands")
	p.send("hello")
	p.wait("Good day.")
	p.keys("C-d")
	p.exits(0)
	p.wait("To continue: toolcrib --config *")
}

// A failed request is one line, without the record of the log.
func TestTerminal_FailedRequest(t *testing.T) {
	t.Parallel()
	l := newLab(t, `- {text: "Half of", error: overloaded}`)
	l.write("c.yaml", "retry: {first: 600ms}\nproviders: {demo: {type: script, file: demo.script}}\nagents: {default: {model: demo/x}}\n")
	p := l.chat(80, 24, nil)
	p.wait("/help lists the commands")
	p.send("hello")
	p.wait("· demo: overloaded, trying again in 0.5 s (2 of 3); ignore what was shown of")
	text := p.wait("✗ provider_failed: overloaded")
	if strings.Contains(text, "level=") || strings.Contains(text, "reply_restarted") {
		t.Errorf("it shows the log:\n%s", text)
	}
	p.keys("C-d")
	p.exits(0)
}
