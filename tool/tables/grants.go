package tables

import (
	"strings"

	"github.com/toolcrib/toolcrib"
	globs "github.com/toolcrib/toolcrib/tool/internal/pattern"
)

// grantPrefix begins the grants that name tables: sql:NAME/schema.table (contract
// §11).
const grantPrefix = "sql:"

// administrator sees every table; somebody must be acting (N18, N19).
func administrator(who toolcrib.Principal) bool { return who.Admin && who.User != "" }

// mayConnect reports whether a grant of the user names anything in the database.
// Grants that are nil name no table: unlike tools, tables are shown to those only who
// are given them.
func mayConnect(who toolcrib.Principal, database string) bool {
	return administrator(who) || len(patterns(who, database)) > 0
}

// permitted reports which tables of a database the user may see.
func permitted(who toolcrib.Principal, database string) func(schema, table string) bool {
	if administrator(who) {
		return func(string, string) bool { return true }
	}
	all := patterns(who, database)
	return func(schema, table string) bool {
		if strings.Contains(schema, ".") {
			return false // a grant cannot name it: which dot would be which?
		}
		for _, p := range all {
			if globs.Wild(p.schema, schema) && globs.Wild(p.table, table) {
				return true
			}
		}
		return false
	}
}

type pattern struct{ schema, table string }

// patterns are the grants about a database. In the names of schema and table * stands
// for any characters and ? for one; wildcards alone for both grant nothing, so that
// nobody is given a whole database by accident. The name of the database is taken as
// it is.
func patterns(who toolcrib.Principal, database string) []pattern {
	if who.User == "" || database == "" {
		return nil
	}
	var found []pattern
	for _, grant := range who.Grants {
		rest, ok := strings.CutPrefix(grant, grantPrefix)
		if !ok {
			continue
		}
		if rest, ok = strings.CutPrefix(rest, database+"/"); !ok || len(rest) > 2*maxText {
			continue
		}
		schema, table, ok := strings.Cut(rest, ".")
		if !ok || schema == "" || table == "" || strings.Trim(schema+table, "*?") == "" {
			continue
		}
		found = append(found, pattern{schema, table})
	}
	return found
}
