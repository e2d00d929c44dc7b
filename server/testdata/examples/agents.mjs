// @openai/agents: the examples of its documentation, with their default model and API.
import { Agent, run, tool } from '@openai/agents';
import { z } from 'zod';
import { approve, ended, runOf, step, users } from './steps.mjs';

await step('plain', async () => {
  const agent = new Agent({
    name: 'Assistant',
    instructions: 'You are a helpful assistant.',
  });
  const result = await run(agent, 'Write a haiku about recursion in programming.');
  return result.finalOutput;
});

const weather = (more) =>
  tool({
    name: 'get_weather',
    description: 'Get the weather for a given city',
    parameters: z.object({ city: z.string() }),
    execute: async (input) => `The weather in ${input.city} is sunny`,
    ...more,
  });
const getWeatherTool = weather();

const dataAgent = new Agent({
  name: 'Data agent',
  instructions: 'You are a data agent',
  handoffDescription: 'You know everything about the weather',
  tools: [getWeatherTool],
  model: 'handoff',
});

// Use Agent.create method to ensure the finalOutput type considers handoffs
const agent = Agent.create({
  name: 'Basic test agent',
  instructions: 'You are a basic agent',
  handoffs: [dataAgent],
  model: 'handoff',
});

await step('hand-off', async () => {
  const result = await run(agent, 'Hello, what is the weather in San Francisco?');
  return `${result.lastAgent.name}: ${result.finalOutput}`;
});

const of = (model, tools = []) => new Agent({ name: 'Assistant', instructions: 'Help.', model, tools });
const ask = async (...args) => (await run(of(...args), 'And in Tokyo?')).finalOutput;
await step('server tool', () => ask('looks'));
await step('client tool', () => ask('weather', [getWeatherTool]));
await step('both tools', () => ask('both-weather', [getWeatherTool]));
await step('error', () => ask('failing'));
await step('users', () => users((n) => ask('weather', [weather({ execute: async ({ city }) => `${city} of user ${n}` })])));
await step('approval', async () => {
  const writer = of('writes');
  const result = await run(writer, 'Write out.txt.');
  await approve(result.finalOutput);
  return (await run(writer, result.history.concat({ role: 'user', content: 'Is it done?' }))).finalOutput;
});
await step('late', async () => {
  const careful = of('weather', [weather({ needsApproval: true })]);
  let result = await run(careful, 'And in Tokyo?');
  await ended(runOf(result.interruptions[0].rawItem.callId));
  for (const interruption of result.interruptions) {
    result.state.approve(interruption);
  }
  result = await run(careful, result.state);
  return result.finalOutput;
});
