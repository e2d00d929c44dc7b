//go:build amd64 || arm64

package shell_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toolcrib/toolcrib/tool/shell"
)

// A program has no right that others have not, whoever runs toolcrib, and cannot get one.
func TestC12_NoCapabilities(t *testing.T) {
	sandboxed(t, func(t *testing.T, report *shell.Report) {
		made := tool(t, shell.Options{Mode: shell.ModeAny, Report: report})
		// /proc/self/status is not there to be read with Landlock alone.
		line := fmt.Sprintf(`perl -e 'my ($h, $d) = (pack("Li", 0x20080522, 0), "\0" x 24); syscall(%d, $h, $d);`+
			`print join(",", unpack("L6", $d)); print " ", join(",", map { syscall(%[2]d, $_->[0], $_->[1], 0, 0, 0) }`+
			`[%[3]d, 0], [%[4]d, 0]); print " ", scalar(grep { syscall(%[2]d, %[5]d, $_, 0, 0, 0) > 0 || `+
			`syscall(%[2]d, %[6]d, %[7]d, $_, 0, 0) > 0 } 0 .. 40)'`, unix.SYS_CAPGET, unix.SYS_PRCTL,
			unix.PR_GET_NO_NEW_PRIVS, unix.PR_GET_SECCOMP, unix.PR_CAPBSET_READ, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_IS_SET)
		got, err := runIn(t.Context(), t, made, callOf(t, folder(t), line, 20))
		want := "0,0,0,0,0,0 1,2 0"
		if os.Getuid() != 0 {
			want, got.Stdout = strings.TrimSuffix(want, "0"), got.Stdout[:strings.LastIndex(got.Stdout, " ")+1]
		}
		if err != nil || got.Stdout != want {
			t.Errorf("permitted and others, no_new_privs and seccomp, bounding and ambient: %+v %v", got, err)
		}
	})
}

func TestC12_CallsThatAreTakenAway(t *testing.T) {
	t.Parallel()
	sandboxed(t, func(t *testing.T, report *shell.Report) {
		for _, network := range []bool{false, true} {
			made, dir := tool(t, shell.Options{Mode: shell.ModeAny, Report: report}), folder(t)
			shell.Open(made, network)
			var line, want strings.Builder
			for _, call := range shell.DeniedCalls() {
				fmt.Fprintf(&line, "$! = 0; syscall(%d, 0, 0, 0, 0, 0); print %d, \" \", $!+0, \"\\n\";", call, call)
				fmt.Fprintf(&want, "%d %d\n", call, unix.EPERM)
			}
			got, err := runIn(t.Context(), t, made, callOf(t, dir, "perl -e '"+line.String()+"'", 20))
			if err != nil || got.Stdout != want.String() {
				t.Errorf("%+v %v", got, err)
			}
			for line, want := range map[string]string{
				fmt.Sprintf(`perl -e 'syscall(%d, my $s = "\0"x64, 64); print $!+0'`, unix.SYS_CLONE3):                                         "38",
				fmt.Sprintf(`perl -e 'my $n = "x"; syscall(%d, $n, 0); print $!+0'`, unix.SYS_MEMFD_CREATE):                                    "38",
				fmt.Sprintf(`perl -e 'syscall(%d, %d, 0, 0, 0, 0); print $!+0'`, unix.SYS_CLONE, unix.CLONE_NEWUSER|17):                        "1",
				fmt.Sprintf(`perl -e 'my $n = "d"; $! = 0; syscall(%d, -100, $n, %d, 259); print $!+0'`, unix.SYS_MKNODAT, unix.S_IFCHR|0o666): "1",
				fmt.Sprintf(`perl -e 'my $n = "b"; $! = 0; syscall(%d, -100, $n, %d, 259); print $!+0'`, unix.SYS_MKNODAT, unix.S_IFBLK|0o666): "1",
				fmt.Sprintf(`perl -e 'my $n = "f"; $! = 0; syscall(%d, -100, $n, %d, 0); print $!+0'`, unix.SYS_MKNODAT, unix.S_IFIFO|0o666):   "0",
				fmt.Sprintf(`perl -e 'my $n = "r"; $! = 0; syscall(%d, -100, $n, %d, 0); print $!+0'`, unix.SYS_MKNODAT, unix.S_IFREG|0o666):   "0",
				"mknod x c 1 3 2>/dev/null; mount -t tmpfs t . 2>/dev/null; unshare -U true 2>/dev/null; ls -d x":                              "",
				`(echo in a child); perl -e 'if (fork()) { wait } else { print "forked" }'`:                                                    "in a child\nforked",
			} {
				got, err := runIn(t.Context(), t, made, callOf(t, dir, line, 20))
				if err != nil || got.Stdout != want {
					t.Errorf("%s: %+v %v", line, got, err)
				}
			}
		}
	})
}

// A command leaves no file that runs with the rights of its owner or group, however it is made. Other modes are set.
func TestC12_NoSetUserID(t *testing.T) {
	t.Parallel()
	openat := func(flags, mode int) string {
		return fmt.Sprintf(`perl -e 'my $n = "n"; $! = 0; syscall(%d, -100, $n, %d, %d); print $!+0'`, unix.SYS_OPENAT, flags, mode)
	}
	call := func(name string, number, mode int) string {
		return fmt.Sprintf(`perl -e 'my $n = "%s"; $! = 0; syscall(%d, -100, $n, %d, 0); print $!+0'`, name, number, mode)
	}
	lines := []string{ // each is to fail, or to print the number of the error
		"chmod 4755 f", "chmod 2755 f", "chmod u+s,g+s f", "chmod g+s dir", "chmod 2777 dir",
		"cp /bin/true f && perl -e 'open(F, \"<f\"); chmod(04755, *F) or die $!'", "perl -e 'chmod(04755, \"f\") or die $!'",
		"install -m 4755 /bin/true f", "install -d -m 2755 new", "tar -xpf suid.tar",
		"ln /bin/su f && find f -perm /6000", "mkdir -m 2755 new",
		"python3 -c 'import os; os.setxattr(\"f\", \"security.capability\", b\"\\1\\0\\0\\2\\1\\0\\0\\0\" + bytes(12))'",
		openat(unix.O_CREAT|unix.O_WRONLY, 0o4755) + " | grep -x 0", openat(unix.O_CREAT, 0o2755) + " | grep -x 0",
		strings.Replace(openat(unix.O_TMPFILE|unix.O_RDWR, 0o4755), `"n"`, `"."`, 1) + " | grep -x 0",
		call("f", unix.SYS_FCHMODAT, 0o4755) + " | grep -x 0", call("f", unix.SYS_FCHMODAT2, 0o4755) + " | grep -x 0",
		call("n", unix.SYS_MKNODAT, unix.S_IFREG|0o4755) + " | grep -x 0", call("f", unix.SYS_OPENAT2, 0) + " | grep -vx 38",
		fmt.Sprintf("perl -e '$! = 0; syscall(%d, 1, 0); exit($!+0)'", unix.SYS_IO_URING_SETUP),
	}
	fine := []string{
		"chmod 1777 dir", "chmod 755 f && [ -x f ]", "chmod -R u+rwX,g-w .", "mkdir -m 700 new", "cp -p plain f", "cp -p was f", "cp -a was f", "tar -xpf plain.tar",
		"install -m 755 /bin/true f && ./f", openat(unix.O_CREAT|unix.O_WRONLY, 0o644) + " | grep -x 0",
		strings.Replace(openat(unix.O_RDONLY, 0o6777), `"n"`, `"f"`, 1) + " | grep -x 0", // without O_CREAT it is no mode
		call("f", unix.SYS_FCHMODAT, 0o755) + " | grep -x 0",
	}
	sandboxed(t, func(t *testing.T, report *shell.Report) {
		for _, network := range []bool{false, true} {
			dir, made := folder(t), tool(t, shell.Options{Mode: shell.ModeAny, Report: report})
			shell.Open(made, network)
			for name, mode := range map[string]os.FileMode{"was": 0o755 | os.ModeSetuid | os.ModeSetgid, "plain": 0o755} {
				write(t, filepath.Join(dir, name), "#!/bin/true\n")
				if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
					t.Fatal(err)
				}
			}
			for archive, name := range map[string]string{"suid.tar": "was", "plain.tar": "plain"} {
				if out, err := exec.Command("tar", "-C", dir, "-cf", filepath.Join(dir, archive), name).CombinedOutput(); err != nil {
					t.Fatal(err, string(out))
				}
			}
			var script, want strings.Builder
			for i, line := range append(slices.Clone(lines), fine...) {
				fmt.Fprintf(&script, "rm -rf dir new n f; mkdir dir; >f; (%s) >out 2>&1 && echo %d; find . -perm /6000 ! -name was\n", line, i)
				if i >= len(lines) {
					fmt.Fprintln(&want, i)
				}
			}
			got, err := runIn(t.Context(), t, made, callOf(t, dir, script.String(), 60))
			if err != nil || got.Stdout != want.String() {
				t.Errorf("of %d lines to fail, and others, these did not, and left:\n%s%s %v", len(lines), got.Stdout, got.Stderr, err)
			}
		}
	})
}

// What a job has is counted together, however many processes it is divided among.
func TestC12_WholeJobIsBounded(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	onWalls(t, func(t *testing.T, report *shell.Report) {
		for _, c := range []struct {
			memory, disk, files uint64
			line, want          string
		}{
			{300 * mib, 0, 0, `for i in 1 2 3 4 5 6; do perl -e '$x = "x" x (80<<20); sleep 60' & done; wait`, "its processes together had more than 300 MiB of memory."},
			{0, 64 * mib, 0, "for i in 1 2 3 4 5 6; do head -c 40000000 /dev/zero > f$i; done; sleep 60", "while it ran, the room on the disk shrank by more than 64 MiB."},
			{0, 64 * mib, 0, "for i in 1 2 3 4 5 6; do head -c 40000000 /dev/zero > $HOME/f$i; done; sleep 60", "while it ran, the room on the disk shrank by more than 64 MiB."},
			{0, 0, 1000, "seq 1 4000 | xargs touch; sleep 60", "while it ran, more than 1000 files were made."},
		} {
			made := tool(t, shell.Options{Mode: shell.ModeAny, Report: report})
			shell.Bound(made, c.memory, c.disk, c.files, 0)
			got, err := runIn(t.Context(), t, made, callOf(t, folder(t), c.line, 50))
			if err != nil || got.ExitCode != -1 || !strings.Contains(got.Warning, "killed: "+c.want) {
				t.Errorf("%s: %+v %v", c.line, got, err)
			}
		}
	})
}

// What runs unasked has less, also by a width or a number that one option takes.
func TestC12_UnaskedLinesAreBounded(t *testing.T) {
	t.Parallel()
	onWalls(t, func(t *testing.T, report *shell.Report) {
		t.Parallel()
		made, dir := tool(t, shell.Options{Report: report}), project(t)
		for _, line := range []string{"find . -printf '%2000000000p' | sort", "find . -printf '%800000000p\\n' | sort | sort | sort | sort"} {
			got, err := runIn(t.Context(), t, made, callOf(t, dir, line, 60))
			if err != nil || !strings.Contains(got.Stderr+got.Warning, "memory") {
				t.Errorf("%s: %.100s %v", line, fmt.Sprint(got), err)
			}
		}
	})
}
