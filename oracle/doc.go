// Package oracle holds no code, only tests: the vendors' own libraries read the
// recorded replies of package modeltest and talk to its servers, and what they
// understand is compared with what the adapters yield. It is a module of its own,
// so that the libraries never become part of the product.
//
// With OPENAI_API_KEY, ANTHROPIC_API_KEY or GEMINI_API_KEY set (or TOOLCRIB_LIVE_OPENAI_URL,
// TOOLCRIB_LIVE_ANTHROPIC_URL, TOOLCRIB_LIVE_GEMINI_URL for a compatible server; TOOLCRIB_LIVE_OPENAI_MODEL,
// TOOLCRIB_LIVE_ANTHROPIC_MODEL and TOOLCRIB_LIVE_GEMINI_MODEL name the model) the adapters also talk to the
// real APIs. Else those tests say loudly that they were skipped.
package oracle
