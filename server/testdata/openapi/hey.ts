import { getRuns, getRunsId, getRunsIdEvents, postRuns, type Failure, type Run } from "./sdk";
import { client } from "./sdk/client.gen";

declare const process: { argv: string[] };
const [, , , token] = process.argv; // the address is that of the document

async function main() {
  client.setConfig({ auth: () => token });
  const started = await postRuns({ body: { input: "x" } });
  const run: Run = started.data!;
  const shown = await getRunsId({ path: { id: run.id } });
  const list = await getRuns({ query: { status: "completed", limit: 10 } });
  const missing = await getRunsId({ path: { id: "run_missing" } });
  const failure: Failure = missing.error!;
  let last = "";
  const events = await getRunsIdEvents({
    path: { id: run.id }, query: { until: "now" }, onSseEvent: (e) => { last = e.event ?? ""; },
  });
  for await (const data of events.stream) {
    if ("stop_reason" in data && "content" in data) console.error(data.content);
  }
  console.log(JSON.stringify({
    content: run.content, status: shown.data!.status, listed: list.data!.runs!.some((r: Run) => r.id === run.id),
    missing: failure.error, last,
  }));
}
void main();
