package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/bus"
	"github.com/toolcrib/toolcrib/service/nodes"
)

func TestBusStatus_Quarantine(t *testing.T) {
	var out bytes.Buffer
	a := &app{out: &output{w: &out}}
	a.tellBus(&nodes.Status{Peers: []nodes.Peer{{Registered: "alpha", Peer: bus.Peer{Quarantined: []bus.Quarantine{{
		Capability: bus.Name{Name: "rag.query", Major: 1}, Instance: "i1", Reason: toolcrib.CodePartition,
		Until: time.Now().Add(time.Hour),
	}}}}}})
	want := "alpha gets no calls of rag.query@1.0 for 1h00m (instance i1): most have failed, the last one with partition\n"
	if !strings.HasSuffix(out.String(), want) {
		t.Errorf("%s, want at its end %s", &out, want)
	}
}
