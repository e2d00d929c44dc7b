//go:build !linux && unix

package mcp

import "syscall"

// Here a program ends with the shell that watches it only.
func dieWithParent(*syscall.SysProcAttr) {}
