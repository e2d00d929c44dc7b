//go:build unix

package mcp

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// alone gives a program its own process group.
func alone(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
}

// watch starts a shell that kills a process group when this process has ended, for whatever reason: the shell reads
// a pipe whose other end only this process has. The function that watch returns ends the shell.
func watch(group int) func() {
	read, write, err := os.Pipe()
	if err != nil {
		return func() {}
	}
	cmd := exec.Command("/bin/sh", "-c", `read line; [ "$line" = done ] || kill -s KILL -- -"$0"`, strconv.Itoa(group))
	cmd.Stdin, cmd.Env, cmd.Dir = read, []string{}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = cmd.Start()
	_ = read.Close()
	if err != nil {
		_ = write.Close()
		return func() {}
	}
	return func() {
		_, _ = write.WriteString("done\n")
		_ = write.Close()
		_ = cmd.Wait()
	}
}

// endAll kills the rest of a program's process group.
func endAll(_ *os.Process, group int) {
	const looks = 200
	for range looks {
		if err := syscall.Kill(-group, syscall.SIGKILL); err != nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
