package shell

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"syscall"

	"github.com/toolcrib/toolcrib/tool/shell/internal/jail"
)

// statusPair returns a pair of connected sockets for the outcome of a copy, which may send a socket as well.
func statusPair() (own, copied *os.File, err error) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(pair[0]), "status"), os.NewFile(uintptr(pair[1]), "status"), nil
}

// outcome reads the outcome that a copy reports. Before that it receives the namespaces that the job makes for others,
// and the socket on which the programs reach the proxy, which it serves until stop is called.
func (l *launcher) outcome(from *os.File) (read func() []byte, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	sent := make(chan []byte, 1)
	serving.Go(func() {
		var first []byte
		if l.proxy != nil || l.making != nil {
			var files []*os.File
			files, first, _ = jail.Receive(from) // an error is the end of what is read below
			if l.making != nil && len(files) >= 2 {
				l.handOver(files[:2])
				files = files[2:]
			}
			for _, socket := range files {
				serving.Go(func() { l.serve(ctx, socket) })
			}
		}
		rest, _ := io.ReadAll(io.LimitReader(from, maxStatus))
		sent <- append(first, rest...)
	})
	return func() []byte { return <-sent }, func() {
		cancel()
		serving.Wait()
	}
}

// serve serves the proxy on a socket of the namespace of the job.
func (l *launcher) serve(ctx context.Context, socket *os.File) {
	listener, err := net.FileListener(socket)
	_ = socket.Close()
	if err == nil {
		l.proxy.Serve(ctx, listener)
	}
}
