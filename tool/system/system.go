// Package system has the tools that tell about the running toolcrib itself, for
// administrators (contract §11, N24): get_runtime_info, get_env and fetch_logs, which
// leave out what could be a secret, and get_runtime_info_raw and get_env_raw, which
// do not and are off until an administrator switches them on.
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
	// Version is what toolcrib calls itself; "" is shown as "unknown".
	Version string
	// Started is when the process started; zero = no uptime is shown.
	Started time.Time
	// Now is the clock; nil = time.Now.
	Now func() time.Time
	// Data describes the store, in short words: its kind, the version of its
	// schema, counts. It must hold no secret, no address and no path; at most 32
	// pairs of at most 200 bytes are shown. nil = nothing is shown.
	Data func(ctx context.Context) map[string]string
	// Details is what get_runtime_info_raw shows besides: paths, addresses. It must
	// hold no secret; bounds are those of Data. nil = nothing more is shown.
	Details func(ctx context.Context) map[string]string
	// Environ is the environment; nil = os.Environ.
	Environ func() []string
	// Logs is toolcrib's own log; nil = there is no fetch_logs.
	Logs Logs
	// Mask takes secrets that are known by value out of a text, before what only looks
	// like one is; nil = none are known. get_env_raw does without.
	Mask func(string) string
}

const (
	maxFacts     = 32
	maxFactBytes = 200
)

// New returns get_runtime_info, get_env, both again as raw, and fetch_logs if there
// is a log.
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

// spec fills in what all tools of the package have in common: they are for
// administrators and change nothing. A raw one is off by default.
func spec(name, description, parameters string, raw bool) toolcrib.Spec {
	return toolcrib.Spec{
		Name: name, Description: description, Parameters: json.RawMessage(parameters), Effect: toolcrib.EffectReadOnly,
		Group: Group, Source: "builtin", EnabledByDefault: !raw, RequiresAdmin: true,
	}
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

func cut(s string) string { return guard.Clip(s, maxFactBytes) }
