package config

import (
	"slices"
	"strconv"
)

// NeedRestart returns the keys in which next differs, and which a process reads at its start
// only.
func (c *Config) NeedRestart(next *Config) (keys []string) {
	of := func(c *Config) map[string]string {
		return map[string]string{
			"data_dir": c.DataDir.raw, "database": c.Database.raw, "listen": c.Listen.raw, "bus.url": c.Bus.URL.raw,
			"telemetry.otlp": c.Telemetry.OTLP.raw, "telemetry.content": strconv.FormatBool(c.Telemetry.Content),
			"keys": c.Keys.raw, "log.level": c.Log.Level, "log.format": c.Log.Format, "log.file": c.Log.File.raw,
			"server.tls.cert": c.Server.TLS.Cert.raw, "server.tls.key": c.Server.TLS.Key.raw,
		}
	}
	now, then := of(c), of(next)
	for key := range now {
		if now[key] != then[key] {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
