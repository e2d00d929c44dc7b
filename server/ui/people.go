package ui

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/service/people"
)

// peopleRoutes returns the routes of the pages about people, which are for administrators.
func peopleRoutes() []Route {
	all := []Route{
		{Pattern: "GET /people", do: showPeople},
		{Pattern: "POST /people", do: addUser},
		{Pattern: "GET /people/{name}", do: func(p *page) error { return p.showPerson(nil) }},
		{Pattern: "POST /people/{name}", do: editUser},
		{Pattern: "POST /people/{name}/{do}", do: changeUser},
		{Pattern: "POST /people/{name}/sessions/{id}/end", do: endSession},
		{Pattern: "POST /people/{name}/tokens/{id}/revoke", do: revokeToken},
	}
	for i := range all {
		all[i].Admin = true
	}
	return all
}

// maxPeople bounds the users on a page; a search finds the others.
const maxPeople = 200

// trusts are the levels of trust, by their names in the form.
var trusts = []string{
	people.UnknownTrust, string(toolcrib.TrustMember), string(toolcrib.TrustTrusted), string(toolcrib.TrustAnchor),
}

// peopleView is the data of the template people.
type peopleView struct {
	Query  string
	Users  []people.User
	Found  int // with those that are not shown
	Total  int
	Groups []people.Group
	Trusts []string
}

func showPeople(p *page) error {
	v := peopleView{Query: p.R.URL.Query().Get("q"), Trusts: trusts}
	users, err := p.Service.People.Users(p, p.Who)
	if err != nil {
		return err
	}
	if v.Groups, err = p.Service.People.Groups(p, p.Who); err != nil {
		return err
	}
	v.Total = len(users)
	part := strings.ToLower(strings.TrimSpace(v.Query))
	for _, u := range users {
		about := []string{u.Name, u.Display, u.Email, strings.Join(u.Groups, " "), strings.Join(u.Roles, " ")}
		if !strings.Contains(strings.ToLower(strings.Join(about, " ")), part) {
			continue
		}
		if v.Found++; v.Found <= maxPeople {
			v.Users = append(v.Users, u)
		}
	}
	return p.render("people", http.StatusOK, v)
}

func addUser(p *page) error {
	name := p.R.PostFormValue("name")
	u := access.User{
		Name: name, Display: p.R.PostFormValue("display"), Email: p.R.PostFormValue("email"),
		Admin: p.R.PostForm.Has("admin"), Roles: words(p.R.PostFormValue("roles")), Groups: p.R.PostForm["group"],
	}
	added, err := p.Service.People.AddUser(p, p.Who, access.NewUser{User: u})
	if err != nil {
		return err
	}
	return p.done("/people/" + added.Name + "?said=added")
}

// personView is the data of the template person.
type personView struct {
	people.User
	Mine        grants // with those of the groups
	HasPassword bool
	Link        *people.PasswordLink // new, which is shown once
	Sessions    []session
	Tokens      tokensView
	All         []people.Group
	Trusts      []string
	Self        bool   // who looks at it
	Removing    string // key of the text about removing the user
	Said        string
}

// In reports whether the user is in a group.
func (v personView) In(group string) bool { return slices.Contains(v.Groups, group) }

func (p *page) showPerson(link *people.PasswordLink) (err error) {
	v := personView{Link: link, Trusts: trusts}
	if v.User, err = p.Service.People.User(p, p.Who, p.R.PathValue("name")); err != nil {
		return err
	}
	v.Mine, v.Self = grantsOf(v.Effective), v.Name == p.Who.User
	if v.Removing = "people.remove_text"; p.Web.HasProvider() && p.Service.Env.Config.Server.OIDC.Create {
		v.Removing = "people.remove_returns"
	}
	if said := p.R.URL.Query().Get("said"); said == "added" || said == "saved" {
		v.Said = said
	}
	if v.HasPassword, err = p.Service.People.HasPassword(p, p.Who, v.Name); err != nil {
		return err
	}
	list, err := p.Service.People.WebSessions(p, p.Who, v.Name)
	if err != nil {
		return err
	}
	current := ""
	if _, w, err := p.Web.Watch(p.R); err == nil {
		current = w.ID
	}
	v.Sessions = sessionsOf(list, current)
	tokens, err := p.Service.People.Tokens(p, p.Who, v.Name)
	if err != nil {
		return err
	}
	v.Tokens = splitTokens(tokens)
	if v.All, err = p.Service.People.Groups(p, p.Who); err != nil {
		return err
	}
	return p.render("person", http.StatusOK, v)
}

// editUser changes the fields that differ from the stored ones. The form says which state it shows.
func editUser(p *page) error {
	now, err := p.Service.People.User(p, p.Who, p.R.PathValue("name"))
	if err != nil {
		return err
	}
	form := p.R.PostFormValue
	if form("changed") != now.Changed.Format(time.RFC3339Nano) {
		return toolcrib.Errorf(toolcrib.CodeConflict, "%s was changed by %s in the meantime; open the page again", now.Name,
			now.ChangedBy)
	}
	e := access.Edit{
		Display: changed(now.Display, form("display")), Email: changed(now.Email, form("email")),
		Admin: changed(now.Admin, p.R.PostForm.Has("admin")), AllAgents: p.R.PostForm.Has("all_agents"),
		Roles: changedList(now.Roles, words(form("roles"))), Groups: changedList(now.Groups, p.R.PostForm["group"]),
	}
	if trust := form("trust"); trust != now.Trust {
		e.Trust = new(toolcrib.Trust(trust))
		if trust == people.UnknownTrust {
			e.Trust = new(toolcrib.TrustUnknown)
		}
	}
	if list := words(form("grants")); form("restricted") == "yes" {
		e.Grants = changedList(now.Grants, append([]string{}, list...))
	} else if now.Grants != nil {
		e.Grants = new([]string)
	}
	if _, _, err = p.Service.People.EditUser(p, p.Who, now.Name, e); err != nil {
		return err
	}
	return p.done("/people/" + now.Name + "?said=saved")
}

func changed[T comparable](before, after T) *T {
	if before == after {
		return nil
	}
	return &after
}

// changedList is changed for a list, whose order does not matter.
func changedList(before, after []string) *[]string {
	a, b := slices.Sorted(slices.Values(before)), slices.Sorted(slices.Values(after))
	if slices.Equal(a, b) && (before == nil) == (after == nil) || len(a)+len(b) == 0 && before != nil && after == nil {
		return nil
	}
	return &after
}

// changeUser does one thing about a user.
func changeUser(p *page) (err error) {
	name, of := p.R.PathValue("name"), p.Service.People
	switch p.R.PathValue("do") {
	case "disable", "enable":
		_, _, err = of.EditUser(p, p.Who, name, access.Edit{Disabled: new(p.R.PathValue("do") == "disable")})
	case "link":
		link, err := of.PasswordLink(p, p.Who, name)
		if err != nil {
			return err
		}
		link.Link = p.Web.Origin(p.R) + link.Link
		return p.showPerson(&link)
	case "forget":
		_, err = of.RemovePassword(p, p.Who, name)
	case "remove":
		if _, err = of.RemoveUser(p, p.Who, name); err == nil {
			return p.done("/people")
		}
	case "sign-out":
		err = endSessions(p, name)
	default:
		err = errNoPage(p)
	}
	if err != nil {
		return err
	}
	return p.done("/people/" + name)
}

func endSessions(p *page, name string) error {
	list, err := p.Service.People.WebSessions(p, p.Who, name)
	for i := 0; err == nil && i < len(list); i++ {
		_, err = p.Service.People.EndWebSession(p, p.Who, list[i].ID, p.Web.Cookie(p.R))
	}
	return err
}

func endSession(p *page) error {
	if _, err := p.Service.People.EndWebSession(p, p.Who, p.R.PathValue("id"), p.Web.Cookie(p.R)); err != nil {
		return err
	}
	return p.done("/people/" + p.R.PathValue("name") + "#sessions")
}

func revokeToken(p *page) error {
	if _, _, err := p.Service.People.RevokeToken(p, p.Who, p.R.PathValue("id"), false); err != nil {
		return err
	}
	return p.done("/people/" + p.R.PathValue("name") + "#tokens")
}
