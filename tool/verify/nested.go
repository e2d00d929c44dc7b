package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
)

// shell runs a command with exec_shell, and compares exit status and output.
func (c *check) shell(ctx context.Context, call toolcrib.Call) error {
	if c.Command == "" {
		return errors.New("cmd is missing")
	}
	arguments := map[string]any{"command": c.Command}
	if c.TimeoutSeconds > 0 {
		arguments["timeout"] = c.TimeoutSeconds
	}
	var got struct {
		ExitCode *int   `json:"exit_code"`
		Stdout   string `json:"stdout"`
	}
	if err := invoke(ctx, call, shellTool, arguments, &got); err != nil {
		return err
	}
	switch {
	case got.ExitCode == nil:
		return fmt.Errorf("%s returned no exit status", shellTool)
	case *got.ExitCode != c.ExpectExit:
		return fmt.Errorf("exit status %d, expected %d", *got.ExitCode, c.ExpectExit)
	case c.ExpectStdoutContains != nil && !strings.Contains(got.Stdout, *c.ExpectStdoutContains):
		return fmt.Errorf("the output does not contain %s", quote(*c.ExpectStdoutContains))
	case c.ExpectStdoutRegex != nil:
		expression, err := compile(*c.ExpectStdoutRegex, false)
		if err != nil {
			return err
		}
		if !expression.MatchString(got.Stdout) {
			return fmt.Errorf("the output does not match %s", quote(*c.ExpectStdoutRegex))
		}
	}
	return nil
}

// urlHead requests an address, with web_fetch unless by names another tool, and compares the status.
func (c *check) urlHead(ctx context.Context, call toolcrib.Call, by string) error {
	if c.URL == "" {
		return errors.New("url is missing")
	}
	expect := c.ExpectStatus
	if expect == 0 {
		expect = 200
	}
	var got struct {
		Status *int `json:"status"`
	}
	tool, arguments := fetchTool, map[string]any{"url": c.URL, "method": "HEAD"}
	if by != "" {
		tool, arguments = by, map[string]any{"url": c.URL}
	}
	if err := invoke(ctx, call, tool, arguments, &got); err != nil {
		return err
	}
	if got.Status == nil {
		return fmt.Errorf("%s returned no status", tool)
	}
	if *got.Status != expect {
		return fmt.Errorf("status %d, expected %d", *got.Status, expect)
	}
	return nil
}

// invoke calls another tool through the gate, and decodes its result. A failed command also has a
// result, of status error, so its content decides.
func invoke(ctx context.Context, call toolcrib.Call, name string, arguments, result any) error {
	if call.Invoke == nil {
		return fmt.Errorf("%s cannot be called from here", name)
	}
	data, err := wire.Marshal(arguments)
	if err != nil {
		return err
	}
	got, err := call.Invoke(ctx, name, data)
	if err != nil {
		return fmt.Errorf("%s could not be called", name) // the details are not for the model
	}
	switch got.Status {
	case toolcrib.ResultOK, toolcrib.ResultError:
		return read(name, got, result)
	case toolcrib.ResultRefused:
		return fmt.Errorf("%s was refused: %s", name, got.Reason)
	}
	return fmt.Errorf("%s ended with status %q", name, got.Status)
}

func read(name string, got toolcrib.Invoked, result any) error {
	if got.Status == toolcrib.ResultError {
		var failed struct {
			Error string `json:"error"`
		}
		if err := unwrap(got.Content, &failed); err == nil && failed.Error != "" {
			return fmt.Errorf("%s: %s", name, guard.Clip(failed.Error, 200))
		}
	}
	if err := unwrap(got.Content, result); err != nil {
		return fmt.Errorf("the result of %s could not be read", name)
	}
	return nil
}

// unwrap decodes the JSON object of a result that may be fenced as untrusted: a line that opens the
// fence, one with the canary, the content, and a line that closes the fence.
func unwrap(content string, result any) error {
	for strings.HasPrefix(content, "<") {
		_, rest, found := strings.Cut(content, "\n")
		if !found {
			break
		}
		content = rest
	}
	return json.NewDecoder(strings.NewReader(content)).Decode(result)
}
