package result_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/result"
	"github.com/toolcrib/toolcrib/toolcribtest/tooltest"
)

// contents is a store of one run's results.
type contents map[string]string

func (c contents) Put(context.Context, toolcrib.RunID, string, []byte) error {
	return errors.New("only read here")
}

func (c contents) Range(_ context.Context, run toolcrib.RunID, ref string, offset, limit int64) ([]byte, int64, error) {
	data, ok := c[string(run)+"/"+ref]
	if !ok {
		return nil, 0, toolcrib.ErrNotFound
	}
	size := int64(len(data))
	from := min(offset, size)
	return []byte(data[from:min(from+limit, size)]), size, nil
}

func made(c contents) toolcrib.Tool {
	return result.New(result.Options{Contents: c, Untrusted: func(_ toolcrib.RunID, ref string) (string, bool) {
		return "web:example.org", ref == "res_web"
	}})[0]
}

type piece struct {
	Content    string
	Offset     int64
	NextOffset int64 `json:"next_offset"`
	TotalBytes int64 `json:"total_bytes"`
}

func read(t rapid.TB, tool toolcrib.Tool, arguments string) (piece, toolcrib.Output) {
	t.Helper()
	out, err := tool.Call(context.Background(), toolcrib.Call{Run: "run_1", Arguments: json.RawMessage(arguments)})
	if err != nil {
		t.Fatal(err)
	}
	var p piece
	if err := json.Unmarshal(out.JSON, &p); err != nil {
		t.Fatal(err)
	}
	return p, out
}

func TestN1_ReadResultConforms(t *testing.T) {
	tooltest.Run(t, func() toolcrib.Tool {
		return made(contents{"run_tooltest/res_1": "hello", "run_other/res_2": "secret", "run_tooltest/schema": "x"})
	},
		tooltest.Cases{Calls: []tooltest.Case{
			{Name: "whole", Arguments: `{"ref": "res_1"}`},
			{Name: "end", Arguments: `{"ref": "res_1", "offset": 5}`},
			{Name: "beyond", Arguments: `{"ref": "res_1", "offset": 6}`, Err: toolcrib.InvalidArguments},
			{Name: "unknown", Arguments: `{"ref": "res_9"}`, Err: toolcrib.NotFound},
			{Name: "another run's", Arguments: `{"ref": "res_2"}`, Err: toolcrib.NotFound},
			{Name: "no result", Arguments: `{"ref": "schema"}`, Err: toolcrib.NotFound},
			{Name: "path", Arguments: `{"ref": "res_../../run_other/res_2"}`, Err: toolcrib.NotFound},
			{Name: "negative", Arguments: `{"ref": "res_1", "offset": -1}`, Err: toolcrib.InvalidArguments, Invalid: true},
			{Name: "nothing", Arguments: `{"ref": "res_1", "limit": 0}`, Err: toolcrib.InvalidArguments, Invalid: true},
		}})
}

func TestN24_ReadResultLimits(t *testing.T) {
	big := strings.Repeat(`"\`, 100_000)
	tool := made(contents{"run_1/res_1": big})
	p, _ := read(t, tool, `{"ref":"res_1"}`)
	if len(p.Content) != 16384 || p.NextOffset != 16384 || p.TotalBytes != 200_000 {
		t.Errorf("default: %d bytes, next %d of %d", len(p.Content), p.NextOffset, p.TotalBytes)
	}
	p, out := read(t, tool, `{"ref":"res_1","limit":999999}`)
	if len(p.Content) != 30720 || len(out.JSON) > 65536 {
		t.Errorf("hard cap: %d bytes, as JSON %d", len(p.Content), len(out.JSON))
	}
}

func TestC10_ReadResultCharacterBounds(t *testing.T) {
	tool := made(contents{"run_1/res_1": "aé€😀"})
	for _, c := range []struct {
		offset, limit int
		want          string
		at, next      int64
	}{
		{0, 2, "a", 0, 1}, {1, 1, "é", 1, 3}, {2, 1, "é", 1, 3}, {5, 1, "€", 3, 6}, {6, 3, "😀", 6, 0}, {9, 9, "😀", 6, 0}, {10, 1, "", 10, 0},
	} {
		p, _ := read(t, tool, fmt.Sprintf(`{"ref":"res_1","offset":%d,"limit":%d}`, c.offset, c.limit))
		if p.Content != c.want || p.Offset != c.at || p.NextOffset != c.next {
			t.Errorf("offset %d limit %d: %+v, want %+v", c.offset, c.limit, p, c)
		}
	}
}

func TestC10_ReadResultJoinsToTheWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := rapid.StringN(1, 200, -1).Draw(t, "whole")
		limit := rapid.IntRange(1, 20).Draw(t, "limit")
		tool := made(contents{"run_1/res_1": whole})
		var joined strings.Builder
		for offset := int64(0); ; {
			p, _ := read(t, tool, fmt.Sprintf(`{"ref":"res_1","offset":%d,"limit":%d}`, offset, limit))
			if !utf8.ValidString(p.Content) || p.Offset != offset {
				t.Fatalf("piece %+v at %d", p, offset)
			}
			joined.WriteString(p.Content)
			if p.NextOffset == 0 {
				break
			}
			if p.NextOffset <= offset {
				t.Fatalf("no way on from %d", offset)
			}
			offset = p.NextOffset
		}
		if joined.String() != whole {
			t.Fatalf("joined %q, want %q", joined.String(), whole)
		}
	})
}

func TestN26_ReadResultKeepsMark(t *testing.T) {
	c := contents{"run_1/res_web": "x", "run_1/res_own": "x"}
	if _, out := read(t, made(c), `{"ref":"res_web"}`); !out.Untrusted || out.Source != "web:example.org" {
		t.Errorf("mark lost: %+v", out)
	}
	if _, out := read(t, made(c), `{"ref":"res_own"}`); out.Untrusted || out.Source != "" {
		t.Errorf("mark made up: %+v", out)
	}
	unmarked := result.New(result.Options{Contents: c})[0]
	if _, out := read(t, unmarked, `{"ref":"res_own"}`); !out.Untrusted {
		t.Error("nobody can tell: untrusted")
	}
}
