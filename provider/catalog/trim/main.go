// Command trim rebuilds the embedded catalog from a release of catwalk: of all
// files in its folder of providers, what toolcrib needs.
//
//	go mod download -json charm.land/catwalk@VERSION   # prints the folder
//	go run ./provider/catalog/trim -version VERSION -date DATE FOLDER/internal/providers/configs > models.json
//	mv models.json provider/catalog/models.json
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/toolcrib/toolcrib/provider/catalog"
)

func main() {
	version := flag.String("version", "", "of catwalk")
	date := flag.String("date", "", "of that version, YYYY-MM-DD")
	flag.Parse()
	if err := run(*version, *date, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "trim:", err)
		os.Exit(1)
	}
}

func run(version, date, folder string) error {
	names, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil || len(names) == 0 || version == "" || date == "" {
		return errors.Join(errors.New("give -version, -date and the folder of catwalk's providers"), err)
	}
	var texts [][]byte
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		texts = append(texts, text)
	}
	all, err := catalog.Parse(io.MultiReader(strings.NewReader("["), bytes.NewReader(bytes.Join(texts, []byte(","))),
		strings.NewReader("]")))
	if err != nil {
		return err
	}
	return all.Dated(version, date).Write(os.Stdout)
}
