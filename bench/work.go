package main

import "fmt"

// What both loops are given: the same prompt, the same tool.

const (
	system            = "You are a careful assistant that answers questions about source code."
	prompt            = "Which files matter here, and how long are they?"
	lookupDescription = "Looks up a source file: its size, its first lines and the names it defines."
	lookupSchema      = `{"type":"object","properties":{"path":{"type":"string","description":"path of the file"},"limit":{"type":"integer","minimum":1,"maximum":1000}},"required":["path"],"additionalProperties":false}`
)

type lookupArgs struct {
	Path  string `json:"path"`
	Limit int    `json:"limit"`
}

type lookupResult struct {
	Path  string   `json:"path"`
	Lines int      `json:"lines"`
	Names []string `json:"names"`
	Head  string   `json:"head"`
}

func lookup(a lookupArgs) lookupResult {
	return lookupResult{
		Path: a.Path, Lines: 100 + a.Limit, Names: []string{"Run", "Drive", "Fold", "Next"},
		Head: fmt.Sprintf("package main\n\n// %s drives the run.\nfunc main() {\n\trun(%d)\n}\n", a.Path, a.Limit),
	}
}
