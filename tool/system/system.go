// Package system has the tools that tell about the running toolcrib itself, for
// administrators (contract §11, N24).
package system

import (
	"context"
	"encoding/json"
	"maps"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
)

// Group is the group of the tools of this package.
const Group = "system"

// Options for [New].
type Options struct {
	// Version is what toolcrib calls itself; "" is shown as "unknown".
	Version string
	// Started is when the process started; zero = no uptime is told.
	Started time.Time
	// Now is the clock; nil = time.Now.
	Now func() time.Time
	// Data tells about the store, in short words: its kind, the version of its
	// schema, counts. It must hold no secret, no address and no path; at most 32
	// pairs of at most 200 bytes are shown. nil = nothing is told.
	Data func(ctx context.Context) map[string]string
}

const (
	maxFacts     = 32
	maxFactBytes = 200
)

// New returns get_runtime_info.
func New(options Options) []toolcrib.Tool {
	if options.Version == "" {
		options.Version = "unknown"
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	return []toolcrib.Tool{&runtimeInfo{options}}
}

// spec fills in what all tools of the package have in common: they are for
// administrators and change nothing.
func spec(name, description, parameters string) toolcrib.Spec {
	return toolcrib.Spec{
		Name: name, Description: description, Parameters: json.RawMessage(parameters), Effect: toolcrib.EffectReadOnly,
		Group: Group, Source: "builtin", EnabledByDefault: true, RequiresAdmin: true,
	}
}

type runtimeInfo struct{ options Options }

type runtimeInfoResult struct {
	Version       string            `json:"version"`
	Go            string            `json:"go"`
	OS            string            `json:"os"`
	Arch          string            `json:"arch"`
	CPUs          int               `json:"cpus"`
	Goroutines    int               `json:"goroutines"`
	Memory        memoryInfo        `json:"memory"`
	UptimeSeconds int64             `json:"uptime_seconds,omitempty"`
	Data          map[string]string `json:"data,omitempty"`
}

type memoryInfo struct {
	HeapBytes  uint64 `json:"heap_bytes"`  // live and not yet collected objects
	TotalBytes uint64 `json:"total_bytes"` // what the Go runtime holds from the system
}

// Spec describes get_runtime_info.
func (t *runtimeInfo) Spec() toolcrib.Spec {
	return spec("get_runtime_info", "Tell about the running toolcrib: version, platform, processors, memory, uptime and its store.",
		`{"type": "object", "properties": {}, "additionalProperties": false}`)
}

// Call tells what is known; it reads no environment, no configuration and no path.
func (t *runtimeInfo) Call(ctx context.Context, _ toolcrib.Call) (toolcrib.Output, error) {
	if err := ctx.Err(); err != nil {
		return toolcrib.Output{}, err
	}
	result := runtimeInfoResult{
		Version: t.options.Version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH,
		CPUs: runtime.NumCPU(), Goroutines: runtime.NumGoroutine(), Memory: memory(),
	}
	if !t.options.Started.IsZero() {
		result.UptimeSeconds = int64(t.options.Now().Sub(t.options.Started) / time.Second)
	}
	if t.options.Data != nil {
		result.Data = bounded(t.options.Data(ctx))
	}
	return wire.Output(result)
}

func memory() memoryInfo {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/total:bytes"}}
	metrics.Read(samples)
	var values [2]uint64
	for i, sample := range samples {
		if sample.Value.Kind() == metrics.KindUint64 {
			values[i] = sample.Value.Uint64()
		}
	}
	return memoryInfo{HeapBytes: values[0], TotalBytes: values[1]}
}

// bounded keeps the first maxFacts by name, each cut to maxFactBytes.
func bounded(facts map[string]string) map[string]string {
	kept := make(map[string]string, min(len(facts), maxFacts))
	for _, name := range slices.Sorted(maps.Keys(facts)) {
		if len(kept) == maxFacts {
			break
		}
		kept[cut(name)] = cut(facts[name])
	}
	return kept
}

func cut(s string) string {
	if len(s) <= maxFactBytes {
		return s
	}
	return strings.ToValidUTF8(s[:maxFactBytes], "") + "…"
}
