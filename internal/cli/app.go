package cli

import (
	"errors"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/remote"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/telemetry"
	"github.com/toolcrib/toolcrib/tool/shell"
)

// app is one invocation: its flags, its streams, and what it has opened so far.
type app struct {
	in    *os.File
	out   *output
	err   io.Writer
	began bool // a command of ours was reached: its errors are ours
	// hook ends the watch over gate hook, for which whatever is wrong is exitUsage; nil = another command.
	hook func()
	// helpErr is set if there is no help for what was asked about.
	helpErr error
	// noSandbox returns why programs run without a sandbox; "" if there is one.
	noSandbox func() string

	inTerminal, outTerminal, errTerminal bool
	beside                               io.Writer    // what is said while a run is shown; nil = err
	style                                render.Style // of standard error
	outStyle                             render.Style

	configFlag, dataFlag, asFlag, tokenFlag, serverFlag string
	adminFlag, plainFlag                                bool
	args                                                []string // of the command line

	acting *acting // whom the command acts for, once that is known

	ollamaAt string // where an Ollama is looked for that nobody configured

	started time.Time
	config  *config.Config
	masker  guard.Masker // all secrets that came up so far; who drives runs has it, too
	service *service.Service
	api     api             // the service, or the server that is asked instead
	remote  *remote.Service // that server; nil = none
	closers []io.Closer

	operates  bool // standard error is for the operator of a server
	observing sync.Once
	observer  *telemetry.Observer // of runs; nil = nobody wants traces or metrics
	metrics   *telemetry.Metrics  // of serve; nil = none
}

func newApp(in, out, err *os.File) *app {
	a := &app{
		in: in, out: &output{w: out}, err: err, started: time.Now(), ollamaAt: config.OllamaAddress,
		noSandbox: shell.Problem,
	}
	a.inTerminal, a.outTerminal, a.errTerminal = isTerminal(in), isTerminal(out), isTerminal(err)
	a.style = styleOf(err, a.errTerminal)
	a.outStyle = styleOf(out, a.outTerminal)
	return a
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// styleOf: colours only on a terminal that can show them, and never against
// NO_COLOR (https://no-color.org).
func styleOf(f *os.File, terminal bool) render.Style {
	if !terminal {
		return render.Style{}
	}
	columns := func() int {
		width, _, err := term.GetSize(int(f.Fd()))
		if err != nil {
			return 0
		}
		return width
	}
	dumb := os.Getenv("TERM") == "dumb"
	return render.Style{Color: os.Getenv("NO_COLOR") == "" && !dumb, Dumb: dumb, Width: columns(), Columns: columns}
}

// close closes what was opened, last first.
func (a *app) close() error {
	var errs []error
	for i := len(a.closers) - 1; i >= 0; i-- {
		errs = append(errs, a.closers[i].Close())
	}
	a.closers = nil
	return errors.Join(errs...)
}

// osUser is the name of who sits at the keyboard.
func osUser() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "unknown"
}

// maxUserName bounds a name given with --as.
const maxUserName = 256

// resolver fills in references; the secrets among them are masked from then on.
func (a *app) resolver() config.Resolver {
	return config.Resolver{Secrets: lazySecrets{a}, OnSecret: func(s guard.Secret) { a.masker.Learn(s) }}
}

// mask masks every secret that the command knows, also those that it comes to know later.
func (a *app) mask() *guard.Masker {
	if a.config != nil {
		a.masker.Learn(a.config.Secrets()...)
	}
	return &a.masker
}

// dataDir is the absolute folder of everything that is kept.
func (a *app) dataDir() (string, error) {
	if a.dataFlag != "" {
		return filepath.Abs(a.dataFlag)
	}
	c, err := a.configuration()
	if err != nil {
		return "", err
	}
	// The stored secrets lie there, so none of them can say where that is.
	return c.DataDir.Resolve(config.Resolver{})
}
