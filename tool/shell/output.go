package shell

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
)

// keeper reads one stream of output to its end and keeps the beginning and the end
// of it: at most maxKept bytes, however long it is.
type keeper struct {
	head, tail []byte
	total      int64
}

const half = maxKept / 2

func (k *keeper) Write(p []byte) (int, error) {
	n := len(p)
	k.total += int64(n)
	if room := half - len(k.head); room > 0 {
		room = min(room, len(p))
		k.head = append(k.head, p[:room]...)
		p = p[room:]
	}
	k.tail = append(k.tail, p...)
	if len(k.tail) > 2*half {
		k.tail = append(k.tail[:0], k.tail[len(k.tail)-half:]...)
	}
	return n, nil
}

func (k *keeper) cut() bool { return k.total > maxKept }

// text is what was kept, with a note where something is left out.
func (k *keeper) text() string {
	tail := k.tail[max(0, len(k.tail)-half):]
	left := k.total - int64(len(k.head)) - int64(len(tail))
	if left <= 0 {
		return strings.ToValidUTF8(string(k.head)+string(tail), "\uFFFD")
	}
	note := fmt.Sprintf("\n... [%d bytes left out] ...\n", left)
	return strings.ToValidUTF8(string(k.head), "\uFFFD") + note + strings.ToValidUTF8(string(tail), "\uFFFD")
}

// drain reads from into k; flooded is called once all streams that share the
// counter have given more than maxDrained bytes. It goes on reading to the end, so
// that nobody blocks; what it reads after that is the little that was under way.
func (k *keeper) drain(from io.Reader, read *atomic.Int64, flooded func()) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		_, _ = k.Write(buffer[:n])
		if read.Add(int64(n)) > maxDrained {
			flooded()
		}
		if err != nil {
			return
		}
	}
}
