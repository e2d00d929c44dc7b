package shell_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/shell"
)

// strictWalls are the machine's ways to let any program only read.
func strictWalls(t *testing.T) map[string]*shell.Report {
	t.Helper()
	all := walls(t)
	for name, report := range all {
		if why := report.NotStrict(); why != "" {
			t.Logf("NOT TESTED: %s: %s", name, why)
			delete(all, name)
		}
	}
	delete(all, "bubblewrap that mounts all itself") // nothing is mounted by the copy here
	return all
}

// snare is a world for lines that try to change it: a workspace, an outside, sockets that listen, and a process.
type snare struct {
	workspace, outside, cache string
	tcp, udp                  int
	abstract, mark            string
	victim                    *exec.Cmd
	arrived                   atomic.Int64
	limits                    string
}

func newSnare(t *testing.T, masked bool) *snare {
	t.Helper()
	top := folder(t)
	s := &snare{workspace: top + "/ws", outside: top + "/out", cache: top + "/cache", mark: mark(t)}
	s.abstract = "toolcrib-test-" + s.mark
	for name, content := range map[string]string{
		"ws/a.txt": "alpha\nbeta\n", "ws/sub/c.txt": "gamma\n", "ws/.git/config": "[core]\n", "ws/.git/HEAD": "ref: refs/heads/main\n",
		"ws/.mcp.json": "{}\n", "ws/hidden/keys": secret + "\n", "out/secret.txt": secret + "\n", "out/home/.bashrc": secret + "\n",
		"cache/x": "x",
	} {
		write(t, filepath.Join(top, name), content)
	}
	listen := func(network, address string) net.Addr {
		switch network {
		case "udp4", "unixgram":
			c, err := net.ListenPacket(network, address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			go func() {
				for {
					if _, _, err := c.ReadFrom(make([]byte, 16)); err != nil {
						return
					}
					s.arrived.Add(1)
				}
			}()
			return c.LocalAddr()
		}
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				s.arrived.Add(1)
				_ = c.Close()
			}
		}()
		return l.Addr()
	}
	port := func(a net.Addr) int {
		_, p, _ := net.SplitHostPort(a.String())
		n, _ := strconv.Atoi(p)
		return n
	}
	s.tcp, s.udp = port(listen("tcp4", "127.0.0.1:0")), port(listen("udp4", "127.0.0.1:0"))
	listen("unix", "@"+s.abstract)
	listen("unixgram", "@"+s.abstract+"d")
	listen("unix", s.outside+"/sock")
	listen("unixgram", s.outside+"/dsock")
	if masked {
		listen("unix", s.workspace+"/sock")
		listen("unixgram", s.workspace+"/dsock")
		if err := syscall.Mkfifo(s.workspace+"/fifo", 0o666); err != nil {
			t.Fatal(err)
		}
		reader, err := os.OpenFile(s.workspace+"/fifo", os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = reader.Close() })
		go func() {
			if n, _ := reader.Read(make([]byte, 1)); n > 0 {
				s.arrived.Add(1)
			}
		}()
	}
	s.victim = exec.Command("sleep", "1000")
	s.victim.Env = []string{"TOKEN=" + secret}
	if err := s.victim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.victim.Process.Kill()
		_ = s.victim.Wait()
	})
	s.limits = s.stateOfVictim()
	return s
}

// stateOfVictim has what others may set of a process.
func (s *snare) stateOfVictim() string {
	pid := s.victim.Process.Pid
	var cpu, data unix.Rlimit
	_, _ = unix.Prlimit(pid, unix.RLIMIT_CPU, nil, &cpu), unix.Prlimit(pid, unix.RLIMIT_DATA, nil, &data)
	nice, _ := unix.Getpriority(unix.PRIO_PROCESS, pid)
	var set unix.CPUSet
	_ = unix.SchedGetaffinity(pid, &set)
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	state := ""
	for line := range strings.Lines(string(stat)) {
		if strings.HasPrefix(line, "State") && strings.ContainsAny(line, "TZX") || strings.HasPrefix(line, "TracerPid") || strings.HasPrefix(line, "SigPnd") {
			state += line
		}
	}
	return fmt.Sprint(cpu, data, nice, set.Count(), state)
}

// world is all of the files: kinds, rights, times, attributes, contents.
func (s *snare) world(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, dir := range []string{s.workspace, s.outside, s.cache} {
		_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				t.Fatal(err)
			}
			var stat unix.Stat_t
			if err := unix.Lstat(path, &stat); err != nil {
				t.Fatal(err)
			}
			names := make([]byte, 1024)
			n, _ := unix.Llistxattr(path, names)
			flags := uint32(0)
			var sum [32]byte
			if entry.Type().IsRegular() {
				f, err := os.Open(path)
				if err != nil {
					t.Fatal(err)
				}
				flags, _ = unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
				_ = f.Close()
				data, _ := os.ReadFile(path)
				sum = sha256.Sum256(data)
			}
			if strings.HasPrefix(path, s.cache) && entry.IsDir() {
				return nil // it is marked as used
			}
			fmt.Fprintln(&b, path, stat.Mode, stat.Uid, stat.Gid, stat.Ino, stat.Size, stat.Mtim, stat.Nlink, flags, string(names[:max(n, 0)]), sum)
			return nil
		})
	}
	for _, dir := range []string{"/tmp", "/var/tmp", "/run", "/etc", "/usr/local", "/dev/shm", "/dev/mqueue"} {
		if left, _ := filepath.Glob(dir + "/*" + s.mark + "*"); len(left) > 0 {
			fmt.Fprintln(&b, left)
		}
	}
	for _, device := range []string{"/dev/null", "/dev/zero", "/dev/urandom"} {
		info, err := os.Stat(device)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&b, device, info.Mode(), info.ModTime().UnixNano())
	}
	return b.String()
}

// writesBySh change the file or folder T.
var writesBySh = strings.Split(strings.TrimSpace(`
echo x > T
echo x >> T
: > T
exec 3<>T; echo x >&3
cp /usr/bin/env T
mv a.txt T
mv T T.MARK
ln -s /etc T
ln -sf a.txt T
ln a.txt T
rm -rf T
mkdir -p T/MARK
rmdir T
touch T
touch -d 2001-01-01 T
touch -r /usr T
chmod 777 T
chmod u+s T
chown 1:1 T
truncate -s 0 T
truncate -s 1M T
dd of=T count=1 bs=1 conv=notrunc,nocreat </dev/zero
echo x | tee T
echo x | tee -a T
sed -i s/a/b/ T
perl -pi -e s/a/b/ T
install -m 777 /usr/bin/env T
mkfifo T
mknod T p
mknod T c 1 3
chattr +A T
sort -o T a.txt
cp --reflink=auto a.txt T
tar -xf /dev/null -C T; tar -cf T sub
awk 'BEGIN{print "x" > "T"}'
find . -maxdepth 1 -name a.txt -fprint T
git config -f T a.b c
git -C T commit --allow-empty -m x
curl -so T file:///usr/bin/env
bash -c 'exec 9>T; echo x >&9'
setsid sh -c 'echo x > T'
(echo x > T) & wait
sh -c 'cd $(dirname T) && echo x > $(basename T)'
echo x > /proc/self/root/T
echo x > /proc/self/cwd/T
`), "\n")

// writesByPython change the file p in Python, in other ways.
var writesByPython = strings.Split(strings.TrimSpace(`
open(p,"w").write("x")
os.open(p,os.O_RDONLY|os.O_TRUNC)
os.open(p,os.O_WRONLY|os.O_APPEND)
os.open(p,os.O_RDWR|os.O_CREAT|os.O_EXCL)
os.open(os.path.dirname(p),os.O_TMPFILE|os.O_RDWR)
os.truncate(p,0)
os.ftruncate(os.open(p,os.O_RDONLY),0)
os.posix_fallocate(os.open(p,os.O_RDONLY),0,1<<20)
libc.fallocate(os.open(p,os.O_RDONLY),3,0,4)
mmap.mmap(os.open(p,os.O_RDONLY),1,mmap.MAP_SHARED,mmap.PROT_READ|mmap.PROT_WRITE)[0:1]=b"X"
os.copy_file_range(os.open("a.txt",0),os.open(p,0),1)
os.sendfile(os.open(p,0),os.open("a.txt",0),0,1)
os.pwrite(os.open(p,0),b"X",0)
os.pwrite(os.open("/proc/self/fd/%d"%os.open(p,0),os.O_RDWR),b"X",0)
os.rename(p,p+"MARK")
os.replace("a.txt",p)
libc.renameat2(-100,b"a.txt",-100,p.encode(),2)
os.link("a.txt",p+"MARK")
os.symlink("a.txt",p+"MARK")
os.unlink(p)
os.mkdir(p+"MARK")
os.mkfifo(p+"MARK")
os.mknod(p+"MARK",0o666|0o020000,os.makedev(1,3))
os.chmod(p,0o777)
os.fchmod(os.open(p,0),0o4777)
libc.syscall(452,-100,p.encode(),0o777,0)
os.chown(p,1,1)
os.lchown(p,1,1)
os.fchown(os.open(p,0),1,1)
os.utime(p,(1,1))
os.utime(os.open(p,0),(1,1))
os.utime(p,(1,1),follow_symlinks=False)
libc.utimes(p.encode(),None)
os.setxattr(p,"user.x",b"1")
os.setxattr(os.open(p,0),"user.x",b"1")
os.setxattr(p,"user.x",b"1",follow_symlinks=False)
libc.syscall(463,-100,p.encode(),0,b"user.x",0,0)
libc.syscall(469,-100,p.encode(),0,0,0)
fcntl.ioctl(os.open(p,0),0x40086602,struct.pack("l",0x80))
fcntl.ioctl(os.open(p,0),0x401c5820,b"\0"*28)
fcntl.ioctl(os.open(p,0),0x40806685,struct.pack("IIIIQIIQ",1,1,4096,0,0,0,0,0)+b"\0"*88)
fcntl.ioctl(os.open(p,0),0x40049409,os.open("a.txt",0))
libc.syscall(437,-100,p.encode(),struct.pack("QQQ",1,0,0),24)
libc.syscall(425,8,b"\0"*256)
libc.open_by_handle_at(os.open(".",0),b"\0"*64,1)
sqlite3.connect(p+"MARK.db").execute("create table t(x)")
shutil.rmtree(os.path.dirname(p))
shutil.copyfile("a.txt",p)
subprocess.run(["/usr/bin/tee",p],input=b"x",stderr=2)
libc.mount(b"/tmp",os.path.dirname(p).encode(),b"",4096,0)
libc.umount2(os.path.dirname(p).encode(),2)
libc.chroot(os.path.dirname(p).encode())
libc.unshare(0x10020000); open(p,"w").write("x")
libc.swapon(p.encode(),0)
libc.acct(p.encode())
libc.quotactl(0x800002,p.encode(),0,0)
libc.inotify_init(); open(p,"a").write("x")
libc.syscall(428,-100,p.encode(),1)
tarfile.open(p,"w").add("a.txt")
zipfile.ZipFile(p,"a").writestr("x","x")
`), "\n")

// otherTries send, signal, stay and read. P is the process, OUT the outside.
var otherTries = strings.Split(strings.TrimSpace(`
echo x > /dev/tcp/127.0.0.1/TCP
echo x > /dev/udp/127.0.0.1/UDP
curl -s -m 2 http://127.0.0.1:TCP/
curl -s -m 2 --unix-socket OUT/sock http://x/
curl -s -m 2 --unix-socket sock http://x/
curl -s -m 2 --abstract-unix-socket ABSTRACT http://x/
git ls-remote git://127.0.0.1:TCP/x
perl -MSocket -e 'socket(S,PF_INET,SOCK_STREAM,0); connect(S,pack_sockaddr_in(TCP,inet_aton("127.0.0.1")))'
perl -MSocket -e 'socket(S,PF_UNIX,SOCK_STREAM,0); connect(S,pack_sockaddr_un("OUT/sock"))'
perl -MSocket -e 'socket(S,PF_UNIX,SOCK_STREAM,0); connect(S,pack_sockaddr_un("sock"))'
perl -MSocket -e 'socketpair(A,B,PF_UNIX,SOCK_DGRAM,0); send(A,"x",0,pack_sockaddr_un("OUT/dsock"))'
perl -MSocket -e 'socketpair(A,B,PF_UNIX,SOCK_DGRAM,0); send(A,"x",0,pack_sockaddr_un("dsock"))'
perl -MSocket -e 'socketpair(A,B,PF_UNIX,SOCK_DGRAM,0); send(A,"x",0,pack("Sa*",1,"\0ABSTRACTd"))'
perl -MSocket -e 'socketpair(A,B,PF_UNIX,SOCK_RAW,0); connect(A,pack_sockaddr_un("OUT/dsock")); send(A,"x",0)'
PY socket.create_connection(("127.0.0.1",TCP),2)
PY socket.create_connection(("::ffff:127.0.0.1",TCP),2)
PY socket.socket(socket.AF_INET,socket.SOCK_DGRAM).sendto(b"x",("127.0.0.1",UDP))
PY socket.socket(socket.AF_INET6,socket.SOCK_DGRAM).sendto(b"x",("::ffff:127.0.0.1",UDP))
PY socket.socket(socket.AF_INET,socket.SOCK_STREAM).sendto(b"x",0x20000000,("127.0.0.1",TCP))
PY socket.socket(socket.AF_UNIX).connect("OUT/sock")
PY socket.socket(socket.AF_UNIX).connect("sock")
PY socket.socket(socket.AF_UNIX).connect("\0ABSTRACT")
PY socket.socket(socket.AF_UNIX,socket.SOCK_DGRAM).sendto(b"x","\0ABSTRACTd")
PY socket.socket(socket.AF_UNIX,socket.SOCK_DGRAM).sendto(b"x","OUT/dsock")
PY socket.socketpair(socket.AF_UNIX,socket.SOCK_DGRAM)[0].sendto(b"x","OUT/dsock")
PY socket.socketpair(socket.AF_UNIX,socket.SOCK_DGRAM)[0].sendto(b"x","dsock")
PY socket.socketpair(socket.AF_UNIX,socket.SOCK_DGRAM)[0].sendto(b"x","\0ABSTRACTd")
PY socket.socketpair(socket.AF_UNIX,socket.SOCK_DGRAM)[0].sendmsg([b"x"],[],0,"\0ABSTRACTd")
PY s=socket.socketpair(socket.AF_UNIX,socket.SOCK_SEQPACKET)[0]; s.sendmsg([b"x"],[],0,"\0ABSTRACTd")
PY s=socket.socketpair(socket.AF_UNIX,socket.SOCK_STREAM)[0]; s.connect("OUT/sock")
PY socket.socket(socket.AF_VSOCK,socket.SOCK_STREAM).connect((2,TCP))
PY socket.socket(socket.AF_PACKET,socket.SOCK_RAW).bind(("lo",0))
PY socket.socket(socket.AF_NETLINK,socket.SOCK_RAW,9).send(b"x"*16)
PY urllib.request.urlopen("http://127.0.0.1:TCP",timeout=2)
echo x > fifo
PY os.write(os.open("fifo",os.O_WRONLY|os.O_NONBLOCK),b"x")
PY os.write(os.open("fifo",os.O_RDWR),b"x")
kill -9 P
kill -STOP P
kill -TERM P
kill -9 -1
kill -9 0
kill -9 $PPID
kill -9 1
pkill -9 sleep
killall sleep
perl -e 'kill 9, P'
renice 19 P
renice 19 -u 0
ionice -c 3 -p P
taskset -p 1 P
chrt -b -p 0 P
prlimit --pid P --cpu=1
prlimit --pid P --data=1
PY os.kill(P,9)
PY os.killpg(os.getpgid(P),9)
PY signal.pidfd_send_signal(os.pidfd_open(P),9)
PY libc.tgkill(P,P,9)
PY libc.syscall(200,P,9)
PY libc.syscall(129,P,9,b"\0"*128)
PY fcntl.fcntl(0,8,P); fcntl.fcntl(0,10,9)
PY r,w=os.pipe(); fcntl.fcntl(r,8,P); fcntl.fcntl(r,10,9); fcntl.fcntl(r,4,0x2000); os.write(w,b"x"); time.sleep(.1)
PY resource.prlimit(P,resource.RLIMIT_CPU,(1,1))
PY resource.prlimit(P,resource.RLIMIT_DATA,(1,1))
PY os.setpriority(os.PRIO_PROCESS,P,19)
PY os.setpriority(os.PRIO_USER,os.getuid(),19)
PY os.sched_setaffinity(P,{0})
PY os.sched_setscheduler(P,os.SCHED_BATCH,os.sched_param(0))
PY libc.syscall(251,1,P,0x6000)
PY libc.syscall(251,3,os.getuid(),0x6000)
PY libc.ptrace(16,P,0,0)
PY libc.ptrace(0x4206,P,0,0)
PY libc.process_vm_readv(P,b"",0,b"",0,0)
PY libc.process_vm_writev(P,b"",0,b"",0,0)
PY open("/proc/P/mem","r+b")
PY print(open("/proc/P/environ").read())
PY open("/proc/P/oom_score_adj","w").write("1000")
PY open("/proc/P/comm","w").write("x")
PY libc.syscall(438,os.pidfd_open(P),0,0)
PY libc.setns(os.open("/proc/P/ns/mnt",0),0)
PY [open("/proc/%d/fd/%d"%(os.getppid(),n),"w").write("x") for n in range(3,20)]
PY [print(open("/proc/%s/environ"%n).read()) for n in os.listdir("/proc") if n.isdigit()]
PY open("/proc/sys/kernel/core_pattern","w").write("|/bin/sh")
PY open("/proc/sysrq-trigger","w").write("b")
PY open("/sys/power/state","w").write("mem")
PY libc.reboot(0x1234567)
PY libc.sethostname(b"MARK",4)
PY libc.settimeofday(struct.pack("ll",1,1),None)
PY libc.syslog(5,0,0); libc.klogctl(5,0,0)
PY libc.init_module(b"",0,b"")
PY libc.syscall(321,0,b"\0"*64,64)
PY libc.syscall(298,b"\0"*128,0,-1,-1,0)
PY libc.syscall(248,b"user",b"MARK",b"x",1,-5)
PY libc.syscall(323,1)
PY libc.shmget(0x7ac1,4096,0o1666)
PY libc.semget(0x7ac1,1,0o1666)
PY libc.msgget(0x7ac1,0o1666)
PY libc.syscall(240,b"MARK",0o102,0o666,0)
PY open("/dev/shm/MARK","w").write("x")
PY open("/dev/mqueue/MARK","w").write("x")
PY open("/dev/tty","w").write("x")
PY open("/dev/ptmx","r+")
PY open("/dev/kmsg","w").write("x")
PY os.chmod("/dev/null",0o600)
PY os.utime("/dev/zero",(1,1))
PY os.chown("/dev/urandom",1,1)
sleep 1000.MARK & disown
setsid sleep 1000.MARK & echo
nohup sleep 1000.MARK >/dev/null 2>&1 & echo
(setsid sh -c 'setsid sleep 1000.MARK & setsid sleep 1000.MARK &' &)
setsid sh -c 'trap "" TERM HUP INT; while :; do sleep 1000.MARK; done' & echo
setsid sh -c 'sleep 0.1; exec sleep 1000.MARK' & kill -9 $PPID
setsid sh -c 'sleep 0.2; setsid sleep 1000.MARK' & kill -STOP $PPID; sleep 0.1; kill -9 $PPID
perl -e 'fork && exit; setpgrp; fork && exit; exec "sleep","1000.MARK"'
PY os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); os.execvp("sleep",["sleep","1000.MARK"])
PY os.fork() or (os.setsid(),time.sleep(.1),os.execvpe("sleep",["sleep","1000.MARK"],{})); os.kill(os.getppid(),9)
PY p=os.getppid(); os.fork() or (os.setsid(),time.sleep(.3),os.execvp("sleep",["sleep","1000.MARK"])); time.sleep(.2); [libc.syscall(234,p,t,9) for t in range(p,p+40)]
PY [os.kill(n,9) for n in range(2,400) if n!=os.getpid()]
PY a=bytearray(4<<30)
PY a=[bytearray(1<<20) for _ in range(4096)]
PY [os.fork() or time.sleep(1000) for _ in range(2000)]
PY m=mmap.mmap(-1,4<<30); [m.write(b"x"*4096) for _ in range(1<<20)]
head -c 4G /dev/zero | tail -c 4G
head -c 4G /dev/zero > $HOME/MARK
head -c 4G /dev/zero > $TMPDIR/MARK
i=0; while test $i -lt 64; do head -c 64M /dev/zero > $HOME/MARK.$i; i=$((i+1)); done
:|while :; do head -c 1M /dev/zero; done
cat OUT/secret.txt
cat OUT/home/.bashrc
cat hidden/keys
cat hid*/k*
grep -r CANARY /
grep -rs CANARY OUT /proc /tmp /var /home /root /run /etc
find / -name secret.txt -exec cat {} +
cat /proc/self/root/OUT/secret.txt
cat /proc/1/root/OUT/secret.txt
cat /proc/P/root/OUT/secret.txt
env; set; export -p; cat /proc/*/environ
ls OUT hidden /var /run /mnt /srv /home /root
ln -s OUT $HOME/l; cat $HOME/l/secret.txt
tar -cf - OUT hidden | cat
PY print(open("OUT/secret.txt").read())
PY print(os.listdir("OUT"),os.listdir("/var"),os.listdir("/run"))
PY [print(open(os.path.join(d,f),errors="replace").read(4096)) for d,_,fs in os.walk("/etc") for f in fs if "shadow" in f]
git grep --no-index CANARY .
git diff --no-index /dev/null OUT/secret.txt
git --git-dir=OUT/x gc
`), "\n")

// tries returns the lines to be tried.
func (s *snare) tries() []string {
	targets := []string{
		s.workspace + "/a.txt", "new." + s.mark, "sub", ".git/config", ".mcp.json", s.outside + "/secret.txt", s.outside + "/new." + s.mark,
		s.outside + "/home", s.cache + "/x", "/var/tmp/" + s.mark, "/etc/" + s.mark, "/usr/local/" + s.mark,
	}
	names := strings.NewReplacer("OUT", s.outside, "MARK", s.mark, "TCP", strconv.Itoa(s.tcp), "UDP", strconv.Itoa(s.udp),
		"ABSTRACT", s.abstract)
	process, file := regexp.MustCompile(`\bP\b`), regexp.MustCompile(`\bT\b`)
	python := func(code string) string {
		return `python3 -c 'import os,sys,mmap,socket,ctypes,struct,signal,time,subprocess,shutil,sqlite3,tarfile,zipfile,resource,fcntl,urllib.request
libc=ctypes.CDLL(None)
` + code + "'"
	}
	var all []string
	for i, way := range writesBySh {
		for k, target := range targets {
			if (i+k)%2 == 0 { // each way, and each target, in half of the pairs
				all = append(all, names.Replace(file.ReplaceAllLiteralString(way, target)))
			}
		}
	}
	for _, way := range writesByPython {
		code := "for p in sys.argv[1:]:\n try:\n  " + strings.ReplaceAll(way, "; ", "\n  ") + "\n except Exception as e: print(e)\n"
		all = append(all, names.Replace(python(code))+" "+strings.Join(targets, " "))
	}
	for _, line := range otherTries {
		line = process.ReplaceAllString(line, strconv.Itoa(s.victim.Process.Pid))
		if code, ok := strings.CutPrefix(line, "PY "); ok {
			line = python(code)
		}
		all = append(all, names.Replace(line))
	}
	return all
}

// Lines of any program run unasked, and change nothing, reach nobody, and leave nothing.
func TestC12_StrictSandboxOnlyReads(t *testing.T) {
	t.Parallel()
	for name, report := range strictWalls(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSnare(t, report.Bubblewrap != "")
			made := tool(t, shell.Options{
				Mode: shell.ModeAsk, Report: report, Path: []string{"/usr/bin", "/bin"}, ProtectedNames: []string{".git", ".mcp.json"},
				Hidden: []string{s.workspace + "/hidden"}, Env: map[string]string{"TOKEN": secret}, Caches: s.cache,
			})
			shell.Bound(made, 512<<20, 256<<20, 0, 0)
			before, lines := s.world(t), s.tries()
			if len(lines) < 300 {
				t.Fatalf("only %d lines", len(lines))
			}
			judged := func(line string) bool { // not refused for what it names
				call := callOf(t, s.workspace, line, 20)
				err := admit(made, call)
				if err == nil && (asks(made, call) != "" || effect(made, call) != toolcrib.EffectReadOnly) {
					t.Errorf("%q: asks %q, %s", line, asks(made, call), effect(made, call))
				}
				return err == nil
			}
			kills := regexp.MustCompile(`kill|syscall\(234`) // it may end what would report its result
			next, ran := make(chan string), atomic.Int64{}
			var all sync.WaitGroup
			for range 2 {
				all.Go(func() {
					for line := range next {
						if !judged(line) {
							continue
						}
						ran.Add(1)
						out, err := runIn(t.Context(), t, made, callOf(t, s.workspace, line, 20))
						if strings.Contains(out.Stdout+out.Stderr, secret) {
							t.Errorf("%q gave the secret away: %+v", line, out)
						}
						var failed *toolcrib.ToolError
						if err != nil && (!errors.As(err, &failed) || failed.Kind != toolcrib.ToolTimeout) && !kills.MatchString(line) {
							t.Errorf("%q: %v", line, err)
						}
						if n := s.arrived.Load(); n > 0 {
							t.Errorf("%q: %d arrived", line, n)
							s.arrived.Store(0)
						}
					}
				})
			}
			for i, line := range lines {
				if !testing.Short() || i%8 == 0 {
					next <- line
				}
			}
			close(next)
			all.Wait()
			t.Logf("%d lines, %d of them ran", len(lines), ran.Load())
			if now := s.world(t); now != before {
				t.Errorf("the world changed:\n%s\n%s", before, now)
			}
			if now := s.stateOfVictim(); now != s.limits {
				t.Errorf("the process changed:\n%s\n%s", s.limits, now)
			}
			if left := alive(t, s.mark); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// No lock of a line that only reads makes programs outside wait.
func TestC12_StrictSandboxLocksNothing(t *testing.T) {
	t.Parallel()
	for name, report := range strictWalls(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folder(t)
			if err := os.WriteFile(dir+"/a", []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
			made := tool(t, shell.Options{Mode: shell.ModeAsk, Report: report, Path: []string{"/usr/bin", "/bin"}})
			for _, line := range []string{
				"flock -n -x . true", "flock -n -x a true",
				`perl -e 'open my $f, "<", "a" or exit 0; exit(fcntl($f, 1024, 0) ? 0 : 9)'`, // F_SETLEASE, F_RDLCK
			} {
				if out, err := runIn(t.Context(), t, made, callOf(t, dir, line, 20)); err != nil || out.ExitCode == 0 {
					t.Errorf("%s: %+v %v", line, out, err)
				}
			}
			if out, err := runIn(t.Context(), t, made, callOf(t, dir, "flock -n -s a true", 20)); err != nil || out.ExitCode != 0 {
				t.Errorf("a shared lock: %+v %v", out, err)
			}
		})
	}
}

// A line that can only read sees nothing of a home folder that is on the PATH itself, by a link, or in a folder on it,
// except folders in it that are on the PATH as well.
func TestC12_StrictSandboxHidesTheHomeFolder(t *testing.T) {
	t.Parallel()
	for name, report := range strictWalls(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top, dir := folder(t), folder(t)
			home, link := filepath.Join(top, "home"), filepath.Join(folder(t), "link")
			write(t, filepath.Join(home, "notes"), secret)
			write(t, filepath.Join(home, "bin/mine"), "#!/bin/sh\necho ran\n")
			if err := errors.Join(os.Chmod(filepath.Join(home, "bin/mine"), 0o755), os.Symlink(home, link)); err != nil {
				t.Fatal(err)
			}
			for _, on := range []string{home, top, link, link + "/.", "/"} {
				made := tool(t, shell.Options{
					Mode: shell.ModeAsk, Report: report, Home: home, Path: []string{filepath.Join(home, "bin"), on, "/usr/bin", "/bin"},
				})
				line := "cat " + link + "/notes ~/notes; cat " + home + "/notes; ls -A " + home + "; mine"
				out, err := made.Call(t.Context(), callOf(t, dir, "sh -c '"+line+"'", 20))
				if text := string(out.JSON); err != nil || strings.Contains(text, secret) || !strings.Contains(text, `ran\n`) {
					t.Errorf("%s: %s %v", on, text, err)
				}
			}
		})
	}
}

// What a rule hides from a line is not in the objects of git either.
func TestC12_StrictSandboxHidesGitObjects(t *testing.T) {
	t.Parallel()
	for name, report := range strictWalls(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := repository(t)
			made := tool(t, shell.Options{Mode: shell.ModeAsk, Report: report, Path: []string{"/usr/bin", "/bin"}})
			call := callOf(t, dir, "git show HEAD:a.txt | sed -n 1p", 20)
			plan, err := made.(toolcrib.Planner).Plan(t.Context(), call)
			if err != nil || plan.Hide == nil {
				t.Fatal(err)
			}
			for hidden, p := range map[bool]*toolcrib.Plan{false: plan, true: plan.Hide([]string{dir + "/a.txt"})} {
				out, err := p.Run(t.Context(), call)
				if err != nil || strings.Contains(string(out.JSON), "one") == hidden {
					t.Errorf("hidden: %t: %s %v", hidden, out.JSON, err)
				}
			}
		})
	}
}

// How long a line takes: one of the built-in table, the same unasked with any program, and one that may write.
func BenchmarkLine(b *testing.B) {
	full := probed()
	for name, report := range map[string]*shell.Report{"landlock": landlockOnly(), "bubblewrap": &full} {
		dir := folder(b)
		write(b, dir+"/a.txt", "alpha\nbeta\n")
		made := tool(b, shell.Options{Mode: shell.ModeAsk, Report: report, Path: []string{"/usr/bin", "/bin"}})
		for kind, call := range map[string]toolcrib.Call{
			"table": callOf(b, dir, "cat a.txt", 0), "reads": callOf(b, dir, "tac a.txt", 0), "writes": writing(b, dir, "tac a.txt", 0),
		} {
			b.Run(name+"/"+kind, func(b *testing.B) {
				for b.Loop() {
					if _, err := runIn(b.Context(), b, made, alone(call)); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
