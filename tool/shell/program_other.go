//go:build !unix

package shell

import (
	"context"

	"github.com/toolcrib/toolcrib"
)

func fault(text string, err error) error {
	return &toolcrib.ToolError{Kind: toolcrib.ExecutionFailed, Message: text, Err: err}
}

func (s *shell) runProgram(context.Context, toolcrib.Call, *programPlan, func([]byte)) (ran, error) {
	return ran{}, refuse("programs are not available on this system")
}
