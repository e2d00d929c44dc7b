package bus

import (
	"errors"
)

// Address is where messages go: an instance of a node.
type Address struct {
	Node     Key
	Instance string // letters and digits; a new one at each start
}

// Transport carries messages between instances. Nothing of it is trusted.
type Transport interface {
	// Send sends a message to an instance. It does not wait for its receipt. If nobody is not nil, it is called,
	// from any goroutine, if certainly nobody received the message; then Send may return [ErrNobody] as well.
	Send(to Address, message []byte, nobody func()) error
	// Broadcast sends a message to all instances of all nodes.
	Broadcast(message []byte) error
	// Receive has receive called with each message for self and with broadcasts, until stop is called. Calls come
	// one after another; receive does not block, and does not keep the message.
	Receive(self Address, receive func(message []byte)) (stop func(), err error)
	// MaxBytes is the size of the largest message.
	MaxBytes() int
}

// ErrNobody is the error of a message that certainly nobody received.
var ErrNobody = errors.New("nobody receives messages at this address")
