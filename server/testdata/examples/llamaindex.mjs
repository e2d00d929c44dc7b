// LlamaIndex: the examples of its documentation.
import { openai } from '@llamaindex/openai';
import { agent, multiAgent } from '@llamaindex/workflow';
import { tool } from 'llamaindex';
import { z } from 'zod';
import { approve, step, users } from './steps.mjs';

const of = (execute) =>
  tool({
    name: 'get_weather',
    description: 'Get the weather for a given city',
    parameters: z.object({ city: z.string({ description: 'The city' }) }),
    execute,
  });
const getWeather = of(({ city }) => `It's sunny in ${city}!`);
const llm = (model) => openai({ model, supportToolCall: true });
const ask = async (model, tools = [getWeather]) => (await agent({ llm: llm(model), tools }).run('And in Tokyo?')).data.result;

await step('plain', () => ask('gpt-5.5'));
await step('server tool', () => ask('looks'));
await step('client tool', () => ask('weather'));
await step('both tools', () => ask('both-weather'));
await step('error', () => llm('failing').chat({ messages: [{ role: 'user', content: 'Hello.' }] }));
await step('users', () => users((n) => ask('weather', [of(({ city }) => `${city} of user ${n}`)])));
await step('approval', async () => {
  const messages = [{ role: 'user', content: 'Write out.txt.' }];
  const { message } = await llm('writes').chat({ messages });
  await approve(message.content);
  messages.push(message, { role: 'user', content: 'Is it done?' });
  return (await llm('writes').chat({ messages })).message.content;
});
await step('hand-off', async () => {
  const weatherAgent = agent({ name: 'WeatherAgent', description: 'Knows the weather', tools: [getWeather], llm: llm('handOff') });
  const jokeAgent = agent({ name: 'JokeAgent', description: 'Tells jokes', tools: [], llm: llm('handOff'), canHandoffTo: [weatherAgent] });
  return (await multiAgent({ agents: [jokeAgent, weatherAgent], rootAgent: jokeAgent }).run('And in Tokyo?')).data.result;
});
