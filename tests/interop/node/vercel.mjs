// The AI SDK: node vercel.mjs SUFFIX BASE_URL, where SUFFIX is "" for the newest packages and "-previous" for those before

import { all, QUESTION, run } from "./scenarios.mjs";
import { z } from "zod";

const [suffix, baseURL] = process.argv.slice(2);
const { generateText, streamText, tool, stepCountIs, isStepCount, Output } = await import(`ai${suffix}`);
const { createOpenAI } = await import(`@ai-sdk/openai${suffix}`);
const { createOpenAICompatible } = await import(`@ai-sdk/openai-compatible${suffix}`);

const openai = createOpenAI({ baseURL, apiKey: "none" });
const compatible = createOpenAICompatible({ name: "runstone", baseURL, apiKey: "none", includeUsage: true });
const providers = { responses: (name) => openai.responses(name), chat: (name) => openai.chat(name), compatible };
const weather = tool({
  description: "Current weather",
  inputSchema: z.object({ location: z.string() }),
  execute: async ({ location }) => `sunny in ${location}`,
});
const SERVER_TOOLS = {
  agent: openai.tools.mcp({ serverLabel: "agent", serverUrl: "http://127.0.0.1/", requireApproval: "always" }),
};
const atMost = (stepCountIs ?? isStepCount)(3);

async function generated(model, more = {}) {
  const result = await generateText({ model, prompt: "Go.", ...more });
  return {
    text: result.text,
    reasoning: result.reasoningText,
    finish: result.finishReason,
    content: result.content.map((part) => part.type),
    usage: [result.usage.inputTokens, result.usage.outputTokens],
  };
}

async function streamed(model, more = {}) {
  const errors = [];
  const onError = ({ error }) => errors.push(error.message ?? error.error?.message ?? JSON.stringify(error));
  const result = streamText({ model, prompt: "Go.", onError, ...more });
  const parts = await all(result.fullStream);
  const said = (type) => parts.filter((part) => part.type === type).map((part) => part.text).join("");
  return {
    text: said("text-delta"),
    reasoning: said("reasoning-delta"),
    finish: parts.filter((part) => part.type === "finish").map((part) => part.finishReason)[0],
    content: [...new Set(parts.map((part) => part.type))],
    errors,
  };
}

async function approval(approved) {
  const model = openai.responses("approves");
  const asking = [{ role: "user", content: "Delete it." }];
  const first = await generateText({ model, messages: asking, tools: SERVER_TOOLS });
  const [asked] = first.content.filter((part) => part.type === "tool-approval-request");
  const decision = { type: "tool-approval-response", approvalId: asked.approvalId, approved, providerExecuted: true };
  const deciding = [...asking, ...first.response.messages, { role: "tool", content: [decision] }];
  const second = await generateText({ model, messages: deciding, tools: SERVER_TOOLS });
  const thanking = [...deciding, ...second.response.messages, { role: "user", content: "Thanks" }];
  const third = await generateText({ model: openai.responses("assistant"), messages: thanking, tools: SERVER_TOOLS });
  return { asked: asked.toolCall.toolName, text: second.text, later: third.text };
}

// The SDK tries a failed call again unless it is told not to; a failed response is no failed call.
async function failing(model, more) {
  const prompt = crypto.randomUUID();
  const message = await generateText({ model, prompt, ...more }).then(() => "no error", (error) => error.message);
  const { text } = await generateText({ model: openai.responses("counts"), prompt });
  return { message, runs: text };
}

const scenarios = {};
for (const [kind, of] of Object.entries(providers)) {
  const tools = { get_weather: weather };
  Object.assign(scenarios, {
    [`${kind}.text`]: () => generated(of("assistant")),
    [`${kind}.stream`]: () => streamed(of("assistant")),
    [`${kind}.silent`]: () => streamed(of("silent")),
    [`${kind}.thinks`]: () => generated(of("thinks")),
    [`${kind}.streamThinks`]: () => streamed(of("thinks")),
    [`${kind}.tools`]: () => generated(of("tools")),
    [`${kind}.streamTools`]: () => streamed(of("tools")),
    [`${kind}.clientTool`]: () => generated(of("assistant"), { prompt: QUESTION, tools, stopWhen: atMost }),
    [`${kind}.streamClientTool`]: () => streamed(of("assistant"), { prompt: QUESTION, tools, stopWhen: atMost }),
    [`${kind}.cutOff`]: () => generated(of("cut-off")),
    [`${kind}.streamCutOff`]: () => streamed(of("cut-off")),
    [`${kind}.fails`]: () => failing(of("fails"), kind === "responses" ? {} : { maxRetries: 0 }),
    [`${kind}.streamFails`]: () => streamed(of("fails")),
    [`${kind}.memory`]: () =>
      generated(of("assistant"), {
        prompt: undefined,
        messages: [
          { role: "user", content: "My name is Alice." },
          { role: "assistant", content: "Hello!" },
          { role: "user", content: "What is my name?" },
        ],
      }),
  });
}
Object.assign(scenarios, {
  approve: () => approval(true),
  deny: () => approval(false),
  streamApproves: () => streamed(openai.responses("approves"), { tools: SERVER_TOOLS }),
  output: async () => {
    const schema = z.object({ city: z.string(), asked_for: z.string() });
    const output = Output.object({ schema, name: "place" });
    return (await generateText({ model: openai.responses("json"), prompt: "Go.", output })).output;
  },
});
await run(scenarios);
