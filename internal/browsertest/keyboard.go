package browsertest

import (
	_ "embed"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

//go:embed walk.js
var walk string

// maxSteps bounds the presses of the Tab key on a page.
const maxSteps = 600

// Back presses Shift and Tab.
func (b *Tab) Back() {
	b.t.Helper()
	in(b, "press Shift+Tab", chromedp.KeyEvent(kb.Tab, chromedp.KeyModifiers(8)))
}

// Reach presses Tab until an element that a CSS selector matches has the focus.
func (b *Tab) Reach(selector string) {
	b.t.Helper()
	for range maxSteps {
		if Eval[bool](b, "!!document.activeElement?.matches("+quoted(selector)+")") {
			return
		}
		b.Press(kb.Tab)
	}
	b.t.Fatalf("the Tab key does not lead to %s", selector)
}

// Walk presses Tab until the focus is back where it began, opens folded parts on the way, and then presses Shift+Tab
// all the way back. The test fails for each element that is not reached, does not show that it has the focus, is out of
// sight, or comes in another order than in the document.
func (b *Tab) Walk() {
	b.t.Helper()
	Eval[bool](b, walk+"; true")
	over := false
	for range maxSteps {
		b.Press(kb.Tab)
		switch Eval[string](b, "walk.step()") {
		case "open":
			b.Press(kb.Enter)
		case "over":
			over = true
		}
		if over {
			break
		}
	}
	for _, problem := range Eval[[]string](b, "walk.problems()") {
		b.t.Errorf("%s: %s", Eval[string](b, "location.pathname + location.search"), problem)
	}
	steps := Eval[int](b, "walk.steps()")
	if !over {
		b.t.Errorf("%d steps do not lead around the page", steps)
	}
	for range maxSteps {
		b.Back()
		if got := Eval[string](b, "walk.back()"); got == "over" {
			return
		} else if got != "" {
			break
		}
	}
	b.t.Errorf("Shift+Tab does not lead back, but to %s", Eval[string](b, "document.activeElement.outerHTML.slice(0, 200)"))
}
