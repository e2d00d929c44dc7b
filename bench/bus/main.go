// Command bus measures calls between two nodes over NATS beside the bare request of a NATS micro service with the same
// payload and the same checks by schema, in turns, in one process; the NATS server is another. It prints ratios, and
// what a call's signature costs alone, as do the keys of a call without a session. It also measures 1,000 streams at a
// time, and a node with 10,000 capabilities.
//
//	go run ./bus [-calls N] [-turns N]
package main

import (
	"context"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/hpke"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/bench/stat"
	"github.com/toolcrib/toolcrib/bus"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/natsbus"
)

const atOnce = 8 // calls

var (
	name     = bus.Name{Name: "bench.query", Major: 1}
	request  = json.RawMessage(`{"type":"object","properties":{"input":{"type":"object","properties":{"query":{"type":"string"},"k":{"type":"integer"}},"required":["query"]}},"required":["input"]}`)
	response = json.RawMessage(`{"type":"object","properties":{"chunks":{"type":"array","items":{"type":"string"}}},"required":["chunks"]}`)
	input    = json.RawMessage(`{"k":5,"query":"` + strings.Repeat("q", 200) + `"}`)
	output   = json.RawMessage(`{"chunks":["` + strings.Repeat("c", 1000) + `"]}`)
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "nats" {
		exit(serveNATS())
		return
	}
	calls := flag.Int("calls", 2000, "calls of each kind and turn")
	turns := flag.Int("turns", 11, "turns, of which medians are printed")
	profile := flag.String("profile", "", "write a CPU profile of calls to this `file`")
	flag.Parse()
	if *profile != "" {
		f, err := os.Create(*profile)
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			exit(err)
		}
	}
	err := bench(*calls, *turns)
	pprof.StopCPUProfile()
	exit(err)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bus:", err)
		os.Exit(1)
	}
}

// serveNATS runs a NATS server until its input ends, and prints its address.
func serveNATS() error {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true})
	if err != nil {
		return err
	}
	s.Start()
	if !s.ReadyForConnections(5 * time.Second) {
		return errors.New("the NATS server does not start")
	}
	fmt.Println(s.ClientURL())
	_, err = io.Copy(io.Discard, os.Stdin)
	s.Shutdown()
	return err
}

func startNATS() (url string, stop func(), err error) {
	c := exec.Command(os.Args[0], "nats")
	in, err := c.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		return "", nil, err
	}
	if _, err := fmt.Fscanln(out, &url); err != nil {
		return "", nil, err
	}
	return url, func() { _ = in.Close(); _ = c.Wait() }, nil
}

// compile returns a check of JSON by a schema.
func compile(schema json.RawMessage) (func(json.RawMessage) error, error) {
	check, err := gate.CompileSchema(schema)
	return func(raw json.RawMessage) error {
		value, err := guard.JSONLimits{MaxBytes: bus.MaxBody}.Value(raw)
		if err == nil {
			err = check(value)
		}
		return err
	}, err
}

func newNode(url string) (*bus.Node, func(), error) {
	seed := make([]byte, 32)
	_, _ = rand.Read(seed) // does not fail
	keys, err := bus.NewKeys(seed)
	if err != nil {
		return nil, nil, err
	}
	over, err := natsbus.DialNodes(context.Background(), natsbus.Options{URL: url})
	if err != nil {
		return nil, nil, err
	}
	n, err := bus.New(bus.Options{
		Keys: keys, Transport: over, Schema: gate.CompileSchema,
		Trust: func(context.Context, bus.Key) (toolcrib.Trust, error) { return toolcrib.TrustMember, nil },
	})
	if err != nil {
		over.Close()
		return nil, nil, err
	}
	return n, func() { n.Close(); over.Close() }, nil
}

func bench(calls, turns int) error {
	url, stop, err := startNATS()
	if err != nil {
		return err
	}
	defer stop()
	fmt.Printf("%s, %d CPUs; medians of %d turns\n", runtime.Version(), runtime.NumCPU(), turns)
	if err := pair(url, calls, turns); err != nil {
		return err
	}
	return discovery(url)
}

// pair measures two nodes.
func pair(url string, calls, turns int) error {
	a, closeA, err := newNode(url)
	if err != nil {
		return err
	}
	defer closeA()
	b, closeB, err := newNode(url)
	if err != nil {
		return err
	}
	defer closeB()
	if err := compare(url, a, b, calls, turns); err != nil {
		return err
	}
	return streams(a, b)
}

// bare returns a call to a micro service with the same checks.
func bare(url string) (call func() error, stop func(), err error) {
	served, err := nats.Connect(url)
	if err != nil {
		return nil, nil, err
	}
	caller, err := nats.Connect(url)
	if err != nil {
		return nil, nil, err
	}
	asked, err1 := compile(request)
	answered, err2 := compile(response)
	if err := errors.Join(err1, err2); err != nil {
		return nil, nil, err
	}
	_, err = micro.AddService(served, micro.Config{Name: "bare", Version: "1.0.0", Endpoint: &micro.EndpointConfig{
		Subject: "bare.query", Handler: micro.HandlerFunc(func(r micro.Request) {
			err := asked(r.Data())
			if err == nil {
				err = answered(output)
			}
			if err != nil {
				_ = r.Error("400", err.Error(), nil) // otherwise the caller waits in vain, and fails
				return
			}
			_ = r.Respond(output) // likewise
		}),
	}})
	if err == nil {
		err = served.Flush()
	}
	body := []byte(`{"input":` + string(input) + `}`)
	return func() error {
		m, err := caller.Request("bare.query", body, 10*time.Second)
		if err == nil && len(m.Data) != len(output) {
			err = fmt.Errorf("the service answers %s", m.Data)
		}
		return err
	}, func() { caller.Close(); served.Close() }, err
}

// compare measures calls.
func compare(url string, a, b *bus.Node, calls, turns int) error {
	err := b.Offer(bus.Descriptor{Name: name, Request: request, Response: response, MaxConcurrent: 100},
		func(context.Context, *bus.Exchange) (json.RawMessage, error) { return output, nil })
	if err != nil {
		return err
	}
	await(a, 1)
	plain, stop, err := bare(url)
	if err != nil {
		return err
	}
	defer stop()
	kinds := []struct {
		name string
		call func() error
	}{
		{"micro request", plain},
		{"call of a capability", func() error {
			_, err := a.Call(context.Background(), bus.Request{Name: name, Input: input})
			return err
		}},
		{"its signature alone", signature()},
		{"without a session, besides", agreement()},
	}
	cpu, wall := make([][]time.Duration, len(kinds)), make([][]time.Duration, len(kinds))
	for turn := range turns + 1 {
		for i, k := range kinds {
			c, w, err := measure(k.call, calls)
			if err != nil {
				return fmt.Errorf("%s: %w", k.name, err)
			}
			if turn > 0 {
				cpu[i], wall[i] = append(cpu[i], c), append(wall[i], w)
			}
		}
	}
	fmt.Printf("%-32s %10s %8s %8s\n", fmt.Sprintf("%d at once", atOnce), "CPU a call", "CPU ×", "wall ×")
	for i, k := range kinds {
		fmt.Printf("%-32s %10s %8.2f %8.2f\n", k.name, stat.Median(cpu[i]).Round(100*time.Nanosecond),
			stat.Ratio(cpu[i], cpu[0]), stat.Ratio(wall[i], wall[0]))
	}
	rest := make([]time.Duration, turns)
	for i := range rest {
		rest[i] = cpu[1][i] - cpu[2][i]
	}
	fmt.Printf("%-32s %10s %8.2f\n", "the call without the signature", stat.Median(rest).Round(100*time.Nanosecond),
		stat.Ratio(rest, cpu[0]))
	return nil
}

// measure returns the CPU time and the time of a call.
func measure(call func() error, calls int) (cpu, wall time.Duration, err error) {
	runtime.GC()
	var all sync.WaitGroup
	failed := make(chan error, atOnce)
	cpu0, began := stat.CPU(), time.Now()
	for range atOnce {
		all.Go(func() {
			for range calls / atOnce {
				if err := call(); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	all.Wait()
	select {
	case err = <-failed:
	default:
	}
	n := time.Duration(calls / atOnce * atOnce)
	return (stat.CPU() - cpu0) / n, time.Since(began) / n, err
}

// signature does what a call in a session signs: it is verified only when the call is passed on.
func signature() func() error {
	_, private, _ := ed25519.GenerateKey(rand.Reader)
	text := make([]byte, 400)
	return func() error {
		if len(ed25519.Sign(private, text)) == 0 {
			return errors.New("no signature")
		}
		return nil
	}
}

// agreement does what a call without a session signs, verifies and encrypts, with the same functions.
func agreement() func() error {
	public, private, _ := ed25519.GenerateKey(rand.Reader)
	kem := hpke.DHKEM(ecdh.X25519())
	key, _ := kem.GenerateKey()
	text := make([]byte, 900)
	return func() error {
		signature := ed25519.Sign(private, text[:400])
		enc, sender, err := hpke.NewSender(key.PublicKey(), hpke.HKDFSHA256(), hpke.AES128GCM(), nil)
		if err != nil {
			return err
		}
		sealed, err := sender.Seal(nil, text)
		if err != nil {
			return err
		}
		recipient, err := hpke.NewRecipient(enc, key, hpke.HKDFSHA256(), hpke.AES128GCM(), nil)
		if err != nil {
			return err
		}
		if _, err := recipient.Open(nil, sealed); err != nil || !ed25519.Verify(public, text[:400], signature) {
			return errors.New("a message cannot be opened")
		}
		return nil
	}
}

// await waits until a node knows a number of capabilities.
func await(n *bus.Node, count int) {
	for {
		changed := n.Changed()
		if len(n.Known()) >= count {
			return
		}
		<-changed
	}
}

// streams measures 1,000 streams at a time.
func streams(a, b *bus.Node) error {
	const at, frames = 1000, 100
	chat := bus.Name{Name: "bench.chat", Major: 1}
	data := json.RawMessage(`{"text":"a few words of an answer"}`)
	all := make(chan struct{}) // closed when all have started
	var started sync.WaitGroup
	started.Add(at)
	d := bus.Descriptor{Name: chat, MaxConcurrent: at}
	err := b.Offer(d, func(ctx context.Context, x *bus.Exchange) (json.RawMessage, error) {
		started.Done()
		<-all
		for range frames {
			if err := x.Send(ctx, bus.Frame{Event: "token", Data: data}); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	if err != nil {
		return err
	}
	await(a, 2)
	failed := make(chan error, at)
	var ended sync.WaitGroup
	for range at {
		ended.Go(func() {
			x, err := a.Open(context.Background(), bus.Request{Name: chat})
			for n := 0; err == nil; n++ {
				if _, err = x.Recv(context.Background()); err != nil && n != frames {
					failed <- fmt.Errorf("after %d frames: %w", n, err)
				}
			}
			if !errors.Is(err, io.EOF) {
				failed <- err
			}
		})
	}
	started.Wait()
	heap := heapNow()
	cpu0, began := stat.CPU(), time.Now()
	close(all)
	ended.Wait()
	select {
	case err := <-failed:
		return err
	default:
	}
	took, cpu := time.Since(began), stat.CPU()-cpu0
	fmt.Printf("%d streams at a time, %d frames each: %s, CPU %s a frame (both ends); both ends of a waiting stream: %d KiB\n",
		at, frames, took.Round(time.Millisecond), (cpu / (at * frames)).Round(100*time.Nanosecond), heap/at>>10)
	return nil
}

func heapNow() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// discovery measures how a node learns 10,000 capabilities of another one, and finds one of them.
func discovery(url string) error {
	const many = 10_000
	b, closeB, err := newNode(url)
	if err != nil {
		return err
	}
	defer closeB()
	for i := range many {
		err := b.Offer(bus.Descriptor{
			Name: bus.Name{Name: fmt.Sprintf("bench.many%d", i), Major: 1}, Description: strings.Repeat("d", 100),
			Request: request, Response: response,
		}, func(context.Context, *bus.Exchange) (json.RawMessage, error) { return output, nil })
		if err != nil {
			return err
		}
	}
	before := heapNow()
	a, closeA, err := newNode(url)
	if err != nil {
		return err
	}
	defer closeA()
	cpu0, began := stat.CPU(), time.Now()
	await(a, many)
	took, cpu := time.Since(began), stat.CPU()-cpu0
	heap := heapNow() - before
	began = time.Now()
	last := bus.Name{Name: fmt.Sprintf("bench.many%d", many-1), Major: 1}
	body := json.RawMessage(`{"query":"x"}`)
	if _, err := a.Call(context.Background(), bus.Request{Name: last, Input: body}); err != nil {
		return err
	}
	found := time.Since(began)
	began = time.Now()
	list := a.Known()
	listed := time.Since(began)
	fmt.Printf("%d capabilities: known %s after the start (CPU %s, both ends), listed in %s, one called in %s, %d MiB\n",
		len(list), took.Round(time.Millisecond), cpu.Round(time.Millisecond), listed.Round(time.Microsecond),
		found.Round(time.Microsecond), heap>>20)
	return nil
}
