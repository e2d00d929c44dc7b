// A client of the official SDK, driven by lines of JSON on standard input: its first line says
// which SDK, which server and what the client can do, each other one makes a call, or cancels the
// one before it. What comes of it, and what the client is asked, are lines on standard output.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { join } from "node:path";

const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const next = async () => {
  const { value, done } = await lines.next();
  return done ? undefined : JSON.parse(value);
};
const o = await next();
const load = (...path) => import(pathToFileURL(join(o.modules, "@modelcontextprotocol", ...path)).href);

let Client, StdioClientTransport, StreamableHTTPClientTransport, elicitation, progress = { onprogress: (p) => say({ progress: p }) };
if (o.major === 1) {
  ({ Client } = await load("sdk", "dist", "esm", "client", "index.js"));
  ({ StdioClientTransport } = await load("sdk", "dist", "esm", "client", "stdio.js"));
  ({ StreamableHTTPClientTransport } = await load("sdk", "dist", "esm", "client", "streamableHttp.js"));
  elicitation = (await load("sdk", "dist", "esm", "types.js")).ElicitRequestSchema;
} else {
  ({ Client, StreamableHTTPClientTransport } = await load("client", "dist", "index.mjs"));
  ({ StdioClientTransport } = await load("client", "dist", "stdio.mjs"));
  elicitation = "elicitation/create";
}

let answer; // to what the client is asked during a call
const client = new Client({ name: o.name, version: "1.0" }, {
  capabilities: o.capabilities,
  ...(o.pin ? { versionNegotiation: { mode: { pin: o.pin } } } : {}),
});
if (o.capabilities.elicitation) {
  client.setRequestHandler(elicitation, async (request) => {
    say({ asked: request.params });
    return answer;
  });
}
const transport = o.url
  ? new StreamableHTTPClientTransport(new URL(o.url), { requestInit: { headers: { Authorization: `Bearer ${o.token}` } } })
  : new StdioClientTransport({ command: o.command, args: o.args, env: o.env, cwd: o.cwd, stderr: "inherit" });
try {
  await client.connect(transport);
  say({ connected: client.getServerVersion(), instructions: client.getInstructions(), pid: transport.pid });
  for (let coming = next(), step; (step = await coming); ) {
    coming = next();
    if (step.cancel) continue; // that was for the call before it
    answer = step.answer;
    const stop = new AbortController();
    coming.then((line) => line?.cancel && stop.abort("changed my mind"));
    const options = { signal: stop.signal, timeout: step.timeout ?? 240000, ...(step.progress ? progress : {}) };
    const call = step.list ? client.listTools() : step.read ? client.readResource({ uri: step.read }) :
      o.major === 1 ? client.callTool({ name: step.call, arguments: step.arguments }, undefined, options) :
      client.callTool({ name: step.call, arguments: step.arguments }, options);
    await call.then((result) => say({ result }), (error) => say({ error: String(error) }));
  }
  await transport.terminateSession?.();
  await client.close();
  say({ closed: true });
} catch (error) {
  say({ failed: String(error) });
}
process.exit(0);
