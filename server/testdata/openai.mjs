// The official clients, as their users write them: node openai.mjs CLIENT, with JSON on standard input and one value a step
// on standard output.
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';

const { url, cut, token, modules } = JSON.parse(readFileSync(0, 'utf8'));
const from = (name) => createRequire(modules[name] + '/node_modules/x.js')(name);
const told = {};
const weather = ({ city }) => `It is sunny in ${city}.`;
const parameters = {
  type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false,
};
const caught = async (what) => {
  try {
    await what();
    return { text: 'no error' };
  } catch (e) {
    return { status: e.status ?? e.statusCode ?? 0, code: String(e.code ?? ''), text: String(e.message) };
  }
};

const clients = {
  async openai() {
    const { OpenAI } = from('openai');
    const client = new OpenAI({ baseURL: url + '/v1', apiKey: token });
    const hello = { model: 'agent/hello', messages: [{ role: 'user', content: 'Say hello.' }] };
    const whole = await client.chat.completions.create(hello);
    told.completion = { text: whole.choices[0].message.content, finish: whole.choices[0].finish_reason, usage: whole.usage.total_tokens };
    const stream = client.chat.completions.stream({ ...hello, stream_options: { include_usage: true } });
    let pieces = 0;
    for await (const chunk of stream) pieces += chunk.choices.length;
    told.stream = { text: await stream.finalContent(), pieces: pieces > 1, usage: (await stream.totalUsage()).total_tokens };
    told.models = { next: (await client.models.list()).data.some((m) => m.id === 'agent/hello') };
    const parsed = await client.chat.completions.parse({
      ...hello, model: 'json', response_format: { type: 'json_schema', json_schema: { name: 'n', strict: true, schema: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'], additionalProperties: false } } },
    });
    told.parsed = parsed.choices[0].message.parsed;

    const tools = [{ type: 'function', function: { name: 'get_weather', description: 'The weather.', parameters, function: weather, parse: JSON.parse } }];
    const asks = { model: 'weather', messages: [{ role: 'user', content: 'And in Berlin?' }], tools };
    const runner = client.chat.completions.runTools(asks);
    told.tools = { text: await runner.finalContent(), usage: (await runner.totalUsage()).total_tokens };
    told.toolStream = { text: await client.chat.completions.runTools({ ...asks, messages: [{ role: 'user', content: 'Berlin?' }], stream: true }).finalContent() };

    const waits = await client.chat.completions.create({ ...hello, model: 'writes' });
    told.approval = { text: waits.choices[0].message.content, pending: waits.toolcrib.pending.approval_id, finish: waits.choices[0].finish_reason };
    told.unknown = await caught(() => client.chat.completions.create({ ...hello, model: 'nobody' }));
    told.unsupported = await caught(() => client.chat.completions.create({ ...hello, n: 2 }));
    told.provider = await caught(() => client.chat.completions.create({ ...hello, model: 'failing' }));
    told.midway = await caught(async () => { for await (const _ of await client.chat.completions.create({ ...hello, model: 'midway', stream: true })); });
    told.token = await caught(() => new OpenAI({ baseURL: url + '/v1', apiKey: 'nonsense' }).models.list());

    const response = await client.responses.create({ model: 'agent/hello', input: 'Say hello.' });
    told.response = { text: response.output_text };
    const events = client.responses.stream({ model: 'steps', input: 'Look.' });
    const kinds = [];
    for await (const e of events) if (kinds.at(-1) !== e.type) kinds.push(e.type);
    told.responseStream = { first: kinds[0], last: kinds.at(-1), items: (await events.finalResponse()).output.length };
    told.conversation = await caught(() => client.responses.create({ model: 'hello', input: 'x', previous_response_id: 'resp_1' }));

    const again = new OpenAI({ baseURL: cut + '/v1', apiKey: token });
    told.retry = { text: (await again.chat.completions.create({ ...hello, model: 'slow' })).choices[0].message.content };
  },

  async agents() {
    const { Agent, OpenAIProvider, Runner, tool, setTracingDisabled } = from('@openai/agents');
    setTracingDisabled(true);
    for (const useResponses of [true, false]) {
      const one = {};
      const runner = (baseURL) => new Runner({ tracingDisabled: true, modelProvider: new OpenAIProvider({ apiKey: token, baseURL: baseURL + '/v1', useResponses }) });
      const here = runner(url);
      const hello = new Agent({ name: 'Hello', instructions: 'Be kind.', model: 'agent/hello' });
      one.completion = { text: (await here.run(hello, 'Say hello.')).finalOutput };
      const streamed = await here.run(hello, 'Say hello again.', { stream: true });
      let text = '';
      for await (const piece of streamed.toTextStream()) text += piece;
      await streamed.completed;
      one.stream = { text };
      const helper = new Agent({
        name: 'Weather', instructions: 'Help.', model: 'weather',
        tools: [tool({ name: 'get_weather', description: 'The weather.', parameters, strict: true, execute: weather })],
      });
      const result = await here.run(helper, 'And in Berlin?');
      one.tools = { text: result.finalOutput, next: (await here.run(hello, [...result.history, { role: 'user', content: 'Thanks.' }])).finalOutput !== undefined };
      const both = await here.run(helper, 'Berlin?', { stream: true });
      await both.completed;
      one.toolStream = { text: both.finalOutput };
      one.approval = { text: (await here.run(new Agent({ name: 'Writer', model: 'writes' }), 'Write.')).finalOutput };
      one.unknown = await caught(() => here.run(new Agent({ name: 'X', model: 'nobody' }), 'x'));
      one.provider = await caught(() => here.run(new Agent({ name: 'X', model: 'failing' }), 'x'));
      one.retry = { text: (await runner(cut).run(new Agent({ name: 'Slow', model: 'slow' }), 'Count, ' + useResponses)).finalOutput };
      told[useResponses ? 'responses' : 'chat'] = one;
    }
  },

  async ai() {
    const { generateText, streamText, generateObject, jsonSchema, stepCountIs, tool } = from('ai');
    const { createOpenAICompatible } = from('@ai-sdk/openai-compatible');
    const made = (baseURL) => createOpenAICompatible({ name: 'toolcrib', baseURL: baseURL + '/v1', apiKey: token, includeUsage: true, supportsStructuredOutputs: true });
    const model = made(url);
    const hello = await generateText({ model: model('agent/hello'), system: 'Be kind.', prompt: 'Say hello.' });
    told.completion = { text: hello.text, finish: hello.finishReason, usage: hello.usage.totalTokens };
    const stream = streamText({ model: model('hello'), prompt: 'Say hello again.' });
    let text = '';
    for await (const piece of stream.textStream) text += piece;
    told.stream = { text, usage: (await stream.usage).totalTokens };
    told.parsed = (await generateObject({ model: model('json'), schema: jsonSchema({ type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] }), prompt: 'Count.' })).object;
    const tools = { get_weather: tool({ description: 'The weather.', inputSchema: jsonSchema(parameters), execute: weather }) };
    told.tools = { text: (await generateText({ model: model('weather'), prompt: 'And in Berlin?', tools, stopWhen: stepCountIs(3) })).text };
    const both = streamText({ model: model('weather'), prompt: 'Berlin?', tools, stopWhen: stepCountIs(3) });
    await both.consumeStream();
    told.toolStream = { text: await both.text };
    told.approval = { text: (await generateText({ model: model('writes'), prompt: 'Write.' })).text };
    told.unknown = await caught(() => generateText({ model: model('nobody'), prompt: 'x' }));
    told.provider = await caught(() => generateText({ model: model('failing'), prompt: 'x', maxRetries: 0 }));
    told.retry = { text: (await generateText({ model: made(cut)('slow'), prompt: 'Count.' })).text };
  },

  async langchain() {
    const { ChatOpenAI } = from('@langchain/openai');
    const { HumanMessage, SystemMessage, ToolMessage } = createRequire(modules['@langchain/openai'] + '/node_modules/x.js')('@langchain/core/messages');
    for (const useResponsesApi of [false, true]) {
      const one = {};
      const made = (model, baseURL = url, more = {}) => new ChatOpenAI({ ...more, model, apiKey: token, configuration: { baseURL: baseURL + '/v1' }, useResponsesApi, ...(useResponsesApi ? {} : { streamUsage: true }) });
      const hello = await made('agent/hello').invoke([new SystemMessage('Be kind.'), new HumanMessage('Say hello.')]);
      one.completion = { text: hello.text, usage: hello.usage_metadata.total_tokens };
      let whole;
      for await (const piece of await made('hello').stream('Say hello again.')) whole = whole ? whole.concat(piece) : piece;
      one.stream = { text: whole.text };
      const helper = made('weather').bindTools([{ type: 'function', function: { name: 'get_weather', description: 'The weather.', parameters } }]);
      const said = [new HumanMessage('And in Berlin?')];
      said.push(await helper.invoke(said));
      for (const call of said[1].tool_calls) said.push(new ToolMessage({ content: weather(call.args), tool_call_id: call.id }));
      one.tools = { text: (await helper.invoke(said)).text };
      one.approval = { text: (await made('writes').invoke('Write.')).text };
      one.unknown = await caught(() => made('nobody').invoke('x'));
      one.provider = await caught(() => made('failing', url, { maxRetries: 0 }).invoke('x'));
      one.retry = { text: (await made('slow', cut).invoke('Count, ' + useResponsesApi)).text };
      told[useResponsesApi ? 'responses' : 'chat'] = one;
    }
  },
};

await clients[process.argv[2]]();
console.log(JSON.stringify(told));
