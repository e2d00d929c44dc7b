import createClient from "openapi-fetch";
import type { components, paths } from "./schema";

declare const process: { argv: string[] };
const [, , baseUrl, token] = process.argv;

async function main() {
  const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${token}` } });
  const started = await client.POST("/api/runs", { body: { input: "x" } });
  const run: components["schemas"]["Run"] = started.data!;
  const shown = await client.GET("/api/runs/{id}", { params: { path: { id: run.id } } });
  const list = await client.GET("/api/runs", { params: { query: { status: "completed", limit: 10 } } });
  const missing = await client.GET("/api/runs/{id}", { params: { path: { id: "run_missing" } } });
  const code: components["schemas"]["Failure"]["error"] = missing.error!.error;
  console.log(JSON.stringify({
    content: run.content, status: shown.data!.status, listed: list.data!.runs!.some((r: components["schemas"]["Run"]) => r.id === run.id),
    missing: code, last: "done",
  }));
}
void main();
