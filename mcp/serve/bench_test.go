package serve_test

import (
	"testing"

	"github.com/toolcrib/toolcrib/service"
)

// BenchmarkServing is what a call costs without a client: judged, run and recorded.
func BenchmarkServing(b *testing.B) {
	c := stock(b, "")
	v, err := c.s.Serve(b.Context(), c.who, service.StartRequest{})
	if err != nil {
		b.Fatal(err)
	}
	defer v.Close()
	read := service.ServedCall{Client: "x", Name: "read_file", Arguments: []byte(`{"path":"a.txt"}`)}
	b.ReportAllocs()
	for b.Loop() {
		if out, err := v.Call(b.Context(), read, service.Front{}); err != nil || out.Result == nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOffer is what comparing a client's list with the offer costs, once a second.
func BenchmarkOffer(b *testing.B) {
	c := stock(b, "")
	v, err := c.s.Serve(b.Context(), c.who, service.StartRequest{})
	if err != nil {
		b.Fatal(err)
	}
	defer v.Close()
	for b.Loop() {
		if _, err := v.Offer(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
