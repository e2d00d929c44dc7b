//go:build !linux && unix

package mcp

import "syscall"

// On these systems a program ends only with the shell that watches it.
func dieWithParent(*syscall.SysProcAttr) {}
