//go:build unix

package shell

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate/folderid"
	"github.com/toolcrib/toolcrib/tool/internal/beneath"
)

// toolchains are what a user's home folder may have of programs. What is private in them is hidden ([private]).
func toolchains() []string {
	return []string{
		".asdf", ".bun/bin", ".cargo/bin", ".deno/bin", ".local/lib/python*", ".local/share/fnm/aliases",
		".local/share/fnm/node-versions", ".local/share/mise/installs", ".local/share/uv/python", ".local/share/uv/tools",
		".nodenv", ".nvm/alias", ".nvm/versions", ".pyenv", ".rbenv", ".rustup", ".sdkman/candidates",
		".volta/bin", ".volta/layout.v*", ".volta/tools", "go/bin",
	}
}

// SearchPath returns the folders of list in which programs are looked for; if list is empty,
// those of the PATH of this process. Left out, each with its reason, are relative folders,
// those in the workspace, and those that others may write.
func SearchPath(list []string, workspace string) (use, out []string) {
	if len(list) == 0 {
		list = filepath.SplitList(os.Getenv("PATH"))
	}
	for _, dir := range list {
		real, err := filepath.EvalSymlinks(dir)
		why := ""
		switch {
		case !isAbs(dir) || strings.Contains(dir, ":"):
			why = "is relative"
		case err != nil:
			continue // there is none
		case workspace != "" && (within(real, workspace) || within(filepath.Clean(dir), workspace)):
			why = "is in the workspace"
		case writtenByOthers(real) || writtenByOthers(dir):
			why = "can be written by other users"
		}
		switch dir = filepath.Clean(dir); {
		case why != "":
			out = append(out, quote(dir)+" "+why)
		case !slices.Contains(use, dir):
			use = append(use, dir)
		}
	}
	return use, out
}

// writtenByOthers reports whether another user than root and this one can change what a path
// leads to. Whoever has the root folder counts as root: inside a container that may be nobody.
func writtenByOthers(path string) bool {
	system := uint32(0)
	if info, err := os.Lstat(rootDir); err == nil {
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			system = stat.Uid
		}
	}
	for at := filepath.Clean(path); ; at = filepath.Dir(at) {
		info, err := os.Lstat(at)
		if err != nil {
			return true
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		bySystem := ok && (stat.Uid == 0 || stat.Uid == system)
		if !ok || !bySystem && int(stat.Uid) != os.Geteuid() {
			return true
		}
		mode := info.Mode()
		byGroup := mode&0o020 != 0 && !bySystem && int(stat.Gid) != os.Getegid()
		if mode&fs.ModeSymlink == 0 && (mode&0o002 != 0 || byGroup) &&
			(at == filepath.Clean(path) || mode&fs.ModeSticky == 0) {
			return true
		}
		if at == filepath.Dir(at) {
			return false
		}
	}
}

// Missing returns the programs of a list that are in none of the folders.
func Missing(names, folders []string) (missing []string) {
	for _, name := range names {
		if _, err := findIn(folders, name, true); err != nil {
			missing = append(missing, name)
		}
	}
	return missing
}

// findIn finds a program. One that the built-in table knows is the system's own before one
// that was installed beside it.
func findIn(folders []string, name string, known bool) (string, error) {
	if known {
		folders = slices.Concat([]string{"/usr/bin", "/bin"}, folders)
	}
	for _, folder := range folders {
		path := filepath.Join(folder, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 &&
			info.Mode()&0o002 == 0 {
			return path, nil
		}
	}
	return "", toolcrib.Failf(toolcrib.NotFound, "program %s; it is not installed in a folder of the PATH (tools.shell.path)", quote(name))
}

// installed is what this user has of programs, beside those of the system.
type installed struct {
	path    []string // folders of programs
	read    []string // what they need: read and run in the sandbox
	private []string // what is hidden of that
	env     []string // where they find it
	mods    string   // the module cache of Go; "" = none
	home    string

	identity func() string // the user's name and address, as a configuration of git; "" = not known
}

// install looks what is installed.
func (o *Options) install() *installed {
	i := &installed{home: o.Home}
	i.path, _ = SearchPath(o.Path, "")
	for _, dir := range i.path {
		i.read = append(i.read, i.root(dir))
	}
	i.identity = sync.OnceValue(i.ask)
	defer i.keepPrivate()
	if i.home == "" {
		return i
	}
	for _, name := range toolchains() {
		found, _ := filepath.Glob(filepath.Join(i.home, name))
		i.read = append(i.read, found...)
	}
	sdks, _ := filepath.Glob(filepath.Join(i.home, "sdk/go*/bin/go")) // of golang.org/dl
	for _, program := range sdks {
		i.read = append(i.read, filepath.Dir(filepath.Dir(program)))
	}
	for _, of := range []struct{ name, folder string }{
		{"PYENV_ROOT", ".pyenv"}, {"RUSTUP_HOME", ".rustup"}, {"PYTHONUSERBASE", ".local"},
	} {
		dir := cmp.Or(os.Getenv(of.name), filepath.Join(i.home, of.folder))
		if _, err := os.Stat(dir); err == nil && isAbs(dir) {
			i.env = append(i.env, of.name+"="+dir)
		}
	}
	mods := cmp.Or(os.Getenv("GOMODCACHE"), filepath.Join(cmp.Or(os.Getenv("GOPATH"), filepath.Join(i.home, "go")),
		"pkg/mod"))
	if info, err := os.Stat(mods); err == nil && info.IsDir() && isAbs(mods) {
		i.mods, i.read = mods, append(i.read, mods)
	}
	for _, name := range []string{"registry", "git"} {
		if path := filepath.Join(i.cargo(), name); isAbs(path) {
			i.read = append(i.read, path)
		}
	}
	return i
}

// identify lets git know the user's name and address in a home folder of a call.
func (i *installed) identify(home string) {
	if text := i.identity(); text != "" {
		put(home, ".gitconfig", text)
	}
}

// put writes a file into a home folder of a call, and nowhere else: there may be links in it.
func put(home, name, text string) {
	root, err := os.OpenRoot(home)
	if err != nil {
		return
	}
	defer func() { _ = root.Close() }()
	if root.MkdirAll(filepath.Dir(name), 0o700) == nil {
		_ = root.WriteFile(name, []byte(text), 0o600)
	}
}

// noTelemetry switches off the telemetry of the go command in a home folder of a call. In a new
// folder it would start a process of its own at each call.
func noTelemetry(home string) {
	put(home, ".config/go/telemetry/mode", "off")
}

// ask asks git for the user's name and address, in no repository.
func (i *installed) ask() string {
	program, err := findIn(i.path, "git", true)
	if err != nil || i.home == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	text := ""
	for _, key := range []string{"name", "email"} {
		cmd := exec.CommandContext(ctx, program, "config", "--global", "--get", "user."+key)
		cmd.Dir = rootDir
		value, err := cmd.Output()
		if line := strings.TrimSpace(string(value)); err == nil && line != "" && len(line) < maxPathBytes {
			text += "\t" + key + " = " + strconv.Quote(line) + "\n"
		}
	}
	if text == "" {
		return ""
	}
	return "[user]\n" + text
}

// folders are those of programs that are not in a workspace.
func (i *installed) folders(workspace string) []string {
	return slices.DeleteFunc(slices.Clone(i.path), func(dir string) bool {
		return within(beneath.Real(dir), workspace) || within(dir, workspace)
	})
}

func (i *installed) cargo() string {
	return cmp.Or(os.Getenv("CARGO_HOME"), filepath.Join(i.home, ".cargo"))
}

// root is the folder that a folder of programs belongs to: of /opt/x/bin it is /opt/x. In a
// home folder, and in folders of many things, it is the folder itself.
func (i *installed) root(dir string) string {
	above := filepath.Dir(dir)
	base := filepath.Base(dir)
	_, err := os.Stat(filepath.Join(above, "pyvenv.cfg"))
	private := i.home == "" || within(dir, i.home) || within(i.home, above)
	if err == nil || (base == "bin" || base == "sbin") && !private && strings.Count(above, "/") > 1 {
		return above
	}
	return dir
}

// cacheAge is how long a build cache is kept that nobody uses, maxCaches how much all of them may
// have: beyond it, those go that were not used for longest.
const (
	cacheAge  = 30 * 24 * time.Hour
	maxCaches = 8 << 30 // bytes
)

// cache is the folder of a user's build caches for a workspace, which stays until release;
// "" = none. Another folder that takes the workspace's place has caches of its own.
func (o *Options) cache(user, workspace string) (dir string, release func(), err error) {
	if o.Caches == "" {
		return "", func() {}, nil
	}
	id, err := folderid.Of(workspace)
	if err != nil {
		return "", nil, err
	}
	sum := sha256.Sum256([]byte(user + "\x00" + workspace + "\x00" + id))
	dir = filepath.Join(o.Caches, hex.EncodeToString(sum[:12]))
	for {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", nil, err
		}
		lock, err := os.Open(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was just removed
		}
		if err != nil {
			return "", nil, err
		}
		_ = syscall.Flock(int(lock.Fd()), syscall.LOCK_SH) // without locks it may go while it is used
		mine, err := lock.Stat()
		if now, nowErr := os.Stat(dir); err == nil && nowErr == nil && os.SameFile(mine, now) {
			now := time.Now()
			return filepath.Clean(dir), func() { _ = lock.Close() }, os.Chtimes(dir, now, now)
		}
		_ = lock.Close()
		if err != nil {
			return "", nil, err
		}
	}
}

// sweepCaches removes the build caches that nobody has used since then.
func (o *Options) sweepCaches(since time.Time) {
	for _, c := range o.cached() {
		if c.ModTime().Before(since) {
			o.drop(c.Name())
		}
	}
}

// boundCaches removes the build caches that were not used for longest, until all of them together
// have at most so many bytes.
func (o *Options) boundCaches(most int64) {
	all := o.cached()
	slices.SortFunc(all, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	for _, c := range all {
		_ = filepath.WalkDir(filepath.Join(o.Caches, c.Name()), func(_ string, entry fs.DirEntry, err error) error {
			if err != nil {
				return nil //nolint:nilerr // it has just gone
			}
			if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
				most -= info.Size()
			}
			if most < 0 {
				return fs.SkipAll
			}
			return nil
		})
		if most < 0 {
			o.drop(c.Name())
		}
	}
}

// cached returns the folders of build caches.
func (o *Options) cached() (all []fs.FileInfo) {
	entries, _ := os.ReadDir(o.Caches)
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && info.IsDir() && beneath.Mine(info) {
			all = append(all, info)
		}
	}
	return all
}

// drop removes a build cache that is not in use.
func (o *Options) drop(name string) {
	path := filepath.Join(o.Caches, name)
	lock, err := os.Open(path)
	if err != nil {
		return
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return
	}
	gone := path + ".gone"
	removeAll(gone) // of a process that was killed
	if os.Rename(path, gone) == nil {
		removeAll(gone)
	}
}

// environment is what programs get, with that folder as their home and for temporary files.
func (l *launcher) environment(temporary string) []string {
	all := []string{"LANG=C.UTF-8", "TERM=dumb"}
	if l.writes {
		all = slices.Concat(all, l.variables(temporary), l.extra)
	}
	if l.writes || l.git {
		all = append(all, gitEnvironment(l.Dir)...)
	}
	if !l.writes {
		all = append(all, "GIT_ALLOW_PROTOCOL=") // what a partial clone lacks is not fetched by a look at it
	}
	for name, value := range l.options.Env {
		all = append(all, name+"="+value)
	}
	all = append(all, "PATH="+strings.Join(l.installed.folders(l.Dir), ":"), "HOME="+temporary, "TMPDIR="+temporary)
	set := map[string]string{}
	for _, variable := range all {
		name, value, _ := strings.Cut(variable, "=")
		set[name] = name + "=" + value // the last one counts
	}
	return slices.Sorted(maps.Values(set))
}

// variables tell toolchains where they are, and where they keep what they build: in the cache,
// or in the home folder of the call.
func (l *launcher) variables(home string) []string {
	o, i := l.options, l.installed
	cache := cmp.Or(l.cache, home+"/.cache")
	env := slices.Concat(i.env, []string{
		"GOTOOLCHAIN=local", "GOCACHE=" + cache + "/go-build", "npm_config_cache=" + cache + "/npm",
		"npm_config_update_notifier=false",
		"PIP_CACHE_DIR=" + cache + "/pip", "PIP_DISABLE_PIP_VERSION_CHECK=1", "CARGO_HOME=" + cache + "/cargo",
	})
	if o.Network {
		return append(env, "GOMODCACHE="+cache+"/go-mod")
	}
	if i.mods != "" {
		env = append(env, "GOMODCACHE="+i.mods)
	}
	return append(env, "GOPROXY=off", "GOSUMDB=off", "CARGO_NET_OFFLINE=true", "npm_config_offline=true", "PIP_NO_INDEX=1")
}

// linkCargo lets cargo find in its own folder what the user's has of packages: it needs a
// folder that it can write, beside packages that it only reads.
func (l *launcher) linkCargo() {
	if l.options.Network || l.installed.home == "" {
		return
	}
	own, err := os.OpenRoot(cmp.Or(l.cache, l.scratch)) // an earlier job may have put links into it
	if err != nil {
		return
	}
	defer func() { _ = own.Close() }()
	at := "cargo"
	if l.cache == "" {
		at = ".cache/cargo"
	}
	for _, name := range []string{"registry/index", "registry/cache", "git/db"} {
		theirs := filepath.Join(l.installed.cargo(), name)
		if _, err := os.Stat(theirs); err == nil && own.MkdirAll(filepath.Dir(filepath.Join(at, name)), 0o700) == nil {
			_ = own.Symlink(theirs, filepath.Join(at, name)) // or it is there
		}
	}
}
