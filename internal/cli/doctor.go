package cli

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/doctor"
	"github.com/toolcrib/toolcrib/service/env"
)

// finding is one result of doctor.
type finding = doctor.Finding

// thisMachine is the value of doctor's own --server if the flag has none.
const thisMachine = "this machine"

func (a *app) doctorCommand(cmd *cobra.Command) {
	// It replaces --server URL, which may also precede the command.
	cmd.Flags().Func("server", "", filled(&a.serverFlag))
	cmd.Flags().Lookup("server").NoOptDefVal = thisMachine
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if a.serverFlag == thisMachine && len(args) == 1 {
			if args[0] == "" {
				return usagef("--server: must not be empty")
			}
			a.serverFlag, args = args[0], nil
		}
		return positional(cmd, args)
	}
	a.answering(cmd, nil, func(c call) (any, func(), error) {
		var findings []finding
		var broken bool
		switch at := a.serverFlag; at {
		case "":
			findings, broken = a.examine(c)
		case thisMachine:
			a.serverFlag = ""
			if findings, broken = a.examine(c); broken {
				break
			}
			// Runs of a server work in folders of their own, which are checked instead.
			findings = slices.DeleteFunc(findings, func(f finding) bool { return f.Check == "workspace" })
			if kept, err := a.svc(); err == nil { // on error the data folder's finding reports it
				findings = append(findings, found(doctorOf(kept).ExamineServer(c, localUser(), serverAnswers))...)
			}
		default:
			findings = a.examineFar(c, at)
		}
		var failed error
		for i, f := range findings {
			switch {
			case !f.OK:
				failed = silent(exitFailed)
			case !f.Choice:
				findings[i].Fix = ""
			}
		}
		value := map[string]any{"ok": failed == nil, "checks": findings}
		if broken {
			failed = silent(exitUsage)
		}
		return value, func() { a.tell(findings) }, failed
	})
}

func (a *app) tell(findings []finding) {
	s := a.outStyle
	for _, f := range findings {
		mark := s.Green("✓")
		switch {
		case !f.OK:
			mark = s.Red("✗")
		case f.Choice:
			mark = s.Yellow("?")
		}
		fmt.Fprint(a.out, s.Hanging(mark+" "+s.Bold(fmt.Sprintf("%-14s", guard.Visible(f.Check))), f.Detail))
		if f.Fix != "" {
			fmt.Fprint(a.out, s.Hanging(fmt.Sprintf("%18s", "→"), f.Fix))
		}
	}
}

// examine checks everything. An untrusted configuration is only read and does not take effect. broken
// is set if the configuration cannot be read: tests would not use what runs use.
func (a *app) examine(ctx context.Context) (findings []finding, broken bool) {
	c, source, err := a.configurationAnyway()
	if err == nil {
		_, err = a.about(c).Policy.CheckRules()
	}
	findings = []finding{a.configFinding(c, source, err)}
	broken = err != nil
	if broken {
		c = config.Default()
	}
	trusted, usable := a.trustFinding(source)
	findings = append(findings, trusted)
	if !usable {
		// The settings of an untrusted file are not acted on: no folder is made, no server is
		// contacted.
		c = config.Default()
	}
	a.config = c
	if broken && a.dataFlag == "" {
		return append(findings, a.terminalFinding()), broken
	}
	kept, err := a.svc()
	if err != nil {
		findings = append(findings, finding{
			Check: "data folder", Detail: err.Error(), Fix: "correct data_dir, or use another with --data-dir",
		})
	} else {
		findings = append(findings, found(doctorOf(kept).ExamineData(ctx, localUser()))...)
	}
	if !broken {
		if err == nil {
			findings = append(findings, found(doctorOf(kept).Examine(ctx, localUser()))...)
			findings = append(findings, found(doctorOf(kept).ExamineBus(ctx, localUser()))...)
		}
		findings = append(findings, a.skillsFinding(c))
		findings = append(findings, found(doctorOf(a.about(c)).ExamineProviders(ctx, localUser()))...)
	}
	return append(findings, a.terminalFinding()), broken
}

func doctorOf(s *service.Service) *doctor.Doctor {
	return &doctor.Doctor{
		Env: s.Env, Models: s.Models, MCP: s.MCP, People: s.People, Policy: s.Policy, Nodes: s.Nodes, Drivers: s.Drivers,
	}
}

// examineFar checks a remote server: whether it answers, and which user it takes us for.
func (a *app) examineFar(ctx context.Context, url string) []finding {
	if err := serverAnswers(ctx, strings.TrimSuffix(url, "/")); err != nil {
		return []finding{{Check: "server", Detail: err.Error(), Fix: "correct the address, or start it: toolcrib serve"}}
	}
	answers := finding{Check: "server", OK: true, Detail: url + " answers and is ready"}
	if err := a.dial(ctx, url); err != nil {
		const fix = "put a token into $" + tokenVariable + ", or into a file for --token-file"
		return []finding{answers, {Check: "sign-in", Detail: err.Error(), Fix: fix}}
	}
	all := []finding{answers, {Check: "sign-in", OK: true, Detail: "as " + a.remote.Who().User}}
	if why := a.remote.Me.NoSandbox; why != "" {
		all = append(all, finding{Check: "shell", Detail: why, Fix: "install bubblewrap on the server"})
	}
	return all
}

// serverAnswers asks a server whether it is ready. It sends no other request.
func serverAnswers(ctx context.Context, url string) error {
	const patience, most = 3 * time.Second, 4 << 10
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
	if err != nil {
		return err
	}
	own := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // nothing secret is sent
	defer own.CloseIdleConnections()
	res, err := own.RoundTrip(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	var said api.Readiness
	text, err := io.ReadAll(io.LimitReader(res.Body, most))
	switch {
	case err != nil:
		return err
	case json.Unmarshal(text, &said) != nil || said.Missing == nil:
		return errors.New("something else answers there")
	case !said.Ready:
		return errors.New("it is not ready: " + strings.Join(said.Missing, ", "))
	}
	return nil
}

// found returns the findings of one part. An error of the check becomes a finding.
func found(findings []finding, err error) []finding {
	if err != nil {
		return []finding{{Check: "doctor", Detail: err.Error()}}
	}
	return findings
}

func (a *app) configFinding(c *config.Config, source config.Source, err error) finding {
	f := finding{Check: "configuration", OK: err == nil, Detail: source.Path}
	if source.Own != "" {
		f.Detail += ", over " + source.Own
	}
	switch {
	case err != nil:
		f.Detail, f.Fix = err.Error(), "correct it; `toolcrib config check` says when it is right"
		return f
	case source.Origin == config.OriginNone:
		f.Detail = "none; every key has its default"
	}
	for _, change := range c.Changes() {
		f.Detail += "\n" + change
	}
	wrong, _, err := a.configErrors(c, nil)
	if err != nil {
		return finding{Check: f.Check, Detail: err.Error(), Fix: "correct skills.dirs"}
	}
	if len(wrong) > 0 {
		f.OK, f.Detail, f.Fix = false, wrong.Error(), "correct it; `toolcrib config check` says when it is right"
	}
	return f
}

func (a *app) trustFinding(source config.Source) (f finding, usable bool) {
	f = finding{Check: "trust", OK: true, Detail: "nothing in this folder needs trust"}
	store := env.TrustStore()
	files, err := store.Check(".")
	if err != nil {
		f = finding{Check: "trust", Detail: err.Error(), Fix: "fix or remove " + store.Path()}
		if store.Path() == "" {
			f.Fix = "set HOME or XDG_STATE_HOME"
		}
		return f, !source.NeedsTrust()
	}
	usable = true
	var parts []string
	for _, file := range files {
		switch file.State {
		case trust.Absent:
		case trust.Trusted:
			parts = append(parts, file.Name+" is trusted")
		default:
			if file.Name == config.FileName && !source.NeedsTrust() {
				continue // another file is in use
			}
			if file.Name == config.FileName {
				usable = false
			}
			f.Choice, f.Fix = true, "read what the folder brings before you trust it"
			parts = append(parts, trust.PassedOver(".", file))
		}
	}
	if len(parts) > 0 {
		f.Detail = strings.Join(parts, "\n")
	}
	if !usable {
		f.OK, f.Choice = false, false
		f.Detail += "\nuntil then run refuses to start here, unless another file is named with --config"
	}
	return f, usable
}

func (a *app) terminalFinding() finding {
	f := finding{Check: "terminal", OK: true, Detail: "yes: approvals can be asked for"}
	if !a.inTerminal || !a.errTerminal {
		f.Detail = "no: calls that need an approval park the run, unless --approve says otherwise"
	}
	return f
}
