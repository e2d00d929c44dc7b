package env

import (
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/store"
)

// Admin reports whether who may see and change what belongs to other users. Access tokens may not, even those of
// administrators.
func Admin(who toolcrib.Principal) bool { return who.Admin && who.Token == "" }

// ReadsConfig reports whether who may read the configuration and its positions: administrators, and those at the
// keyboard of the data folder who act for a user.
func ReadsConfig(who toolcrib.Principal) bool {
	return Admin(who) || who.Token == "" && who.Actor != ""
}

// ReadsDetails reports whether who may read the messages of providers and the places of a server's configuration:
// administrators, and without a server everybody who has the data folder.
func (e *Env) ReadsDetails(who toolcrib.Principal) bool {
	return e.Driver != DriverServer || Admin(who)
}

// RequireUser returns an error with unauthorized if who has no user.
func RequireUser(who toolcrib.Principal) error {
	if who.User == "" {
		return toolcrib.Errorf(toolcrib.CodeUnauthorized, "no user is named")
	}
	return nil
}

// Visible reports whether who may see runs of a user. Runs that who may not see are reported as not found.
func Visible(who toolcrib.Principal, user string) bool {
	return Admin(who) || who.User != "" && who.User == user
}

// Owns reports whether who may see a run. Several access tokens may act for one user (anonymous), so the token must
// match as well.
func Owns(who toolcrib.Principal, rec *store.RunRecord) bool {
	return Visible(who, rec.User) && (who.Token == "" || who.Token == rec.Token)
}

// Seen narrows a filter to the runs that who may see. It returns false if it may see no run at all.
func Seen(who toolcrib.Principal, f store.Filter) (store.Filter, bool) {
	f.Token = who.Token
	if f.User == "" && !Admin(who) {
		f.User = who.User
	}
	return f, Visible(who, f.User)
}

// Decides reports whether who may see what a run waits for.
func Decides(who toolcrib.Principal, rec *store.RunRecord) bool {
	return Owns(who, rec) || who.Token == "" && agent.MayDecide(who, "")
}

// Administrator returns the name to record for an administrator, with --as both names. It returns an error if who
// is not an administrator. An access token never is, even one of an administrator.
func Administrator(who toolcrib.Principal) (string, error) {
	switch {
	case who.Token != "":
		return "", toolcrib.Errorf(toolcrib.CodeForbidden, "this is for administrators, not for access tokens")
	case !who.Admin:
		return "", toolcrib.Errorf(toolcrib.CodeForbidden, "this is for administrators, and %s is not one", who.User)
	}
	return agent.NameOf(who), nil
}

// UnknownValue returns an error that lists the valid values.
func UnknownValue(what, value string, valid []string) error {
	hint := guard.DidYouMean(value, valid)
	return BadRequestf("unknown %s %q%s (valid: %s)", what, value, hint, strings.Join(valid, ", "))
}
