package worker_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/natstest"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service/worker"
)

// A run that one server drives is followed on another one: each piece of a reply comes at once, and every event once.
func TestBus_FollowedElsewhere(t *testing.T) {
	const pieces = 20
	seen, over := make(chan string, 1000), make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		say := func(text string) {
			_, _ = fmt.Fprintf(w, "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"choices\":"+
				"[{\"index\":0,\"delta\":{\"content\":%q}}]}\n\n", text)
			w.(http.Flusher).Flush()
		}
		for waiting := true; waiting; { // the reader may not be there yet
			say("-")
			select {
			case <-seen:
				waiting = false
			case <-time.After(20 * time.Millisecond):
			case <-over:
				return
			}
		}
		for i := range pieces {
			text := fmt.Sprint("piece ", i, ";")
			say(text)
			for got := ""; got != text; { // no piece waits for the end of the reply
				select {
				case got = <-seen:
				case <-over:
					return
				}
			}
		}
		_, _ = io.WriteString(w, "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"choices\":"+
			"[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	}))
	defer api.Close()
	defer close(over)
	t.Setenv("POOL_TEST_API", api.URL)
	h := poolOn(t, "bus: {url: '"+natstest.Start(t, 1, nil).URL()+"'}\n", 0, nil)
	_, other := h.open(0, nil)
	d := h.start("remote")
	var last toolcrib.Seq
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := other.Follow(ctx, ann, worker.Follow{Run: string(d.ID())}, func(f journal.Frame) error {
		if f.Event == journal.FrameToken {
			seen <- f.Data.(journal.TextView).Text
		}
		if f.Seq > 0 && f.Seq <= last {
			t.Errorf("event %d after %d", f.Seq, last)
		}
		last = max(last, f.Seq)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if rec := h.record(d.ID()); rec.Status != toolcrib.StatusCompleted || rec.LastSeq != last {
		t.Errorf("%s, event %d of %d", rec.Status, last, rec.LastSeq)
	}
}

// A run that one server drives is cancelled on another one.
func TestBus_CancelledElsewhere(t *testing.T) {
	h := poolOn(t, "bus: {url: '"+natstest.Start(t, 1, nil).URL()+"'}\n", 0, nil)
	_, other := h.open(0, nil)
	h.write("slow.script", "- {text: never, delay: 10m}\n")
	d := h.start("slow")
	run, err := other.Cancel(t.Context(), ann, string(d.ID()))
	if err != nil || run.Status != toolcrib.StatusCancelled {
		t.Errorf("%s, %v", run.Status, err)
	}
}
