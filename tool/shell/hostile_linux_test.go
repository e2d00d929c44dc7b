package shell_test

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/shell"
	"github.com/toolcrib/toolcrib/toolcribtest/tooltest"
)

// trap is a workspace with all kinds of bait, and an outside that nothing may
// touch.
type trap struct {
	workspace, outside string
}

func newTrap(t *testing.T) trap {
	t.Helper()
	top := folder(t)
	p := trap{filepath.Join(top, "workspace"), filepath.Join(top, "outside")}
	write(t, filepath.Join(p.outside, "secret.txt"), secret+"\n")
	write(t, filepath.Join(p.outside, "deep/more.txt"), secret+" deep\n")
	write(t, filepath.Join(p.outside, "list0"), "secret.txt\x00")
	write(t, filepath.Join(p.workspace, "a.txt"), "alpha\nbeta\n")
	write(t, filepath.Join(p.workspace, "b.txt"), "beta\ngamma\n")
	write(t, filepath.Join(p.workspace, "sub/c.txt"), "gamma\n")
	write(t, filepath.Join(p.workspace, "list"), filepath.Join(p.outside, "secret.txt")+"\n")
	write(t, filepath.Join(p.workspace, "list0"), filepath.Join(p.outside, "secret.txt")+"\x00")
	write(t, filepath.Join(p.workspace, "run.sh"), "#!/bin/sh\necho pwned > pwned\n")
	write(t, filepath.Join(p.workspace, "tricks/-delete"), "x\n")
	write(t, filepath.Join(p.workspace, "tricks/--output=pwned"), "x\n")
	write(t, filepath.Join(p.workspace, "tricks/-o"), "x\n")
	write(t, filepath.Join(p.workspace, "glob/-rf"), "x\n")
	write(t, filepath.Join(p.workspace, "-delete"), "x\n")
	write(t, filepath.Join(p.workspace, "-opwned"), "x\n")
	write(t, filepath.Join(p.workspace, "--files0-from=list0"), "x\n")
	write(t, filepath.Join(p.workspace, "+1"), "x\n")
	write(t, filepath.Join(p.workspace, "!"), "x\n")
	write(t, filepath.Join(p.workspace, "("), "x\n")
	for link, target := range map[string]string{
		"link": filepath.Join(p.outside, "secret.txt"), "linkdir": p.outside, "uplink": "..", "sub/evil": "../../outside/secret.txt",
		"loop": "loop", "sub/dir": p.outside, "inlink": "sub", "same/evil": "../a.txt", "etc": "/etc",
	} {
		at := filepath.Join(p.workspace, link)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(p.workspace, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(p.workspace, "sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	// Old enough that reading would show, as file systems commonly count it.
	for _, name := range []string{"secret.txt", "deep/more.txt", "list0"} {
		old := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
		if err := os.Chtimes(filepath.Join(p.outside, name), old, old.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// state tells all of a folder: kinds, rights, sizes, contents, times of change, and
// for the outside the time of the last reading.
func state(t *testing.T, dir string, reading bool) string {
	t.Helper()
	times := map[string]int64{}
	var b strings.Builder
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			t.Fatal(err)
		}
		info, err := entry.Info()
		if err != nil {
			t.Fatal(err)
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && reading && info.Mode().IsRegular() {
			times[path] = stat.Atim.Nano()
		}
		fmt.Fprintf(&b, "%s %v %d", path, info.Mode(), info.ModTime().UnixNano())
		if reading && info.Mode().IsRegular() {
			fmt.Fprintf(&b, " read %d", times[path])
		}
		b.WriteString("\n")
		return nil
	})
	if reading {
		return b.String() // its content is told by the times; reading it here would change them
	}
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, _ error) error {
		if entry.Type().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "%s %x\n", path, sha256.Sum256(data))
		}
		return nil
	})
	return b.String()
}

// refusedLines are refused before anything runs. OUT is the outside.
var refusedLines = strings.Split(strings.TrimSpace(`
cat OUT/secret.txt
cat ../outside/secret.txt
cat ./../outside/secret.txt
cat sub/../../outside/secret.txt
cat link
cat linkdir/secret.txt
cat ./link
cat a.txt link
cat inlink/../../outside/secret.txt
cat uplink/outside/secret.txt
cat sub/evil
cat sub/dir/secret.txt
cat -- link
cat < link
cat < OUT/secret.txt
cat < ../outside/secret.txt
cat < fifo
cat fifo
cat sock
cat loop
cat /etc/passwd
cat etc/passwd
cat //etc/passwd
cat /proc/self/environ
cat /proc/1/environ
cat /dev/zero
cat /dev/stdin
cat /dev/tcp/127.0.0.1/80
cat /dev/fd/3
cat ~/.ssh/id_rsa
cat ~root/.profile
cat "link"
cat 'li'nk
cat l\ink
cat lin?
cat lin[k]
cat linkdir/*
cat OUT/*
cat ../outside/*
head OUT/secret.txt
head -n 1 link
head -c 100 /dev/zero
head fifo
head --lines=1 link
tail link
tail -f a.txt
tail -F a.txt
tail --follow a.txt
tail --follow=name a.txt
tail --retry a.txt
tail -5f a.txt
tail -fn1 a.txt
tail --pid=1 -f a.txt
tail -n 1 sub/evil
tail --fol a.txt
wc link
wc --files0-from=list0
wc --files0-from list0
wc --files0=list0
wc --fil=list0
wc -l /dev/zero
sort -o pwned a.txt
sort a.txt -o pwned
sort a.txt -opwned
sort -ro pwned a.txt
sort --output=pwned a.txt
sort --output pwned a.txt
sort --out=pwned a.txt
sort --o=pwned a.txt
sort --compress-program=./run.sh -S 1k a.txt
sort --compress-prog=./run.sh a.txt
sort --compress-program ./run.sh a.txt
sort -T . a.txt
sort --temporary-directory=. a.txt
sort --files0-from=list0
sort --random-source=link -R a.txt
sort -S 100% a.txt
sort --parallel=9999 a.txt
sort --batch-size=2 a.txt
sort link
sort -m a.txt link
uniq a.txt pwned
uniq a.txt OUT/secret.txt
uniq -c a.txt b.txt
uniq - pwned
uniq link
uniq +1 a.txt pwned
uniq -1 a.txt
date -s 2001-01-01
date --set=2001-01-01
date --set 2001-01-01
date --se=2001-01-01
date -us 2001-01-01
date 010100002001
date -u 010100002001
date -f link
date --file=link
date -f a.txt
date -r link
date --reference=link
find . -exec ./run.sh {} +
find . -exec ./run.sh {} \;
find . -exec /bin/sh -p \; -quit
find . -execdir ./run.sh {} +
find . -ok ./run.sh {} \;
find . -okdir ./run.sh {} \;
find . -delete
find . -name a.txt -delete
find . -type f -o -delete
find . \( -name x -o -delete \)
find . -fprint pwned
find . -fprint0 pwned
find . -fprintf pwned %p
find . -fls pwned
find -fprint OUT/secret.txt
find -files0-from list0
find -L . -name secret.txt
find -H linkdir
find . -follow
find linkdir -type f
find OUT
find /
find ..
find . ../outside
find . -newer link
find . -newer OUT/secret.txt
find . -samefile link
find -P -L .
find . -name a.txt OUT
find -D exec .
find . -d -delete
find . -executable -exec echo {} +
find . -EXEC echo {} +
grep x OUT/secret.txt
grep -r CANARY OUT
grep -r CANARY ..
grep -R CANARY .
grep --dereference-recursive CANARY .
grep --dereference-rec CANARY .
grep -rR CANARY .
grep -f link a.txt
grep -flink a.txt
grep --file=link a.txt
grep --file link a.txt
grep --fil=link a.txt
grep -nf link a.txt
grep --exclude-from=link -r x .
grep CANARY link
grep CANARY linkdir/secret.txt
grep -e CANARY link
grep -r CANARY linkdir
grep -D read CANARY fifo
grep x fifo
grep --devices=read x .
grep -d recurse CANARY linkdir
grep --directories=recurse CANARY OUT
grep -d follow CANARY .
grep -P --dereference-recursive CANARY .
diff a.txt link
diff link a.txt
diff a.txt OUT/secret.txt
diff --from-file=link a.txt
diff --to-file=link a.txt
diff --from-file link a.txt
diff --to=link a.txt
diff -l a.txt b.txt
diff --paginate a.txt b.txt
diff -X link sub same
diff --exclude-from=link sub same
diff /dev/zero a.txt
diff a.txt fifo
diff sub linkdir
diff -r sub OUT
diff sub a.txt
diff a.txt sub
diff a.txt
diff --unified --from-file=link a.txt
ls OUT
ls ..
ls /
ls linkdir
ls linkdir/
ls -L
ls -L link
ls -lL .
ls -H linkdir
ls --dereference .
ls --dereference-command-line link
ls --deref .
ls --hyperlink
ls uplink
ls etc
ls *
find * -maxdepth 0
ls -D
test -f OUT/secret.txt
test -f link
test -e ../outside/secret.txt
test a.txt -nt link
test -r linkdir/secret.txt
[ -f link ]
[ -f a.txt
test -f a.txt -a -f link
test ! -e link
test -x OUT
test -v PATH
pwd link
echo $(cat link)
echo "$(cat link)"
echo CAT_BACKTICK
echo $HOME
echo "${HOME}"
echo ${PATH}
echo $((1+1))
echo <(cat link)
cat <(echo x)
echo x > pwned
echo x >> a.txt
echo x >| a.txt
echo x > OUT/secret.txt
echo x > /dev/sda
echo x &> pwned
echo x 2> pwned
echo x 3> pwned
echo x <> pwned
cat a.txt > link
cat > pwned
> pwned
: > a.txt
cat <<< secret
echo x >& pwned
echo x 1>&3
cat 0<&3
exec 3<> link
{ cat link; }
( cat a.txt )
if true; then cat link; fi
while true; do echo x; done
for f in *; do cat a.txt; done
case x in x) echo y;; esac
f() { cat link; }; f
function f { cat link; }
[[ -f a.txt ]]
(( 1 + 1 ))
let x=1
true &
cat a.txt & cat b.txt
! true
true |& cat
coproc cat
time cat a.txt
X=1
X=1 echo y
LD_PRELOAD=./x.so cat a.txt
PATH=. cat a.txt
GREP_OPTIONS=-R grep -r x .
export X=1
declare -x X=1
typeset X=1
readonly X=1
local X=1
unset PATH
set -x
alias ls=cat
printf -v PATH x
printf x
eval cat link
source run.sh
. run.sh
. ./run.sh
exec cat link
command cat link
builtin echo x
type cat
trap 'cat link' EXIT
cd ..
cd linkdir && cat secret.txt
pushd ..
read x
mapfile x
enable -f ./x.so x
hash -p ./run.sh cat
ulimit -c 0
umask 0
env cat link
env
xargs cat
find . -name a.txt | xargs rm
ls | sh
echo 'cat link' | bash
echo x | tee pwned
cat a.txt | sudo tee /etc/x
curl http://example.com
ls; curl http://example.com
ls && wget x
ls || nc -l 80
awk 'BEGIN{system("id")}'
sed -i s/a/b/ a.txt
sed e a.txt
python3 -c 'print(1)'
perl -e 'print 1'
sh -c 'cat link'
/bin/sh -c id
/bin/cat link
/usr/bin/cat a.txt
./run.sh
run.sh
../outside/run
sub/../run.sh
\./run.sh
l*
"" a.txt
'cat link'
rm a.txt
rm -rf sub
rm -rf /
mv a.txt OUT/x
cp link a.txt
ln -s / x
chmod 777 a.txt
chmod 777 /
dd if=/dev/zero of=a.txt
mkfs /dev/sda
mkfs.ext4 /dev/sda
shutdown now
reboot
poweroff
sudo ls
SUDO ls
su root
:(){ :|:& };:
format c:
kill -9 1
less link
more a.txt
man ls
vi a.txt
git -c core.pager=./run.sh log
tar -cf x .
busybox cat link
nohup cat a.txt
timeout 1 cat a.txt
nice cat a.txt
strace cat a.txt
ld.so /bin/cat link
/lib64/ld-linux-x86-64.so.2 /bin/cat link
cat {a,b}.txt
echo {1..9}
cat ?(a.txt)
cat !(a.txt)
cat @(link)
echo $'\x41'
echo $"x"
cat ~+/a.txt
cat a.txt;cat link
cat a.txt&&cat link
cat a.txt||cat link
cat a.txt|cat link -
cat a.txt | sort -o pwned
cat a.txt | uniq - pwned
ls |
| ls
ls &&
;
echo "unbalanced
echo 'unbalanced
echo $(
echo x; (
cat --help=x
cat --nothing
cat -z a.txt
echo "" > ""
`), "\n")

// harmlessLines look dangerous and are admitted: what runs is harmless.
var harmlessLines = strings.Split(strings.TrimSpace(`
cat *.txt
cat ./-delete
cat -- -delete
cat */secret.txt
find a* -maxdepth 0
sort *.txt
sort [-]opwned
sort ./-opwned
sort tricks/*
sort -- -opwned
wc *.txt
wc -- --files0-from=list0
wc [-]-files0*
echo *
echo tricks/*
ls -l
ls -la sub
ls -lR
find . -name secret.txt
find . -type l
find . -lname '*'
find . -xtype l
find . -printf '%p %l\n'
find . -regex '.*\(txt\)'
grep -r CANARY .
grep -rn CANARY
grep -rs CANARY sub
grep --include=evil -r CANARY sub
grep -r --exclude-dir=x CANARY sub same
grep -P '(a+)+$' a.txt
diff -r sub same
diff sub same
diff -rN sub same
diff -ru --no-dereference sub same
echo sudo rm -rf /
echo 'rm -rf /' ';' shutdown
echo "mkfs dd if= :(){ :|:& };:"
grep -rn sudo .
grep 'chmod 777 /' a.txt
grep -e -R a.txt
grep -- -R a.txt
grep -- --file=link a.txt
echo -e '\x2fetc'
echo -- --help
echo '$(cat link)' '${HOME}'
echo \$HOME \;
test -t 0
test -L a.txt
true link OUT
false OUT
cat a.txt # comment, link
grep -r
date '+%Y $(id)'
cat < /dev/null
cat /dev/null
head -n -1 a.txt
tail -n +1 a.txt
tail ./+1
sort ./+1
uniq ./+1
cat '!' '('
cat nothing/../a.txt
ls -I '*' --hide='x'
date -d 'TZ="/etc/passwd" now'
cat a.txt 2>&1 >/dev/null
cat a.txt >/dev/null 2>&1
cat
sort
grep x
`), "\n")

func (p trap) line(line string) string {
	line = strings.ReplaceAll(line, "CAT_BACKTICK", "`cat link`")
	return strings.ReplaceAll(line, "OUT", p.outside)
}

func TestC12_HostileLinesAreRefused(t *testing.T) {
	t.Parallel()
	if len(refusedLines) < 150 {
		t.Fatalf("only %d lines", len(refusedLines))
	}
	p := newTrap(t)
	made := tool(t, shell.Options{Report: landlockOnly()})
	inside, outside := state(t, p.workspace, false), state(t, p.outside, true)
	for _, line := range refusedLines {
		line = p.line(line)
		call := callOf(t, p.workspace, line, 2)
		err := admit(made, call)
		switch kind(t, err) {
		case toolcrib.PermissionDenied, toolcrib.InvalidArguments:
		case "":
			t.Errorf("%q is admitted", line)
		default:
			t.Errorf("%q: %v", line, err)
		}
		if got := effect(made, call); got != toolcrib.EffectNonIdempotentWrite {
			t.Errorf("%q: effect %s", line, got)
		}
		if got := tooltest.Facts(made, call).Targets; len(got) > 0 {
			t.Errorf("%q: targets %v", line, got)
		}
		if err != nil && (strings.Contains(err.Error(), secret) || strings.ContainsAny(err.Error(), "\n\x00")) {
			t.Errorf("%q: text %q", line, err)
		}
		// And called anyway, it still does nothing.
		if out, err := made.Call(t.Context(), call); err == nil {
			t.Errorf("%q ran: %s", line, out.JSON)
		}
	}
	if now := state(t, p.workspace, false); now != inside {
		t.Errorf("the workspace changed:\n%s\n%s", inside, now)
	}
	if now := state(t, p.outside, true); now != outside {
		t.Errorf("the outside changed or was read:\n%s\n%s", outside, now)
	}
}

func TestC12_AdmittedLinesDoNothingOutside(t *testing.T) {
	t.Parallel()
	for name, report := range map[string]*shell.Report{"sandbox": landlockOnly(), "without": {Problem: "switched off"}} {
		t.Run(name, func(t *testing.T) {
			p := newTrap(t)
			made := tool(t, shell.Options{Report: report})
			inside, outside := state(t, p.workspace, false), state(t, p.outside, true)
			for _, line := range harmlessLines {
				line = p.line(line)
				call := callOf(t, p.workspace, line, 5)
				if err := admit(made, call); err != nil {
					t.Errorf("%q is refused: %v", line, err)
					continue
				}
				if got := effect(made, call); got != toolcrib.EffectReadOnly {
					t.Errorf("%q: effect %s", line, got)
				}
				got, err := runIn(t.Context(), t, made, call)
				if err != nil {
					t.Errorf("%q: %v", line, err)
				}
				if strings.Contains(got.Stdout+got.Stderr, secret) {
					t.Errorf("%q gave the secret away: %+v", line, got)
				}
			}
			if now := state(t, p.workspace, false); now != inside {
				t.Errorf("the workspace changed:\n%s\n%s", inside, now)
			}
			if now := state(t, p.outside, true); now != outside {
				t.Errorf("the outside changed or was read:\n%s\n%s", outside, now)
			}
		})
	}
}
