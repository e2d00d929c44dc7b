// An editor that speaks the Agent Client Protocol with the official SDK. Standard input has the arguments as JSON: the
// module of the SDK, the command, the folder, and the steps. Standard output is a list of what each step saw.
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const input = JSON.parse(readFileSync(0, "utf8"));
const acp = await import(pathToFileURL(input.sdk + "/node_modules/@agentclientprotocol/sdk/dist/v1/stable/acp.js").href);
const { agent, session, fs } = { agent: acp.methods.agent, session: acp.methods.client.session, fs: acp.methods.client.fs };

let child, connection, seen;
let answers = [];
let buffers = {};
let onPermission = () => {};

function start() {
  child = spawn(input.command[0], input.command.slice(1), { cwd: input.folder, stdio: ["pipe", "pipe", "inherit"] });
  const app = acp
    .client({ name: "editor" })
    .onRequest(session.requestPermission, async ({ params }) => {
      seen.asked.push(params);
      const answer = answers.shift();
      await onPermission();
      if (!answer) return { outcome: { outcome: "cancelled" } };
      return { outcome: { outcome: "selected", optionId: answer } };
    })
    .onRequest(fs.readTextFile, ({ params }) => {
      seen.read.push(params.path);
      if (!(params.path in buffers)) throw acp.RequestError.resourceNotFound(params.path);
      return { content: buffers[params.path] };
    })
    .onNotification(session.update, ({ params }) => {
      seen.updates.push({ session: params.sessionId, ...params.update });
    });
  connection = app.connect(acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout)));
}

const out = [];
setTimeout(() => {
  process.stderr.write("no end of " + JSON.stringify(out.at(-1)));
  process.exit(1);
}, 90_000);
let id;
for (const step of input.steps) {
  seen = { step: step.do, asked: [], read: [], updates: [] };
  out.push(seen);
  answers = step.answers ?? [];
  buffers = step.buffers ?? {};
  const me = seen;
  try {
    switch (step.do) {
      case "start":
        start();
        seen.result = await connection.agent.request(agent.initialize, {
          protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: { fs: { readTextFile: true, writeTextFile: true }, terminal: true },
        });
        break;
      case "new":
        seen.result = await connection.agent.request(agent.session.new, { cwd: input.folder, mcpServers: step.servers ?? [] });
        id = seen.result.sessionId;
        while (!seen.updates.length) await new Promise((r) => setTimeout(r, 5)); // the commands
        break;
      case "load":
        seen.result = await connection.agent.request(agent.session.load, { sessionId: step.id ?? id, cwd: input.folder, mcpServers: [] });
        break;
      case "list":
        seen.result = await connection.agent.request(agent.session.list, { cwd: input.folder });
        break;
      case "mode":
        seen.result = await connection.agent.request(agent.session.setMode, { sessionId: id, modeId: step.value });
        break;
      case "option":
        seen.result = await connection.agent.request(agent.session.setConfigOption, { sessionId: id, configId: step.option, value: step.value });
        break;
      case "prompt":
        seen.result = await connection.agent.request(agent.session.prompt, { sessionId: id, prompt: step.prompt });
        // The client handles notifications apart from answers, so the last ones may come later.
        for (const end = Date.now() + 5000; Date.now() < end && !seen.updates.some((u) => u.sessionUpdate === "agent_message_chunk"); )
          await new Promise((r) => setTimeout(r, 5));
        break;
      case "cancel": { // while a question is open
        const asked = new Promise((r) => (onPermission = async () => { r(); await new Promise((r) => setTimeout(r, 50)); }));
        const turn = connection.agent.request(agent.session.prompt, { sessionId: id, prompt: step.prompt });
        await asked;
        await connection.agent.notify(agent.session.cancel, { sessionId: id });
        seen.result = await turn;
        onPermission = () => {};
        break;
      }
      case "kill": { // while a tool runs
        const turn = connection.agent.request(agent.session.prompt, { sessionId: id, prompt: step.prompt });
        let early;
        turn.then((r) => (early = new Error("the turn has ended: " + JSON.stringify(r))), (e) => (early = e));
        while (!early && !me.updates.some((u) => u.sessionUpdate === "tool_call_update" && u.status === "in_progress")) await new Promise((r) => setTimeout(r, 5));
        if (early) throw early;
        const gone = new Promise((r) => child.once("exit", (code, signal) => r(signal)));
        child.kill("SIGKILL");
        seen.result = await gone;
        await turn.catch(() => {});
        break;
      }
      case "end": {
        const gone = new Promise((r) => child.once("exit", r));
        child.stdin.end();
        seen.result = await gone;
        break;
      }
    }
  } catch (e) {
    seen.error = { code: e.code, message: e.message };
  }
}
process.stdout.write(JSON.stringify(out));
process.exit(0);
