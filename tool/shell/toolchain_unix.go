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
	"github.com/toolcrib/toolcrib/tool/shell/internal/line"
)

// toolchains returns the places of programs in a home folder. Credentials in them are hidden ([private]).
func toolchains() []string {
	return []string{
		".asdf", ".bun/bin", ".cargo/bin", ".deno/bin", ".local/lib/python*", ".local/share/fnm/aliases",
		".local/share/fnm/node-versions", ".local/share/mise/installs", ".local/share/uv/python", ".local/share/uv/tools",
		".nodenv", ".nvm/alias", ".nvm/versions", ".pyenv", ".rbenv", ".rustup", ".sdkman/candidates",
		".volta/bin", ".volta/layout.v*", ".volta/tools", "go/bin",
	}
}

// SearchPath returns the folders of list in which programs are searched; if list is empty, those
// of the PATH of this process. out lists the folders that are left out, each with the reason:
// relative ones, those in the workspace, and those that other users may write.
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
			continue // it does not exist
		case workspace != "" && (within(real, workspace) || within(filepath.Clean(dir), workspace)):
			why = "is in the workspace"
		case writtenByOthers(real) || writtenByOthers(dir):
			why = "can be written by other users"
		}
		switch dir = filepath.Clean(dir); {
		case why != "":
			out = append(out, line.Quote(dir)+" "+why)
		case !slices.Contains(use, dir):
			use = append(use, dir)
		}
	}
	return use, out
}

// writtenByOthers reports whether users other than root and this one can change the target of a
// path. The owner of the root folder is treated as root: in a container it may be another user.
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

// findIn returns the path of a program. If known is true, as for programs of the built-in table,
// those of the system are preferred.
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
	return "", toolcrib.Failf(toolcrib.NotFound, "program %s; it is not installed in a folder of the PATH (tools.shell.path)", line.Quote(name))
}

// installed describes the programs of this user, in addition to those of the system.
type installed struct {
	path    []string // folders with programs
	read    []string // folders that they need, to be read and executed in the sandbox
	private []string // hidden paths in these
	env     []string // variables by which programs find them
	mods    string   // module cache of Go, or ""
	home    string

	identity func() string // returns the user's name and address as a git configuration, or ""
	goProxy  func() string // returns the GOPROXY of jobs with a proxy, or "" for the default
}

// install determines which programs are installed.
func (o *Options) install() *installed {
	i := &installed{home: o.Home}
	i.path, _ = SearchPath(o.Path, "")
	for _, dir := range i.path {
		i.read = append(i.read, i.root(dir))
	}
	i.identity, i.goProxy = sync.OnceValue(i.ask), sync.OnceValue(i.askGo)
	defer i.keepPrivate()
	if i.home == "" {
		return i
	}
	for _, name := range toolchains() {
		found, _ := filepath.Glob(filepath.Join(i.home, name))
		i.read = append(i.read, found...)
	}
	sdks, _ := filepath.Glob(filepath.Join(i.home, "sdk/go*/bin/go")) // installed by golang.org/dl
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

// identify writes the user's name and address for git into the home folder of a call.
func (i *installed) identify(home string) {
	if text := i.identity(); text != "" {
		put(home, ".gitconfig", text)
	}
}

// put writes a file in the home folder of a call. It does not follow links out of the folder.
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

// noTelemetry disables the telemetry of the go command in the home folder of a call. In a new home
// folder the go command would start a telemetry process at each call.
func noTelemetry(home string) {
	put(home, ".config/go/telemetry/mode", "off")
}

const maxIdentity = 4096 // bytes of the user's name or address

// ask asks git for the user's name and address, outside any repository.
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
		if set := strings.TrimSpace(string(value)); err == nil && set != "" && len(set) < maxIdentity {
			text += "\t" + key + " = " + strconv.Quote(set) + "\n"
		}
	}
	if text == "" {
		return ""
	}
	return "[user]\n" + text
}

// askGo asks go for its module proxies, and adds the modules that the user has downloaded, for what the others refuse.
// It returns "" if go is not installed or the list may have credentials.
func (i *installed) askGo() string {
	program, err := findIn(i.path, "go", false)
	if err != nil || i.mods == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "env", "GOPROXY")
	cmd.Dir = rootDir
	value, err := cmd.Output()
	list, own := strings.TrimSpace(string(value)), "file://"+i.mods+"/cache/download"
	switch {
	case err != nil || list == "" || len(list) > maxIdentity || strings.ContainsAny(list, "@ \n"):
		return ""
	case list == "direct" || list == "off":
		return own + "|" + list
	}
	list, direct := strings.CutSuffix(strings.ReplaceAll(list, ",", "|"), "|direct")
	if list += "|" + own; direct {
		list += "|direct"
	}
	return list
}

// folders returns the folders with programs that are not in the workspace.
func (i *installed) folders(workspace string) []string {
	return slices.DeleteFunc(slices.Clone(i.path), func(dir string) bool {
		return within(beneath.Real(dir), workspace) || within(dir, workspace)
	})
}

func (i *installed) cargo() string {
	return cmp.Or(os.Getenv("CARGO_HOME"), filepath.Join(i.home, ".cargo"))
}

// root returns the folder of the installation to which a folder with programs belongs: for
// /opt/x/bin it is /opt/x. In a home folder, and in shared folders, it is the folder itself.
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

// cacheAge is how long an unused build cache is kept. If all caches together are larger than
// maxCaches, the least recently used ones are removed.
const (
	cacheAge  = 30 * 24 * time.Hour
	maxCaches = 8 << 30 // bytes
)

// cache returns the folder of a user's build caches for a workspace, or "" if there are none. The
// folder is not removed before release is called. Another folder at the path of the workspace
// has its own caches.
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
			continue // another process just removed it
		}
		if err != nil {
			return "", nil, err
		}
		_ = syscall.Flock(int(lock.Fd()), syscall.LOCK_SH) // without locks it may be removed while in use
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

// sweepCaches removes the build caches that were not used since the given time.
func (o *Options) sweepCaches(since time.Time) {
	for _, c := range o.cached() {
		if c.ModTime().Before(since) {
			o.drop(c.Name())
		}
	}
}

// boundCaches removes the least recently used build caches, until the others have at most most bytes.
func (o *Options) boundCaches(most int64) {
	all := o.cached()
	slices.SortFunc(all, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	for _, c := range all {
		_ = filepath.WalkDir(filepath.Join(o.Caches, c.Name()), func(_ string, entry fs.DirEntry, err error) error {
			if err != nil {
				return nil //nolint:nilerr // it was just removed
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
	removeAll(gone) // left by a killed process
	if os.Rename(path, gone) == nil {
		removeAll(gone)
	}
}

// environment returns the variables for programs. temporary is their home folder and their folder for
// temporary files.
func (l *launcher) environment(temporary string) []string {
	all := []string{"LANG=C.UTF-8", "TERM=dumb"}
	if l.anyProgram() {
		all = slices.Concat(all, l.variables(temporary), l.extra)
	}
	if l.anyProgram() || l.git {
		all = append(all, gitEnvironment(l.Dir)...)
	}
	if !l.writes() {
		all = append(all, "GIT_ALLOW_PROTOCOL=") // reading a partial clone must not fetch missing objects
	}
	for name, value := range l.options.Env {
		all = append(all, name+"="+value)
	}
	all = append(all, "PATH="+strings.Join(l.installed.folders(l.Dir), ":"), "HOME="+temporary, "TMPDIR="+temporary)
	set := map[string]string{}
	for _, variable := range all {
		name, value, _ := strings.Cut(variable, "=")
		set[name] = name + "=" + value // the last one wins
	}
	for _, name := range l.Proxied {
		delete(set, name)
	}
	return slices.Sorted(maps.Values(set))
}

// variables returns the variables for toolchains: where they are installed, and that their caches are
// in the cache folder of the job or, without one, in the home folder of the call.
func (l *launcher) variables(home string) []string {
	o, i := l.options, l.installed
	cache := cmp.Or(l.cache, home+"/.cache")
	env := slices.Concat(i.env, []string{
		"GOTOOLCHAIN=local", "GOCACHE=" + cache + "/go-build", "npm_config_cache=" + cache + "/npm",
		"npm_config_update_notifier=false",
		"PIP_CACHE_DIR=" + cache + "/pip", "PIP_DISABLE_PIP_VERSION_CHECK=1", "CARGO_HOME=" + cache + "/cargo",
	})
	proxy := "off"
	switch {
	case o.open:
		return append(env, "GOMODCACHE="+cache+"/go-mod")
	case l.proxy != nil:
		return append(env, l.online(cache)...)
	case o.Network.on() && l.lower != "" && l.report.Bubblewrap != "": // with what earlier calls have downloaded
		env = append(env, downloads(cache)...)
		if i.mods != "" {
			proxy = "file://" + i.mods + "/cache/download,off"
		}
	case i.mods != "":
		env = append(env, "GOMODCACHE="+i.mods)
	}
	return append(env, "GOPROXY="+proxy, "GOSUMDB=off", "CARGO_NET_OFFLINE=true", "npm_config_offline=true",
		"PIP_NO_INDEX=1")
}

// downloads returns the variables for where jobs with a proxy keep their downloads. Cargo does not use its folder of
// other jobs, which has links to what the user has downloaded and cannot be written.
func downloads(cache string) []string {
	return []string{"GOMODCACHE=" + cache + "/go-mod", "CARGO_HOME=" + cache + "/cargo-online"}
}

// proxied returns the variables by which programs find the proxy.
func proxied() []string {
	return []string{
		"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "npm_config_proxy", "npm_config_https_proxy", "PIP_PROXY",
		"CARGO_HTTP_PROXY",
	}
}

// online returns the variables of a job with a proxy. Downloads are kept in the folder for build caches. Go takes the
// modules that the user has downloaded if the network refuses its proxy. Programs reach servers on the loopback of
// the job directly, unless the list names the loopback, which is then that of the machine.
func (l *launcher) online(cache string) []string {
	env := append(downloads(cache), "NODE_USE_ENV_PROXY=1")
	if list := l.installed.goProxy(); list != "" {
		env = append(env, "GOPROXY="+list)
	}
	if !l.proxy.Guard.Allow.Loopback() {
		const own = "localhost,127.0.0.1,::1"
		env = append(env, "NO_PROXY="+own, "no_proxy="+own, "npm_config_noproxy="+own)
	}
	return env
}

// linkCargo links the user's downloaded packages into cargo's folder for the job: cargo must be
// able to write its folder, but only reads the packages.
func (l *launcher) linkCargo() {
	if l.options.open || l.proxy != nil || l.installed.home == "" {
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
			_ = own.Symlink(theirs, filepath.Join(at, name)) // it may exist already
		}
	}
}
