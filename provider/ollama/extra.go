package ollama

import (
	"errors"
	"slices"

	"github.com/toolcrib/toolcrib/provider/wire"
)

// optionNames are the names of Modelfile parameters and of older options. Ollama
// takes them inside options only; in extra they may stand at the top as well.
var optionNames = [...]string{
	"num_ctx", "num_predict", "num_keep", "num_batch", "num_gpu", "main_gpu", "num_thread", "draft_num_predict",
	"seed", "temperature", "top_k", "top_p", "min_p", "typical_p", "tfs_z", "stop",
	"repeat_last_n", "repeat_penalty", "presence_penalty", "frequency_penalty", "penalize_newline",
	"mirostat", "mirostat_eta", "mirostat_tau",
	"use_mmap", "use_mlock", "low_vram", "f16_kv", "vocab_only", "numa",
}

// splitExtra parts the extra fields into those of the body and those of its
// options. A name that is in both places counts as it stands in options.
func splitExtra(x wire.Extra) (top, options wire.Extra, err error) {
	if raw := x.Get("options"); raw != nil {
		if options, err = wire.ParseExtra(raw); err != nil {
			return top, options, errors.New("extra.options: must be an object")
		}
	}
	for _, f := range x.Fields {
		switch {
		case f.Name == "options" || f.Name == "stream":
		case !slices.Contains(optionNames[:], f.Name):
			top.Fields = append(top.Fields, f)
		case options.Get(f.Name) == nil:
			options.Fields = append(options.Fields, f)
		}
	}
	return top, options, nil
}
