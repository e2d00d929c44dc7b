package webhook_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/channel"
	"github.com/toolcrib/toolcrib/channel/webhook"
	"github.com/toolcrib/toolcrib/internal/notify"
)

var key = []byte("0123456789abcdef")

// Whatever is changed of a signed request, or a time that is too far off, is refused.
func TestC16_Signature(t *testing.T) { synctest.Test(t, signature) }

func signature(t *testing.T) {
	now := time.Now()
	h, err := webhook.New("https://example.com/replies", key)
	if err != nil {
		t.Fatal(err)
	}
	const body = `{"chat":"desk","sender":"ann","text":"hello"}`
	request := func(id, body string, at time.Time, key []byte) (http.Header, string) {
		head := http.Header{}
		head.Set("webhook-id", id)
		head.Set("webhook-timestamp", strconv.FormatInt(at.Unix(), 10))
		head.Set("webhook-signature", "v1,b3RoZXI= "+notify.Sign(key, id, at, []byte(body)))
		return head, body
	}
	head, _ := request("m1", body, now, key)
	m, err := h.Read(head.Get, []byte(body))
	if err != nil || m.ID != "m1" || m.Chat != "desk" || m.Sender != "ann" || m.Text != "hello" {
		t.Fatalf("%+v, %v", m, err)
	}
	for i := range body {
		changed := []byte(body)
		changed[i] ^= 1
		if _, err := h.Read(head.Get, changed); toolcrib.CodeOf(err) != toolcrib.CodeUnauthorized {
			t.Fatalf("%s: %v", changed, err)
		}
	}
	for name, value := range map[string]string{
		"webhook-id": "m2", "webhook-timestamp": strconv.FormatInt(now.Unix()+1, 10), "webhook-signature": "v1,AAAA",
	} {
		head, _ := request("m1", body, now, key)
		head.Set(name, value)
		if _, err := h.Read(head.Get, []byte(body)); toolcrib.CodeOf(err) != toolcrib.CodeUnauthorized {
			t.Errorf("%s: %v", name, err)
		}
		head.Del(name)
		if _, err := h.Read(head.Get, []byte(body)); toolcrib.CodeOf(err) != toolcrib.CodeUnauthorized {
			t.Errorf("without %s: %v", name, err)
		}
	}
	for off, good := range map[time.Duration]bool{
		5 * time.Minute: true, -5 * time.Minute: true, 301 * time.Second: false, -24 * time.Hour: false,
	} {
		head, _ := request("m1", body, now.Add(off), key)
		if _, err := h.Read(head.Get, []byte(body)); (err == nil) != good {
			t.Errorf("%s: %v", off, err)
		}
	}
	for _, odd := range []string{`{"chat":"a","sender":"ann"}`, `{"chat":"a","sender":"ann","text":" "}`, `{"chat":"desk"}`, `{"chat":"a","chat":"b","sender":"ann"}`, `{"chat":"a","sender":"b","admin":true}`, `[]`} {
		head, _ := request("m1", odd, now, key)
		if _, err := h.Read(head.Get, []byte(odd)); toolcrib.CodeOf(err) != toolcrib.CodeBadRequest {
			t.Errorf("%s: %v", odd, err)
		}
	}
}

// A reply is signed, with its key as the ID.
func TestC16_Reply(t *testing.T) {
	var head http.Header
	var body []byte
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		head = r.Header
		body, _ = io.ReadAll(r.Body)
	}))
	t.Cleanup(s.Close)
	h, err := webhook.New(s.URL, key)
	if err != nil {
		t.Fatal(err)
	}
	if chat, err := h.Chat(""); err == nil {
		t.Errorf("%q", chat)
	}
	usual, err := webhook.New(s.URL+"?chats=desk", key)
	if err != nil {
		t.Fatal(err)
	}
	if chat, err := usual.Chat(""); chat != "desk" || err != nil {
		t.Errorf("%q, %v", chat, err)
	}
	reply := channel.Reply{
		Chat: "desk", Thread: "t", To: "m1", Text: "hi", Key: "k1", Buttons: []channel.Button{{Label: "Deny", Token: "deny apr-x"}},
	}
	if _, err := h.Send(t.Context(), reply); err != nil {
		t.Fatal(err)
	}
	at, _ := strconv.ParseInt(head.Get("webhook-timestamp"), 10, 64)
	if head.Get("webhook-id") != "k1" || head.Get("webhook-signature") != notify.Sign(key, "k1", time.Unix(at, 0), body) {
		t.Errorf("%v", head)
	}
	var got map[string]any
	if err := json.Unmarshal(body, &got); err != nil || got["chat"] != "desk" || got["reply_to"] != "m1" ||
		fmt.Sprint(got["buttons"]) != "[map[label:Deny text:deny apr-x]]" || len(got) != 5 {
		t.Errorf("%s, %v", body, err)
	}
}
