package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/terminal"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/mcp/signin"
	"github.com/toolcrib/toolcrib/service/mcpset"
)

// loginTime bounds the time for a sign-in.
const loginTime = 10 * time.Minute

func (a *app) mcpLoginCommand(cmd *cobra.Command) {
	hidden := cmd.Flags().Bool("no-browser", false, "")
	a.answering(cmd, a.changing, func(c call) (any, func(), error) {
		v, err := a.signIn(c, *hidden)
		return v, func() {
			text := "signed in at " + v.Issuer
			if len(v.Scopes) > 0 {
				text += "; allowed: " + strings.Join(v.Scopes, " ")
			}
			a.says(v.Server, guard.Visible(text))
			if !v.Renews && !v.Expires.IsZero() {
				a.notice("this sign-in cannot be refreshed: it ends at %s", v.Expires.Local().Format("15:04 on 2 January"))
			}
			a.notice("to review its tools: %s mcp review %s", a.self(), trust.ShellWord(v.Server))
		}, err
	})
}

// signIn lets the user sign in to a server, in a browser on this machine or on another one.
func (a *app) signIn(c call, hidden bool) (mcpset.SignIn, error) {
	browser := browserFor(os.Getenv)
	person := a.inTerminal && a.errTerminal
	if hidden {
		browser = nil
	} else if browser == nil && !person {
		return mcpset.SignIn{}, usagef("there is no browser and no terminal here; --no-browser shows the link, " +
			"which opens on any machine")
	}
	ctx, stop := a.interruptible(c, "", io.Discard)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, loginTime)
	defer cancel()
	pasted := make(chan string)
	done := func() {}
	defer func() { done() }()
	p := signin.Person{
		Pasted: pasted,
		Wrong:  func(why string) { a.alert(why + "; paste the whole address that the browser shows at the end") },
		Visit: func(page signin.Page) error {
			text := c.arg() + " asks you to sign in at " + page.Issuer
			if len(page.Scopes) > 0 {
				text += " and to allow: " + strings.Join(page.Scopes, " ")
			}
			fmt.Fprintf(a.err, "%s\nWhat you allow is for %s.\n", guard.Visible(text), guard.Visible(page.Server))
			opened := open(browser, page.URL) == nil
			head := "Open this link:"
			if opened {
				head = "The browser opens. If it does not, open this link:"
			}
			fmt.Fprintf(a.err, "%s\n\n%s\n\n", head, guard.Visible(page.URL))
			if person || hidden {
				if !opened {
					fmt.Fprint(a.err, "If that is on another machine, its browser ends at an address that it cannot open: "+
						"paste that address here.\n")
				}
				done = a.pastes(ctx, pasted)
			}
			return nil
		},
	}
	if person {
		p.Client = a.askClient
	}
	v, err := c.MCP.Login(ctx, c.who, c.arg(), p)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(cause, context.DeadlineExceeded) {
		return v, &exitError{code: codeOf(cause), message: "nobody has signed in"}
	}
	return v, err
}

// pastes sends the lines that the user pastes to a channel, until done is called.
func (a *app) pastes(ctx context.Context, to chan<- string) (done func()) {
	lines, err := terminal.Open(a.in, a.err)
	if err != nil {
		close(to) // without a terminal the browser may still answer
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer close(to)
		for {
			line, err := lines.Line()
			if err != nil {
				return
			}
			select {
			case to <- terminal.Pasted(line):
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		lines.Cancel()
		<-ended
		_ = lines.Close() // was only read
	}
}

// askClient asks for the client that the user has registered with an issuer.
func (a *app) askClient(_ context.Context, issuer, redirect string) (id, secret string, err error) {
	fmt.Fprintf(a.err, "%s does not register clients by itself. Register one there, with the redirect address\n\n  %s\n\n"+
		"If the port must stay the same, set oauth.callback_port in the configuration first.\n",
		guard.Visible(issuer), redirect)
	a.asking(func(ctx context.Context, answers *terminal.Input) {
		answers.Settle(ctx, 0)
		fmt.Fprint(a.err, a.style.Question("Client ID")+" ")
		id, err = answers.Line()
	})
	if id = strings.TrimSpace(terminal.Pasted(id)); err != nil || id == "" {
		return "", "", errors.New("nobody has signed in: no client was named")
	}
	if a.confirm("Does it have a secret?") {
		var text []byte
		text, err = a.typedHidden("Client secret")
		secret = string(text)
	}
	return id, secret, err
}

// browserFor returns the command that opens a page in a browser; %s in it stands for the page. It
// returns nil if no browser is known or if the user is on another machine.
func browserFor(getenv func(string) string) []string {
	var choices []string
	switch named := getenv("BROWSER"); {
	case named != "":
		choices = strings.Split(named, string(os.PathListSeparator))
	case runtime.GOOS == "windows":
		choices = []string{"rundll32 url.dll,FileProtocolHandler"}
	case getenv("SSH_CONNECTION") != "" || getenv("SSH_TTY") != "":
	case runtime.GOOS == "darwin":
		choices = []string{"open"}
	case getenv("WSL_DISTRO_NAME") != "":
		choices = []string{"wslview", "xdg-open"}
	case cmp.Or(getenv("DISPLAY"), getenv("WAYLAND_DISPLAY")) != "":
		choices = []string{"xdg-open"}
	}
	for _, one := range choices {
		if !strings.Contains(one, "%s") {
			one += " %s"
		}
		if words := strings.Fields(one); len(words) > 0 {
			if _, err := exec.LookPath(words[0]); err == nil {
				return words
			}
		}
	}
	return nil
}

// open opens a page in a browser. Output of the browser is not shown.
func open(browser []string, page string) error {
	if len(browser) == 0 {
		return errors.New("there is no browser")
	}
	cmd := exec.Command(browser[0])
	for _, word := range browser[1:] {
		cmd.Args = append(cmd.Args, strings.ReplaceAll(word, "%s", page))
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	go cmd.Wait() // the link is printed as well
	return nil
}

func (a *app) mcpLogoutCommand(cmd *cobra.Command) {
	a.answering(cmd, a.changing, func(c call) (any, func(), error) {
		list, err := c.MCP.Logout(c, c.who, c.arg())
		return list, func() {
			for _, v := range list {
				switch {
				case v.Revoked:
					a.says(v.Server, "signed out; "+v.Issuer+" has revoked the tokens")
				default:
					a.says(v.Server, "signed out; the tokens are removed here")
					a.alert("they were not revoked: " + cmp.Or(v.Problem, v.Issuer+" does not offer that") +
						"; what you allowed toolcrib can be taken back there")
				}
			}
		}, err
	})
}
