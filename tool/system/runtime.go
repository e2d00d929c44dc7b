package system

import (
	"context"
	"os"
	"os/user"
	"runtime"
	"runtime/metrics"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
)

const (
	maxArguments = 64 // arguments of the command line, in the raw variant

	noParameters = `{"type": "object", "properties": {}, "additionalProperties": false}`
)

// runtimeInfo is get_runtime_info or, with raw, get_runtime_info_raw.
type runtimeInfo struct {
	options Options
	raw     bool
}

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
	*rawInfo
}

// rawInfo has the fields that only get_runtime_info_raw returns: where the process runs, as which user
// and with which environment.
type rawInfo struct {
	PID         int               `json:"pid"`
	ParentPID   int               `json:"parent_pid"`
	Host        string            `json:"host,omitempty"`
	User        string            `json:"user,omitempty"`
	UID         int               `json:"uid"` // -1 on Windows
	GID         int               `json:"gid"`
	Executable  string            `json:"executable,omitempty"`
	Folder      string            `json:"working_directory,omitempty"`
	Temporary   string            `json:"temporary_directory"`
	Arguments   []string          `json:"arguments"`
	Started     string            `json:"started,omitempty"` // RFC 3339
	Details     map[string]string `json:"details,omitempty"`
	Environment map[string]string `json:"environment"`
	Truncated   bool              `json:"truncated,omitempty"` // whether there are more arguments or variables
}

type memoryInfo struct {
	HeapBytes  uint64 `json:"heap_bytes"`  // live objects and those not yet collected
	TotalBytes uint64 `json:"total_bytes"` // all memory of the Go runtime
}

// Spec describes get_runtime_info or get_runtime_info_raw.
func (t *runtimeInfo) Spec() toolcrib.Spec {
	if t.raw {
		return spec("get_runtime_info_raw", "Tell everything about the running toolcrib: besides what get_runtime_info tells process, host, user, paths, command line and the whole environment, secrets in it too.",
			noParameters, true)
	}
	return spec("get_runtime_info", "Tell about the running toolcrib: version, platform, processors, memory, uptime and its store.", noParameters, false)
}

// Call returns the information. Without raw it reads no environment variable, configuration or path.
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
	if t.raw {
		result.rawInfo = t.details(ctx)
	}
	return wire.Output(result)
}

// details returns the additional information, as far as the system provides it.
func (t *runtimeInfo) details(ctx context.Context) *rawInfo {
	raw := &rawInfo{
		PID: os.Getpid(), ParentPID: os.Getppid(), UID: os.Getuid(), GID: os.Getgid(),
		Temporary: guard.Clip(os.TempDir(), maxRawValue), Arguments: []string{},
	}
	if who, err := user.Current(); err == nil {
		raw.User = cut(who.Username)
	}
	raw.Host, _ = os.Hostname() // left out if unknown
	raw.Executable, _ = os.Executable()
	raw.Folder, _ = os.Getwd()
	for _, argument := range os.Args[:min(len(os.Args), maxArguments)] {
		raw.Arguments = append(raw.Arguments, guard.Clip(argument, maxRawValue))
	}
	if !t.options.Started.IsZero() {
		raw.Started = t.options.Started.UTC().Format(time.RFC3339)
	}
	if t.options.Details != nil {
		raw.Details = bounded(t.options.Details(ctx))
	}
	var cutOff bool
	raw.Environment, cutOff = environment(t.options.Environ(), nil, rawValue)
	raw.Truncated = cutOff || len(os.Args) > maxArguments
	return raw
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
