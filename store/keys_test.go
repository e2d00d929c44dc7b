package store_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/store"
)

func TestKeysRoundTrip(t *testing.T) {
	a, b := store.NewKeys(), store.NewKeys()
	if bytes.Equal(a.Text(), b.Text()) {
		t.Fatal("two keys are the same")
	}
	got, err := store.ParseKeys(append([]byte("\r\n"), bytes.ReplaceAll(a.Text(), []byte("\n"), []byte("\r\n"))...))
	if err != nil || !bytes.Equal(got.Text(), a.Text()) {
		t.Errorf("read as %s, error %v", got.Text(), err)
	}
}

// The vectors were made by another program; sealed heads depend on them.
func TestKeysVectors(t *testing.T) {
	k, err := store.ParseKeys([]byte("toolcrib keys 1\nroot " + strings.Repeat("0b", 32) + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(k.Derive("system journal head")); got != "b560a6917bb67aaf63d2afd27ec7f0207363d0c6871cb0f595c2b8f971f3f82b" {
		t.Errorf("derived key %s", got)
	}
	if got := hex.EncodeToString(k.HeadMAC(7, 3, []byte("hash"))); got != "259f643238420ce0a952d7dfd10d64a1ee445cad900b2a389bc7febbd69e3feb" {
		t.Errorf("seal %s", got)
	}
	if bytes.Equal(k.Derive("a"), k.Derive("b")) {
		t.Error("two purposes have one key")
	}
}

func TestKeysRefused(t *testing.T) {
	root := "root " + strings.Repeat("ab", 32)
	for name, text := range map[string]string{
		"empty":    "",
		"no title": root,
		"later":    "toolcrib keys 2\n" + root,
		"no key":   "toolcrib keys 1\n",
		"short":    "toolcrib keys 1\nroot abab",
		"no hex":   "toolcrib keys 1\nroot " + strings.Repeat("xy", 32),
		"two":      "toolcrib keys 1\n" + root + "\n" + root,
		"unknown":  "toolcrib keys 1\n" + root + "\nother 00",
		"large":    "toolcrib keys 1\n" + root + strings.Repeat("\n", store.MaxKeysBytes),
	} {
		k, err := store.ParseKeys([]byte(text))
		if err == nil {
			t.Errorf("%s: read as %s", name, k.Text())
			continue
		}
		if strings.Contains(err.Error(), "abab") {
			t.Errorf("%s: the error tells the key: %v", name, err)
		}
	}
}

func TestKeysAreNotPrinted(t *testing.T) {
	k := store.NewKeys()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d", "%q"} {
		if got := fmt.Sprintf(verb, k); got != "keys" {
			t.Errorf("%s prints %s", verb, got)
		}
	}
}
