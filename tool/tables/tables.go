// Package tables implements describe_tables: the structure of configured databases, never their content.
// Each package below it reads one kind of database.
package tables

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
)

const (
	// Name is the name of the tool.
	Name = "describe_tables"
	// Group is the group of the tool.
	Group = "sql"
	// Target is the kind of the tool's targets, which are named by databases.
	Target = "sql"

	maxListed    = 1000 // tables of a database, if only their names are listed
	maxDescribed = 100  // tables with their columns
	maxColumns   = 500  // columns of a table
	maxBytes     = 48 << 10
	maxText      = 256 // bytes of a name or type

	defaultTimeout = 10 * time.Second // for one database
	maxAtOnce      = 4                // connections of one tool
)

// Database is a configured database (sql: {name: {url}}).
type Database struct {
	Name string
	// Read reads the structure. Each call makes a new read-only connection and closes it. Its errors
	// are for operators, and contain neither password nor URL.
	Read func(ctx context.Context, q Query) (Structure, error)
}

// Query selects a part of a database.
type Query struct {
	Schema, Table string // if "", any
	// Want reports whether a table is selected, in addition to Schema and Table.
	Want func(schema, table string) bool
	// Columns requests columns and keys in addition to names.
	Columns bool
	// The bounds of tables and of the columns of each.
	MaxTables, MaxColumns int
}

// Matches reports whether a table is selected.
func (q Query) Matches(schema, table string) bool {
	return (q.Schema == "" || q.Schema == schema) && (q.Table == "" || q.Table == table) && q.Want != nil &&
		q.Want(schema, table)
}

// Safe returns an error of a kind of database with its secrets, such as its address, masked.
func Safe(kind string, err error, secrets ...string) error {
	if err == nil {
		return nil
	}
	for _, ended := range []error{context.DeadlineExceeded, context.Canceled} {
		if errors.Is(err, ended) {
			return ended
		}
	}
	text, known := err.Error(), guard.NewMasker()
	for _, s := range secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, guard.Redacted)
			known.Learn(guard.Secret{Name: "address", Value: s}) // also in other spellings
		}
	}
	return errors.New(kind + ": " + guard.RedactText(known.Mask(text)))
}

// Structure is the structure of a database, sorted by schema and name.
type Structure struct {
	Kind   string // sqlite | postgresql
	Tables []Table
	More   bool // whether there are other tables
}

// Table is a table or a view.
type Table struct {
	Schema      string       `json:"schema"`
	Name        string       `json:"name"`
	Kind        string       `json:"kind"` // table | view | materialized view | foreign table | virtual table
	Columns     []Column     `json:"columns,omitempty"`
	PrimaryKey  []string     `json:"primary_key,omitempty"`
	ForeignKeys []ForeignKey `json:"foreign_keys,omitempty"`
	More        bool         `json:"more_columns,omitempty"`
}

// Column is a column of a table.
type Column struct {
	Name     string `json:"name"`
	Type     string `json:"type"` // in the database's own terms
	Nullable bool   `json:"nullable"`
}

// ForeignKey is a reference of columns to those of another table.
type ForeignKey struct {
	Columns    []string `json:"columns"`
	Schema     string   `json:"schema"`
	Table      string   `json:"table"`
	References []string `json:"references,omitempty"` // if empty, its primary key
}

// Options are the options of [New].
type Options struct {
	// Databases are the databases, with distinct names.
	Databases []Database
	// Timeout bounds the time for one database. If 0, it is 10 s.
	Timeout time.Duration
}

// New returns describe_tables, or nothing without a database.
func New(options Options) []toolcrib.Tool {
	if len(options.Databases) == 0 {
		return nil
	}
	if options.Timeout <= 0 {
		options.Timeout = defaultTimeout
	}
	return []toolcrib.Tool{&describe{options: options, slots: make(chan struct{}, maxAtOnce)}}
}

const parameters = `{
	"type": "object",
	"properties": {
		"database": {"type": "string", "minLength": 1, "maxLength": 128, "description": "Name of a database. Default: all that you may see, by the names of their tables only."},
		"schema": {"type": "string", "minLength": 1, "maxLength": 256, "description": "Only tables of this schema (SQLite: main)."},
		"table": {"type": "string", "minLength": 1, "maxLength": 256, "description": "Only this table."}
	},
	"additionalProperties": false
}`

type describe struct {
	options Options
	slots   chan struct{} // contains one element per connection
}

type input struct {
	Database string `json:"database"`
	Schema   string `json:"schema"`
	Table    string `json:"table"`
}

type result struct {
	Databases []shownDatabase `json:"databases"`
	Message   string          `json:"message,omitempty"`
	Truncated bool            `json:"truncated,omitempty"` // there are more tables: name a schema or a table
}

type shownDatabase struct {
	Name   string  `json:"name"`
	Kind   string  `json:"kind,omitempty"`
	Tables []Table `json:"tables"`
	Error  string  `json:"error,omitempty"`
}

// Spec describes describe_tables.
func (t *describe) Spec() toolcrib.Spec {
	s := wire.Spec(Group, Name, "Show the tables of databases that you may see: columns with types, "+
		"primary and foreign keys; never their data. Without arguments: the names of all tables.", parameters, toolcrib.EffectReadOnly)
	s.Plans = toolcrib.PlanFacts{Targets: true, Policy: true}
	return s
}

func read(call toolcrib.Call) (input, error) {
	var in input
	if err := wire.Decode(call.Arguments, &in); err != nil {
		return in, err
	}
	if call.Principal.User == "" {
		return in, toolcrib.Failf(toolcrib.PermissionDenied, "this call has no user")
	}
	return in, nil
}

// Plan decodes the arguments. It refuses a call without a user. The database is a target if the call
// names one.
func (t *describe) Plan(_ context.Context, call toolcrib.Call) (*toolcrib.Plan, error) {
	in, err := read(call)
	if err != nil {
		return nil, err
	}
	plan := &toolcrib.Plan{Run: func(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
		return t.show(ctx, call, in)
	}}
	if in.Database != "" {
		plan.Targets = []toolcrib.Target{{Kind: Target, Name: in.Database}}
	}
	return plan, nil
}

// Call plans the call and runs the plan.
func (t *describe) Call(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	return toolcrib.RunPlan(ctx, t, call)
}

// show returns the parts of the databases that the acting user's grants name. The result for a database or table is
// the same if it does not exist and if it is not permitted; in the latter case no connection is made.
func (t *describe) show(ctx context.Context, call toolcrib.Call, in input) (toolcrib.Output, error) {
	found, room, tables := result{Databases: []shownDatabase{}}, maxBytes, 0
	if call.MaxBytes > 0 {
		room = min(room, call.MaxBytes)
	}
	room -= 256
	for _, d := range t.options.Databases {
		if in.Database != "" && in.Database != d.Name || !mayConnect(call.Principal, d.Name) {
			continue
		}
		shown, more, err := t.one(ctx, call.Principal, d, in)
		if err != nil && (in.Database != "" || ctx.Err() != nil) {
			return toolcrib.Output{}, err
		}
		if err != nil {
			shown.Error = "the database cannot be read now"
		}
		tables += len(shown.Tables)
		found.Truncated = shown.fit(&room) || more || found.Truncated
		found.Databases = append(found.Databases, shown)
	}
	if err := nothing(in, found, tables); err != nil {
		return toolcrib.Output{}, err
	}
	if len(found.Databases) == 0 {
		found.Message = "there is no table that you may see"
	}
	out, err := wire.Output(found)
	out.Cut = found.Truncated
	return out, err
}

// nothing returns the error for names that do not exist or are not permitted.
func nothing(in input, found result, tables int) error {
	if in.Database != "" && len(found.Databases) == 0 {
		return toolcrib.Failf(toolcrib.NotFound, "there is no database %q, or you may not see any of its tables", in.Database)
	}
	for _, d := range found.Databases {
		if d.Error != "" {
			return nil
		}
	}
	if tables == 0 && (in.Table != "" || in.Schema != "") {
		return toolcrib.Failf(toolcrib.NotFound, "there is no such table, or you may not see it")
	}
	return nil
}

// one reads one database.
func (t *describe) one(ctx context.Context, who toolcrib.Principal, d Database, in input) (shownDatabase, bool, error) {
	shown := shownDatabase{Name: d.Name, Tables: []Table{}}
	select {
	case t.slots <- struct{}{}:
		defer func() { <-t.slots }()
	case <-ctx.Done():
		return shown, false, ctx.Err()
	}
	may := permitted(who, d.Name)
	q := Query{Schema: in.Schema, Table: in.Table, Want: may, MaxTables: maxListed, MaxColumns: maxColumns}
	if in != (input{}) {
		q.Columns, q.MaxTables = true, maxDescribed
	}
	limited, cancel := context.WithTimeout(ctx, t.options.Timeout)
	defer cancel()
	structure, err := d.Read(limited, q)
	if err != nil {
		if ctx.Err() != nil {
			return shown, false, ctx.Err()
		}
		return shown, false, failure(d.Name, err)
	}
	shown.Kind = structure.Kind
	for _, table := range structure.Tables {
		// Only permitted tables are shown, regardless of the result of Read.
		if q.Matches(table.Schema, table.Name) {
			shown.Tables = append(shown.Tables, table.visible(may))
		}
	}
	return shown, structure.More, nil
}

func failure(name string, err error) error {
	message := "the database " + name + " cannot be read now"
	if errors.Is(err, context.DeadlineExceeded) {
		message = "the database " + name + " did not answer in time"
	}
	return &toolcrib.ToolError{Kind: toolcrib.ExecutionFailed, Message: message, Err: err}
}

// visible returns the table without references to tables that are not permitted.
func (table Table) visible(may func(schema, table string) bool) Table {
	shown := Table{
		Schema: table.Schema, Name: table.Name, Kind: table.Kind, More: table.More,
		PrimaryKey: cutAll(table.PrimaryKey),
	}
	for _, c := range table.Columns {
		shown.Columns = append(shown.Columns, Column{cut(c.Name), cut(c.Type), c.Nullable})
	}
	for _, k := range table.ForeignKeys {
		if may(k.Schema, k.Table) && len(shown.ForeignKeys) < maxColumns {
			shown.ForeignKeys = append(shown.ForeignKeys, ForeignKey{
				cutAll(k.Columns), cut(k.Schema), cut(k.Table),
				cutAll(k.References),
			})
		}
	}
	shown.Schema, shown.Name = cut(shown.Schema), cut(shown.Name)
	return shown
}

// fit removes tables from the end, until the rest fits the room.
func (d *shownDatabase) fit(room *int) (cutOff bool) {
	*room -= len(d.Name) + len(d.Error) + 64
	for i, table := range d.Tables {
		data, err := wire.Marshal(table)
		if *room -= len(data) + 1; err != nil || *room < 0 {
			d.Tables = d.Tables[:i]
			return true
		}
	}
	return false
}

func cutAll(all []string) []string {
	var kept []string
	for _, s := range all[:min(len(all), maxColumns)] {
		kept = append(kept, cut(s))
	}
	return kept
}

func cut(s string) string { return guard.Clip(s, maxText) }
