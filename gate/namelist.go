package gate

import (
	"slices"
	"strings"
	"sync"

	"github.com/toolcrib/toolcrib/guard"
)

// maxPattern bounds a pattern, in bytes.
const maxPattern = 256

// Match reports whether a pattern of a list matches the name. In a pattern * stands for any number
// of characters, including none, and ? for exactly one. A pattern with characters that no tool's
// name can have matches nothing.
func Match(pattern, name string) bool {
	// Most patterns of a list do not match, so the characters of the pattern are checked last.
	if !guard.Glob(pattern, name, true) {
		return false
	}
	ok, _ := ReadPattern(pattern)
	return ok
}

// matchAgent is Match for names of agents, which may contain dots.
func matchAgent(pattern, name string) bool {
	if len(pattern) > maxPattern || !guard.Glob(pattern, name, true) {
		return false
	}
	ok, _ := ReadPattern(strings.ReplaceAll(pattern, ".", "_"))
	return ok
}

// ReadPattern reports whether a pattern has only characters of tool names and wildcards,
// and whether it has wildcards.
func ReadPattern(pattern string) (ok, wild bool) {
	if pattern == "" || len(pattern) > maxPattern {
		return false, false
	}
	for i := range len(pattern) {
		switch c := pattern[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case c == '_', c == '-':
		case c == '*', c == '?':
			wild = true
		default:
			return false, false
		}
	}
	return true, wild
}

// wildOnly reports whether a pattern has nothing but wildcards, or nothing at all.
func wildOnly(pattern string) bool {
	for i := range len(pattern) {
		if pattern[i] != '*' && pattern[i] != '?' {
			return false
		}
	}
	return true
}

// listKind says how the entries of a list are read.
type listKind int

const (
	plainList listKind = iota // names and globs
	skillLists
	grantList // names and groups; entries that grant no tool are left out
	groupList // a grantList that is searched for a group, which may have any characters
)

// nameList is a long list of patterns, prepared for many lookups.
type nameList struct {
	kind    listKind
	entries []string       // entries as they are in the list
	exact   map[string]int // index of the first entry with this text
	wild    []wildEntry    // entries with wildcards, in their order
	agents  []string       // the grants of agents
}

// wildEntry is an entry with wildcards, split before the first of them. The part before it rules
// out most names.
type wildEntry struct {
	at           int
	prefix, rest string
}

func newNameList(kind listKind, entries []string) *nameList {
	l := &nameList{kind: kind, entries: entries, exact: make(map[string]int, len(entries))}
	for i, entry := range entries {
		pattern, means := kind.pattern(entry)
		if !means {
			if strings.HasPrefix(entry, agentGrant) {
				l.agents = append(l.agents, entry)
			}
			continue
		}
		if _, taken := l.exact[pattern]; !taken {
			l.exact[pattern] = i
		}
		if ok, wild := ReadPattern(pattern); ok && wild {
			first := strings.IndexAny(pattern, "*?")
			l.wild = append(l.wild, wildEntry{i, pattern[:first], pattern[first:]})
		}
	}
	return l
}

// longList is the number of entries from which on a list is prepared, maxLists the number of
// prepared lists that are kept.
const (
	longList = 8
	maxLists = 256
)

// listCache keeps long lists prepared. A lookup compares all entries, so a caller that changes a
// list gets its current entries.
type listCache struct {
	mu    sync.RWMutex
	lists []*nameList
}

func (c *listCache) ready(kind listKind, entries []string) *nameList {
	same := func(l *nameList) bool { return l.kind == kind && slices.Equal(l.entries, entries) }
	c.mu.RLock()
	lists := c.lists
	c.mu.RUnlock()
	if i := slices.IndexFunc(lists, same); i >= 0 {
		return lists[i]
	}
	l := newNameList(kind, slices.Clone(entries))
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.lists) >= maxLists {
		c.lists = nil
	}
	c.lists = append(c.lists, l)
	return l
}

// readyLists has the long lists of one policy. Without a cache no list is prepared.
type readyLists struct {
	cache *listCache
	found []foundList
}

type foundList struct {
	entries []string
	list    *nameList
}

// of returns the prepared list, or nil if the list is too short to be worth preparing.
func (r *readyLists) of(kind listKind, entries []string) *nameList {
	if r == nil || r.cache == nil || len(entries) < longList {
		return nil
	}
	for _, f := range r.found {
		if f.list.kind == kind && len(f.entries) == len(entries) && &f.entries[0] == &entries[0] {
			return f.list
		}
	}
	l := r.cache.ready(kind, entries)
	r.found = append(r.found, foundList{entries, l})
	return l
}

// pattern returns the pattern for names in an entry of a list of this kind, and reports whether
// there is one.
func (k listKind) pattern(entry string) (pattern string, means bool) {
	switch k {
	case skillLists:
		return entryName(entry), true
	case grantList, groupList:
		return entry, !strings.HasPrefix(entry, agentGrant) && !wildOnly(entry)
	}
	return entry, true
}

// find returns the index of the first entry that matches the name, or -1. A list that is not
// prepared is searched entry by entry.
func (k listKind) find(entries []string, ready *readyLists, name string) int {
	if l := ready.of(min(k, grantList), entries); l != nil { // groups are looked up in the prepared list of grants
		return l.find(k, name)
	}
	return slices.IndexFunc(entries, func(entry string) bool {
		pattern, means := k.pattern(entry)
		return means && (Match(pattern, name) || k == groupList && pattern == name)
	})
}

func (l *nameList) find(k listKind, name string) int {
	found, ok := l.exact[name]
	if ok && k != groupList {
		ok, _ = ReadPattern(name)
	}
	if !ok {
		found = -1
	}
	for _, w := range l.wild {
		if found >= 0 && w.at > found {
			break
		}
		if strings.HasPrefix(name, w.prefix) && guard.Glob(w.rest, name[len(w.prefix):], true) {
			return w.at
		}
	}
	return found
}
