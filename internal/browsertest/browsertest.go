// Package browsertest drives Chromium in tests of web pages. A tab fails its test if a page ran what the
// Content-Security-Policy forbids, threw an error, or called the canary function.
package browsertest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/toolcrib/toolcrib/internal/npmtest"
)

// Timeout bounds the waits of a tab.
const Timeout = 30 * time.Second

// Canary is the function that hostile texts in tests call: CANARY(1).
const Canary = "toolcribCanary"

// Options are the properties of a tab. The zero value is a desktop in light colors and English.
type Options struct {
	Width, Height int64 // 0 = 1280 by 800
	Dark, Reduced bool  // preferences of the system
	NoScript      bool
	Language      string // "" = en
	Token         string // sent with each request; "" = none
}

// Phone is a small telephone.
func (o Options) Phone() Options { o.Width, o.Height = 360, 740; return o }

// Tab is a tab of its own, with cookies of its own.
type Tab struct {
	context.Context
	t *testing.T

	mu       sync.Mutex
	problems []string
	allowed  []string // parts of problems that are expected
}

// one is the browser of all tests of a package.
var one struct {
	once   sync.Once
	ctx    context.Context
	cancel []func()
}

// Stop ends the browser. TestMain calls it after the tests.
func Stop() {
	for i := len(one.cancel) - 1; i >= 0; i-- {
		one.cancel[i]()
	}
}

// Installed returns the path of Chromium. Without it, a test is skipped.
func Installed(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("SKIPPED: NOT TRIED IN A BROWSER; install Chromium: apt-get install chromium")
	return ""
}

// Open opens a tab.
func Open(t *testing.T, o Options) *Tab {
	t.Helper()
	path := Installed(t)
	one.once.Do(func() {
		flags := append(chromedp.DefaultExecAllocatorOptions[:],
			chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
			chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
			chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("js-flags", "--expose-gc"),
		)
		ctx, end := chromedp.NewExecAllocator(context.Background(), flags...)
		ctx, stop := chromedp.NewContext(ctx)
		one.ctx, one.cancel = ctx, []func(){end, stop}
		if err := chromedp.Do(ctx); err != nil {
			panic(fmt.Sprintf("chromium: %v", err))
		}
	})
	ctx, end := chromedp.NewContext(one.ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(end)
	tab := &Tab{Context: ctx, t: t}
	if err := chromedp.Listen(ctx, tab.heard); err != nil {
		t.Fatal(err)
	}
	if o.Width == 0 {
		o.Width, o.Height = 1280, 800
	}
	if o.Language == "" {
		o.Language = "en"
	}
	features := []*emulation.MediaFeature{}
	if o.Dark {
		features = append(features, &emulation.MediaFeature{Name: "prefers-color-scheme", Value: "dark"})
	}
	if o.Reduced {
		features = append(features, &emulation.MediaFeature{Name: "prefers-reduced-motion", Value: "reduce"})
	}
	head := network.Headers{"Accept-Language": o.Language}
	if o.Token != "" {
		head["Authorization"] = "Bearer " + o.Token
	}
	err := errors.Join(
		call(ctx, network.Enable, network.EnableParams{}), call(ctx, log.Enable, cdp.Empty{}),
		call(ctx, runtime.Enable, cdp.Empty{}), call(ctx, runtime.AddBinding, runtime.AddBindingParams{Name: Canary}),
		call(ctx, network.SetExtraHTTPHeaders, network.SetExtraHTTPHeadersParams{Headers: head}),
		call(ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: o.NoScript}),
		call(ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
			Width: o.Width, Height: o.Height, DeviceScaleFactor: 1, Mobile: o.Width < 500,
		}),
		call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tab.check)
	return tab
}

// call runs a command of the protocol that has no result of interest.
func call[P, R any](ctx context.Context, command cdp.Command[P, R], params P) error {
	_, err := chromedp.Call(ctx, command, params)
	return err
}

// heard collects problems of the pages.
func (b *Tab) heard(event any) {
	problem := ""
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			problem = string(e.Entry.Source) + ": " + e.Entry.Text + " " + e.Entry.URL
		}
	case *runtime.EventExceptionThrown:
		problem = "exception: " + e.ExceptionDetails.Text + exceptionText(e.ExceptionDetails.Exception)
	case *runtime.EventBindingCalled:
		problem = "the canary was called: " + e.Payload
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError {
			for _, v := range e.Args {
				problem += "console: " + string(v.Value)
			}
		}
	case *page.EventJavascriptDialogOpening:
		problem = "a dialog: " + e.Message
	}
	if problem != "" {
		b.mu.Lock()
		b.problems = append(b.problems, problem)
		b.mu.Unlock()
	}
}

// Expect permits problems with this text, such as the log entry of an answer with status 409.
func (b *Tab) Expect(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.allowed = append(b.allowed, text)
}

func (b *Tab) check() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.problems {
		known := false
		for _, text := range b.allowed {
			known = known || strings.Contains(p, text)
		}
		if !known {
			b.t.Errorf("the page: %s", p)
		}
	}
}

// in runs an action on a tab, within [Timeout].
func in[T any](b *Tab, what string, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b, Timeout)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		text, _ := chromedp.Run(b, chromedp.Evaluate[string](`location.href + "\n" + document.body?.innerText.slice(0, 3000)`)) // for the message
		b.t.Fatalf("%s: %v\n%s", what, err, text)
	}
	return value
}

// Visit opens an address.
func (b *Tab) Visit(url string) {
	b.t.Helper()
	in(b, "visit "+url, chromedp.Navigate(url))
}

// Click clicks the visible element that a CSS selector names.
func (b *Tab) Click(selector string) {
	b.t.Helper()
	in(b, "find "+selector, chromedp.WaitVisible(selector))
	takes := "((e) => !!e && getComputedStyle(e).pointerEvents !== 'none')(document.querySelector(" + quoted(selector) + "))"
	for end := time.Now().Add(Timeout); !Eval[bool](b, takes) && time.Now().Before(end); { // also without scripts
		in(b, "wait for "+selector, chromedp.Sleep(50*time.Millisecond))
	}
	in(b, "click "+selector, chromedp.Click(selector, chromedp.NodeVisible))
}

// Tap clicks in the middle of the element that a CSS selector names, also while it does not take clicks.
func (b *Tab) Tap(selector string) {
	b.t.Helper()
	in(b, "tap "+selector, chromedp.Click(selector, chromedp.NodeVisible))
}

// Grant grants the pages of the tab a permission, such as notifications.
func (b *Tab) Grant(permission string) {
	b.t.Helper()
	_, err := chromedp.CallBrowser(b, browser.SetPermission, browser.SetPermissionParams{
		Permission: &browser.PermissionDescriptor{Name: permission}, Setting: browser.PermissionSettingGranted,
		BrowserContextID: chromedp.FromContext(b).BrowserContextID,
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// Hide minimizes the window of the tab.
func (b *Tab) Hide() {
	b.t.Helper()
	at, err := chromedp.Call(b, browser.GetWindowForTarget, browser.GetWindowForTargetParams{})
	if err == nil {
		err = call(b, browser.SetWindowBounds, browser.SetWindowBoundsParams{
			WindowID: at.WindowID, Bounds: &browser.Bounds{WindowState: browser.WindowStateMinimized},
		})
	}
	if err != nil {
		b.t.Fatal(err)
	}
	b.Until("document.hidden")
}

// Type types into a field.
func (b *Tab) Type(selector, text string) {
	b.t.Helper()
	in(b, "type into "+selector, chromedp.SendKeys(selector, text, chromedp.NodeVisible))
}

// Press presses a key, such as kb.Tab, wherever the focus is.
func (b *Tab) Press(key string) {
	b.t.Helper()
	in(b, "press a key", chromedp.KeyEvent(key))
}

// Wait waits for a visible element.
func (b *Tab) Wait(selector string) {
	b.t.Helper()
	in(b, "wait for "+selector, chromedp.WaitVisible(selector))
}

// WaitText waits until an element contains a text.
func (b *Tab) WaitText(selector, text string) {
	b.t.Helper()
	b.Until(fmt.Sprintf("[...document.querySelectorAll(%s)].some((e) => e.innerText.includes(%s))", quoted(selector), quoted(text)))
}

// Until waits until a JavaScript expression is true, also over a change of the page. It asks from outside the page,
// since a page without scripts has no timers.
func (b *Tab) Until(expression string) {
	b.t.Helper()
	for end := time.Now().Add(Timeout); ; {
		ctx, cancel := context.WithDeadline(b, end)
		holds, err := chromedp.Run(ctx, chromedp.Evaluate[bool](expression)) // fails while the page changes
		cancel()
		if err == nil && holds {
			return
		}
		if time.Now().After(end) || b.Err() != nil {
			in(b, "wait until "+expression, chromedp.Func(func(context.Context, *chromedp.Target) error {
				return cmp.Or(err, context.DeadlineExceeded)
			}))
		}
		in(b, "wait", chromedp.Sleep(50*time.Millisecond))
	}
}

// Text returns the visible text of an element.
func (b *Tab) Text(selector string) string {
	b.t.Helper()
	return in(b, "read "+selector, chromedp.Text(selector))
}

// Eval returns the value of a JavaScript expression, which may be a promise.
func Eval[T any](b *Tab, expression string) T {
	b.t.Helper()
	return in(b, "evaluate", chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// Do runs other actions of chromedp.
func (b *Tab) Do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	in(b, "actions", chromedp.Steps(actions...))
}

// Shot writes a picture of the whole page into the folder $TOOLCRIB_SHOTS, if that is set.
func (b *Tab) Shot(name string) {
	b.t.Helper()
	dir := os.Getenv("TOOLCRIB_SHOTS")
	if dir == "" {
		return
	}
	png := in(b, "screenshot", chromedp.FullScreenshot(100))
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// Axe checks the page with axe-core for WCAG 2.2 AA, and fails the test for each violation.
func (b *Tab) Axe() {
	b.t.Helper()
	dir := npmtest.Package(b.t, "axe-core@4.11.1")
	source, err := os.ReadFile(filepath.Join(dir, "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		b.t.Fatal(err)
	}
	Eval[bool](b, string(source)+"; true")
	found := Eval[[]string](b, `axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]})
		.then((r) => r.violations.map((v) => v.id + ": " + v.help + "\n" + v.nodes.slice(0, 5).map((n) => "    " +
			n.html.slice(0, 200) + " " + n.any.concat(n.all).map((a) => a.message).join("; ")).join("\n")))`)
	for _, one := range found {
		b.t.Errorf("axe: %s", one)
	}
}

// quoted returns a text as JavaScript.
func quoted(text string) string {
	q, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(q)
}

func exceptionText(o *runtime.RemoteObject) string {
	if o == nil {
		return ""
	}
	return " " + o.Description
}
