// Package bus connects nodes: a node offers capabilities to others, and calls theirs. It has the protocol between two
// nodes and the decisions about a call (versions, schemas, trust, tokens, bounds, routing, health); a [Transport]
// carries its messages, which may be lost, doubled, reordered, read and forged on the way.
//
// A node is an installation of toolcrib: all servers of one database are instances of one node, and have its keys. A
// call is signed by the node that makes it, encrypted for the node that serves it, and names whom it acts for. Further
// calls between two instances share a key agreement. The serving node believes the signature and its own register of
// nodes only: a call has the lowest trust of the nodes and users that it passes.
package bus
