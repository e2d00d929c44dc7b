package ui

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/policy"
)

// labView is the data of the template policy.
type labView struct {
	service.RulesText
	Typed    string
	Trial    *service.Trial // nil before the first
	Proposed *proposedView  // nil before they are asked for
	Uses     []*policy.RuleUse
	Error    string
}

// Lines returns the numbers of the lines of the text.
func (v *labView) Lines() string {
	var b strings.Builder
	for i := range strings.Count(v.Typed, "\n") + 1 {
		b.WriteString(strconv.Itoa(v.Line+i) + "\n")
	}
	return b.String()
}

// Height returns how many lines are shown.
func (v *labView) Height() int { return min(max(strings.Count(v.Typed, "\n")+2, 12), 32) }

// proposedView is the data of the part policy-proposed.
type proposedView struct {
	List    []*service.ProposedRule
	Runs    int
	Stopped bool
}

// showLab shows the policy lab with the rules in effect.
func showLab(p *page) error {
	v, err := p.lab()
	if err != nil {
		return err
	}
	return p.render("policy", http.StatusOK, v)
}

// lab returns the data of the page before anything was typed.
func (p *page) lab() (*labView, error) {
	rules, err := p.Service.Rules(p.Who)
	if err != nil {
		return nil, err
	}
	v := &labView{RulesText: rules, Typed: rules.Text}
	if v.Typed == "" {
		v.Typed = "rules:\n"
	}
	if p.enhanced() {
		return v, nil // only a part of the page is needed
	}
	v.Uses, err = p.Service.Policy.RuleUses(p, p.Who, time.Time{})
	return v, err
}

// typedLab returns the data of the page with the rules that were sent.
func (p *page) typedLab() (*labView, error) {
	v, err := p.lab()
	if err != nil {
		return nil, err
	}
	v.Typed = strings.ReplaceAll(p.R.PostForm.Get("rules"), "\r\n", "\n")
	return v, nil
}

// inLab answers with the page, the input and the result of do; a module gets only the part.
func inLab(part string, do func(p *page, v *labView) error) func(*page) error {
	return func(p *page) error {
		v, err := p.typedLab()
		if err != nil {
			return err
		}
		err = do(p, v)
		switch {
		case err != nil && p.enhanced():
			return err
		case err != nil:
			e := p.Readable(p.Request, err)
			v.Error = e.Message
			return p.render("policy", statusOf(e.Code), v)
		case p.enhanced():
			return p.part("policy", part, http.StatusOK, v)
		}
		return p.render("policy", http.StatusOK, v)
	}
}

// tryRules judges the stored calls under the rules that were sent.
func tryRules(p *page, v *labView) error {
	t, err := p.Service.TryRules(p, p.Who, v.Typed)
	v.Trial = &t
	return err
}

// proposeRules adds rules for calls that people approved.
func proposeRules(p *page, v *labView) (err error) {
	v.Proposed = &proposedView{}
	v.Proposed.List, v.Proposed.Runs, v.Proposed.Stopped, err = p.Service.ProposeRules(p, p.Who)
	return err
}

// addRule adds a proposed rule to the text.
func addRule(p *page, v *labView) (err error) {
	v.Typed, err = p.Service.AddRule(p.Who, v.Typed, p.R.PostForm.Get("add"))
	return err
}

// downloadRules answers with the rules as a change of the configuration.
func downloadRules(p *page) error {
	name, content, err := p.Service.RulesChange(p.Who, p.R.PostForm.Get("rules"))
	if err != nil {
		return err
	}
	p.download(name, "text/plain; charset=utf-8")
	_, _ = p.W.Write(content) // the client may have disconnected
	return nil
}
