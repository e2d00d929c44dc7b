package ollama

import (
	"bytes"
	"encoding/binary"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ollama/ollama/fs/ggml"
)

// scripts are what the model writes after the last token of a prompt. The keys are
// tokens of its own, which a prompt ends with; each piece is one token, longer than a
// byte and unlike all others.
var scripts = map[string][]string{
	"<|call|>": {"<tool_call>", `{"name":`, ` "word_of_today",`, ` "arguments":`, ` {"language":`, ` "en"}}`, "</tool_call>"},
	"<|two|>": {
		"<tool_call>\n", `{"name": "first",`, ` "arguments": {}}`, "</tool_call>\n",
		"<tool_call>\n\n", `{"name": "second",`, ` "arguments": {"n": 2}}`, "</tool_call>\n\n",
	},
	"<|answer|>": {"The word", " is", " marmalade", ". 日本", " 🎈"},
	"<|json|>":   {`{"word"`, `: "mar`, `malade`, `"}`},
	"<|think|>":  {"<think>", "The tool", " said so.", "</think>", "Marmalade", "!!"},
	"<|long|>":   {"a ", "b ", "c ", "d ", "e ", "f ", "g ", "h "},
}

// A prompt that ends with no token of the scripts is answered with this.
var plain = []string{"I can", " say", " little."}

const (
	endOfText = "<|end|>"
	headSize  = 32 // of the attention, which adds nothing
)

// template renders a request; the last token of what it renders chooses the script: one
// that the user's text ends with, or the answer after the result of a tool.
const template = `{{ if .System }}{{ .System }} {{ end }}{{ if .Tools }}{{ .Tools }} {{ end }}
{{- range $i, $m := .Messages }}
{{- $last := eq (len (slice $.Messages $i)) 1 }}
{{- if eq .Role "assistant" }}{{ if .Thinking }}<think>{{ .Thinking }}</think>{{ end }}{{ .Content }}
{{- if .ToolCalls }}{{ range .ToolCalls }}<tool_call>{"name": "{{ .Function.Name }}", "arguments": {{ .Function.Arguments }}}</tool_call>{{ end }}{{ end }}
{{- else }}{{ .Content }}
{{- if and $last (eq .Role "tool") }}<|answer|>{{ end }}
{{- end }}
{{- end }}`

// vocabulary returns the tokens, their types, and which token follows each.
func vocabulary() (tokens []string, types []int32, next []int) {
	const normal, control = 1, 3
	add := func(text string, kind int32) int {
		tokens, types, next = append(tokens, text), append(types, kind), append(next, 0)
		return len(tokens) - 1
	}
	for b := range 256 { // a prompt is read byte by byte
		add(string(spelled(byte(b))), normal)
	}
	end := add(endOfText, control)
	write := func(pieces []string) (first int) {
		previous := -1
		for _, piece := range pieces {
			var text []rune
			for _, b := range []byte(piece) {
				text = append(text, spelled(b))
			}
			token := add(string(text), normal)
			if previous < 0 {
				first = token
			} else {
				next[previous] = token
			}
			previous = token
		}
		next[previous] = end
		return first
	}
	other := write(plain)
	for b := range 256 {
		next[b] = other
	}
	next[end] = end
	for _, name := range slices.Sorted(maps.Keys(scripts)) {
		marker := add(name, control)
		next[marker] = write(scripts[name])
	}
	return tokens, types, next
}

// spelled is how GPT-2's vocabulary writes a byte.
func spelled(b byte) rune {
	printable := func(b int) bool { return b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE && b <= 0xFF }
	if printable(int(b)) {
		return rune(b)
	}
	shifted := 0
	for other := range int(b) {
		if !printable(other) {
			shifted++
		}
	}
	return rune(256 + shifted)
}

// matrix is a tensor of half precision whose rows are mostly zeros; ones calls yield
// with the place of each one.
func matrix(name string, columns, rows int, ones func(yield func(row, column int))) *ggml.Tensor {
	const kindF16, one = 1, 0x3C00
	data := make([]byte, 2*columns*rows)
	ones(func(row, column int) { binary.LittleEndian.PutUint16(data[2*(row*columns+column):], one) })
	shape := []uint64{uint64(columns), uint64(rows)}
	return &ggml.Tensor{Name: name, Kind: kindF16, Shape: shape, WriterTo: bytes.NewReader(data)}
}

// writeModel writes the model as GGUF.
func writeModel(t *testing.T) string {
	t.Helper()
	tokens, types, next := vocabulary()
	size := (len(tokens) + 31) / 32 * 32 // of an embedding: one number for each token
	zero := func(func(row, column int)) {}
	own := func(one func(row, column int)) {
		for token := range tokens {
			one(token, token)
		}
	}
	follow := func(one func(row, column int)) {
		for token, follower := range next {
			one(follower, token)
		}
	}
	ones := func(name string) *ggml.Tensor {
		var data bytes.Buffer
		if err := binary.Write(&data, binary.LittleEndian, slices.Repeat([]float32{1}, size)); err != nil {
			t.Fatal(err)
		}
		return &ggml.Tensor{Name: name, Shape: []uint64{uint64(size)}, WriterTo: bytes.NewReader(data.Bytes())}
	}
	tensors := []*ggml.Tensor{
		matrix("token_embd.weight", size, len(tokens), own),
		matrix("output.weight", size, len(tokens), follow),
		ones("output_norm.weight"),
		ones("blk.0.attn_norm.weight"),
		ones("blk.0.ffn_norm.weight"),
		matrix("blk.0.attn_q.weight", size, headSize, zero),
		matrix("blk.0.attn_k.weight", size, headSize, zero),
		matrix("blk.0.attn_v.weight", size, headSize, zero),
		matrix("blk.0.attn_output.weight", headSize, size, zero),
		matrix("blk.0.ffn_gate.weight", size, headSize, zero),
		matrix("blk.0.ffn_up.weight", size, headSize, zero),
		matrix("blk.0.ffn_down.weight", headSize, size, zero),
	}
	kv := ggml.KV{
		"general.architecture":                   "llama",
		"general.file_type":                      uint32(1),
		"general.parameter_count":                uint64(size * len(tokens) * 2),
		"llama.block_count":                      uint32(1),
		"llama.context_length":                   uint32(8192),
		"llama.embedding_length":                 uint32(size),
		"llama.feed_forward_length":              uint32(headSize),
		"llama.attention.head_count":             uint32(1),
		"llama.attention.head_count_kv":          uint32(1),
		"llama.attention.key_length":             uint32(headSize),
		"llama.attention.value_length":           uint32(headSize),
		"llama.attention.layer_norm_rms_epsilon": float32(1e-5),
		"llama.rope.dimension_count":             uint32(headSize),
		"llama.vocab_size":                       uint32(len(tokens)),
		"tokenizer.ggml.model":                   "gpt2",
		"tokenizer.ggml.pre":                     "default",
		"tokenizer.ggml.tokens":                  tokens,
		"tokenizer.ggml.token_type":              types,
		"tokenizer.ggml.merges":                  []string{"! !"},
		"tokenizer.ggml.eos_token_id":            uint32(slices.Index(tokens, endOfText)),
		"tokenizer.ggml.bos_token_id":            uint32(slices.Index(tokens, endOfText)),
		"tokenizer.ggml.add_bos_token":           false,
	}
	path := filepath.Join(t.TempDir(), "model.gguf")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := ggml.WriteGGUF(f, kv, tensors); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}
