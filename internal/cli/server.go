package cli

import (
	"cmp"
	"context"
	"io"
	"iter"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/client"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/remote"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/mcpset"
	"github.com/toolcrib/toolcrib/service/nodes"
	"github.com/toolcrib/toolcrib/service/policy"
	"github.com/toolcrib/toolcrib/store"
)

// backend is the interface of commands that also work against a server: either the service of a data
// folder, or a server. The principal is an argument; for a server it is the user of the token.
type backend interface {
	Ready(ctx context.Context, who toolcrib.Principal, r service.StartRequest) (toolcrib.Agent, error)
	Start(ctx context.Context, who toolcrib.Principal, r service.StartRequest, f service.Front) (service.Run, error)
	Detach(ctx context.Context, who toolcrib.Principal, r service.StartRequest) (service.Run, error)
	Resume(ctx context.Context, who toolcrib.Principal, q service.ResumeRequest, f service.Front) (service.Run, error)
	Fork(ctx context.Context, who toolcrib.Principal, q service.ForkRequest, f service.Front) (service.Run, error)
	Cancel(ctx context.Context, who toolcrib.Principal, name string) (service.Run, error)
	KeptApprove(ctx context.Context, who toolcrib.Principal, q service.ResumeRequest) (agent.Approve, error)
	Runs(ctx context.Context, who toolcrib.Principal, q service.RunsQuery) (runs []service.Run, next string, err error)
	Run(ctx context.Context, who toolcrib.Principal, name string) (service.Run, error)
	FindRun(ctx context.Context, who toolcrib.Principal, name string) (service.Run, error)
	Journal(ctx context.Context, who toolcrib.Principal, run toolcrib.RunID) iter.Seq2[toolcrib.Event, error]
	Events(ctx context.Context, who toolcrib.Principal, name string, after toolcrib.Seq, follow bool,
		write func(journal.Frame) error) error
	ExportRun(ctx context.Context, who toolcrib.Principal, name string, w io.Writer) error
	Verify(ctx context.Context, who toolcrib.Principal, run string, kept *store.Head) ([]api.Checked, error)
	Replay(ctx context.Context, who toolcrib.Principal, run string) ([]api.Checked, error)

	Approvals(ctx context.Context, who toolcrib.Principal) ([]*service.Approval, error)
	Approval(ctx context.Context, who toolcrib.Principal, name string) (*service.Approval, error)
	Check(ctx context.Context, who toolcrib.Principal, v *service.Approval, d service.Decision) error
	Edited(
		ctx context.Context, v *service.Approval, c journal.ApprovalItem, arguments []byte,
	) (journal.ApprovalItem, error)
	Decide(ctx context.Context, who toolcrib.Principal, v *service.Approval, d service.Decision) (api.Decided, error)
	NeedsAnother(who toolcrib.Principal, user string) bool
	Remembered(ctx context.Context, who toolcrib.Principal, revoked bool, limit int) ([]store.Remembered, error)
	Forget(ctx context.Context, who toolcrib.Principal, id string) (m store.Remembered, changed bool, err error)

	Tools(ctx context.Context, who toolcrib.Principal) ([]policy.Tool, error)
	Tool(ctx context.Context, who toolcrib.Principal, name string) (policy.Tool, error)
	SwitchTool(ctx context.Context, who toolcrib.Principal, q policy.SwitchRequest) (policy.Switched, error)
	Explain(ctx context.Context, who toolcrib.Principal, q policy.ExplainRequest) (policy.Explained, error)
	GivenCall(name string, raw []byte) *toolcrib.ToolCall

	Usage(ctx context.Context, who toolcrib.Principal, q store.UsageQuery) (service.Usage, error)
	Sessions(ctx context.Context, who toolcrib.Principal, f store.SessionFilter) (store.SessionPage, error)
	Session(ctx context.Context, who toolcrib.Principal, name string) (store.SessionInfo, error)
	SessionRuns(ctx context.Context, who toolcrib.Principal, id toolcrib.SessionID) ([]service.Run, error)
	LastRun(ctx context.Context, who toolcrib.Principal, id toolcrib.SessionID) (service.Run, error)
	EnterSession(ctx context.Context, who toolcrib.Principal, name string) (*service.Session, error)
	LastConversation(ctx context.Context, who toolcrib.Principal) (*service.Session, error)
	Prune(ctx context.Context, who toolcrib.Principal, r service.PruneRequest) (api.PruneResult, error)
	RemoveSession(ctx context.Context, who toolcrib.Principal, name string, r service.PruneRequest) (
		store.SessionInfo, api.PruneResult, error)
	ImportRun(ctx context.Context, who toolcrib.Principal, in io.Reader) (run toolcrib.RunID, events int, err error)
	Models(who toolcrib.Principal, provider string, configured bool) ([]api.Model, error)
	Known(n toolcrib.Notice) bool

	Undoable(ctx context.Context, who toolcrib.Principal, run toolcrib.RunID, workspace string) ([]api.Undo, error)
	RemoveMade(ctx context.Context, who toolcrib.Principal, run toolcrib.RunID, path string, by toolcrib.RunID) error
	MCPPrompts(who toolcrib.Principal) ([]api.MCPPrompt, error)
	MCPPrompt(ctx context.Context, who toolcrib.Principal, p api.MCPPrompt, arguments map[string]string) (
		mcpset.Read, error)
	MCPResource(ctx context.Context, who toolcrib.Principal, server, uri string) (mcpset.Read, error)

	BusStatus(ctx context.Context, who toolcrib.Principal) (nodes.Status, error)
	BusCapabilities(ctx context.Context, who toolcrib.Principal, node string) ([]nodes.Capability, error)
	BusTrace(ctx context.Context, who toolcrib.Principal, after int64) (nodes.Trace, error)
}

var _, _ backend = local{}, (*remote.Service)(nil)

// local is the service of a data folder, as commands ask it.
type local struct {
	*service.Service
	*mcpset.Set
	*policy.Policy
}

func localBackend(s *service.Service) backend { return local{s, s.MCP, s.Policy} }

// Models implements [backend].
func (l local) Models(who toolcrib.Principal, provider string, configured bool) ([]api.Model, error) {
	return l.Service.Models.List(who, provider, configured)
}

// Known implements [backend].
func (l local) Known(n toolcrib.Notice) bool { return l.Service.Models.Known(n) }

// remoteCommands are the commands that work against a server, by their first word or in full; localCommands
// are those about this machine, which ignore $TOOLCRIB_SERVER.
var (
	remoteCommands = []string{
		"run", "chat", "usage", "runs list", "runs show", "runs events", "runs export", "runs resume", "runs cancel",
		"runs fork", "runs verify", "runs replay", "approvals list", "approvals show", "approvals approve", "approvals deny",
		"approvals answer", "approvals resolve", "approvals remembered list", "approvals remembered revoke", "tools list",
		"tools show", "tools enable", "tools disable", "tools reset", "tools call", "tools explain", "sessions list",
		"sessions show", "sessions export", "sessions remove", "agents list", "agents show", "models list", "skills list",
		"skills show", "runs prune", "runs import", "bus status", "bus capabilities", "bus trace",
	}
	localCommands = []string{
		"help", "completion", "version", "config", "trust", "init", "doctor", "serve", "acp", "mcp", "gate", "backup",
		"restore", "migrate",
	}
)

// Environment variables that name the server and the user's token.
const (
	serverVariable = "TOOLCRIB_SERVER"
	tokenVariable  = "TOOLCRIB_TOKEN"
)

// connect finds the server that a command works against. It connects to none if no server is named, or if a
// flag names a data folder or a configuration and only the environment names a server.
func (a *app) connect(cmd *cobra.Command) error {
	path := strings.TrimPrefix(cmd.CommandPath(), "toolcrib ")
	first, _, _ := strings.Cut(path, " ")
	local := slices.Contains(localCommands, first) || !cmd.HasParent()
	address := cmp.Or(a.serverFlag, os.Getenv(serverVariable))
	switch {
	case a.plainFlag && a.serverFlag == "":
		return usagef("--plain-http: goes with --server")
	case path == "doctor": // it connects by itself
		return nil
	case a.serverFlag == "" && (local || a.configFlag != "" || a.dataFlag != "" || address == ""):
		return nil
	case local:
		return usagef("--server: %s is about this machine; leave it out", path)
	case a.configFlag != "" || a.dataFlag != "":
		return usagef("--server: a server has its own configuration and data folder; leave out --config and --data-dir")
	case a.asFlag != "" || a.adminFlag:
		return usagef("--server: acts for whom the access token is for; leave out --as and --admin")
	case !slices.Contains(remoteCommands, path):
		return usagef("%s does not work against a server (%s); use it where the server runs, or without --server and $%s "+
			"for your own data folder", path, guard.Visible(address), serverVariable)
	}
	if err := a.dial(cmd.Context(), address); err != nil {
		return err
	}
	a.api, a.acting = a.remote, &acting{who: a.remote.Who()}
	return nil
}

// dial sets a.remote to the server at an address, with the token found for it.
func (a *app) dial(ctx context.Context, address string) error {
	token := strings.TrimSpace(os.Getenv(tokenVariable))
	if a.tokenFlag != "" {
		var err error
		if token, err = a.readToken(); err != nil {
			return err
		}
	}
	a.masker.Learn(guard.Secret{Name: "access_token", Value: token})
	c, err := client.New(client.Options{URL: address, Token: token, PlainHTTP: a.plainFlag, Lost: func(err error) {
		a.notice("%v; trying again", err)
	}})
	if err == nil {
		a.remote, err = remote.Connect(ctx, c, a.note)
	}
	if code := toolcrib.CodeOf(err); token == "" && code == toolcrib.CodeUnauthorized {
		return toolcrib.Errorf(code, "the server %s wants an access token: put it into $%s, or into a file for --token-file "+
			"(`toolcrib tokens create --sign-in` makes one there)", address, tokenVariable)
	}
	return err
}

// opened returns the backend that a command uses and the acting principal: the server, or the service that
// open opens.
func (a *app) opened(ctx context.Context, open opening) (backend, toolcrib.Principal, error) {
	if a.remote != nil {
		return a.remote, a.acting.who, nil
	}
	s, who, err := open(ctx)
	if err != nil {
		return nil, who, err
	}
	return localBackend(s), who, nil
}

// place describes for people where data is stored.
func (a *app) place() string {
	if a.remote != nil {
		return a.remote.URL()
	}
	return inHome(a.service.Env.DataDir)
}
