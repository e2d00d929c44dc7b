// Package doctor examines a data folder and its configuration, and says how to fix what is wrong.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/notify/address"
	"github.com/toolcrib/toolcrib/internal/providers"
	"github.com/toolcrib/toolcrib/provider/ollama"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/mcpset"
	"github.com/toolcrib/toolcrib/service/models"
	"github.com/toolcrib/toolcrib/service/nodes"
	"github.com/toolcrib/toolcrib/service/people"
	"github.com/toolcrib/toolcrib/service/policy"
	"github.com/toolcrib/toolcrib/service/worker"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/tool/shell"
	"github.com/toolcrib/toolcrib/tool/tables"
)

// Doctor examines a data folder.
type Doctor struct {
	Env    *env.Env
	Models *models.Models
	MCP    *mcpset.Set
	People *people.People
	Policy *policy.Policy
	Nodes  *nodes.Nodes
	// Drivers know the other servers of the database.
	Drivers *worker.Drivers
}

// Finding is the result of one check.
type Finding struct {
	Check  string `json:"check"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"` // what to do if it is not OK, or is a choice
	// Choice means that a person may leave it so; OK is set.
	Choice bool `json:"choice,omitempty"`
}

// check is one check. run returns what it has found, or an error with a fix if something is wrong; fix is used for an
// error without one.
type check struct {
	name, fix string
	run       func(ctx context.Context) (detail, fix string, err error)
}

// ExamineData checks the data folder and its database, for administrators.
func (d *Doctor) ExamineData(ctx context.Context, who toolcrib.Principal) ([]Finding, error) {
	return examined(
		ctx, who,
		check{"data folder", "make the folder writable for this user, or use another with --data-dir", d.checkData},
		check{
			"database", "check the path, the rights and the disk",
			func(ctx context.Context) (string, string, error) { return d.checkDatabase(ctx, who) },
		},
	)
}

// Examine checks what else runs need, for administrators: workspace, shell, approvals, budgets, databases, MCP servers.
// It starts the servers.
func (d *Doctor) Examine(ctx context.Context, who toolcrib.Principal) ([]Finding, error) {
	checks := []check{
		{"workspace", "set workspace, or start toolcrib in another folder", d.checkWorkspace},
		{"shell", "install bubblewrap", d.checkShell},
		{"approvals", "correct approvals.notify; `toolcrib approvals notify test` sends a message to each", d.checkApprovals},
	}
	if len(d.Env.Config.Budgets) > 0 && d.Env.Store != nil {
		checks = append(checks, check{"budgets", "write the name as it is; toolcrib users list", d.checkBudgets})
	}
	for _, db := range d.Policy.Databases() {
		checks = append(checks, check{
			"sql." + db.Name, "correct sql." + db.Name + ".url, or start the database",
			func(ctx context.Context) (string, string, error) {
				ctx, cancel := context.WithTimeout(ctx, checkTimeout)
				defer cancel()
				found, err := db.Read(ctx, tables.Query{Want: func(_, _ string) bool { return true }, MaxTables: 1})
				return found.Kind + ": answers", "", err
			},
		})
	}
	checks = append(checks, d.channelChecks()...)
	for _, name := range slices.Sorted(maps.Keys(d.Env.Config.Tools.Commands)) {
		checks = append(checks, check{
			"tools.commands." + name, "correct tools.commands." + name,
			func(context.Context) (string, string, error) { return d.Policy.CheckCommand(name) },
		})
	}
	found, err := examined(ctx, who, checks...)
	if err != nil {
		return nil, err
	}
	servers, err := d.MCP.Servers(ctx, who, mcpset.LookTime)
	for _, m := range servers {
		f := Finding{Check: "mcp " + m.Name, OK: m.State == mcpset.StateRunning, Detail: m.Detail}
		f.Fix = "correct mcpServers." + m.Name + ": " + m.From
		if f.OK {
			f.Detail = fmt.Sprintf("runs; tools: %d", m.Tools)
		}
		if m.Unlooked > 0 {
			f.Detail += fmt.Sprintf("; not reviewed, so not offered: %d; toolcrib mcp review %s", m.Unlooked, m.Name)
		}
		found = append(found, f)
	}
	return found, err
}

// choice is an error of a check that a person may leave so.
type choice string

func (c choice) Error() string { return string(c) }

func examined(ctx context.Context, who toolcrib.Principal, checks ...check) (found []Finding, err error) {
	if _, err := env.Administrator(who); err != nil {
		return nil, err
	}
	for _, c := range checks {
		f := Finding{Check: c.name}
		detail, fix, err := c.run(ctx)
		if f.OK, f.Detail = err == nil, detail; err != nil {
			f.Detail, f.Fix = err.Error(), cmp.Or(fix, c.fix)
			f.Choice = errors.As(err, new(choice))
			f.OK = f.Choice
		}
		found = append(found, f)
	}
	return found, nil
}

func (d *Doctor) checkData(context.Context) (detail, fix string, err error) {
	if err := os.MkdirAll(d.Env.DataDir, 0o700); err != nil {
		return "", "", err
	}
	if err := env.Writable(d.Env.DataDir); err != nil {
		return "", "", err
	}
	free, ok := freeBytes(d.Env.DataDir)
	if !ok {
		return d.Env.DataDir, "", nil
	}
	const least = 64 << 20 // below it a store may fail at any time
	detail = fmt.Sprintf("%s (%s free)", d.Env.DataDir, sizeText(free))
	if free < least {
		return "", "make room on the disk", errors.New(detail)
	}
	return detail, "", nil
}

// sizeText formats a size in decimal units, as for disks.
func sizeText(bytes uint64) string {
	switch {
	case bytes >= 10e9:
		return fmt.Sprintf("%d GB", bytes/1e9)
	case bytes >= 1e9:
		return fmt.Sprintf("%.1f GB", float64(bytes)/1e9)
	}
	return fmt.Sprintf("%d MB", bytes/1e6)
}

func (d *Doctor) checkDatabase(ctx context.Context, who toolcrib.Principal) (detail, fix string, err error) {
	err = d.Env.OpenFor(ctx, who)
	if err == nil {
		err = d.Env.Store.Check(ctx)
	}
	if err == nil {
		return d.Env.Store.Path() + ": opens, and is whole", "", nil
	}
	var broken *store.ChainError
	for _, known := range []struct {
		is  bool
		fix string
	}{
		{errors.Is(err, store.ErrOlder), "use the earlier version of toolcrib, or another --data-dir and `toolcrib runs " +
			"import`"},
		{errors.Is(err, store.ErrUnmigrated), "toolcrib migrate --database ADDRESS-OF-THE-OWNER"},
		{errors.Is(err, store.ErrNewer), "use the later version of toolcrib, or another --data-dir and `toolcrib runs " +
			"import`"},
		{errors.Is(err, store.ErrCorrupt), "move the file away with its -wal and -shm files, and restore a copy"},
		{errors.Is(err, store.ErrLost), "put a copy of the database in its place (docs/journal.md)"},
		{errors.Is(err, store.ErrIncomplete), "put its -wal file back, or restore a backup (docs/journal.md)"},
		{
			errors.As(err, &broken) || errors.Is(err, store.ErrDamaged),
			"restore a copy of the data folder, or look at what `toolcrib runs verify` reports, and accept it: toolcrib runs " +
				"verify --adopt",
		},
		{errors.Is(err, store.ErrKeys), "restore the key file, or accept what is stored: toolcrib runs verify --adopt"},
		{errors.Is(err, store.ErrLocked), "end the program that holds it"},
		{errors.Is(err, store.ErrFull), "make room on the disk"},
	} {
		if known.is {
			return "", known.fix, err
		}
	}
	return "", "", err
}

func (d *Doctor) checkWorkspace(context.Context) (detail, fix string, err error) {
	dir, err := d.Policy.Workspace("", nil)
	if err != nil {
		return "", "", err
	}
	if _, err := d.Policy.Protection(dir, nil); err != nil {
		return "", "", err
	}
	detail = dir
	if why := d.Policy.Unprotected(dir); why != "" {
		detail += " (exec_shell: " + why + ")"
	}
	if env.Writable(dir) != nil {
		detail += " (read only for this user: tools cannot write)"
	}
	return detail, "", nil
}

func (d *Doctor) checkShell(context.Context) (detail, fix string, err error) {
	detail, fix, err = shellFound(d.Env.Config.Tools.Shell, shell.Probe())
	if err != nil || d.Env.Config.Tools.Shell.Mode == string(shell.ModeOff) {
		return detail, fix, err
	}
	path, _, err := d.Policy.Programs()
	if err != nil {
		return "", "", err
	}
	workspace, _ := d.Policy.Workspace("", nil) // the check of the workspace reports the error
	if d.Env.Config.Tools.Shell.Mode == string(shell.ModeAsk) {
		does := "runs unasked where it can only read"
		if why := d.Policy.NotStrict(workspace); why != "" {
			does = "asks, even to read: " + why
		}
		detail += "; what is not listed " + does
	}
	use, out := shell.SearchPath(path, workspace)
	detail += "; programs of " + strings.Join(use, ":")
	if len(out) > 0 {
		detail += "; left out: " + strings.Join(out, ", ")
	}
	if missing := shell.Missing(d.Env.Config.Tools.Shell.Allow, use); len(missing) > 0 {
		detail += "; allowed, but not installed: " + strings.Join(missing, ", ")
	}
	return detail, "", nil
}

// shellFound describes the sandbox of the programs that exec_shell runs.
func shellFound(set config.Shell, r shell.Report) (detail, fix string, err error) {
	if set.Mode == string(shell.ModeOff) {
		return "off: there is no exec_shell", "", nil
	}
	required := set.Sandbox == string(shell.SandboxRequired)
	does := "asks about every call, and on a server " + policy.OnlyTable(set) + "; or set tools.shell.mode: off"
	if required {
		does = "refuses every call (tools.shell.sandbox is required)"
	}
	if r.Problem != "" {
		return "", "install bubblewrap, or use a kernel with Landlock; until then exec_shell " + does,
			fmt.Errorf("mode %s, without a sandbox: %s", set.Mode, r.Problem)
	}
	var walls []string
	if r.Bubblewrap != "" {
		walls = append(walls, "bubblewrap ("+r.Bubblewrap+")")
	}
	if r.LandlockABI > 0 {
		walls = append(walls, fmt.Sprintf("Landlock ABI %d", r.LandlockABI))
	}
	if r.Seccomp {
		walls = append(walls, "seccomp")
	}
	detail = fmt.Sprintf("mode %s, sandbox: %s", set.Mode, strings.Join(walls, ", ")) + networkFound(set.Network, r)
	switch {
	case r.Joins:
		return detail, "", nil
	case r.Bubblewrap != "":
		return detail + "; the commands of a run do not share a loopback interface, so that none reaches a server that another " +
			"has started: it needs bubblewrap 0.4.0 or later, not set-user-ID, where it may join namespaces", "", nil
	}
	detail += "; without bubblewrap protected files cannot be kept from other programs than those of the built-in " +
		"table, so each such call "
	if required {
		return "", "", errors.New(detail + "is refused (tools.shell.sandbox is required)")
	}
	return detail + "asks", "", nil
}

// networkFound says what commands reach, or "" if they have no network.
func networkFound(set config.Network, r shell.Report) string {
	switch n := len(set.Hosts); {
	case !set.Ask && n == 0:
		return ""
	case r.Bubblewrap == "":
		return "; tools.shell.network is off: it needs bubblewrap"
	case set.Ask:
		return "; network: asks about each host"
	default:
		return fmt.Sprintf("; network: %d entries of tools.shell.network", n)
	}
}

// checkApprovals reports whether the addresses of approvals.notify are valid. It sends nothing.
func (d *Doctor) checkApprovals(context.Context) (detail, fix string, err error) {
	set := d.Env.Config.Approvals
	detail = "expire after " + set.Expire.String()
	if set.Expire <= 0 {
		detail = "never expire"
	}
	if set.FourEyes {
		detail += "; four eyes: nobody approves calls of a run of their own"
	}
	if len(set.Notify) == 0 {
		return detail + "; nobody is notified of them", "", nil
	}
	wrong := false
	for i := range set.Notify {
		t, err := d.Env.NotifyTarget(&set.Notify[i])
		if err != nil {
			wrong = true
			detail += "\n" + err.Error()
			continue
		}
		detail += fmt.Sprintf("\n%s is notified, by %s", address.Where(t.Address), address.Scheme(t.Address))
		if address.IsClear(t.Address) {
			detail += "; " + env.InTheClear
		}
	}
	if wrong {
		return "", "", errors.New(detail)
	}
	return detail, "", nil
}

// checkBudgets finds budgets whose user is spelled differently from an existing user.
func (d *Doctor) checkBudgets(ctx context.Context) (detail, fix string, err error) {
	for i, b := range d.Env.Config.Budgets {
		like, err := d.Env.Store.Access().Alike(ctx, b.User)
		if err == nil && !like.Removed && like.Name != b.User {
			return "", "", fmt.Errorf("budgets[%d].user: %q is not the user %s, so this budget does not apply to them", i,
				b.User, like.Name)
		}
	}
	return "each name is as its user is called", "", nil
}

// checkTimeout bounds the check of one provider.
const checkTimeout = 10 * time.Second

// ExamineProviders checks each configured provider, those that agents name by their type alone, and the one that is
// used if none is configured, for administrators.
func (d *Doctor) ExamineProviders(ctx context.Context, who toolcrib.Principal) (out []Finding, err error) {
	if _, err := env.Administrator(who); err != nil {
		return nil, err
	}
	c, seen := d.Env.Config, map[string]bool{}
	for _, name := range c.ProviderNames() {
		seen[name] = true
		if t, _ := providers.Of(c.Providers[name].Type); t.OnBus && c.Bus.URL.IsEmpty() {
			out = append(out, Finding{Check: name, Detail: "there are no other nodes without bus.url", Fix: "set bus.url"})
			continue
		}
		out = append(out, d.checkProvider(ctx, name, c.Providers[name], usedModels(c, name)))
	}
	for _, ref := range env.ModelRefs(c) {
		r, err := c.ResolveModel(ref)
		switch {
		case err != nil:
			out = append(out, Finding{Check: ref, Detail: err.Error(), Fix: "correct the agent's model"})
		case !seen[r.ProviderName]:
			seen[r.ProviderName] = true
			out = append(out, d.checkProvider(ctx, r.ProviderName, r.Provider, usedModels(c, r.ProviderName)))
		}
	}
	if agent := c.Agents[config.DefaultAgent]; agent.Model == "" {
		found := d.Models.Detect(false)
		if _, ok := c.Providers[found.Model.ProviderName]; !ok {
			f := d.checkProvider(ctx, found.Model.ProviderName, found.Model.Provider, []string{found.Model.ID})
			f.Detail += fmt.Sprintf(" (used because no model is configured: %s)", found.Why)
			out = append(out, f)
		}
	}
	return out, nil
}

// usedModels returns the models of a provider that agents or the configuration name, by the provider's names.
func usedModels(c *config.Config, provider string) []string {
	var ids []string
	for _, ref := range env.ModelRefs(c, c.ModelNames()...) {
		if r, err := c.ResolveModel(ref); err == nil && r.ProviderName == provider && !slices.Contains(ids, r.ID) {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// checkProvider reports whether a provider answers, accepts the key and, if it can list its models, has the named ones.
func (d *Doctor) checkProvider(ctx context.Context, name string, p config.Provider, models []string) Finding {
	f := Finding{Check: name, Fix: fmt.Sprintf("correct providers.%s", name)}
	model, err := d.Models.Adapter(name, p)
	if err != nil {
		f.Detail = err.Error()
		var value config.Error
		if errors.As(err, &value) {
			f.Fix = fixValue(value)
		}
		return f
	}
	remote, ok := model.(interface{ Check(context.Context) error })
	if !ok {
		f.OK, f.Detail = true, p.Type+": ready"
		return f
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var names []string
	own, isOllama := model.(*ollama.Model)
	if isOllama {
		names, err = own.ListModels(ctx)
	} else {
		err = remote.Check(ctx)
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
		err = &toolcrib.ModelError{Class: toolcrib.ErrTimeout, Provider: name, Message: fmt.Sprintf("no answer within %s",
			checkTimeout), Err: err}
	}
	if err != nil {
		f.Detail = d.Env.Mask.Mask(err.Error())
		f.Fix = fixProvider(name, p.Type, err)
		return f
	}
	f.OK, f.Detail = true, p.Type+": answers, and takes the key"
	if t, _ := providers.Of(p.Type); p.APIKey.IsEmpty() || t.OwnMachine { // it may need no key
		f.Detail = p.Type + ": answers"
	}
	if isOllama {
		pulled(names, models, &f)
	}
	return f
}

// fixValue returns the fix for a value that cannot be resolved, by its source.
func fixValue(value config.Error) string {
	kind, name, _ := strings.Cut(strings.Trim(value.Ref, "${}"), ":")
	switch kind {
	case "env":
		return fmt.Sprintf("set %s in the environment, or correct %s", name, value.Key)
	case "file":
		return fmt.Sprintf("write it into the file %s, or correct %s", name, value.Key)
	case "secret":
		return fmt.Sprintf("store it: toolcrib secret set %s; or correct %s", name, value.Key)
	}
	return "correct " + value.Key
}

// pulled reports whether an Ollama has the named models.
func pulled(names, models []string, f *Finding) {
	f.Detail += "; it has " + guard.Count(len(names), "model")
	var missing []string
	for _, id := range models {
		if !slices.Contains(names, id) && !slices.Contains(names, id+":latest") {
			missing = append(missing, id)
		}
	}
	switch {
	case len(missing) > 0:
		f.OK, f.Detail = false, f.Detail+", but not "+strings.Join(missing, ", ")
		f.Fix = "ollama pull " + strings.Join(missing, " && ollama pull ")
	case len(names) == 0:
		f.OK, f.Fix = false, "pull one that takes tools: ollama pull qwen3"
	}
}

// fixProvider returns the fix for a provider that does not answer correctly.
func fixProvider(name, providerType string, err error) string {
	var failed *toolcrib.ModelError
	if !errors.As(err, &failed) {
		return "check the key, the address and the network"
	}
	key := "providers." + name
	switch failed.Class {
	case toolcrib.ErrAuth:
		return "check the key: " + key + ".api_key, and what it may be used for"
	case toolcrib.ErrNetwork, toolcrib.ErrTimeout:
		if t, _ := providers.Of(providerType); t.Start != "" {
			return "start it: " + t.Start + "; or correct " + key + ".base_url"
		}
		return "check the network, " + key + ".base_url, and the proxy"
	case toolcrib.ErrRateLimit, toolcrib.ErrOverloaded:
		return "wait a little: it answers, but takes no requests now"
	}
	return "check " + key + ".base_url: something else answers there"
}
