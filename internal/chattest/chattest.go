// Package chattest has servers of the APIs of chats for tests. They refuse what the documented APIs refuse, and unknown
// methods and fields besides. People in these chats write and press buttons; what the account under test sends is kept.
package chattest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Person is a user as others see them.
type Person struct{ ID, Name string }

// Message is a message of a person.
type Message struct {
	Chat, Thread, Text string
	ReplyTo            string // ID of a message
	Edits              string // ID of the message that this is the new text of
	Forwarded          bool   // the text is somebody else's
	File               string // name of a file
}

// Sent is a message of the account.
type Sent struct {
	ID, Chat, Thread, ReplyTo, Text string
	Buttons                         map[string]string // tokens by their labels
	Toast                           bool              // an answer to a press, in no chat
}

// Chat is a server.
type Chat interface {
	// Address returns the address of the account, as a channel has it.
	Address() string
	// Write has a person write, and returns the ID of the message.
	Write(from Person, m Message) (id string)
	// Press has a person press a button of a message, or send a token that no button has. If the API has no buttons, the
	// token is written.
	Press(from Person, of Sent, token string)
	// Sent returns what the account has sent.
	Sent() []Sent
	// Limit refuses the next n messages by the rate limit.
	Limit(n int)
	// Readers returns how many connections have received at the same time, at most.
	Readers() int
	// OnStep has a function called before and after each request takes effect. The request is cut off if it returns true.
	OnStep(step func(method string, done bool) (cut bool))
}

// base is the part that all servers share.
type base struct {
	*httptest.Server
	account string // user and password of the address

	mu        sync.Mutex
	step      func(method string, done bool) bool
	last      int
	known     map[string]bool // chats, threads and messages
	sent      []Sent
	busy      int           // messages that are refused by the rate limit
	came      chan struct{} // closed when there is something to receive
	now, most int           // connections that receive
	problems  []string
}

// open starts a server that ends with the test, which fails if a request was not allowed.
func (b *base) open(t testing.TB, account string, h http.Handler) {
	b.account, b.known, b.came = account, map[string]bool{}, make(chan struct{})
	b.Server = httptest.NewServer(h)
	t.Cleanup(func() {
		b.CloseClientConnections()
		b.Close()
		if len(b.problems) > 0 {
			t.Errorf("the API refuses: %q", b.problems)
		}
	})
}

func (b *base) Address() string { return strings.Replace(b.URL, "://", "://"+b.account+"@", 1) }

func (b *base) OnStep(step func(method string, done bool) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.step = step
}

func (b *base) Limit(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy = n
}

func (b *base) Readers() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.most
}

func (b *base) Sent() []Sent {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.sent)
}

// next returns a new number. The server is locked.
func (b *base) next() int {
	b.last++
	return b.last
}

// arrived wakes those who wait for something to receive. The server is locked.
func (b *base) arrived() {
	close(b.came)
	b.came = make(chan struct{})
}

// reads counts a connection that receives by n. The server is locked.
func (b *base) reads(n int) {
	b.now += n
	b.most = max(b.most, b.now)
}

// limited reports whether a message is refused by the rate limit. The server is locked.
func (b *base) limited() bool {
	if b.busy > 0 {
		b.busy--
		return true
	}
	return false
}

// keep keeps a message that was sent. The server is locked.
func (b *base) keep(s Sent) {
	b.known[s.Chat+" "+s.ID] = true
	b.sent = append(b.sent, s)
}

// cuts reports whether a request is to be cut off.
func (b *base) cuts(method string, done bool) bool {
	b.mu.Lock()
	step := b.step
	b.mu.Unlock()
	return step != nil && step(method, done)
}

// answer is the answer to a request.
type answer struct {
	status int // 0 is 200
	body   any
	after  int    // seconds, for the header Retry-After
	wrong  string // the request is not allowed
}

// serve answers a request.
func (b *base) serve(w http.ResponseWriter, r *http.Request, method string, do func(body []byte) answer) {
	if b.cuts(method, false) {
		panic(http.ErrAbortHandler)
	}
	body, _ := io.ReadAll(r.Body) // an incomplete body is not JSON
	a := do(body)
	if a.wrong != "" {
		b.mu.Lock()
		b.problems = append(b.problems, fmt.Sprintf("%s: %s: %.300s", method, a.wrong, body))
		b.mu.Unlock()
	}
	if b.cuts(method, true) {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	if a.after > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(a.after))
	}
	if a.status != 0 {
		w.WriteHeader(a.status)
	}
	_ = json.NewEncoder(w).Encode(a.body) // the client may have gone
}

// read decodes a body that has no unknown fields.
func read(body []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	return d.Decode(into)
}
