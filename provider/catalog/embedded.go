package catalog

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"sync"
)

//go:embed models.json
var embeddedFile []byte

var embedded = sync.OnceValue(loadEmbedded)

// Embedded is the catalog that this version of toolcrib came with. The list of a
// vendor is decoded when it is first asked for.
func Embedded() *Catalog { return embedded() }

// loadEmbedded reads the lines of the file as [Catalog.Write] makes them, and of
// each no more than the vendor: that takes a tenth of the time of reading it all,
// at the start of a program. It has no errors: a test reads the whole file as
// [Parse] does.
func loadEmbedded() *Catalog {
	head, rest, _ := bytes.Cut(embeddedFile, []byte("[\n"))
	var f file
	if err := json.Unmarshal(append(bytes.Clone(head), "null}"...), &f); err != nil {
		return new(Catalog)
	}
	c := &Catalog{info: f.info()}
	for line := range bytes.Lines(rest) {
		text := bytes.TrimRight(line, ",\n")
		vendor, _, ok := bytes.Cut(text, []byte(`,"models":`))
		var p fileProvider
		if !ok || json.Unmarshal(append(bytes.Clone(vendor), '}'), &p) != nil {
			continue // the end
		}
		c.providers = append(c.providers, provider{id: p.ID, baseURL: p.BaseURL, models: sync.OnceValue(func() []Model {
			if json.Unmarshal(text, &p) != nil {
				return nil
			}
			models, err := p.decode()
			if err != nil {
				return nil
			}
			return models
		})})
	}
	return c
}
