package natsbus_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/toolcrib/toolcrib/internal/natstest"
	"github.com/toolcrib/toolcrib/natsbus"
)

// authority is a certificate authority, with files in a folder.
type authority struct {
	t   *testing.T
	dir string
	key *ecdsa.PrivateKey
	ca  *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	a.ca, a.key = a.issue("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// issue writes a certificate and its key into name.pem and name.key.
func (a *authority) issue(name string, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := c, key
	if a.ca != nil {
		parent, signer = a.ca, a.key
	}
	raw, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err == nil {
		c, err = x509.ParseCertificate(raw)
	}
	private, keyErr := x509.MarshalECPrivateKey(key)
	if err != nil || keyErr != nil {
		a.t.Fatal(err, keyErr)
	}
	for file, block := range map[string]*pem.Block{
		name + ".pem": {Type: "CERTIFICATE", Bytes: raw}, name + ".key": {Type: "EC PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(a.file(file), pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	return c, key
}

// A bus that asks for a certificate and for the signature of an NKEY gets both, and not without them.
func TestOpen_TLSAndNKEY(t *testing.T) {
	a := newAuthority(t)
	a.issue("server", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	a.issue("client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, _ := user.PublicKey()
	seed, _ := user.Seed()
	if err := os.WriteFile(a.file("user.nk"), seed, 0o600); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(a.file("server.pem"), a.file("server.key"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.ca)
	c := natstest.Start(t, 1, func(o *server.Options) {
		o.TLSConfig = &tls.Config{
			Certificates: []tls.Certificate{pair}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert,
			MinVersion: tls.VersionTLS12,
		}
		o.TLSTimeout, o.Nkeys = 5, []*server.NkeyUser{{Nkey: public}}
	})
	o := options(t, strings.ReplaceAll(c.URL(), "nats:", "tls:"), "a")
	refused := func(what, want string) {
		t.Helper()
		b, err := natsbus.Open(t.Context(), o)
		if err == nil {
			t.Logf("%+v", b.State())
			b.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without %s: %v, want %s", what, err, want)
		}
	}
	refused("the authority", "set bus.ca_file")
	o.CAFile = a.file("ca.pem")
	refused("a certificate", "TLS")
	o.CertFile, o.KeyFile = a.file("client.pem"), a.file("client.key")
	refused("credentials", "refuses the credentials")
	o.Credentials = a.file("user.nk")
	b, err := natsbus.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if s := b.State(); !s.Connected {
		t.Errorf("state %+v", s)
	}
}

// A bus with accounts takes the credentials of a user of one, a .creds file.
func TestOpen_Creds(t *testing.T) {
	operator, _ := nkeys.CreateOperator()
	account, _ := nkeys.CreateAccount()
	user, _ := nkeys.CreateUser()
	system, _ := nkeys.CreateAccount()
	public := func(k nkeys.KeyPair) string {
		text, err := k.PublicKey()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	encode := func(c jwt.Claims, by nkeys.KeyPair) string {
		text, err := c.Encode(by)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	ac := jwt.NewAccountClaims(public(account))
	ac.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
	resolver := &server.MemAccResolver{}
	for k, c := range map[nkeys.KeyPair]*jwt.AccountClaims{account: ac, system: jwt.NewAccountClaims(public(system))} {
		if err := resolver.Store(public(k), encode(c, operator)); err != nil {
			t.Fatal(err)
		}
	}
	oc := jwt.NewOperatorClaims(public(operator))
	oc.SystemAccount = public(system)
	seed, _ := user.Seed()
	text, err := jwt.FormatUserConfig(encode(jwt.NewUserClaims(public(user)), account), seed)
	file := filepath.Join(t.TempDir(), "user.creds")
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := natstest.Start(t, 1, func(o *server.Options) {
		o.TrustedOperators, o.AccountResolver, o.SystemAccount = []*jwt.OperatorClaims{oc}, resolver, public(system)
	})
	o := options(t, c.URL(), "a")
	if b, err := natsbus.Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), "refuses the credentials") {
		t.Errorf("without credentials: %v %v", b, err)
	}
	o.Credentials = file
	b, err := natsbus.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if s := b.State(); !s.Connected {
		t.Errorf("state %+v", s)
	}
}
