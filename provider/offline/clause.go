package offline

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// clause is one question or order of a prompt.
type clause struct {
	raw     string   // as it was written
	text    string   // the same with each quoted text replaced by a mark: ‹0›, ‹1› …
	quotes  []string // the quoted texts, without their quotes
	files   []string // paths that it names, or that "it" stands for
	folder  string   // the folder that it is about; "" = the workspace
	glob    string   // the kind of files that it is about; "" = any
	kind    string   // that kind in words
	content string   // what is to be written: the text after the colon
	plain   bool     // nothing is asked but to read the files
	words   []string // words that could be names of files, in an order to read
}

var (
	quoted = regexp.MustCompile("(?s)```[a-zA-Z]*\\n?(.*?)```|`([^`\n]+)`|\"([^\"]*)\"|“([^”]*)”|„([^“”]*)[“”]|«([^»]*)»|‘([^’\n]*)’|(?:^|[\\s(:])'([^'\n]+)'")
	mark   = regexp.MustCompile(`‹(\d+)›`)

	// A prompt is split at the end of sentences, and at "and" and commas where a new
	// question or order begins.
	sentence = regexp.MustCompile(`[?!;\n]+|\.(?:\s+|$)`)
	joint    = regexp.MustCompile(`(?i),?\s+(?:and then|and also|and|then|und dann|und auch|und|dann)\s+|,\s*(?:then\s+|dann\s+)?`)
	starter  = regexp.MustCompile(`(?i)^(?:please\s+|bitte\s+)?(?:how|which|what|what's|where|who|read|show|list|find|search|count|write|create|save|put|append|replace|tell|give|summari[sz]e|open|cat|print|run|execute|explain|describe|grep|look|remember|call|does|wie|wieviele?|welche[rs]?|was|wo|wer|lies|zeige?|liste|suche?|finde|zähle?|schreibe?|erstelle?|speichere?|öffne|gibt)(?:\s|$|')`)

	// The text after the colon of an order to write is written as it is.
	writeOrder = regexp.MustCompile(`(?is)\b(?:write|create|save|put|append|make|schreibe?|erstelle?|speichere?)\b[^:\n]*?(?:‹\d+›|[\w-]+\.[\w]+|[\w-]+)[^:\n]*:\s*(\S.*)$`)

	wellKnown = regexp.MustCompile(`^(?:Makefile|Dockerfile|LICEN[CS]E|NOTICE|README|Readme|CHANGELOG|CONTRIBUTING|AUTHORS|SECURITY|COPYING|Gemfile|Rakefile|Procfile|Vagrantfile|Jenkinsfile|CODEOWNERS|readme|license|makefile|changelog|contributing)$`)
	pronoun   = regexp.MustCompile(`(?i)\b(?:it|its|this file|that file|the file|the same file|in ihr|die datei|dieser datei|darin)\b`)
	inFolder  = regexp.MustCompile(`(?i)\b(?:in|under|inside|inside of|within|of|from|im|unter)\s+(?:the\s+|my\s+|our\s+|dem\s+)?(?:(?:folder|directory|dir|package|ordner|verzeichnis)\s+([\w./@-]+)|([\w./@-]+)\s+(?:folder|directory|dir|package|ordner|verzeichnis)|([\w.@-]+(?:/[\w.@-]+)*/)(?:\s|$)|([\w.@-]+(?:/[\w.@-]+)*/[\w@-]+)(?:\s|$))`)
	inWord    = regexp.MustCompile(`(?i)\b(?:in|under|inside|im)\s+(?:the\s+)?([a-z][\w-]*)$`)
	ofKind    = regexp.MustCompile(`(?i)(?:^|[\s(])(\*\.[a-z0-9]+|\.[a-z0-9]+|[a-z+#]+)(?:[\s-]+(?:source|code|quell))?[\s-]*(?:files?|dateien|datei|scripts?|code)\b`)
	oneFile   = regexp.MustCompile(`(?i)(?:file|datei)$`)
	eachFile  = regexp.MustCompile(`(?i)\b(?:every|each|any|jede)\b`)
	globLike  = regexp.MustCompile(`(?:^|\s)([\w./*{},?\[\]-]*\*[\w./*{},?\[\]-]*)`)
	endMarks  = ".,:;!?)(\"'…"
)

// kinds are the kinds of files that have a name.
var kinds = map[string]string{
	"go": "*.go", "golang": "*.go", "markdown": "*.{md,markdown}", "md": "*.md", "yaml": "*.{yaml,yml}", "yml": "*.{yaml,yml}",
	"json": "*.json", "toml": "*.toml", "python": "*.py", "py": "*.py", "javascript": "*.{js,mjs,cjs}", "js": "*.{js,mjs,cjs}",
	"typescript": "*.{ts,tsx}", "ts": "*.{ts,tsx}", "rust": "*.rs", "java": "*.java", "c": "*.{c,h}", "c++": "*.{cpp,cc,cxx,hpp,h}",
	"php": "*.php", "ruby": "*.rb", "html": "*.{html,htm}", "css": "*.css", "sql": "*.sql", "shell": "*.sh", "bash": "*.sh", "sh": "*.sh",
	"text": "*.txt", "txt": "*.txt", "image": "*.{png,jpg,jpeg,gif,svg,webp}", "xml": "*.xml", "csv": "*.csv", "proto": "*.proto",
	"test": "*{_test.*,.test.*,.spec.*,test_*.py}",
}

// understand splits a prompt into clauses. before are the files that were spoken
// of earlier, the latest last: what "it" may stand for.
func understand(prompt string, before []string) []clause {
	if len(prompt) > maxPrompt {
		prompt = strings.ToValidUTF8(prompt[:maxPrompt], "")
	}
	if isCall.MatchString(strings.TrimSpace(prompt)) {
		return []clause{{raw: strings.TrimSpace(prompt)}} // its quotes belong to JSON
	}
	var quotes, asWritten []string
	text := quoted.ReplaceAllStringFunc(prompt, func(q string) string {
		lead := q[:len(q)-len(strings.TrimLeft(q, " \t\n(:"))]
		for _, m := range quoted.FindStringSubmatch(q)[1:] {
			if m != "" {
				quotes, asWritten = append(quotes, m), append(asWritten, q[len(lead):])
				return fmt.Sprintf("%s‹%d›", lead, len(quotes)-1)
			}
		}
		return lead
	})
	content := ""
	if m := writeOrder.FindStringSubmatchIndex(text); m != nil {
		content = text[m[2]:m[3]]
		if oneMark.MatchString(strings.TrimSpace(content)) {
			content = unquote(strings.TrimSpace(content), quotes)
		} else {
			content = unquote(content, asWritten) // quotes inside of a text belong to it
		}
		text = text[:m[2]]
	}
	var clauses []clause
	for _, part := range split(text) {
		c := newClause(part, quotes, before)
		before = append(before, c.spoken()...)
		clauses = append(clauses, c)
	}
	if n := len(clauses); n > 0 {
		clauses[n-1].content = content
	}
	return clauses
}

// split cuts a text with marked quotes into clauses.
func split(text string) (parts []string) {
	for _, s := range sentence.Split(text, -1) {
		start := 0
		for _, m := range joint.FindAllStringIndex(s, -1) {
			if starter.MatchString(s[m[1]:]) && strings.TrimSpace(s[start:m[0]]) != "" {
				parts = append(parts, s[start:m[0]])
				start = m[1]
			}
		}
		parts = append(parts, s[start:])
	}
	parts = slices.DeleteFunc(parts, func(p string) bool { return strings.Trim(p, " \t\r"+endMarks) == "" })
	return parts
}

// unquote puts the quoted texts back.
func unquote(text string, quotes []string) string {
	return mark.ReplaceAllStringFunc(text, func(m string) string {
		var i int
		if _, err := fmt.Sscanf(m, "‹%d›", &i); err != nil || i >= len(quotes) {
			return m
		}
		return quotes[i]
	})
}

func newClause(text string, quotes, before []string) clause {
	c := clause{text: strings.TrimSpace(text), raw: strings.TrimSpace(unquote(text, quotes))}
	for _, m := range mark.FindAllString(text, -1) {
		c.quotes = append(c.quotes, unquote(m, quotes))
	}
	if m := inFolder.FindStringSubmatch(text); m != nil {
		folder := strings.Trim(m[1]+m[2]+m[3]+m[4], "/")
		if !slices.Contains([]string{"this", "the", "current", "same", "a", "diesem", "dem", "src/"}, strings.ToLower(folder)) && !withDot.MatchString(folder) {
			c.folder = folder
		}
	}
	c.findKind()
	for _, word := range strings.Fields(text) {
		word = trimWord(word)
		if isPath(word) && strings.Trim(word, "/") != c.folder && c.kind != word+" files" {
			c.files = append(c.files, word)
		}
	}
	if names, sure := c.names(quotes); sure {
		c.files, c.plain, c.glob, c.folder = names, true, "", ""
	} else if len(c.files) == 0 {
		c.words, c.files = names, c.quotedFiles(quotes)
	}
	for _, q := range c.quotes {
		if isPath(q) && len(c.files) == 0 {
			c.files = append(c.files, q)
		}
	}
	if len(c.files)+len(c.words) == 0 && c.glob == "" && len(before) > 0 && pronoun.MatchString(text) {
		c.files = before[len(before)-1:]
	}
	return c
}

// spoken are the names that a later "it" can stand for.
func (c clause) spoken() []string {
	if len(c.files) > 0 {
		return c.files
	}
	return c.words
}

func isPath(word string) bool {
	switch {
	case word == "" || word == "." || len(word) > 200 || !pathLike.MatchString(word):
		return false
	case wellKnown.MatchString(word) || withDot.MatchString(word) || dotFile.MatchString(word):
		return !slices.Contains([]string{"e.g", "i.e", "z.B", "u.a", "d.h"}, word)
	}
	lower := strings.ToLower(word)
	return strings.Contains(word, "/") && !slices.Contains([]string{"and/or", "und/oder", "either/or", "he/she", "n/a", "yes/no"}, lower)
}

// findKind reads which kind of files the clause is about.
func (c *clause) findKind() {
	if m := globLike.FindStringSubmatch(c.text); m != nil && strings.Trim(m[1], "*.,") != "" {
		c.glob = strings.Trim(m[1], ".,")
		c.kind = "files that match " + c.glob
		return
	}
	for _, m := range ofKind.FindAllStringSubmatch(c.text, -1) {
		name := strings.ToLower(strings.TrimPrefix(m[1], "*"))
		if glob, ok := kinds[strings.TrimPrefix(name, ".")]; ok {
			c.glob, c.kind = glob, m[1]+" files"
			return
		}
		if strings.HasPrefix(name, ".") && oneFile.MatchString(m[0]) && !eachFile.MatchString(c.text) {
			continue // "the .env file" is that file
		}
		if strings.HasPrefix(name, ".") {
			c.glob, c.kind = "*"+name, name+" files"
			return
		}
	}
}

// inBareFolder takes the last word of "… in gate" for a folder, where the clause
// names no file and no other folder. What is no folder is told as not found.
func (c clause) inBareFolder() clause {
	if m := inWord.FindStringSubmatch(strings.TrimRight(c.text, endMarks)); m != nil && c.folder == "" && len(c.files) == 0 &&
		!slices.Contains([]string{"total", "here", "all", "it", "there", "detail", "general", "folder", "directory", "repo", "repository", "project", "workspace", "files", "sum", "summe", "ordner", "verzeichnis", "projekt", "code", "codebase", "tests"}, strings.ToLower(m[1])) {
		c.folder = m[1]
	}
	return c
}

// writes tells whether the clause changes something, so that its place among the
// others matters.
func (c clause) writes() bool {
	return isWrite.MatchString(c.text) || isReplace.MatchString(c.text) || isRemember.MatchString(c.text) ||
		isRun.MatchString(c.text) || isCall.MatchString(c.raw)
}

// where says in words which folder the clause is about.
func (c clause) where() string {
	if c.folder == "" {
		return "in this folder"
	}
	return "in " + c.folder + "/"
}
