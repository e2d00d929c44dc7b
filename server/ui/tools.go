package ui

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib/service/policy"
	"github.com/toolcrib/toolcrib/store"
)

// toolRoutes returns the routes of the pages about tools and the policy.
func toolRoutes() []Route {
	return []Route{
		{Pattern: "GET /tools", do: listTools},
		{Pattern: "POST /tools/switch", Admin: true, do: switchTool},
		{Pattern: "GET /tools/{name}", do: func(p *page) error { return showTool(p, http.StatusOK, typedCall{}) }},
		{Pattern: "POST /tools/{name}/call", do: callTool},
		{Pattern: "GET /explain", do: explain},
		{Pattern: "GET /policy", Admin: true, do: showLab},
		{Pattern: "POST /policy/test", Admin: true, do: inLab("policy-result", tryRules)},
		{Pattern: "POST /policy/propose", Admin: true, do: inLab("policy-proposed", proposeRules)},
		{Pattern: "POST /policy/add", Admin: true, do: inLab("policy-text", addRule)},
		{Pattern: "POST /policy/download", Admin: true, do: downloadRules},
	}
}

// toolsOnPage is how many tools a page has.
const toolsOnPage = 100

// toolFilter selects tools. It is read from the query of the address.
type toolFilter struct {
	Text, Group, Source string
	State               string // on | off | switched | unusable | "" for all
	From                int    // the first one to show
}

func toolFilterOf(q url.Values) toolFilter {
	from, _ := strconv.Atoi(q.Get("from")) // anything else is the beginning
	return toolFilter{
		Text: strings.TrimSpace(q.Get("q")), Group: q.Get("group"), Source: q.Get("source"), State: q.Get("state"),
		From: max(from, 0),
	}
}

// address returns the address of the tools from a position on.
func (f toolFilter) address(from int) string {
	q := url.Values{}
	for name, value := range map[string]string{"q": f.Text, "group": f.Group, "source": f.Source, "state": f.State} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if from > 0 {
		q.Set("from", strconv.Itoa(from))
	}
	if len(q) == 0 {
		return "/tools"
	}
	return "/tools?" + q.Encode()
}

func (f toolFilter) fits(t *toolRow) bool {
	text := strings.ToLower(f.Text)
	has := func(s string) bool { return strings.Contains(strings.ToLower(s), text) }
	return (text == "" || has(t.Name) || has(t.Description) || has(t.Source) || has(t.Group)) &&
		(f.Group == "" || f.Group == t.Group) && (f.Source == "" || f.Source == t.Source) && f.fitsState(t)
}

func (f toolFilter) fitsState(t *toolRow) bool {
	switch f.State {
	case "on":
		return t.Enabled
	case "off":
		return !t.Enabled
	case "switched":
		return t.Overridden || t.GroupDisabled
	case "unusable":
		return t.Unusable != ""
	}
	return true
}

// toolRow is a tool in a list.
type toolRow struct {
	policy.Tool
	Switch      *store.Override // who switched it; nil if nobody did, or for users
	GroupSwitch *store.Override
	Next        string // the address to return to
	May         bool   // the reader may switch it
}

// About returns the first line of the description.
func (t *toolRow) About() string {
	about, _, _ := strings.Cut(t.Description, "\n")
	return about
}

// Why returns the key of the reason for which a tool is on or off.
func (t *toolRow) Why() string {
	switch {
	case t.Unusable != "":
		return "unusable"
	case t.AllDisabled:
		return "by_all"
	case t.GroupDisabled:
		return "by_group"
	case t.Overridden && t.Switch != nil:
		return "by_person"
	case t.Overridden:
		return "by_admin"
	}
	return "by_default"
}

// Uses returns how many calls there were.
func (t *toolRow) Uses() int { return int(t.Calls) }

// Failed returns how many calls failed.
func (t *toolRow) Failed() int { return int(t.Errors) }

// toolGroup is a group of tools in a list.
type toolGroup struct {
	Name   string
	Tools  []toolRow
	All    int             // of its tools, whatever is selected
	On     int             // of them
	Switch *store.Override // who switched the group; nil if nobody did, or for users
	Off    bool
	Next   string
	May    bool
}

// toolsView is the data of the template tools.
type toolsView struct {
	toolFilter
	Groups             []toolGroup
	GroupNames, Places []string
	All, On, Fit       int
	Calls, Errors      int64
	Last               int // position after the last one shown
	Before, After      string
}

// First returns the number of the first tool shown.
func (v *toolsView) First() int { return min(v.From+1, v.Fit) }

func listTools(p *page) error {
	all, err := toolRows(p)
	if err != nil {
		return err
	}
	v := toolsView{toolFilter: toolFilterOf(p.R.URL.Query()), All: len(all)}
	groups := map[string]*toolGroup{}
	var fit []toolRow
	for i := range all {
		t := &all[i]
		g := groups[t.Group]
		if g == nil {
			g = &toolGroup{Name: t.Group, Switch: t.GroupSwitch, May: t.May}
			groups[t.Group], v.GroupNames = g, append(v.GroupNames, t.Group)
		}
		g.Off = g.Off || t.GroupDisabled
		g.All++
		if t.Enabled {
			v.On++
			g.On++
		}
		if !slices.Contains(v.Places, t.Source) {
			v.Places = append(v.Places, t.Source)
		}
		v.Calls, v.Errors = v.Calls+t.Calls, v.Errors+t.Errors
		if v.fits(t) {
			fit = append(fit, *t)
		}
	}
	slices.Sort(v.GroupNames)
	slices.Sort(v.Places)
	v.show(fit, groups)
	return p.render("tools", http.StatusOK, &v)
}

// show selects the tools on this page of the list.
func (v *toolsView) show(fit []toolRow, groups map[string]*toolGroup) {
	v.Fit = len(fit)
	if v.From >= v.Fit {
		v.From = 0
	}
	v.Last = min(v.From+toolsOnPage, v.Fit)
	if v.From > 0 {
		v.Before = v.address(max(v.From-toolsOnPage, 0))
	}
	if v.Last < v.Fit {
		v.After = v.address(v.Last)
	}
	here := v.address(v.From)
	for _, t := range fit[v.From:v.Last] {
		if n := len(v.Groups); n == 0 || v.Groups[n-1].Name != t.Group {
			g := *groups[t.Group]
			g.Next = here
			v.Groups = append(v.Groups, g)
		}
		g := &v.Groups[len(v.Groups)-1]
		t.Next = here
		g.Tools = append(g.Tools, t)
	}
}

// toolRows returns all tools by group and name, for administrators with who switched them.
func toolRows(p *page) ([]toolRow, error) {
	tools, err := p.Service.Policy.Tools(p, p.Who)
	if err != nil {
		return nil, err
	}
	switches, err := p.Service.Policy.Switches(p, p.Who)
	may := err == nil
	of := map[store.OverrideKind]map[string]*store.Override{store.OverrideTool: {}, store.OverrideGroup: {}}
	for i := range switches {
		of[switches[i].Kind][switches[i].Name] = &switches[i]
	}
	rows := make([]toolRow, len(tools))
	for i, t := range tools {
		rows[i] = toolRow{
			Tool: t, May: may, Switch: of[store.OverrideTool][t.Name], GroupSwitch: of[store.OverrideGroup][t.Group],
		}
	}
	slices.SortStableFunc(rows, func(a, b toolRow) int { return cmp.Compare(a.Group, b.Group) })
	return rows, nil
}

// switchTool switches a tool or a group on or off, or resets it.
func switchTool(p *page) error {
	form := p.R.PostForm
	to := form.Get("to")
	q := policy.SwitchRequest{
		Tool: form.Get("tool"), Group: form.Get("group"), Enabled: to == "on", Reset: to == "reset",
	}
	if (q.Tool == "") == (q.Group == "") || !slices.Contains([]string{"on", "off", "reset"}, to) {
		return bad("to switch, name one tool or one group, and on, off or reset")
	}
	if _, err := p.Service.Policy.SwitchTool(p, p.Who, q); err != nil {
		return err
	}
	next := local(form.Get("next"))
	if next == "/" {
		next = "/tools"
	}
	if q.Tool != "" && strings.HasPrefix(next, "/tools") && !strings.HasPrefix(next, "/tools/") {
		next += "#tool-" + q.Tool
	}
	return p.done(next)
}
