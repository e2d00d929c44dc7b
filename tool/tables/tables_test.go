package tables_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/tables"
	"github.com/toolcrib/toolcrib/toolcribtest/tooltest"
)

// shop is a database in memory; it answers with more than it is asked for, as a
// careless reader would.
func shop(context.Context, tables.Query) (tables.Structure, error) {
	table := func(schema, name string, keys ...tables.ForeignKey) tables.Table {
		return tables.Table{
			Schema: schema, Name: name, Kind: "table", Columns: []tables.Column{{Name: "id", Type: "bigint"}, {Name: "note", Type: "text", Nullable: true}},
			PrimaryKey: []string{"id"}, ForeignKeys: keys,
		}
	}
	return tables.Structure{Kind: "test", Tables: []tables.Table{
		table("hr", "salaries"),
		table("public", "customers"),
		table("public", "orders",
			tables.ForeignKey{Columns: []string{"customer"}, Schema: "public", Table: "customers", References: []string{"id"}},
			tables.ForeignKey{Columns: []string{"clerk"}, Schema: "hr", Table: "salaries", References: []string{"id"}}),
		table("we.ird", "t"),
	}}, nil
}

func options() tables.Options {
	return tables.Options{Databases: []tables.Database{
		{Name: "main", Read: shop},
		{Name: "other", Read: shop},
		{Name: "broken", Read: func(context.Context, tables.Query) (tables.Structure, error) {
			return tables.Structure{}, errors.New("no route to db.internal")
		}},
	}}
}

type shown struct {
	Databases []struct {
		Name, Kind, Error string
		Tables            []tables.Table
	}
	Message   string
	Truncated bool
}

func (s shown) names() string {
	var all []string
	for _, d := range s.Databases {
		for _, t := range d.Tables {
			all = append(all, d.Name+"/"+t.Schema+"."+t.Name)
		}
	}
	return strings.Join(all, " ")
}

func describe(t *testing.T, o tables.Options, who toolcrib.Principal, arguments string) (shown, string, error) {
	t.Helper()
	out, err := tables.New(o)[0].Call(t.Context(), toolcrib.Call{Arguments: json.RawMessage(arguments), Principal: who})
	if err != nil {
		return shown{}, "", err
	}
	var got shown
	if err := json.Unmarshal(out.JSON, &got); err != nil {
		t.Fatal(err)
	}
	if out.Cut != got.Truncated {
		t.Errorf("cut %v, truncated %v", out.Cut, got.Truncated)
	}
	return got, string(out.JSON), nil
}

func user(grants ...string) toolcrib.Principal {
	return toolcrib.Principal{User: "ann", Grants: grants}
}

func TestN24_TablesConform(t *testing.T) {
	tooltest.Run(t, func() toolcrib.Tool { return tables.New(options())[0] }, tooltest.Cases{Calls: []tooltest.Case{
		{Name: "all", Arguments: `{}`},
		{Name: "one", Arguments: `{"database": "main"}`},
		{Name: "table", Arguments: `{"table": "orders", "schema": "public"}`},
		{Name: "unknown database", Arguments: `{"database": "x'; DROP TABLE y"}`, Err: toolcrib.NotFound},
		{Name: "unknown table", Arguments: `{"database": "main", "table": "gone"}`, Err: toolcrib.NotFound},
		{Name: "broken", Arguments: `{"database": "broken"}`, Err: toolcrib.ExecutionFailed},
		{Name: "empty", Arguments: `{"database": ""}`, Invalid: true},
		{Name: "sql", Arguments: `{"sql": "SELECT 1"}`, Invalid: true},
		{Name: "type", Arguments: `{"table": ["orders"]}`, Invalid: true, Err: toolcrib.InvalidArguments},
	}})
	if len(tables.New(tables.Options{})) != 0 {
		t.Error("describe_tables without a database")
	}
	if spec := tables.New(options())[0].Spec(); spec.RequiresAdmin || !spec.EnabledByDefault || spec.Effect.Writes() {
		t.Errorf("spec %+v", spec)
	}
}

func TestN19_TablesByGrant(t *testing.T) {
	const all = "main/hr.salaries main/public.customers main/public.orders main/we.ird.t"
	for _, c := range []struct {
		who  toolcrib.Principal
		want string // of the databases main and other
	}{
		{toolcrib.Principal{User: "root", Admin: true}, all + " " + strings.ReplaceAll(all, "main/", "other/")},
		{toolcrib.Principal{User: "root", Admin: true, Grants: []string{}}, all + " " + strings.ReplaceAll(all, "main/", "other/")},
		{user("sql:main/public.orders"), "main/public.orders"},
		{user("sql:main/public.*"), "main/public.customers main/public.orders"},
		{user("sql:main/public.?rders", "sql:other/*.salaries"), "main/public.orders other/hr.salaries"},
		{user("sql:main/public.orders", "sql:main/public.orders"), "main/public.orders"},
		{toolcrib.Principal{User: "ann"}, ""}, // nil restricts no tool, and names no table
		{user(), ""},
		{user("*"), ""},
		{user("sql:*"), ""},
		{user("sql:main"), ""},
		{user("sql:main/*"), ""},
		{user("sql:main/*.*"), ""},
		{user("sql:main/?*.**"), ""},
		{user("sql:*/public.orders"), ""},
		{user("sql:mai?/public.orders"), ""},
		{user("sql:MAIN/public.orders", "sql:main/PUBLIC.orders", "SQL:main/public.orders", " sql:main/public.orders"), ""},
		{user("sql:main/public.order", "sql:main/public.orders2", "sql:main/ublic.orders", "sql:main/.orders", "sql:main/public."), ""},
		{user("describe_tables", "public.orders", "main/public.orders", "sql:/public.orders"), ""},
		{user("sql:main/we.ird.t", "sql:main/we.*"), ""},
		{user("sql:main/" + strings.Repeat("*a", 1000) + ".orders"), ""},
	} {
		got, text, err := describe(t, options(), c.who, `{}`)
		if err != nil {
			t.Errorf("%v: %v", c.who, err)
			continue
		}
		if got.names() != c.want || (len(got.Databases) == 0) != (got.Message != "") || got.Truncated {
			t.Errorf("%v: %s, want %s", c.who, text, c.want)
		}
	}
	for _, arguments := range []string{`{}`, `{"database": "main"}`} {
		for _, nobody := range []toolcrib.Principal{{}, {Admin: true}, {Grants: []string{"sql:main/public.orders"}}} {
			if _, text, err := describe(t, options(), nobody, arguments); err == nil {
				t.Errorf("nobody sees %s", text)
			}
			if err := tooltest.Refused(tables.New(options())[0], toolcrib.Call{Arguments: json.RawMessage(arguments), Principal: nobody}); err == nil {
				t.Error("nobody is admitted")
			}
		}
	}
}

// What is not permitted cannot be told from what there is not, and its name stands
// nowhere: not in a foreign key either.
func TestN19_TablesNeutral(t *testing.T) {
	who := user("sql:main/public.orders")
	_, text, err := describe(t, options(), who, `{"database": "main"}`)
	if err != nil || strings.Contains(text, "salaries") || strings.Contains(text, "customers") || strings.Contains(text, "clerk") {
		t.Errorf("%s, %v", text, err)
	}
	_, text, err = describe(t, options(), user("sql:main/public.*"), `{"database": "main", "table": "orders"}`)
	if want := `"foreign_keys":[{"columns":["customer"],"schema":"public","table":"customers","references":["id"]}]`; err != nil || !strings.Contains(text, want) || strings.Contains(text, "salaries") {
		t.Errorf("%s, %v", text, err)
	}
	for _, pair := range [][2]string{
		{`{"database": "other"}`, `{"database": "gone"}`},
		{`{"database": "main", "table": "customers"}`, `{"database": "main", "table": "gone"}`},
		{`{"schema": "hr"}`, `{"schema": "gone"}`},
	} {
		var texts [2]string
		for i, arguments := range pair {
			_, _, err := describe(t, options(), who, arguments)
			if err == nil {
				t.Fatalf("%s is shown", arguments)
			}
			texts[i] = strings.NewReplacer("other", "X", "gone", "X").Replace(err.Error())
		}
		if texts[0] != texts[1] || !strings.HasPrefix(texts[0], "not found: ") {
			t.Errorf("%q and %q", texts[0], texts[1])
		}
	}
}

// Nothing is connected to on behalf of somebody who may see nothing there.
func TestN19_TablesConnectsForTheirOwnOnly(t *testing.T) {
	connected := 0
	o := tables.Options{Databases: []tables.Database{{Name: "main", Read: func(ctx context.Context, q tables.Query) (tables.Structure, error) {
		connected++
		return shop(ctx, q)
	}}}}
	if _, _, err := describe(t, o, user("sql:other/public.orders"), `{"database": "main"}`); err == nil || connected > 0 {
		t.Errorf("%d connections, %v", connected, err)
	}
	if _, _, err := describe(t, o, user("sql:main/public.orders"), `{"database": "main"}`); err != nil || connected != 1 {
		t.Errorf("%d connections, %v", connected, err)
	}
}

func TestN21_TablesErrors(t *testing.T) {
	root := toolcrib.Principal{User: "root", Admin: true}
	got, text, err := describe(t, options(), root, `{}`)
	if err != nil || len(got.Databases) != 3 || got.Databases[2].Error == "" || strings.Contains(text, "db.internal") {
		t.Errorf("%s, %v", text, err)
	}
	_, _, err = describe(t, options(), root, `{"database": "broken"}`)
	if err == nil || err.Error() != "execution failed: the database broken cannot be read now" {
		t.Errorf("got %v", err)
	}
	slow := tables.Options{Timeout: time.Nanosecond, Databases: []tables.Database{{Name: "slow", Read: func(ctx context.Context, _ tables.Query) (tables.Structure, error) {
		<-ctx.Done()
		return tables.Structure{}, ctx.Err()
	}}}}
	if _, _, err = describe(t, slow, root, `{"database": "slow"}`); err == nil || err.Error() != "execution failed: the database slow did not answer in time" {
		t.Errorf("got %v", err)
	}
}

func TestN24_TablesBounds(t *testing.T) {
	long := strings.Repeat("é", 3000)
	huge := tables.Options{Databases: []tables.Database{{Name: "huge", Read: func(_ context.Context, q tables.Query) (tables.Structure, error) {
		if q.MaxTables < 1 || q.MaxTables > 1000 || q.MaxColumns > 500 {
			t.Errorf("asked for %d tables of %d columns", q.MaxTables, q.MaxColumns)
		}
		var s tables.Structure
		for i := range 5000 {
			s.Tables = append(s.Tables, tables.Table{Schema: "s", Name: fmt.Sprintf("t%04d", i), Columns: make([]tables.Column, 2), ForeignKeys: make([]tables.ForeignKey, 2)})
		}
		s.Tables[0].Columns = make([]tables.Column, 3000)
		s.Tables[0].Columns[0] = tables.Column{Name: long, Type: long}
		return s, nil
	}}}}
	root := toolcrib.Principal{User: "root", Admin: true}
	for _, arguments := range []string{`{}`, `{"database": "huge"}`, `{"table": "t0000"}`} {
		for _, bound := range []int{0, 4096, 65536} {
			out, err := tables.New(huge)[0].Call(t.Context(), toolcrib.Call{Arguments: json.RawMessage(arguments), Principal: root, MaxBytes: bound})
			if err != nil || len(out.JSON) > 48<<10 || bound > 0 && len(out.JSON) > bound || bound != 4096 && strings.Contains(string(out.JSON), strings.Repeat("é", 200)) {
				t.Errorf("%s, at most %d: %d bytes, %v", arguments, bound, len(out.JSON), err)
			}
		}
	}
}

// More grants never show less, and nothing shows that no grant names.
func TestN19_TablesProperty(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		one := rapid.StringMatching(`(sql:)?(main|other|mai\?|\*)?/?(public|hr|p\*|\*|\?\?)?\.?(orders|customers|o\*|\*|sal\?ries)?`)
		grants := rapid.SliceOfN(one, 0, 6).Draw(r, "grants")
		all, _, err := describe(t, options(), user(grants...), `{}`)
		if err != nil {
			r.Fatal(err)
		}
		fewer := shown{}
		if len(grants) > 0 {
			if fewer, _, err = describe(t, options(), user(grants[1:]...), `{}`); err != nil {
				r.Fatal(err)
			}
		}
		set := " " + all.names() + " "
		for _, name := range strings.Fields(fewer.names()) {
			if !strings.Contains(set, " "+name+" ") {
				r.Fatalf("%v shows %s less than %v", grants, name, grants[1:])
			}
		}
		for _, name := range strings.Fields(all.names()) {
			database, table, _ := strings.Cut(name, "/")
			named := false
			for _, grant := range grants {
				rest, ok := strings.CutPrefix(grant, "sql:"+database+"/")
				named = named || ok && strings.ContainsAny(rest, "abcdefghijklmnopqrstuvwxyz") && (strings.ContainsAny(rest, "*?") || rest == table)
			}
			if !named {
				r.Fatalf("%v shows %s", grants, name)
			}
		}
	})
}
