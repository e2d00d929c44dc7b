package system_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/system"
	"github.com/toolcrib/toolcrib/toolcribtest/tooltest"
)

func TestN1_SystemToolsConform(t *testing.T) {
	for _, made := range system.New(system.Options{Logs: new(system.LogRing)}) {
		tooltest.Run(t, func() toolcrib.Tool { return made }, tooltest.Cases{Calls: []tooltest.Case{
			{Name: "call", Arguments: `{}`},
			{Name: "unknown", Arguments: `{"x": 1}`, Invalid: true},
		}})
	}
}

func TestN24_RuntimeInfo(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	t.Setenv("TOOLCRIB_TEST_SECRET", "hunter2")
	data := map[string]string{"store": "sqlite", "long": strings.Repeat("é", 500)}
	for i := range 100 {
		data[fmt.Sprintf("z%03d", i)] = "x"
	}
	info := system.New(system.Options{
		Version: "1.2.3", Started: start, Now: func() time.Time { return start.Add(90 * time.Second) },
		Data: func(context.Context) map[string]string { return data },
	})[0]
	if spec := info.Spec(); spec.Name != "get_runtime_info" || !spec.RequiresAdmin || !spec.EnabledByDefault ||
		spec.Effect.Writes() {
		t.Errorf("spec %+v", spec)
	}
	out, err := info.Call(t.Context(), toolcrib.Call{Workspace: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Version, Go, OS, Arch string
		CPUs, Goroutines      int
		Uptime                int64 `json:"uptime_seconds"`
		Memory                struct {
			Heap  uint64 `json:"heap_bytes"`
			Total uint64 `json:"total_bytes"`
		}
		Data map[string]string
	}
	if err := json.Unmarshal(out.JSON, &got); err != nil {
		t.Fatal(err)
	}
	if got.Version != "1.2.3" || got.Go == "" || got.OS == "" || got.Arch == "" || got.CPUs < 1 || got.Goroutines < 1 ||
		got.Uptime != 90 || got.Memory.Heap == 0 || got.Memory.Total < got.Memory.Heap {
		t.Errorf("got %s", out.JSON)
	}
	if got.Data["store"] != "sqlite" || len(got.Data) != 32 || len(got.Data["long"]) > 210 {
		t.Errorf("data is bounded: %d pairs, %d bytes", len(got.Data), len(got.Data["long"]))
	}
	if strings.Contains(string(out.JSON), "hunter2") {
		t.Error("the environment shows")
	}
}
