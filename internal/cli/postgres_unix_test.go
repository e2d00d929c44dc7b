//go:build unix

package cli_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/postgrestest"
	"github.com/toolcrib/toolcrib/store/postgres"
)

// databaseVariable is the address of the template of the databases of a script; "" = each is a file in its data folder.
// keysVariable is the path of the template's keys.
const (
	databaseVariable = "DATABASE_TEMPLATE"
	keysVariable     = "DATABASE_KEYS"
)

// onFiles matches scripts about the database file or the data folder, or whose own programs have another environment.
var onFiles = regexp.MustCompile(`toolcrib\.db|toolcrib( --\S+ \S+)* backup|was reloaded|! exists \$DATA|! exists none|` +
	`(?m)^(sqlite|spoil|forge|putback|holdlock|filelimit|bigfile|hook decides|together) `)

// shared matches the names of scripts about what several servers have in common besides runs. They always run.
var shared = regexp.MustCompile(`^(memory|mcplogin|secret.*)\.txtar$`)

var everyScript = flag.Bool("every-script", false, "run every script on PostgreSQL, not only a sample")

// TestScripts_PostgreSQL runs scripts of TestScripts with their data in PostgreSQL, a database for each data folder.
func TestScripts_PostgreSQL(t *testing.T) {
	t.Parallel()
	server := startPostgreSQL(t)
	template := server.URL("template_of_scripts").String()
	execute(t, server.URL("postgres").String(), "CREATE DATABASE template_of_scripts")
	keys := filepath.Join(t.TempDir(), "keys")
	if _, err := postgres.Migrate(t.Context(), template, postgres.MigrateOptions{Keys: keys}); err != nil {
		t.Fatal(err)
	}
	p := scripts(t)
	all, err := filepath.Glob(filepath.Join(p.Dir, "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	p.Dir, p.Files = "", nil
	for i, path := range all {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if shared.MatchString(filepath.Base(path)) || !onFiles.Match(text) && (*everyScript || i%8 == 0) {
			p.Files = append(p.Files, path)
		}
	}
	p.Condition = func(cond string) (bool, error) {
		if cond == "postgres" {
			return true, nil
		}
		return condition(cond, false)
	}
	local := p.Setup
	p.Setup = func(env *testscript.Env) error {
		if err := local(env); err != nil {
			return err
		}
		// Only the test's own program knows of the variable.
		env.Setenv("PATH", strings.TrimPrefix(env.Getenv("PATH"), plainBinary(t)+string(os.PathListSeparator)))
		env.Setenv(databaseVariable, template)
		env.Setenv(keysVariable, keys)
		return nil
	}
	testscript.Run(t, p)
}

// TestShared_PostgreSQL runs the scripts of testdata/postgres, each with an empty database, $CRIB_DATABASE.
func TestShared_PostgreSQL(t *testing.T) {
	t.Parallel()
	server := startPostgreSQL(t)
	p := scripts(t)
	p.Dir = filepath.Join("testdata", "postgres")
	setup := p.Setup
	p.Setup = func(env *testscript.Env) error {
		if err := setup(env); err != nil {
			return err
		}
		name := "shared_" + strings.TrimSuffix(filepath.Base(env.WorkDir), ".txtar")
		name = strings.NewReplacer("-", "_").Replace(name)
		execute(t, server.URL("postgres").String(), "CREATE DATABASE "+name)
		env.Setenv("CRIB_DATABASE", server.URL(name).String())
		env.Setenv("PATH", env.Getenv("PATH")+string(os.PathListSeparator)+server.Programs())
		return nil
	}
	testscript.Run(t, p)
}

func startPostgreSQL(t *testing.T) *postgrestest.Server {
	t.Helper()
	server, err := postgrestest.Start(t.Context(), "shared_buffers=64MB", "max_connections=200")
	if errors.Is(err, postgrestest.ErrMissing) {
		t.Skip("SKIPPED: ", err, "; the command line was not tried with PostgreSQL")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// The first server on a new database needs no data folder: the token of the administrator is kept in a new one.
func TestServe_PostgreSQL(t *testing.T) {
	t.Parallel()
	dir, address := t.TempDir(), startPostgreSQL(t).URL("postgres").String()
	keys, config := filepath.Join(dir, "keys"), filepath.Join(dir, "crib.yaml")
	_, err := postgres.Migrate(t.Context(), address, postgres.MigrateOptions{Keys: keys})
	text := fmt.Sprintf("database: '%s'\nkeys: '%s'\ndata_dir: '%s/data'\n", address, keys, dir)
	if err = errors.Join(err, os.WriteFile(config, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	serve := exec.CommandContext(t.Context(), filepath.Join(plainBinary(t), "toolcrib"), "--config", config, "serve", "--listen", "127.0.0.1:0")
	serve.Env = append(os.Environ(), "HOME="+dir)
	said, err := serve.StderrPipe()
	if err = errors.Join(err, serve.Start()); err != nil {
		t.Fatal(err)
	}
	all := ""
	for lines := bufio.NewScanner(said); !strings.Contains(all, "listens on ") && lines.Scan(); {
		all += lines.Text() + "\n"
	}
	if token, err := os.ReadFile(filepath.Join(dir, "data", "first-token")); err != nil || len(token) < 20 {
		t.Errorf("the token is %q: %v; the server says\n%s", token, err, all)
	}
	_ = serve.Process.Kill()
	_ = serve.Wait() // it was killed
}

// TestGuides_PostgreSQL runs the lines of docs/grow.md as they stand, with a server of the test as db.example.
func TestGuides_PostgreSQL(t *testing.T) {
	t.Parallel()
	server := startPostgreSQL(t)
	p := scripts(t)
	p.Dir = t.TempDir()
	script := guideScript(t, "docs/grow.md", guide{before: "toolcrib run hello", lines: map[string]how{
		`toolcrib --data-dir back runs verify`:             {prints: "everything: 1 run"},
		`toolcrib --config crib.yaml doctor`:               {prints: "✓ database +postgres://.*/crib: opens, and is whole"},
		`toolcrib --config crib.yaml run "List the files"`: {prints: "list_directory"},
		`toolcrib --config crib.yaml runs list`:            {prints: "completed"},
		`CRIB_DATABASE=postgres://crib:change-me-too@db.example/restored toolcrib --config crib.yaml runs verify`: {
			prints: "everything: 1 run",
		},
	}})
	if err := os.WriteFile(filepath.Join(p.Dir, "grow.txtar"), []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	setup := p.Setup
	p.Setup = func(env *testscript.Env) error {
		if err := setup(env); err != nil {
			return err
		}
		at := server.URL("postgres")
		password, _ := at.User.Password()
		state := fmt.Sprintf("export WORK='%s' PGHOST='%s' PGUSER=%s PGPASSWORD=%s PATH=\"$PATH:%s\"\n", env.WorkDir,
			at.Query().Get("host"), at.User.Username(), password, server.Programs())
		return os.WriteFile(filepath.Join(env.WorkDir, "state"), []byte(state), 0o600)
	}
	testscript.Run(t, p)
}

func execute(t *testing.T, address, statement string) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), address)
	if err == nil {
		_, err = c.Exec(t.Context(), statement)
		err = errors.Join(err, c.Close(context.WithoutCancel(t.Context())))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// inPostgreSQL returns a function that puts the data of a configuration without a database into one of its own, a copy
// of a template, at the first use of its data folder.
func inPostgreSQL(template string) func(c *config.Config, dataDir string) {
	return func(c *config.Config, dataDir string) {
		if !c.Database.IsEmpty() {
			return
		}
		address, err := databaseOf(context.Background(), template, dataDir)
		if err == nil {
			var own *config.Config
			own, err = config.Parse("of the test", []byte("database: '"+address+"'\n"))
			if err == nil {
				c.Database = own.Database
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "the database of the script:", err)
			os.Exit(99)
		}
	}
}

func databaseOf(ctx context.Context, template, dataDir string) (string, error) {
	sum := sha256.Sum256([]byte(dataDir))
	name := "script_" + hex.EncodeToString(sum[:12])
	at, err := url.Parse(template)
	if err != nil {
		return "", err
	}
	from := strings.TrimPrefix(at.Path, "/")
	at.Path = "/postgres"
	c, err := pgx.Connect(ctx, at.String())
	if err != nil {
		return "", err
	}
	defer c.Close(ctx) //nolint:errcheck // every statement was answered
	var known bool
	if err := c.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM pg_database WHERE datname = $1)", name).Scan(&known); err != nil {
		return "", err
	}
	if !known {
		_, err := c.Exec(ctx, "SELECT pg_advisory_lock(1)") // a template has no other users
		if err == nil {
			_, err = c.Exec(ctx, fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s", name, from))
		}
		var taken *pgconn.PgError
		if errors.As(err, &taken) && (taken.Code == "42P04" || taken.Code == "23505") {
			err = nil
		}
		if err != nil {
			return "", err
		}
		keys, err := os.ReadFile(os.Getenv(keysVariable))
		if err == nil {
			err = os.MkdirAll(dataDir, 0o700)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dataDir, "keys"), keys, 0o600)
		}
		if err != nil {
			return "", err
		}
	}
	at.Path = "/" + name
	return at.String(), nil
}
