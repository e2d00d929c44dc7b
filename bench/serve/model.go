package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// The models: rounds calls a tool in five rounds, parks calls one that needs an approval, waits
// begins to answer when it is told to, and then says every now and then what time it is. slow is rounds with replies
// that take as long as between.

const (
	rounds  = 5
	system  = "You are a careful assistant that answers questions about time."
	prompt  = "What time is it, and what time was it a moment ago?"
	answer  = "It is later than it was, and earlier than it will be."
	ticks   = 20
	between = 200 * time.Millisecond
)

// model serves the models at an address.
type model struct {
	url    string
	server *http.Server
	begun  chan struct{} // gets one for each request to waits
	begin  chan struct{} // is closed when it is to answer
	files  atomic.Int64
}

func startModel() (*model, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &model{url: "http://" + l.Addr().String(), begun: make(chan struct{}, 1000), begin: make(chan struct{})}
	m.server = &http.Server{Handler: m}
	go func() { _ = m.server.Serve(l) }()
	return m, nil
}

func (m *model) close() { _ = m.server.Close() }

// ServeHTTP answers as OpenAI's API does, as a stream.
func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Model    string
		Messages []struct{ Role string }
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	turn := 0
	for _, one := range q.Messages {
		if one.Role == "assistant" {
			turn++
		}
	}
	if q.Model == "slow" {
		time.Sleep(between)
		q.Model = "rounds"
	}
	w.Header().Set("Content-Type", "text/event-stream")
	call := func(name, arguments string) {
		send(w, map[string]any{"tool_calls": []any{map[string]any{
			"index": 0, "id": fmt.Sprint("call_", turn), "type": "function",
			"function": map[string]any{"name": name, "arguments": arguments},
		}}}, nil)
		send(w, map[string]any{}, "tool_calls")
	}
	switch {
	case q.Model == "waits":
		m.begun <- struct{}{}
		select {
		case <-m.begin:
		case <-r.Context().Done():
			return
		}
		for range ticks {
			send(w, map[string]any{"content": fmt.Sprint(time.Now().UnixNano(), " ")}, nil)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(between)
		}
		send(w, map[string]any{}, "stop")
	case q.Model == "parks" && turn == 0:
		// Each run writes a file of its own: one that changes is asked about again.
		call("write_file", fmt.Sprintf(`{"path":"%d.txt","content":"hello"}`, m.files.Add(1)))
	case q.Model == "rounds" && turn < rounds-1:
		call("update_plan", fmt.Sprintf(`{"steps":[{"step":"Look at the clock, %d."}]}`, turn))
	default:
		for _, word := range strings.SplitAfter(answer, " ") {
			send(w, map[string]any{"content": word}, nil)
		}
		send(w, map[string]any{}, "stop")
	}
	fmt.Fprintf(w, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":40}}\n\ndata: [DONE]\n\n", 100+50*turn)
}

func send(w http.ResponseWriter, delta map[string]any, finish any) {
	text, _ := json.Marshal(map[string]any{
		"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
		"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}},
	})
	fmt.Fprintf(w, "data: %s\n\n", text)
}
