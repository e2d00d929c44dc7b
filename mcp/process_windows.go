package mcp

import (
	"os"
	"os/exec"
)

func alone(*exec.Cmd) {}

func watch(int) func() { return func() {} }

func endAll(p *os.Process, _ int) { _ = p.Kill() }
