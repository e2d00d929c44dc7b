package server

import "net/http"

// Taken says that a message was taken. Again is set if it was taken before.
type Taken struct {
	Again bool `json:"again"`
}

// maxPosted bounds a message that a program posts, in bytes: 64 KiB of text as JSON.
const maxPosted = 512 << 10

// channelRoute returns the route of messages to webhooks. They prove by their signatures where they come from.
func channelRoute() route {
	r := get("/api/channels/{name}", "Post a message to a channel of the type webhook, signed as Standard Webhooks defines",
		(*call).takePosted)
	r.method, r.open, r.status = http.MethodPost, true, http.StatusAccepted
	return r
}

func (c *call) takePosted() (out Taken, err error) {
	c.r.Body = http.MaxBytesReader(c.w, c.r.Body, maxPosted)
	body, err := c.readBody()
	if err != nil {
		return out, err
	}
	out.Again, err = c.chat.Posted(c, c.r.PathValue("name"), c.r.Header.Get, body)
	return out, err
}
