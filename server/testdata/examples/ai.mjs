// ai: the examples of its documentation, with the default API of its provider for OpenAI.
import { openai } from '@ai-sdk/openai';
import { generateText, isStepCount, streamText, tool, ToolLoopAgent } from 'ai';
import { z } from 'zod';
import { approve, ended, runOf, step, users } from './steps.mjs';

await step('plain', async () => {
  const { text } = await generateText({
    model: openai('gpt-6-astra'),
    prompt: 'What is an agent?',
  });
  return text;
});

const tools = {
  weather: tool({
    description: 'Get the weather in a location (fahrenheit)',
    inputSchema: z.object({
      location: z.string().describe('The location to get the weather for'),
    }),
    execute: async ({ location }) => ({ location, temperature: 50 }),
  }),
  convertFahrenheitToCelsius: tool({
    description: 'Convert a temperature in fahrenheit to celsius',
    inputSchema: z.object({
      temperature: z.number().describe('The temperature in fahrenheit to convert'),
    }),
    execute: async ({ temperature }) => {
      const celsius = Math.round((temperature - 32) * (5 / 9));
      return {
        celsius,
      };
    },
  }),
};

await step('steps', async () => {
  const messages = [{ role: 'user', content: "What's the weather in New York in celsius?" }];
  const results = [];
  const result = streamText({
    model: openai('steps'),
    messages,
    tools,
    stopWhen: isStepCount(5),
    onStepEnd: async ({ toolResults }) => {
      if (toolResults.length) {
        results.push(...toolResults.map((r) => JSON.stringify(r.output)));
      }
    },
  });

  let fullResponse = '';
  for await (const delta of result.textStream) {
    fullResponse += delta;
  }
  return results.join(' ') + ' ' + fullResponse;
});

await step('turns', async () => {
  const messages = [{ role: 'user', content: "What's the weather in New York in celsius?" }];
  const first = await generateText({ model: openai('steps'), messages, tools, stopWhen: isStepCount(5) });
  messages.push(...first.responseMessages, { role: 'user', content: 'And in Rome?' });
  return (await generateText({ model: openai('steps'), messages, tools, stopWhen: isStepCount(5) })).text;
});

await step('prepareStep', async () => {
  const result = await generateText({
    model: openai('steps'),
    prompt: "What's the weather in New York in celsius?",
    tools,
    stopWhen: isStepCount(5),
    prepareStep: async ({ stepNumber }) => ({ activeTools: [stepNumber == 0 ? 'weather' : 'convertFahrenheitToCelsius'] }),
  });
  return result.steps.flatMap((s) => s.toolResults.map((r) => JSON.stringify(r.output))).join(' ') + ' ' + result.text;
});

const ask = async (model, more) => (await generateText({ model: openai(model), prompt: 'And in Tokyo?', tools, stopWhen: isStepCount(5), ...more })).text;
await step('server tool', () => ask('looks'));
await step('client tool', () => ask('location'));
await step('both tools', () => ask('both-location'));
await step('error', () => ask('failing', { maxRetries: 0 }));
await step('users', () =>
  users((n) => ask('location', { tools: { weather: { ...tools.weather, execute: ({ location }) => `${location} of user ${n}` } } })));
await step('approval', async () => {
  const messages = [{ role: 'user', content: 'Write out.txt.' }];
  const first = await generateText({ model: openai('writes'), messages });
  await approve(first.text);
  messages.push(...first.responseMessages, { role: 'user', content: 'Is it done?' });
  return (await generateText({ model: openai('writes'), messages })).text;
});
await step('late', async () => {
  const agent = new ToolLoopAgent({ model: openai('location'), tools, toolApproval: { weather: 'user-approval' } });
  const messages = [{ role: 'user', content: 'And in Tokyo?' }];
  const result = await agent.generate({ messages });
  messages.push(...result.responseMessages);
  const requests = result.content.filter((part) => part.type === 'tool-approval-request');
  await ended(runOf(requests[0].toolCall.toolCallId));
  messages.push({
    role: 'tool',
    content: requests.map((r) => ({ type: 'tool-approval-response', approvalId: r.approvalId, approved: true })),
  });
  return (await agent.generate({ messages })).text;
});
