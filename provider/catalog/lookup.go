package catalog

import (
	"net/url"
	"regexp"
	"strings"
)

// ownAddress is where a provider type speaks to without a base_url, and whose
// list counts there.
func ownAddress(providerType string) (vendor string, ok bool) {
	switch providerType {
	case "openai", "anthropic", "gemini":
		return providerType, true
	}
	return "", false
}

// vendorHosts are the addresses of vendors whose lists name none. A host that
// begins with a dot stands for what is below it.
func vendorHosts() []struct{ host, vendor string } {
	return []struct{ host, vendor string }{
		{"api.openai.com", "openai"},
		{".api.openai.com", "openai"}, // regions, such as eu.api.openai.com
		{"api.anthropic.com", "anthropic"},
		{"generativelanguage.googleapis.com", "gemini"},
		{".openai.azure.com", "azure"},
		{".cognitiveservices.azure.com", "azure"},
		{".services.ai.azure.com", "azure"},
	}
}

// provider returns the list that counts at an address; nil = none does.
func (c *Catalog) provider(providerType, baseURL string) *provider {
	vendor, known := ownAddress(providerType)
	if !known {
		return nil
	}
	if baseURL == "" {
		return c.named(vendor)
	}
	host, path := place(baseURL)
	if host == "" {
		return nil
	}
	for _, v := range vendorHosts() {
		if host == v.host || v.host[0] == '.' && strings.HasSuffix(host, v.host) {
			return c.named(v.vendor)
		}
	}
	var found *provider
	longest := -1
	for i := range c.providers {
		p := &c.providers[i]
		ownHost, ownPath := place(p.baseURL)
		if ownHost != host || !samePath(path, ownPath) {
			continue
		}
		if len(ownPath) > longest {
			found, longest = p, len(ownPath)
		}
	}
	return found
}

func (c *Catalog) named(id string) *provider {
	for i := range c.providers {
		if c.providers[i].id == id {
			return &c.providers[i]
		}
	}
	return nil
}

// place is the host of an address, without its port and in small letters, and the
// path, without a slash at its end; "" = it is no address of HTTP.
func place(address string) (host, path string) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return "", ""
	}
	return strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")), strings.TrimRight(u.Path, "/")
}

// samePath reports whether one path leads to the other: a base_url may leave out
// the end of the vendor's own (/v1), or have more than it.
func samePath(a, b string) bool {
	return a == b || strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/")
}

var (
	dated   = regexp.MustCompile(`-(20[0-9]{2})-?(0[1-9]|1[0-2])-?(0[1-9]|[12][0-9]|3[01])$`)
	version = regexp.MustCompile(`-0[0-9]{2}$`) // of Gemini: gemini-2.5-flash-001
)

// notTheSame are versions whose price is not that of their name without the date.
func notTheSame(vendor, model string) bool {
	return model == "gpt-4o-2024-05-13" || model == "openai/gpt-4o-2024-05-13" ||
		vendor == "azure" && model == "gpt-4o-2024-05-13"
}

// find finds a model in a list.
func find(models []Model, vendor, model string) (Model, bool) {
	if m, ok := exact(models, model); ok {
		return m, true
	}
	if notTheSame(vendor, model) {
		return Model{}, false
	}
	if vendor == "gemini" {
		if m, ok := exact(models, version.ReplaceAllString(strings.TrimPrefix(model, "models/"), "")); ok {
			return m, true
		}
		model = strings.TrimPrefix(model, "models/")
	}
	if short := dated.ReplaceAllString(model, ""); short != model {
		return exact(models, short)
	}
	short := strings.TrimSuffix(model, "-latest")
	if m, ok := exact(models, short); ok {
		return m, true
	}
	return newest(models, short)
}

func exact(models []Model, id string) (Model, bool) {
	for i := range models {
		if models[i].ID == id {
			return models[i], true
		}
	}
	return Model{}, false
}

// newest returns the newest of the dated versions of a model.
func newest(models []Model, name string) (found Model, ok bool) {
	last := ""
	for i := range models {
		date := dated.FindStringSubmatch(models[i].ID)
		if date == nil || strings.TrimSuffix(models[i].ID, date[0]) != name {
			continue
		}
		if day := date[1] + date[2] + date[3]; day > last {
			found, ok, last = models[i], true, day
		}
	}
	return found, ok
}
