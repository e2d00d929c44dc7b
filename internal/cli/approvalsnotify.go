package cli

import (
	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/service"
)

func (a *app) approvalsNotifyCommand() *cobra.Command {
	return parent(&cobra.Command{
		Use:     "notify",
		Short:   "Test the addresses that are told of approvals, and show what signs",
		Example: "toolcrib approvals notify test\ntoolcrib approvals notify test --show-secrets",
	}, a.notifyTestCommand())
}

func (a *app) notifyTestCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "test",
		Short: "Send a test message to each address of approvals.notify",
		Long: "Send a test message to each address of approvals.notify, and say which took it. With --show-secrets nothing is sent: " +
			"it prints the secret with which the receiver of each webhook checks the signatures (Standard Webhooks). " +
			"Exit status 1 if an address was not told.",
		Example: "toolcrib approvals notify test\ntoolcrib approvals notify test --show-secrets",
	}
	secrets := cmd.Flags().Bool("show-secrets", false, "print the secrets that sign, and send nothing")
	return a.answering(cmd, a.changing, func(c call) (any, func(), error) {
		told, err := c.TestNotify(c, c.who, *secrets)
		for _, t := range told {
			if !t.OK {
				err = silent(exitFailed)
			}
		}
		return told, func() {
			table(a, "KEY|WHERE|RESULT", told, func(t *service.Told) []string {
				return []string{t.Key, t.Where, toldText(t, *secrets)}
			})
		}, err
	})
}

func toldText(t *service.Told, secrets bool) string {
	secret, _ := t.Secret.(*string)
	switch {
	case !t.OK:
		return t.Error
	case !secrets:
		return "told"
	case t.SecretFrom == "":
		return "not signed"
	case secret != nil:
		return *secret
	}
	return "as configured"
}
