package gate

import (
	"slices"
	"strings"
	"sync"
)

// maxPattern bounds a pattern, in bytes.
const maxPattern = 256

// Match reports whether a pattern of a list means the name. A pattern is a name in
// which * stands for any characters, none too, and ? for exactly one. A pattern
// that could be no tool's name otherwise is a bad one, and matches nothing.
func Match(pattern, name string) bool {
	// Most patterns of a list differ early from a name that they do not mean, so the
	// characters of a pattern are looked at last.
	if !glob(pattern, name) {
		return false
	}
	ok, _ := ReadPattern(pattern)
	return ok
}

// matchAgent is Match for names of agents, which may have dots.
func matchAgent(pattern, name string) bool {
	if len(pattern) > maxPattern || !glob(pattern, name) {
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

// glob matches without recursion: it goes back to the last star only, so that its
// time is at most the product of the two lengths.
func glob(pattern, name string) bool {
	p, n := 0, 0
	star, resume := -1, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, resume = p, n
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == name[n]):
			p++
			n++
		case star >= 0:
			resume++
			p, n = star+1, resume
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
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
	grantList // of names and groups; what grants nothing of a tool is left out
)

// longList is from how many entries on a list is made ready instead of read from
// its beginning for each name.
const longList = 8

// nameList is a list of patterns made ready for many names. It never changes.
type nameList struct {
	entries []string       // as they stand in the list
	exact   map[string]int // the first entry of this very text
	wild    []wildEntry    // in their order
}

// wildEntry is an entry with wildcards, parted before the first of them: most names
// are told apart by what is there.
type wildEntry struct {
	at           int
	prefix, rest string
}

func newNameList(kind listKind, entries []string) *nameList {
	l := &nameList{entries: slices.Clone(entries), exact: make(map[string]int, len(entries))}
	for i, entry := range l.entries {
		pattern, means := kind.pattern(entry)
		if !means {
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

// pattern is what an entry of a list of this kind says about names; false = nothing.
func (k listKind) pattern(entry string) (pattern string, means bool) {
	switch k {
	case skillLists:
		return entryName(entry), true
	case grantList:
		return entry, !strings.HasPrefix(entry, agentGrant) && !wildOnly(entry)
	}
	return entry, true
}

// find returns the first entry that means the name; -1 = none does. Without a list
// made ready the entries are read one by one.
func (k listKind) find(entries []string, ready *nameList, name string) int {
	if ready != nil {
		return ready.find(name)
	}
	for i, entry := range entries {
		pattern := entry
		if k == skillLists {
			pattern = entryName(entry)
		}
		if Match(pattern, name) {
			if _, means := k.pattern(entry); means {
				return i
			}
		}
	}
	return -1
}

func (l *nameList) find(name string) int {
	found := -1
	if i, ok := l.exact[name]; ok && Match(name, name) {
		found = i
	}
	for _, w := range l.wild {
		if found >= 0 && w.at > found {
			break
		}
		if strings.HasPrefix(name, w.prefix) && glob(w.rest, name[len(w.prefix):]) {
			return w.at
		}
	}
	return found
}

// findText returns the first entry that is this very text, whatever its characters;
// -1 = none is.
func (k listKind) findText(entries []string, ready *nameList, text string) int {
	if ready != nil {
		if i, ok := ready.exact[text]; ok {
			return i
		}
		return -1
	}
	for i, entry := range entries {
		if entry == text {
			if _, means := k.pattern(entry); means {
				return i
			}
		}
	}
	return -1
}

// maxLists bounds the lists that are kept ready.
const maxLists = 256

// listCache keeps long lists ready for as long as they come again. What it finds is
// compared entry by entry with what is asked for, so that a caller who changes a
// list gets what is in it now.
type listCache struct {
	mu    sync.RWMutex
	lists map[listKey]*nameList
}

// listKey is a quick look at a list.
type listKey struct {
	kind                listKind
	length              int
	first, middle, last string
}

// ready returns a list made ready; nil if it is too short to be worth it.
func (c *listCache) ready(kind listKind, entries []string) *nameList {
	n := len(entries)
	if n < longList {
		return nil
	}
	key := listKey{kind, n, entries[0], entries[n/2], entries[n-1]}
	c.mu.RLock()
	l := c.lists[key]
	c.mu.RUnlock()
	if l != nil && slices.Equal(l.entries, entries) {
		return l
	}
	l = newNameList(kind, entries)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lists == nil || len(c.lists) >= maxLists {
		c.lists = make(map[listKey]*nameList)
	}
	c.lists[key] = l
	return l
}

// readyLists are the lists of one policy that were made ready.
type readyLists [5]*nameList

const (
	readyGrants = iota
	readyAgent
	readySkill
	readyRun
	readyWorker
)

// above are the lists of the runs above that were made ready; nil = none was.
func (c *listCache) above(p *policy) (all []*nameList) {
	if p.scope == nil {
		return nil
	}
	for i, entries := range p.scope.AboveSkills {
		l := c.ready(skillLists, entries)
		if l == nil {
			continue
		}
		if all == nil {
			all = make([]*nameList, len(p.scope.AboveSkills))
		}
		all[i] = l
	}
	return all
}

func (c *listCache) of(p *policy) (r readyLists) {
	if p.who != nil {
		r[readyGrants] = c.ready(grantList, p.who.Grants)
	}
	if s := p.scope; s != nil {
		r[readyAgent], r[readyRun] = c.ready(plainList, s.AgentTools), c.ready(plainList, s.RunTools)
		r[readySkill], r[readyWorker] = c.ready(skillLists, s.SkillTools), c.ready(plainList, s.WorkerTools)
	}
	return r
}
