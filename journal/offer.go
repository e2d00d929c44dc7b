package journal

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// Offer is the set of tools that a request may offer to the model.
type Offer struct {
	Hash  string        `json:"hash"` // changes if and only if Tools changes
	Tools []OfferedTool `json:"tools"`
	Bytes int64         `json:"bytes,omitempty"` // size of the specs in a request
	// Finder is the tool with which a model finds the tools whose specs are not in every
	// request. If "", all of them are.
	Finder string `json:"finder,omitempty"`
}

// OfferedTool names a tool and the version of its spec (hex SHA-256 of its JSON).
type OfferedTool struct {
	Name string `json:"name"`
	Hash string `json:"hash"`
	// Bytes and Shown are set if there is a Finder: the size of the spec, and whether it is
	// in every request.
	Bytes int  `json:"bytes,omitempty"`
	Shown bool `json:"shown,omitempty"`
}

// Names returns the names of the offered tools; never nil.
func (o Offer) Names() []string {
	names := make([]string, len(o.Tools))
	for i, t := range o.Tools {
		names[i] = t.Name
	}
	return names
}

// Set returns the names of the offered tools, in a new map each time.
func (o Offer) Set() map[string]bool {
	set := make(map[string]bool, len(o.Tools))
	for i := range o.Tools {
		set[o.Tools[i].Name] = true
	}
	return set
}

// Find returns the index of a tool or, if ok is false, where a tool of this name would be.
func (o Offer) Find(name string) (i int, ok bool) {
	return slices.BinarySearchFunc(o.Tools, name, func(t OfferedTool, name string) int {
		return strings.Compare(t.Name, name)
	})
}

// Shown returns the indices of the tools that a model is shown, nil for all: those from the start, then
// the found ones in their order, so that a request begins like the one before it.
func (o Offer) Shown(found []string) []int {
	if o.Finder == "" {
		return nil
	}
	shown := make([]int, 0, len(found)+16)
	for i := range o.Tools {
		if o.Tools[i].Shown {
			shown = append(shown, i)
		}
	}
	for _, name := range found {
		if i, ok := o.Find(name); ok && !o.Tools[i].Shown {
			shown = append(shown, i)
		}
	}
	return shown
}

// HashOf returns the hash of the tools that a model is shown. If shown is nil, all are.
func (o Offer) HashOf(shown []int) string {
	if shown == nil {
		return o.Hash
	}
	all := make([]byte, 0, 2*sha256.Size*len(shown))
	for _, i := range shown {
		all = append(all, o.Tools[i].Hash...)
	}
	sum := sha256.Sum256(all)
	return hex.EncodeToString(sum[:])
}
