// LangGraph: the examples of its documentation.
import { Command, MemorySaver, interrupt } from '@langchain/langgraph';
import { createReactAgent } from '@langchain/langgraph/prebuilt';
import { tool } from '@langchain/core/tools';
import { ChatOpenAI } from '@langchain/openai';
import { z } from 'zod';
import { approve, ended, runOf, step, users } from './steps.mjs';

const of = (name, description, run) => tool(run, { name, description, schema: z.object({ city: z.string().describe('The city to get the weather for.') }) });
const getWeather = of('get_weather', 'Get the weather for a given city.', async ({ city }) => `It's always sunny in ${city}!`);
const agent = (model, tools = [], more = {}) => createReactAgent({ llm: new ChatOpenAI({ model, maxRetries: 0 }), tools, ...more });
const ask = async (agent, content, config) => {
  const result = await agent.invoke({ messages: [{ role: 'user', content }] }, config);
  return result.messages.at(-1).text;
};
const thread = (id) => ({ configurable: { thread_id: id } });

await step('plain', () => ask(agent('gpt-5.5'), 'Hello.'));
await step('server tool', () => ask(agent('looks'), 'Look.'));
await step('client tool', () => ask(agent('weather', [getWeather]), 'And in Tokyo?'));
await step('both tools', () => ask(agent('both-weather', [getWeather]), 'And in Tokyo?'));
await step('error', () => ask(agent('failing', [getWeather]), 'And in Tokyo?'));
await step('users', () =>
  users((n) => ask(agent('weather', [of('get_weather', 'The weather.', async ({ city }) => `${city} of user ${n}`)]), 'And in Tokyo?')));
await step('approval', async () => {
  const writer = agent('writes', [], { checkpointer: new MemorySaver() });
  await approve(await ask(writer, 'Write out.txt.', thread('1')));
  return ask(writer, 'Is it done?', thread('1'));
});
await step('late', async () => {
  const careful = of('get_weather', 'Get the weather for a given city.', async ({ city }) => {
    const response = interrupt({ action: 'get_weather', city, message: 'Approve this?' });
    return response?.action === 'approve' ? `It's always sunny in ${city}!` : 'Cancelled by user';
  });
  const waits = agent('weather', [careful], { checkpointer: new MemorySaver() });
  const paused = await waits.invoke({ messages: [{ role: 'user', content: 'And in Tokyo?' }] }, thread('2'));
  await ended(runOf(paused.messages.at(-1).tool_calls[0].id));
  const result = await waits.invoke(new Command({ resume: { action: 'approve' } }), thread('2'));
  return `${paused.__interrupt__[0].value.message} ${result.messages.at(-1).text}`;
});
