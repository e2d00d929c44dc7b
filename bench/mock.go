package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// The work: each of the first rounds-1 replies calls one tool, but for the first,
// which calls two; the last reply is the answer. With 5 rounds that is 5 model
// calls and 5 tool calls.

type mockRequest struct {
	Stream   bool `json:"stream"`
	Messages []struct {
		Role string `json:"role"`
	} `json:"messages"`
	Model string `json:"model"`
}

// mockMain serves the mock API until its standard input closes, so that it ends
// with the process that started it.
func mockMain() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		os.Exit(0)
	}()
	return http.Serve(l, http.HandlerFunc(mockReply))
}

func mockReply(w http.ResponseWriter, r *http.Request) {
	var req mockRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		fmt.Fprintln(os.Stderr, "mock:", err)
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	turn := 0
	for _, m := range req.Messages {
		if m.Role == "assistant" {
			turn++
		}
	}
	// The model is KIND-N or a name. Reading it must cost little, because the hand-written loop pays
	// for it.
	kind, text, _ := strings.Cut(req.Model, "-")
	n, err := strconv.Atoi(text)
	rounds, checks := n, 0
	switch {
	case kind == "wait" && err == nil: // an answer that takes so many milliseconds
		time.Sleep(time.Duration(n) * time.Millisecond)
		turn, rounds = 0, 0
	case kind == "checks" && err == nil: // so many calls of verify
		rounds, checks = n+1, n
	case req.Model == "busy":
		http.Error(w, `{"error":{"message":"busy"}}`, http.StatusServiceUnavailable)
		return
	case req.Model == "silent":
		_, _ = io.Copy(io.Discard, r.Body) // only then it is seen that the client leaves
		<-r.Context().Done()
		return
	case req.Model == "cut":
	case kind != "rounds" || err != nil:
		http.Error(w, "model: rounds-N", http.StatusBadRequest)
		return
	}
	if req.Stream {
		mockStream(w, turn, rounds)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	message, finish := mockMessage(turn, rounds)
	if turn < checks {
		message, finish = map[string]any{"role": "assistant", "content": nil, "tool_calls": []any{map[string]any{
			"id": fmt.Sprintf("call_%d", turn), "type": "function", "function": map[string]any{
				"name":      "verify",
				"arguments": fmt.Sprintf(`{"checks":[{"kind":"min_length","target_text":"check %d","value":3}]}`, turn),
			},
		}}}, "tool_calls"
	}
	if req.Model == "cut" {
		finish = "length"
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": req.Model,
		"choices": []any{map[string]any{"index": 0, "message": message, "finish_reason": finish}},
		"usage":   map[string]any{"prompt_tokens": 100 + 50*turn, "completion_tokens": 40, "total_tokens": 140 + 50*turn},
	})
}

const mockAnswer = "The three files that matter are main.go, loop.go and gate.go; together they have 412 lines, and the longest function is the one that drives the run."

func mockMessage(turn, rounds int) (map[string]any, string) {
	if turn >= rounds-1 {
		return map[string]any{"role": "assistant", "content": mockAnswer}, "stop"
	}
	calls := []any{mockCall(turn, 0)}
	if turn == 0 {
		calls = append(calls, mockCall(turn, 1))
	}
	return map[string]any{"role": "assistant", "content": nil, "tool_calls": calls}, "tool_calls"
}

func mockArguments(turn, i int) string {
	return fmt.Sprintf(`{"path":"src/file_%d_%d.go","limit":%d}`, turn, i, 20+turn)
}

func mockCall(turn, i int) map[string]any {
	return map[string]any{
		"id": fmt.Sprintf("call_%d_%d", turn, i), "type": "function",
		"function": map[string]any{"name": "lookup", "arguments": mockArguments(turn, i)},
	}
}

// mockStream answers as an event stream, a word or a few characters of arguments
// in each chunk, as the real API does.
func mockStream(w http.ResponseWriter, turn, rounds int) {
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(delta map[string]any, finish any) {
		b, _ := json.Marshal(map[string]any{
			"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
			"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}},
		})
		_, _ = fmt.Fprintf(w, "data: %s\n\n", b)
	}
	send(map[string]any{"role": "assistant", "content": ""}, nil)
	if turn >= rounds-1 {
		for _, word := range strings.SplitAfter(mockAnswer, " ") {
			send(map[string]any{"content": word}, nil)
		}
		send(map[string]any{}, "stop")
	} else {
		n := 1
		if turn == 0 {
			n = 2
		}
		for i := range n {
			mockStreamCall(send, turn, i)
		}
		send(map[string]any{}, "tool_calls")
	}
	_, _ = fmt.Fprintf(w, "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":40,\"total_tokens\":%d}}\n\ndata: [DONE]\n\n", 100+50*turn, 140+50*turn)
}

func mockStreamCall(send func(map[string]any, any), turn, i int) {
	args := mockArguments(turn, i)
	send(map[string]any{"tool_calls": []any{map[string]any{
		"index": i, "id": fmt.Sprintf("call_%d_%d", turn, i), "type": "function",
		"function": map[string]any{"name": "lookup", "arguments": ""},
	}}}, nil)
	for len(args) > 0 {
		n := min(6, len(args))
		send(map[string]any{"tool_calls": []any{map[string]any{
			"index":    i,
			"function": map[string]any{"arguments": args[:n]},
		}}}, nil)
		args = args[n:]
	}
}

// startMock runs this program again as the mock server.
func startMock() (url string, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	cmd := exec.Command(self, "mock")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return "", nil, err
	}
	return "http://" + strings.TrimSpace(line), func() { _ = in.Close(); _ = cmd.Wait() }, nil
}
