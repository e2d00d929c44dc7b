// Package oracle contains only tests: the vendors' own libraries read the recorded replies of package
// modeltest and talk to its servers, and their results are compared with those of the adapters. It is a
// module of its own, so that the libraries never become part of the product.
//
// With OPENAI_API_KEY, ANTHROPIC_API_KEY or GEMINI_API_KEY set (or TOOLCRIB_LIVE_OPENAI_URL,
// TOOLCRIB_LIVE_ANTHROPIC_URL, TOOLCRIB_LIVE_GEMINI_URL for a compatible server;
// TOOLCRIB_LIVE_OPENAI_MODEL, TOOLCRIB_LIVE_ANTHROPIC_MODEL and TOOLCRIB_LIVE_GEMINI_MODEL name the
// model) the adapters also talk to the real APIs. Otherwise those tests report that they were skipped.
package oracle
