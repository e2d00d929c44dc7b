package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/service"
)

// The hook of another agent: that one makes its call unless the hook ends with 0 and a decision
// against it, or with 2. So every failure is a 2.

const (
	hookPath     = "toolcrib gate hook"
	hookEvent    = "PreToolUse"
	maxHookBytes = 8 << 20
	hookTime     = 10 * time.Second
)

// hookInput is what Claude Code gives its PreToolUse hooks.
type hookInput struct {
	Session string          `json:"session_id"`
	Cwd     string          `json:"cwd"`
	Event   string          `json:"hook_event_name"`
	Tool    string          `json:"tool_name"`
	Input   json.RawMessage `json:"tool_input"`
}

// hookOutput is what it takes from them.
type hookOutput struct {
	Specific struct {
		Event    string `json:"hookEventName"`
		Decision string `json:"permissionDecision"`
		Reason   string `json:"permissionDecisionReason"`
	} `json:"hookSpecificOutput"`
}

// answersHook sees to it that the process ends with 0 or 2, and within a bounded time: also if it
// is told to end, and wherever it hangs.
func (a *app) answersHook(cmd *cobra.Command) {
	limit, err := cmd.Flags().GetDuration("timeout")
	if err != nil || limit <= 0 {
		limit = hookTime
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	judged := make(chan struct{})
	a.hook = func() { close(judged) } // a signal from then on is too late, and ends nothing
	go func() {
		why := "it took longer than " + limit.String()
		select {
		case <-judged:
			return
		case s := <-signals:
			why = "it was told to end (" + s.String() + ")"
		case <-time.After(limit):
		}
		fmt.Fprintf(os.Stderr, "toolcrib: the call was not judged: %s\n", why)
		os.Exit(exitUsage)
	}()
}

func (a *app) gateHookCommand(cmd *cobra.Command) {
	var request service.OtherCall
	flags := cmd.Flags()
	flags.Func("agent", "", filled(&request.Agent))
	flags.Func("workspace", "", filled(&request.Workspace))
	flags.Duration("timeout", hookTime, "")
	allow := flags.Bool("allow", false, "")
	a.doing(cmd, nil, func(c call) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("the call was not judged: %v\n%s", p, debug.Stack())
			}
		}()
		if err := a.readHook(&request); err != nil {
			return err
		}
		if c.Service, c.who, err = a.changing(c); err != nil {
			return err
		}
		d, err := c.DecideOther(c, c.who, request)
		if err != nil || d.Decision == service.OtherAllow && !*allow {
			return err
		}
		var out hookOutput
		out.Specific.Event, out.Specific.Decision = hookEvent, d.Decision
		out.Specific.Reason = "toolcrib: " + d.Reason
		if d.Rule != "" {
			out.Specific.Reason += " (rule " + d.Rule + ")"
		}
		return printJSON(a.out, out, false)
	})
}

// readHook reads the call from standard input.
func (a *app) readHook(request *service.OtherCall) error {
	if a.inTerminal {
		return usagef("standard input must be what a PreToolUse hook is given; see docs/hook.md")
	}
	raw, err := io.ReadAll(io.LimitReader(a.in, maxHookBytes+1))
	if err == nil && len(raw) > maxHookBytes {
		err = fmt.Errorf("it is longer than %d MiB", maxHookBytes>>20)
	}
	if err == nil {
		raw, err = guard.JSONLimits{MaxBytes: maxHookBytes}.Canonical(raw)
	}
	var in hookInput
	if err == nil {
		err = json.Unmarshal(raw, &in)
	}
	switch {
	case err != nil:
	case in.Event != hookEvent:
		err = errors.New("hook_event_name must be " + hookEvent)
	case in.Tool == "" || in.Cwd == "" || len(in.Input) == 0:
		err = errors.New("tool_name, tool_input and cwd must be there")
	}
	if err != nil {
		return usagef("standard input: %v", err)
	}
	if project := os.Getenv("CLAUDE_PROJECT_DIR"); request.Workspace == "" {
		request.Workspace = project
	}
	request.Tool, request.Arguments, request.Cwd, request.Session = in.Tool, in.Input, in.Cwd, in.Session
	return nil
}
