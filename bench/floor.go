package main

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	_ "modernc.org/sqlite"
)

// The floor: the loop that a good engineer writes by hand. Typed structs, one
// http.Client, encoding/json, a scanner over the event stream. It has no gate, no
// validation and no journal.

type floorCall struct {
	Index    int    `json:"index,omitempty"`
	ID       string `json:"id,omitempty"`
	Type     string `json:"type,omitempty"`
	Function struct {
		Name      string `json:"name,omitempty"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type floorMessage struct {
	Role       string      `json:"role,omitempty"`
	Content    *string     `json:"content"`
	ToolCalls  []floorCall `json:"tool_calls,omitempty"`
	ToolCallID string      `json:"tool_call_id,omitempty"`
}

type floorRequest struct {
	Model    string          `json:"model"`
	Messages []floorMessage  `json:"messages"`
	Tools    json.RawMessage `json:"tools"`
	Stream   bool            `json:"stream,omitempty"`
}

type floorReply struct {
	Choices []struct {
		Message      floorMessage `json:"message"`
		Delta        floorMessage `json:"delta"`
		FinishReason string       `json:"finish_reason"`
	} `json:"choices"`
	Usage struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
	} `json:"usage"`
}

var floorTools = json.RawMessage(`[{"type":"function","function":{"name":"lookup","description":"` + lookupDescription +
	`","parameters":` + lookupSchema + `}}]`)

// floorJournal stores an event. If nil, events are not stored.
type floorJournal func(kind string, v any) error

// floorRun does the work by hand.
func floorRun(
	ctx context.Context, client *http.Client, url, model string, stream bool, note floorJournal,
) (string, error) {
	text := func(s string) *string { return &s }
	messages := []floorMessage{{Role: "system", Content: text(system)}, {Role: "user", Content: text(prompt)}}
	for {
		reply, err := floorAsk(ctx, client, url, floorRequest{
			Model: model, Messages: messages, Tools: floorTools,
			Stream: stream,
		})
		if err != nil {
			return "", err
		}
		if note != nil {
			if err := note("message", reply); err != nil {
				return "", err
			}
		}
		messages = append(messages, reply)
		if len(reply.ToolCalls) == 0 {
			return *reply.Content, nil
		}
		for _, c := range reply.ToolCalls {
			var args lookupArgs
			if err := json.Unmarshal([]byte(c.Function.Arguments), &args); err != nil {
				return "", err
			}
			out, err := json.Marshal(lookup(args))
			if err != nil {
				return "", err
			}
			if note != nil {
				if err := note("result", string(out)); err != nil {
					return "", err
				}
			}
			messages = append(messages, floorMessage{Role: "tool", Content: text(string(out)), ToolCallID: c.ID})
		}
	}
}

func floorAsk(ctx context.Context, client *http.Client, url string, r floorRequest) (floorMessage, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return floorMessage{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/chat/completions", bytes.NewReader(body))
	if err != nil {
		return floorMessage{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer key")
	resp, err := client.Do(req)
	if err != nil {
		return floorMessage{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		return floorMessage{}, fmt.Errorf("%s: %s", resp.Status, b)
	}
	if r.Stream {
		return floorStream(resp.Body)
	}
	var reply floorReply
	if err := json.NewDecoder(resp.Body).Decode(&reply); err != nil {
		return floorMessage{}, err
	}
	return reply.Choices[0].Message, nil
}

func floorStream(body io.Reader) (floorMessage, error) {
	m := floorMessage{Role: "assistant"}
	var content strings.Builder
	sc := bufio.NewScanner(body)
	for sc.Scan() {
		line, ok := bytes.CutPrefix(sc.Bytes(), []byte("data: "))
		if !ok || string(line) == "[DONE]" {
			continue
		}
		var chunk floorReply
		if err := json.Unmarshal(line, &chunk); err != nil {
			return m, err
		}
		if len(chunk.Choices) == 0 {
			continue
		}
		d := chunk.Choices[0].Delta
		if d.Content != nil {
			content.WriteString(*d.Content)
		}
		for _, c := range d.ToolCalls {
			if c.Index >= len(m.ToolCalls) {
				m.ToolCalls = append(m.ToolCalls, floorCall{ID: c.ID, Type: "function", Index: c.Index})
				m.ToolCalls[c.Index].Function.Name = c.Function.Name
			}
			m.ToolCalls[c.Index].Function.Arguments += c.Function.Arguments
		}
	}
	if s := content.String(); s != "" {
		m.Content = &s
	}
	return m, sc.Err()
}

// floorSQLite is the journal of the second floor: each event in a transaction of
// its own, fully synced.
func floorSQLite(path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(10000)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	_, err = db.Exec(`CREATE TABLE IF NOT EXISTS events (id INTEGER PRIMARY KEY, run TEXT, kind TEXT, payload TEXT)`)
	return db, err
}

func floorNote(db *sql.DB, run string) floorJournal {
	return func(kind string, v any) error {
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		_, err = db.Exec(`INSERT INTO events (run, kind, payload) VALUES (?, ?, ?)`, run, kind, string(b))
		return err
	}
}
