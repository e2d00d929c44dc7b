package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
)

type secrets map[string]string

func (s secrets) Secret(name string) (string, error) {
	if name == "broken" {
		return "", errors.New("s3cr3t detail")
	}
	if name == "damaged" {
		return "", fmt.Errorf("s3cr3t detail: %w", &config.SecretError{Message: "restore a copy"})
	}
	if text, ok := s[name]; ok {
		return text, nil
	}
	return "", fmt.Errorf("secret %s: %w", name, toolcrib.ErrNotFound)
}

func environment(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { text, ok := vars[name]; return text, ok }
}

func TestN5_ReferencesAreFilledInAtUse(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "key.txt"), []byte("from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	resolver := config.Resolver{LookupEnv: environment(map[string]string{"KEY": "from-env", "EMPTY": ""}), Secrets: secrets{"k": "from-store"}}
	for text, want := range map[string]string{
		"${env:KEY}": "from-env", "${file:key.txt}": "from-file", "${secret:k}": "from-store", "a-${env:KEY}-${secret:k}": "a-from-env-from-store",
		"$${env:KEY}": "${env:KEY}", "plain": "plain", "$x": "$x",
		"${env:NO}":         "!toolcrib.yaml:1: providers.openai.api_key: the environment variable NO is not set; set it, or store the key with `toolcrib secret set NO` and write ${secret:NO} there",
		"${env:EMPTY}":      "!toolcrib.yaml:1: providers.openai.api_key: the environment variable EMPTY is empty; set it, or store the key with `toolcrib secret set EMPTY` and write ${secret:EMPTY} there",
		"${file:no.txt}":    "!toolcrib.yaml:1: providers.openai.api_key: the file no.txt does not exist",
		"${file:.}":         "!toolcrib.yaml:1: providers.openai.api_key: the file . is a directory, not a file",
		"${file:/dev/zero}": "!toolcrib.yaml:1: providers.openai.api_key: the file /dev/zero is not a regular file",
		"${secret:no}":      "!toolcrib.yaml:1: providers.openai.api_key: no secret no is stored; store it with `toolcrib secret set no`, or use ${env:…} or ${file:…}",
		"${secret:broken}":  "!toolcrib.yaml:1: providers.openai.api_key: the secret broken cannot be read",
		"${secret:damaged}": "!toolcrib.yaml:1: providers.openai.api_key: the secret damaged cannot be read: restore a copy",
	} {
		c, err := config.Parse(filepath.Join(dir, "toolcrib.yaml"), []byte("providers: {openai: {api_key: '"+text+"'}}"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.Providers["openai"].APIKey.Resolve(resolver)
		if err != nil {
			got = "!" + strings.TrimPrefix(err.Error(), dir+"/")
		}
		if got != want {
			t.Errorf("%s = %s, want %s", text, got, want)
		}
	}
	c := mustParse(t, "providers: {openai: {api_key: '${secret:k}'}}")
	if _, err := c.Providers["openai"].APIKey.Resolve(config.Resolver{}); err == nil ||
		!strings.Contains(err.Error(), "no secret k is stored") {
		t.Errorf("without a store: %v", err)
	}
}

func TestN21_WhatIsFilledInIsKnownAsSecret(t *testing.T) {
	c := mustParse(t, `
data_dir: "${env:HOME}/data"
database: "postgres://u:${env:PW}@h/db"
providers:
  openai: {api_key: "${env:KEY}", proxy: "${env:URL}", headers: {Authorization: "Bearer ${env:TOKEN}"}}
  anthropic: {api_key: literal-key}
mcpServers: {x: {command: c, args: ["--x", "${env:ARG}"], env: {HOME: "${env:HOME}", PLAIN: production, T: "${secret:s}"}}}
agents: {default: {system: "${env:PROMPT}"}}
`)
	var found []string
	resolver := config.Resolver{
		LookupEnv: environment(map[string]string{
			"HOME": "/h", "PW": "p%40ss", "KEY": "kkkk", "URL": "https://u:urlpass@h/v1", "TOKEN": "tttt", "ARG": "aaaa", "PROMPT": "be kind",
		}),
		Secrets:  secrets{"s": "ssss"},
		OnSecret: func(s guard.Secret) { found = append(found, s.Name+"="+s.Value) },
	}
	resolve := func(v config.Value) {
		t.Helper()
		if _, err := v.Resolve(resolver); err != nil {
			t.Error(err)
		}
	}
	resolve(c.DataDir)
	resolve(c.Database)
	for _, p := range c.Providers {
		resolve(p.APIKey)
		resolve(p.Proxy)
		for _, h := range p.Headers {
			resolve(h)
		}
	}
	for _, a := range c.MCPServers["x"].Args {
		resolve(a)
	}
	for _, e := range c.MCPServers["x"].Env {
		resolve(e)
	}
	if agent, err := c.Agent("", resolver); err != nil || agent.System != "be kind" {
		t.Errorf("%+v, %v", agent, err)
	}
	slices.Sort(found)
	want := []string{
		"ARG=aaaa", "KEY=kkkk", "PW=p%40ss", "PW=p@ss", "TOKEN=Bearer tttt", "TOKEN=tttt", "URL=urlpass",
		"providers.anthropic.api_key=literal-key", "s=ssss",
	}
	if got := slices.Compact(found); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestN21_PrintingAValueMasksIt(t *testing.T) {
	key := mustParse(t, "providers: {openai: {api_key: s3cr3t}}").Providers["openai"]
	for _, text := range []string{fmt.Sprint(key), fmt.Sprintf("%+v", key), fmt.Sprintf("%#v", key), fmt.Sprintf("%s %q", key.APIKey, key.APIKey)} {
		if strings.Contains(text, "s3cr3t") {
			t.Errorf("shown: %s", text)
		}
	}
}

func TestN5_DefaultsFollowXDG(t *testing.T) {
	data, own := t.TempDir(), t.TempDir()
	t.Setenv("XDG_DATA_HOME", data)
	t.Setenv("XDG_CONFIG_HOME", own)
	written := mustParse(t, "data_dir: ~/.local/share/toolcrib")
	for _, c := range []struct {
		value config.Value
		want  string
	}{
		{config.Default().DataDir, filepath.Join(data, "toolcrib")},
		{config.Default().Skills.Dirs[3], filepath.Join(own, "toolcrib", "skills")},
		{written.DataDir, filepath.Join(os.Getenv("HOME"), ".local/share/toolcrib")},
	} {
		if got, err := c.value.Resolve(config.Resolver{}); got != c.want || err != nil {
			t.Errorf("%s = %s, %v; want %s", c.value, got, err, c.want)
		}
	}
}

func TestN5_PathsCountFromTheFile(t *testing.T) {
	home, work, base := t.TempDir(), t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	t.Chdir(work)
	parse := func(text string) *config.Config {
		c, err := config.Parse(filepath.Join(base, "toolcrib.yaml"), []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	t.Setenv("XDG_CONFIG_HOME", "not/absolute")
	written := parse("workspace: sub\nkeys: k\ndata_dir: ~/d\nlog: {file: /l}\nskills: {dirs: [./skills]}\nproviders: {s: {type: script, file: r.yaml}}\n")
	bare := parse("workspace: .\n")
	for _, c := range []struct {
		value config.Value
		want  string
	}{
		{written.Workspace, filepath.Join(base, "sub")},
		{written.Keys, filepath.Join(base, "k")},
		{written.DataDir, filepath.Join(home, "d")},
		{written.Log.File, "/l"},
		{written.Skills.Dirs[0], filepath.Join(base, "skills")},
		{written.Providers["s"].File, filepath.Join(base, "r.yaml")},
		{bare.Workspace, work},
		{bare.Skills.Dirs[0], filepath.Join(work, "skills")},
		{bare.Skills.Dirs[3], filepath.Join(home, ".config/toolcrib/skills")},
		{bare.DataDir, filepath.Join(home, ".local/share/toolcrib")},
		{bare.Keys, ""},
		{config.Default().Workspace, work},
	} {
		if got, err := c.value.Resolve(config.Resolver{}); got != c.want || err != nil {
			t.Errorf("%s = %s, %v; want %s", c.value, got, err, c.want)
		}
	}
}

func TestN5_ResolvedValuesAreCheckedToo(t *testing.T) {
	c := mustParse(t, "listen: '127.0.0.1:${env:PORT}'\n")
	for port, want := range map[string]string{
		"80": "", "http": "toolcrib.yaml:1: listen: must end in a port from 0 to 65535, once its references are filled in",
	} {
		_, err := c.Listen.Resolve(config.Resolver{LookupEnv: environment(map[string]string{"PORT": port})})
		if (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%s: %v", port, err)
		}
	}
}

func TestN5_AllSecretsAreFound(t *testing.T) {
	c, err := config.Parse("toolcrib.yaml", []byte(`
workspace: "${env:PLACE}"
providers: {a: {type: openai, api_key: "${secret:k}"}, b: {type: openai, api_key: "${secret:no}"}, c: {type: openai, api_key: "${env:KEY}"}}
sql: {main: {url: "postgres://u:${secret:p}@h/x"}}
`))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	c.FindSecrets(config.Resolver{
		LookupEnv: environment(map[string]string{"KEY": "from-env", "PLACE": "/srv"}), Secrets: secrets{"k": "from-store", "p": "password"},
		OnSecret: func(s guard.Secret) { found = append(found, s.Value) },
	})
	for _, want := range []string{"from-env", "from-store", "password"} {
		if !slices.Contains(found, want) {
			t.Errorf("%s is not among %q", want, found)
		}
	}
	if slices.Contains(found, "/srv") {
		t.Errorf("a path is no secret: %q", found)
	}
}
