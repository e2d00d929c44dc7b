package notify_test

import (
	"bufio"
	"encoding/base64"
	"io"
	"mime"
	"net"
	"net/mail"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/internal/notify"
)

// mailbox is a mail server that takes one connection. It refuses what begins with refuse.
func mailbox(t *testing.T, refuse string) (address string, got chan string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	got = make(chan string, 2)
	go func() {
		defer close(got)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		say := func(line string) { _, _ = io.WriteString(conn, line+"\r\n") }
		say("220 ready")
		for in := bufio.NewReader(conn); ; {
			line, err := in.ReadString('\n')
			switch {
			case err != nil:
				return
			case refuse != "" && strings.HasPrefix(line, refuse):
				say("550 no")
			case strings.HasPrefix(line, "EHLO"):
				say("250-here\r\n250 AUTH PLAIN")
			case strings.HasPrefix(line, "AUTH PLAIN"):
				sent, _ := base64.StdEncoding.DecodeString(strings.TrimSpace(strings.TrimPrefix(line, "AUTH PLAIN")))
				got <- string(sent)
				say("235 in")
			case strings.HasPrefix(line, "DATA"):
				say("354 go on")
				var text strings.Builder
				for line != ".\r\n" && err == nil {
					line, err = in.ReadString('\n')
					text.WriteString(line)
				}
				got <- strings.TrimSuffix(text.String(), ".\r\n")
				say("250 taken")
			default:
				say("250 ok")
			}
		}
	}()
	return l.Addr().String(), got
}

func TestMail(t *testing.T) {
	at, got := mailbox(t, "")
	to := "smtp://ann:secret@" + at + "/?from=crib@example.com&fromname=Crib&to=ann@example.com&subject=J%C3%B6rg"
	n := notify.New([]notify.Target{{Address: to}}, notify.Options{})
	m := message()
	if failed := n.Send(t.Context(), m); len(failed) > 0 {
		t.Fatal(failed)
	}
	if in := <-got; in != "\x00ann\x00secret" {
		t.Errorf("signed in with %q", in)
	}
	letter, err := mail.ReadMessage(strings.NewReader(<-got))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(base64.NewDecoder(base64.StdEncoding, letter.Body))
	if err != nil || !strings.Contains(string(text), "toolcrib: a run of agent default for alice waits for an approval") {
		t.Errorf("%v %s", err, text)
	}
	subject, err := new(mime.WordDecoder).DecodeHeader(letter.Header.Get("Subject"))
	if from := letter.Header.Get("From"); err != nil || subject != "J\u00f6rg" || from != `"Crib" <crib@example.com>` {
		t.Errorf("%v: subject %q, from %q", err, subject, from)
	}
	if _, err := letter.Header.Date(); err != nil {
		t.Error(err)
	}
}

func TestMail_Refused(t *testing.T) {
	for command, query := range map[string]string{
		"RCPT": "", "MAIL": "", "DATA": "", "AUTH": "", "STARTTLS": "&requirestarttls=yes", "TLS": "&encryption=ImplicitTLS&timeout=1s",
	} {
		at, got := mailbox(t, command)
		to := "smtp://ann:secret@" + at + "/?from=crib@example.com&to=ann@example.com" + query
		n := notify.New([]notify.Target{{Address: to}}, notify.Options{})
		failed := n.Send(t.Context(), message())
		if len(failed) != 1 || failed[0].Where != "smtp" || failed[0].Reason != "it did not take the message" {
			t.Errorf("%s: %+v", command, failed)
		}
		for text := range got {
			if strings.Contains(text, "MIME-Version") {
				t.Errorf("%s: sent %q", command, text)
			}
		}
	}
}
