package web_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/web"
	"github.com/toolcrib/toolcrib/toolcribtest/tooltest"
)

const inNamespace = "TOOLCRIB_TEST_NAMESPACE"

// TestSSRF tries to reach addresses that must not be reached, each with a listener that is
// really there: in a network namespace in which every IP address is this machine's own.
func TestSSRF(t *testing.T) { inWorld(t, (*world).run) }

// inWorld runs a test in a copy of this program, in such a namespace.
func inWorld(t *testing.T, run func(*world)) {
	if os.Getenv(inNamespace) == "" {
		self := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		self.Env = append(os.Environ(), inNamespace+"=1")
		for _, name := range proxies { // they are read once, when a program first asks for them
			self.Env = append(self.Env, name+"=http://127.0.0.1:3128")
		}
		self.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
		out, err := self.CombinedOutput()
		if started := new(exec.ExitError); err != nil && !errors.As(err, &started) {
			t.Skipf("SKIP: this machine allows no network namespace (%v); as root, or after sysctl "+
				"kernel.unprivileged_userns_clone=1 and kernel.apparmor_restrict_unprivileged_userns=0, "+
				"300 cases against real addresses run here", err)
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for line := range strings.SplitSeq(string(out), "\n") {
			if strings.Contains(line, "cases") {
				t.Log(strings.TrimSpace(line))
			}
		}
		return
	}
	if err := ownEverything(); err != nil {
		t.Fatalf("the namespace: %v", err)
	}
	run(newWorld(t))
}

// ownEverything makes every IPv4 and IPv6 address one of this machine's loopback device.
func ownEverything() error {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return err
	}
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(s) //nolint:errcheck // the process ends soon
	order := binary.NativeEndian
	ask := func(kind, flags uint16, body []byte) error {
		message := append(make([]byte, unix.SizeofNlMsghdr), body...)
		order.PutUint32(message, uint32(len(message)))
		order.PutUint16(message[4:], kind)
		order.PutUint16(message[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK|flags)
		if err := unix.Sendto(s, message, 0, &unix.SockaddrNetlink{}); err != nil {
			return err
		}
		reply := make([]byte, 4096)
		n, _, err := unix.Recvfrom(s, reply, 0)
		if err != nil || n < 20 {
			return fmt.Errorf("netlink answered %d bytes, %w", n, err)
		}
		if code := int32(order.Uint32(reply[16:])); code != 0 {
			return syscall.Errno(-code)
		}
		return nil
	}
	up := make([]byte, unix.SizeofIfInfomsg)
	order.PutUint32(up[4:], uint32(lo.Index))
	order.PutUint32(up[8:], unix.IFF_UP)
	order.PutUint32(up[12:], unix.IFF_UP)
	if err := ask(unix.RTM_NEWLINK, 0, up); err != nil {
		return fmt.Errorf("lo up: %w", err)
	}
	for _, version := range []byte{unix.AF_INET, unix.AF_INET6} {
		route := make([]byte, unix.SizeofRtMsg+8)
		route[0], route[4], route[5], route[6], route[7] = version, unix.RT_TABLE_LOCAL, unix.RTPROT_BOOT, unix.RT_SCOPE_HOST, unix.RTN_LOCAL
		order.PutUint16(route[unix.SizeofRtMsg:], 8)
		order.PutUint16(route[unix.SizeofRtMsg+2:], unix.RTA_OIF)
		order.PutUint32(route[unix.SizeofRtMsg+4:], uint32(lo.Index))
		if err := ask(unix.RTM_NEWROUTE, unix.NLM_F_CREATE, route); err != nil {
			return fmt.Errorf("route of address type %d: %w", version, err)
		}
	}
	return nil
}

// world is a network of which every address is ours.
type world struct {
	t        *testing.T
	resolver *net.Resolver
	roots    *x509.CertPool

	mu        sync.Mutex
	connected []string                  // what listeners were connected to
	names     map[string][][]netip.Addr // answers, one after another; the last forever
	asked     map[string]int
	redirect  string // what http://public.test/r leads to
	status    int
	count     int
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, names: map[string][][]netip.Addr{}, asked: map[string]int{}, roots: x509.NewCertPool()}
	certificate := w.certificate()
	for _, port := range []string{"22", "80", "443", "3128", "6379", "8080"} {
		l, err := net.Listen("tcp", "[::]:"+port)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() }) //nolint:errcheck // the process ends
		server := &http.Server{Handler: w, ErrorLog: log.New(discard{}, "", 0), ConnState: func(c net.Conn, s http.ConnState) {
			if s == http.StateNew {
				at, _ := netip.ParseAddrPort(c.LocalAddr().String())
				w.mu.Lock()
				w.connected = append(w.connected, netip.AddrPortFrom(at.Addr().Unmap(), at.Port()).String())
				w.mu.Unlock()
			}
		}}
		if port == "443" {
			l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{certificate}})
		}
		go server.Serve(l) //nolint:errcheck // it ends with the test
	}
	w.dns()
	return w
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

func (w *world) ServeHTTP(to http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.URL.Path == "/r" {
		to.Header().Set("Location", w.redirect)
		to.WriteHeader(w.status)
		return
	}
	fmt.Fprint(to, `{"results":[]} reached`)
}

// certificate is one for every name of the tests.
func (w *world) certificate() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		w.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"*.test"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		w.t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		w.t.Fatal(err)
	}
	w.roots.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// trusting lets a connection believe the certificate.
func (w *world) trusting(t *http.Transport) { t.TLSClientConfig.RootCAs = w.roots }

// dns answers for names of the tests.
func (w *world) dns() {
	c, err := net.ListenPacket("udp", "127.0.0.1:53")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() }) //nolint:errcheck // the process ends
	w.resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", "127.0.0.1:53")
	}}
	go func() {
		b := make([]byte, 4096)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(b[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			reply := dnsmessage.Message{
				Header: dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true}, Questions: m.Questions,
			}
			for _, addr := range w.lookup(strings.TrimSuffix(q.Name.String(), "."), q.Type) {
				header := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, Type: q.Type}
				if addr.Is4() {
					reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: addr.As4()}})
				} else {
					reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}})
				}
			}
			if out, err := reply.Pack(); err == nil {
				_, _ = c.WriteTo(out, from)
			}
		}
	}()
}

func (w *world) lookup(name string, kind dnsmessage.Type) (found []netip.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	rounds := w.names[name]
	if len(rounds) == 0 {
		return nil
	}
	// A and AAAA of one lookup get the same round.
	round := w.asked[name] / 2
	w.asked[name]++
	for _, addr := range rounds[min(round, len(rounds)-1)] {
		if addr.Is4() == (kind == dnsmessage.TypeA) {
			found = append(found, addr)
		}
	}
	return found
}

// name makes a name that is at these addresses, in each lookup at the next.
func (w *world) name(rounds ...string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := fmt.Sprintf("n%d.test", len(w.names))
	for _, round := range rounds {
		var addrs []netip.Addr
		for text := range strings.FieldsSeq(round) {
			addrs = append(addrs, netip.MustParseAddr(text))
		}
		w.names[name] = append(w.names[name], addrs)
	}
	return name
}

// try fetches an address and returns what was connected to, and the error.
func (w *world) try(o web.Options, address string) (connected []string, err error) {
	w.mu.Lock()
	w.connected = nil
	w.mu.Unlock()
	w.count++
	tool := web.NewOn(o, w.resolver, w.trusting)[0]
	c := call(address)
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	if err = tooltest.Refused(tool, c); err == nil {
		_, err = tool.Call(ctx, c)
	} else if _, again := tool.Call(ctx, c); again == nil {
		w.t.Errorf("%s: refused by Admit (%v), but called", address, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return append(connected, w.connected...), err
}

// refused wants no connection but to the addresses of before.
func (w *world) refused(o web.Options, address string, before ...string) {
	w.t.Helper()
	connected, err := w.try(o, address)
	if err == nil || strings.Join(connected, " ") != strings.Join(before, " ") {
		w.t.Errorf("%s: connected to %v, %v", address, connected, err)
	}
}

func (w *world) reached(o web.Options, address, at string) {
	w.t.Helper()
	connected, err := w.try(o, address)
	if err != nil || len(connected) == 0 || connected[len(connected)-1] != at {
		w.t.Errorf("%s: connected to %v, %v", address, connected, err)
	}
}

// proxies are variables that name a proxy.
var proxies = []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"}

// Addresses by what they are. Of private ones some more say how far a range reaches.
var (
	publicAddrs  = strings.Fields("8.8.8.8 93.184.216.34 172.32.0.1 172.15.255.255 100.128.0.1 192.169.0.1 11.0.0.1 126.255.255.255 2606:4700::1111 2a00:1450::1")
	privateAddrs = strings.Fields("127.0.0.1 127.0.0.2 127.255.255.254 10.0.0.1 10.255.255.255 172.16.0.1 172.31.255.255 192.168.0.1 " +
		"192.168.255.254 100.64.0.1 100.127.255.254 198.18.0.1 198.19.255.254 ::1 fc00::1 fd12:3456:789a::1 fdff::1")
	neverAddrs = strings.Fields("169.254.169.254 169.254.170.2 169.254.0.1 168.63.129.16 100.100.100.200 192.0.0.192 0.0.0.1 0.255.255.254 " +
		"192.0.0.1 192.0.2.1 198.51.100.1 203.0.113.1 192.88.99.1 240.0.0.1 254.1.1.1 fd00:ec2::254 fd20:ce::254 2002:7f00:1:: 2002:a9fe:a9fe:: " +
		"2002:808:808:: 2001::1 2001:0:7f00:1:: 2001:db8::1 64:ff9b::7f00:1 64:ff9b::a00:1 64:ff9b::a9fe:a9fe 64:ff9b:1::7f00:1 " +
		"::127.0.0.1 ::a9fe:a9fe ::ffff:0:7f00:1 fec0::1 100::1 3fff::1 5f00::1")
	spellings = strings.Fields("http://2130706433/ http://0x7f000001/ http://0x7F.0.0.1/ http://017700000001/ http://0177.0.0.1/ " +
		"http://127.1/ http://127.0.1/ http://127.0.0.01/ http://127.0.0.1./ http://①②⑦.⓪.⓪.①/ http://１２７.０.０.１/ http://127。0。0。1/ " +
		"http://127．0．0．1/ http://127｡0｡0｡1/ http://%31%32%37.0.0.1/ http://127.0.0.1%2f@8.8.8.8/ http://8.8.8.8@127.0.0.1/ " +
		"http://8.8.8.8:80@127.0.0.1/ http://user:pw@127.0.0.1/ http://127.0.0.1\\@8.8.8.8/ http://8.8.8.8\\@127.0.0.1/ http:\\\\127.0.0.1/ " +
		"http://127.0.0.1#@8.8.8.8/ http://127.0.0.1?@8.8.8.8/ http://[::1]/ http://[0:0:0:0:0:0:0:1]/ http://[::ffff:127.0.0.1]/ " +
		"http://[::ffff:7f00:1]/ http://[0:0:0:0:0:ffff:7f00:0001]/ http://[::127.0.0.1]/ http://[::1%25lo]/ http://[::1%lo]/ " +
		"http://[64:ff9b::127.0.0.1]/ http://[64:ff9b::7f00:1]/ http://[2002:7f00:1::]/ http://[::]/ http://0/ http://0.0.0.0/ http://0x0/ " +
		"http://00000177.0.0.1/ http://0x7f.1/ http://127.0x1/ http://4294967296/ http://425.510.425.510/ http://7147006462/ " +
		"http://2852039166/ http://0xA9FEA9FE/ http://0251.0376.0251.0376/ http://169.254.43518/ http://169.16689662/ " +
		"http://①⑥⑨.②⑤④.①⑥⑨.②⑤④/ http://[::ffff:169.254.169.254]/ http://[::ffff:a9fe:a9fe]/ http://[64:ff9b::a9fe:a9fe]/ " +
		"http://[fe80::1]/ http://[fe80::1%25eth0]/ http://[ff02::1]/ http://localhost/ http://LOCALHOST/ http://localhost./ " +
		"http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ/ http://ˡocalhost/ http://local\u00ADhost/ http://127.0.0.1:80:80/ http://127.0.0.1:22/ " +
		"http://127.0.0.1:080/ http://127.0.0.1:0x50/ http:127.0.0.1 http:/127.0.0.1 http:///127.0.0.1/ //127.0.0.1/ 127.0.0.1 " +
		"ftp://127.0.0.1/ gopher://127.0.0.1:6379/_x file:///etc/passwd dict://127.0.0.1:6379/ unix:///run/x jar:http://127.0.0.1!/ " +
		"http://8.8.8.8:22/ http://8.8.8.8:6379/ http://8.8.8.8:8080/ http://[::ffff:0:127.0.0.1]/ http://[0::ffff:0a00:0001]/")
)

// bracketed is an address as a URL has it.
func bracketed(addr string) string {
	if strings.Contains(addr, ":") {
		return "[" + addr + "]"
	}
	return addr
}

func at(addr, port string) string {
	return net.JoinHostPort(netip.MustParseAddr(addr).Unmap().String(), port)
}

func (w *world) run() {
	anyPublic := web.Options{Allow: []string{"*"}}
	withPrivate := web.Options{Allow: []string{"*"}, AllowPrivate: true}
	named := web.Options{Allow: []string{"*", "*.test"}, AllowPrivate: true}
	for i := range 1000 { // so that names that are made later are named as well
		named.Allow = append(named.Allow, fmt.Sprintf("n%d.test", i))
	}
	forbidden := append(append([]string{}, privateAddrs...), neverAddrs...)

	w.t.Run("the listeners are there", func(t *testing.T) {
		for _, addr := range append(append([]string{}, forbidden...), publicAddrs...) {
			c, err := net.DialTimeout("tcp", net.JoinHostPort(addr, "80"), 5*time.Second)
			if err != nil {
				t.Errorf("%s: %v: the cases below would prove nothing", addr, err)
				continue
			}
			c.Close() //nolint:errcheck // only whether it can be reached
		}
	})
	w.each("public", publicAddrs, func(addr string) {
		w.reached(anyPublic, "http://"+bracketed(addr)+"/", at(addr, "80"))
		w.reached(anyPublic, "http://"+w.name(addr)+"/", at(addr, "80"))
		w.reached(anyPublic, "https://"+w.name(addr)+"/", at(addr, "443"))
	})
	w.each("literal", forbidden, func(addr string) {
		w.refused(anyPublic, "http://"+bracketed(addr)+"/")
		w.refused(withPrivate, "http://"+bracketed(addr)+"/") // * is any public host
	})
	w.each("by name", forbidden, func(addr string) {
		w.refused(anyPublic, "http://"+w.name(addr)+"/")
		w.refused(anyPublic, "https://"+w.name(addr)+"/")
		w.refused(web.Options{Allow: named.Allow}, "http://"+w.name(addr)+"/")
	})
	w.each("named, and private ones allowed", privateAddrs, func(addr string) {
		w.reached(named, "http://"+w.name(addr)+"/", at(addr, "80"))
		w.reached(web.Options{Allow: []string{bracketed(addr)}, AllowPrivate: true}, "http://"+bracketed(addr)+"/", at(addr, "80"))
	})
	w.each("never, whatever is allowed", neverAddrs, func(addr string) {
		w.refused(named, "http://"+w.name(addr)+"/")
		w.refused(web.Options{Allow: []string{"*", bracketed(addr)}, AllowPrivate: true}, "http://"+bracketed(addr)+"/")
	})
	w.each("spelling", spellings, func(address string) {
		w.refused(anyPublic, address)
		w.refused(withPrivate, address)
	})
	w.each("redirect", forbidden, func(addr string) {
		for i, target := range []string{"http://" + bracketed(addr) + "/", "http://" + w.name(addr) + "/"} {
			w.redirect, w.status = target, []int{301, 302, 303, 307, 308}[(w.count+i)%5]
			w.refused(anyPublic, "http://"+w.name("8.8.8.8")+"/r", "8.8.8.8:80")
		}
	})
	w.each("redirect by a spelling", spellings, func(address string) {
		if !strings.Contains(address, "://") || strings.HasPrefix(address, "//") || strings.Contains(address, "jar:") {
			return // it is relative, and stays where it is
		}
		w.redirect, w.status = address, 302
		w.refused(anyPublic, "http://"+w.name("8.8.8.8")+"/r", "8.8.8.8:80")
	})
	w.each("rebinding", []string{"127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "168.63.129.16"}, func(addr string) {
		// What the second lookup says is what would be connected to.
		name := w.name("8.8.8.8", addr)
		w.redirect, w.status = "http://"+name+"/", 302
		w.reached(anyPublic, "http://"+name+"/x", "8.8.8.8:80")
		w.refused(anyPublic, "http://"+name+"/y")
		again := w.name("8.8.8.8", addr)
		w.redirect = "http://" + again + "/"
		w.refused(anyPublic, "http://"+again+"/r", "8.8.8.8:80")
		// Of several addresses only those that may be reached are tried.
		for _, both := range []string{addr + " 8.8.8.8", "8.8.8.8 " + addr} {
			w.reached(anyPublic, "http://"+w.name(both)+"/", "8.8.8.8:80")
		}
		w.refused(anyPublic, "http://"+w.name(addr+" 10.9.9.9")+"/")
	})
	w.each("mapped in an answer", []string{"127.0.0.1", "10.0.0.1", "169.254.169.254", "168.63.129.16"}, func(addr string) {
		w.refused(anyPublic, "http://"+w.name("::ffff:"+addr)+"/")
	})
	w.each("proxy", proxies, func(variable string) {
		if os.Getenv(variable) == "" {
			w.t.Errorf("%s is not set", variable)
		}
		w.reached(anyPublic, "http://"+w.name("8.8.8.8")+"/", "8.8.8.8:80")
		w.reached(anyPublic, "https://"+w.name("8.8.8.8")+"/", "8.8.8.8:443")
	})
	w.each("search", neverAddrs, func(addr string) {
		for _, endpoint := range []string{"http://" + bracketed(addr) + "/", "http://" + w.name(addr) + "/"} {
			w.search(endpoint, false)
		}
	})
	w.each("search of one's own", []string{"127.0.0.1", "10.0.0.1", "::1", "8.8.8.8"}, func(addr string) {
		w.search("http://"+w.name(addr)+":8080/", true)
	})
	w.t.Logf("%d cases", w.count)
	if w.count < 300 {
		w.t.Errorf("only %d cases were tried", w.count)
	}
}

func (w *world) each(name string, list []string, do func(string)) {
	outer := w.t
	defer func() { w.t = outer }()
	for _, one := range list {
		outer.Run(name+"/"+strings.ReplaceAll(one, "/", "∕"), func(t *testing.T) {
			w.t = t
			do(one)
		})
	}
}

func (w *world) search(endpoint string, ok bool) {
	w.t.Helper()
	w.mu.Lock()
	w.connected = nil
	w.mu.Unlock()
	w.count++
	o := web.Options{SearchEndpoint: func() (string, error) { return endpoint, nil }}
	_, err := web.NewOn(o, w.resolver, w.trusting)[1].Call(w.t.Context(), toolcrib.Call{Arguments: []byte(`{"query":"x"}`)})
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.connected) > 0 != ok {
		w.t.Errorf("%s: connected to %v, %v", endpoint, w.connected, err)
	}
}
