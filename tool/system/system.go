// Package system implements tools that describe the running toolcrib itself, for administrators:
// get_runtime_info, get_env and fetch_logs, which leave out anything that could be a secret,
// and get_runtime_info_raw and get_env_raw, which do not and are disabled until an administrator
// enables them.
package system

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// Group is the group of the tools of this package.
const Group = "system"

// Options for [New].
type Options struct {
	// Version is the version of toolcrib. If "", it is shown as "unknown".
	Version string
	// Started is when the process started. If zero, no uptime is shown.
	Started time.Time
	// Now returns the current time. If nil, time.Now is used.
	Now func() time.Time
	// Data describes the store in short texts, such as its kind and the version of its schema. They
	// must not contain secrets, addresses or paths. At most 32 pairs of at most 200 bytes are shown.
	// If nil, none are.
	Data func(ctx context.Context) map[string]string
	// Details returns additional texts for get_runtime_info_raw, such as paths and addresses. They
	// must not contain secrets. The bounds are those of Data. If nil, there are none.
	Details func(ctx context.Context) map[string]string
	// Environ returns the environment. If nil, os.Environ is used.
	Environ func() []string
	// Logs is toolcrib's own log. If nil, there is no fetch_logs.
	Logs Logs
	// Mask removes known secrets from a text, before text that looks like a secret is removed. If
	// nil, no secrets are known. get_env_raw does not use it.
	Mask func(string) string
}

const (
	maxFacts     = 32
	maxFactBytes = 200
)

// New returns get_runtime_info and get_env with their raw variants, and fetch_logs if there is a log.
func New(options Options) []toolcrib.Tool {
	if options.Version == "" {
		options.Version = "unknown"
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Environ == nil {
		options.Environ = os.Environ
	}
	if options.Mask == nil {
		options.Mask = func(s string) string { return s }
	}
	tools := []toolcrib.Tool{
		&runtimeInfo{options: options}, &runtimeInfo{options, true}, &getEnv{options: options},
		&getEnv{options, true},
	}
	if options.Logs != nil {
		tools = append(tools, &fetchLogs{options})
	}
	return tools
}

// spec returns the Spec of a tool of this package. All are for administrators and read-only. Raw ones
// are disabled by default.
func spec(name, description, parameters string, raw bool) toolcrib.Spec {
	return toolcrib.Spec{
		Name: name, Description: description, Parameters: json.RawMessage(parameters), Effect: toolcrib.EffectReadOnly,
		Group: Group, Source: "builtin", EnabledByDefault: !raw, RequiresAdmin: true,
	}
}

// bounded returns the first maxFacts by name, each cut to maxFactBytes.
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

func cut(s string) string { return guard.Clip(s, maxFactBytes) }
