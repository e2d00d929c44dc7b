package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/notify"
	"github.com/toolcrib/toolcrib/internal/notify/address"
)

func (a *app) approvalsNotifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "notify",
		Short:   "Test the addresses that are told of approvals, and show what signs",
		Example: "toolcrib approvals notify test\ntoolcrib approvals notify test --show-secrets",
		Args:    cobra.ArbitraryArgs,
		RunE:    group,
	}
	cmd.AddCommand(a.notifyTestCommand())
	return cmd
}

// toldView is what became of a test message.
type toldView struct {
	Key   string `json:"key"`   // approvals.notify[0]
	Where string `json:"where"` // the host of a webhook, else the scheme
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
	// Secret is what its receiver checks signatures with, a *string: null where it stands
	// in the configuration, as SecretFrom says. Both are told with --show-secrets only.
	Secret     any    `json:"secret,omitempty"`
	SecretFrom string `json:"secret_from,omitempty"`
}

// Where the secret of a webhook comes from.
const (
	secretOfConfig = "configuration"
	secretOfKeys   = "keys" // made from the keys of the data folder
)

func (a *app) notifyTestCommand() *cobra.Command {
	var asJSON, secrets bool
	cmd := &cobra.Command{
		Use:   "test",
		Short: "Send a test message to each address of approvals.notify",
		Long: "Send a test message to each address of approvals.notify, and tell which took it. With --show-secrets nothing is sent: " +
			"it prints the secret with which the receiver of each webhook checks the signatures (Standard Webhooks). " +
			"Exit status 1 if an address was not told.",
		Example: "toolcrib approvals notify test\ntoolcrib approvals notify test --show-secrets",
		Args:    positional,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.testNotify(cmd.Context(), secrets, asJSON)
		},
	}
	cmd.Flags().BoolVar(&secrets, "show-secrets", false, "print the secrets that sign, and send nothing")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON value")
	return cmd
}

func (a *app) testNotify(ctx context.Context, secrets, asJSON bool) error {
	if _, err := a.administrator(ctx); err != nil {
		return err
	}
	c, err := a.configuration()
	if err != nil {
		return err
	}
	if len(c.Approvals.Notify) == 0 {
		return toolcrib.Errorf(toolcrib.CodeNotFound, "approvals.notify has no address")
	}
	if _, err := a.database(ctx); err != nil { // with it the keys are made
		return err
	}
	views, failed := make([]toldView, len(c.Approvals.Notify)), false
	for i := range views {
		views[i] = a.testOne(ctx, &c.Approvals.Notify[i], i, secrets)
		failed = failed || !views[i].OK
	}
	if err := a.showTold(views, secrets, asJSON); err != nil {
		return err
	}
	if failed {
		return silent(exitFailed)
	}
	return nil
}

func (a *app) testOne(ctx context.Context, n *config.Notify, i int, secrets bool) toldView {
	v := toldView{Key: fmt.Sprintf("approvals.notify[%d]", i)}
	t, err := a.target(n)
	v.Where = address.Where(t.Address)
	switch {
	case err != nil:
		v.Error = err.Error()
		return v
	case secrets && address.IsWebhook(t.Address):
		secret := address.Secret(t.Key)
		v.Secret, v.SecretFrom = &secret, secretOfKeys
		if !n.Secret.IsEmpty() {
			v.Secret, v.SecretFrom = (*string)(nil), secretOfConfig
		}
	case !secrets:
		for _, f := range a.sender(t).Send(ctx, notify.Message{
			ID: agent.NewID("msg_"), Type: notify.TypeTest, Time: time.Now().UTC().Truncate(time.Millisecond),
			Calls: []notify.Call{}, Commands: []string{},
		}) {
			v.Error = f.Reason
			return v
		}
	}
	v.OK = true
	return v
}

func (a *app) showTold(views []toldView, secrets, asJSON bool) error {
	if asJSON {
		return printJSON(a.out, views, true)
	}
	rows := [][]string{{"KEY", "WHERE", "RESULT"}}
	for _, v := range views {
		result := v.Error
		switch {
		case v.OK && !secrets:
			result = "told"
		case v.OK && v.SecretFrom == "":
			result = "not signed"
		case v.OK:
			result = "as configured"
			if secret, ok := v.Secret.(*string); ok && secret != nil {
				result = *secret
			}
		}
		rows = append(rows, []string{v.Key, v.Where, result})
	}
	a.outStyle.Table(a.out, rows)
	return nil
}

// approvalsFinding reports whether the addresses of approvals.notify can be tried. None is
// sent anything.
func (a *app) approvalsFinding(c *config.Config) finding {
	f := finding{Check: "approvals", OK: true, Fix: "correct approvals.notify; `toolcrib approvals notify test` sends a message to each"}
	f.Detail = "expire after " + c.Approvals.Expire.String()
	if c.Approvals.Expire <= 0 {
		f.Detail = "never expire"
	}
	if c.Approvals.FourEyes {
		f.Detail += "; four eyes: nobody approves calls of a run of their own"
	}
	if len(c.Approvals.Notify) == 0 {
		f.Detail += "; nobody is told of them"
		return f
	}
	for i := range c.Approvals.Notify {
		t, err := a.target(&c.Approvals.Notify[i])
		if err != nil {
			f.OK = false
			f.Detail += "\n" + err.Error()
			continue
		}
		f.Detail += fmt.Sprintf("\n%s is told, by %s", address.Where(t.Address), address.Scheme(t.Address))
		if address.IsClear(t.Address) {
			f.Detail += "; " + inTheClear
		}
	}
	return f
}

// inTheClear warns of plain http to another machine.
const inTheClear = "without encryption: arguments of calls, and the digest, go over the network in the clear; use https"

// clearNotify warns of the addresses whose messages anybody on their way can read. A
// reference to a file or to a stored secret is not followed for that.
func clearNotify(c *config.Config) (warnings []string) {
	for i := range c.Approvals.Notify {
		v := c.Approvals.Notify[i].URL
		if raw := v.Raw(); strings.Contains(raw, "${file:") || strings.Contains(raw, "${secret:") {
			continue
		}
		if text, err := v.Resolve(config.Resolver{}); err == nil && address.IsClear(text) {
			warnings = append(warnings, fmt.Sprintf("%s: approvals.notify[%d].url: %s is told by http, %s", v.Position(), i, address.Where(text), inTheClear))
		}
	}
	return warnings
}
