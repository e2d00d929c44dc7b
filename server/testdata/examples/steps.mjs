// What the examples share: a step's text or error is one line on standard output.
const server = process.env.OPENAI_BASE_URL.replace(/\/v1$/, '');
const headers = { Authorization: 'Bearer ' + process.env.OPENAI_API_KEY, 'Content-Type': 'application/json' };

export async function step(name, run) {
  const line = { step: name };
  try {
    line.text = await run();
  } catch (e) {
    line.error = String(e.message);
    line.status = e.status ?? e.statusCode ?? 0;
  }
  console.log(JSON.stringify(line));
}

// Three users behind one key ask the same at once.
export const users = (ask) => Promise.all([1, 2, 3].map(ask)).then((texts) => texts.join(' '));

// Somebody approves the call that a text is about, elsewhere, and the run ends.
export async function approve(text) {
  const url = `${server}/api/approvals/${/apr_[0-9A-Z]+/.exec(text)[0]}`;
  const { digest, run_id } = await (await fetch(url, { headers })).json();
  await fetch(url, { method: 'POST', headers, body: JSON.stringify({ decision: 'approve', digest }) });
  await ended(run_id);
}

// The run has ended, such as one whose client tool was not carried out in time.
export async function ended(run) {
  await (await fetch(`${server}/api/runs/${run}/events`, { headers })).text();
}

export const runOf = (call) => /run_[0-9A-Z]+/.exec(call)[0];
