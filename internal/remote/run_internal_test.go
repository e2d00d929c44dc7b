package remote

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/client"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
)

// A run that was seen to wait, and has ended when it is looked at again, is watched to its end (13.5).
func TestResume_RunThatGoesOnMeanwhile(t *testing.T) {
	id := "run_" + strings.Repeat("0", wholeLength)
	streams, looks := 0, 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/events") {
			w.Header().Set("Content-Type", "text/event-stream")
			if streams++; streams == 2 {
				fmt.Fprint(w, "id: 5\nevent: message\ndata: {\"text\":\"yes\"}\n\nid: 6\nevent: done\ndata: {\"status\":\"completed\"}\n\n")
			}
			return
		}
		status, last := toolcrib.StatusWaitingForApproval, 4
		if looks++; looks > 1 {
			status, last = toolcrib.StatusCompleted, 6
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"id":%q,"status":%q,"last_seq":%d}`, id, status, last)
	}))
	defer server.Close()
	c, err := client.New(client.Options{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	before := &service.Run{ID: toolcrib.RunID(id)}
	before.Driver, before.LastSeq = "server", 4
	r := &Service{Client: c, decided: before}
	var seen []string
	run, err := r.Resume(t.Context(), toolcrib.Principal{}, service.ResumeRequest{Run: id, Decided: true},
		service.Front{Watch: func(f journal.Frame) { seen = append(seen, f.Event) }})
	if got := strings.Join(seen, " "); err != nil || run.Status != toolcrib.StatusCompleted || got != "message done" {
		t.Errorf("the run is %s (%v), and its events %q; want completed and message done", run.Status, err, got)
	}
}
