package tables

import (
	"strings"

	"github.com/toolcrib/toolcrib"
	globs "github.com/toolcrib/toolcrib/tool/internal/pattern"
)

// grantPrefix begins the grants that name tables: sql:NAME/schema.table.
const grantPrefix = "sql:"

// administrator reports whether the user sees every table. There must be an acting user (N18, N19).
func administrator(who toolcrib.Principal) bool { return who.Admin && who.User != "" }

// mayConnect reports whether a grant of the user names anything in the database. If the grants are nil,
// they name no table: unlike tools, tables are visible only to users who are granted them.
func mayConnect(who toolcrib.Principal, database string) bool {
	return administrator(who) || len(patterns(who, database)) > 0
}

// permitted returns a function that reports whether the user may see a table of a database.
func permitted(who toolcrib.Principal, database string) func(schema, table string) bool {
	if administrator(who) {
		return func(string, string) bool { return true }
	}
	all := patterns(who, database)
	return func(schema, table string) bool {
		if strings.Contains(schema, ".") {
			return false // ambiguous: a grant separates schema and table by a dot
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

// patterns returns the grants about a database. In the names of schema and table, * matches any
// characters and ? matches one; wildcards alone for both grant nothing, so that a whole database is
// never granted by accident. The name of the database is literal.
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
