// The openai package: node openai.mjs PACKAGE BASE_URL

import { all, PARAMETERS, QUESTION, run } from "./scenarios.mjs";

const [packageName, baseURL] = process.argv.slice(2);
const { default: OpenAI, toFile } = await import(packageName);
const client = new OpenAI({ baseURL, apiKey: "none" });
const { responses, chat, conversations, files, models } = client;
const TOOL = { type: "function", name: "get_weather", parameters: PARAMETERS, strict: true };
const CHAT_TOOL = { type: "function", function: { name: "get_weather", parameters: PARAMETERS } };
const user = (content) => [{ role: "user", content }];

async function helper(model, more = {}) {
  const stream = responses.stream({ model, input: "Go.", ...more });
  const events = await all(stream);
  const final = await stream.finalResponse();
  return {
    events: events.map((event) => event.type),
    text: final.output_text,
    items: final.output.map((item) => item.type),
    status: final.status,
    reasoning: final.output.flatMap((item) => item.summary ?? []).map((part) => part.text).join(""),
    error: final.error?.message,
  };
}

async function approval(approve) {
  const waiting = await responses.create({ model: "approves", input: "Delete it." });
  const [asked] = waiting.output.filter((item) => item.type === "mcp_approval_request");
  const done = await responses.create({
    model: "approves",
    previous_response_id: waiting.id,
    input: [{ type: "mcp_approval_response", approval_request_id: asked.id, approve, reason: "keep it" }],
  });
  return { status: waiting.status, asked: [asked.name, JSON.parse(asked.arguments)], text: done.output_text };
}

async function failing(model, start) {
  const question = crypto.randomUUID();
  const failed = await start(model, question).catch((error) => error);
  const count = await responses.create({ model: "counts", input: question });
  return { status: failed.status, message: failed.error?.message, runs: count.output_text };
}

await run({
  create: async () => {
    const { output_text, usage, status, _request_id } = await responses.create({ model: "assistant", input: "Hello" });
    return { output_text, usage, status, hasRequestId: Boolean(_request_id) };
  },
  stream: async () => {
    const events = await all(await responses.create({ model: "assistant", input: "Hello", stream: true }));
    return {
      types: events.map((event) => event.type),
      numbers: events.map((event) => event.sequence_number),
      text: events.filter((event) => event.type === "response.output_text.delta").map((event) => event.delta).join(""),
    };
  },
  helper: () => helper("assistant"),
  helperThinks: () => helper("thinks"),
  helperTools: () => helper("tools"),
  helperToolFails: () => helper("tool-fails"),
  helperApproves: () => helper("approves"),
  helperCutOff: () => helper("cut-off"),
  helperFails: () => helper("fails"),
  helperSilent: () => helper("silent"),
  helperClientTool: () => helper("assistant", { input: QUESTION, tools: [TOOL] }),
  clientTool: async () => {
    const first = await responses.create({ model: "assistant", input: QUESTION, tools: [TOOL] });
    const [call] = first.output;
    const second = await responses.create({
      model: "assistant",
      previous_response_id: first.id,
      tools: [TOOL],
      input: [{ type: "function_call_output", call_id: call.call_id, output: "sunny" }],
    });
    return { call: [call.type, call.name, JSON.parse(call.arguments)], text: second.output_text };
  },
  approve: () => approval(true),
  deny: () => approval(false),
  resume: async () => {
    const whole = await all(await responses.create({ model: "assistant", input: "One two", stream: true, background: true }));
    const id = whole[0].response.id;
    const rest = await all(await responses.retrieve(id, { stream: true, starting_after: 3 }));
    const rebuilt = responses.stream({ response_id: id, starting_after: 3 });
    const seen = await all(rebuilt);
    return {
      isSame: JSON.stringify(rest) === JSON.stringify(whole.slice(4)),
      seen: seen.map((event) => event.sequence_number),
      text: (await rebuilt.finalResponse()).output_text,
    };
  },
  cancel: async () => {
    const started = await responses.create({ model: "endless", input: "Go.", background: true });
    const cancelled = await responses.cancel(started.id);
    return [started.status, cancelled.status, (await responses.retrieve(started.id)).status];
  },
  conversation: async () => {
    const conversation = await conversations.create({ items: [{ type: "message", role: "user", content: "My name is Alice." }] });
    const answer = await responses.create({ model: "assistant", input: "What is my name?", conversation: conversation.id });
    const items = await all(conversations.items.list(conversation.id, { limit: 2, order: "asc" }));
    const deleted = await conversations.delete(conversation.id);
    return { text: answer.output_text, roles: items.map((item) => item.role), deleted: deleted.deleted };
  },
  files: async () => {
    const file = await files.create({ file: await toFile(Buffer.from("é\n"), "notes é.txt"), purpose: "user_data" });
    const content = await (await files.content(file.id)).text();
    const input = user([{ type: "input_text", text: "See" }, { type: "input_file", file_id: file.id }]);
    const answer = await responses.create({ model: "assistant", input });
    const deleted = await files.delete(file.id);
    return { name: file.filename, content, text: answer.output_text, deleted: deleted.deleted };
  },
  models: async () => (await all(models.list())).map((model) => model.id),
  unknownModel: () => responses.create({ model: "nobody", input: "Hello" }),
  fails: () => failing("fails", (model, input) => responses.create({ model, input })),
  failsAtOnce: () => failing("fails-at-once", (model, input) => responses.create({ model, input })),
  chatFails: () =>
    failing("fails", (model, question) => chat.completions.create({ model, messages: user(question) })),
  chatCreate: async () => {
    const { choices, usage } = await chat.completions.create({ model: "assistant", messages: user("Hello") });
    return { message: choices[0].message.content, finish: choices[0].finish_reason, usage };
  },
  chatHelper: async () => {
    const options = { include_usage: true };
    const stream = chat.completions.stream({ model: "assistant", messages: user("Hello"), stream_options: options });
    const final = await stream.finalChatCompletion();
    return { message: final.choices[0].message.content, finish: final.choices[0].finish_reason, usage: final.usage };
  },
  chatSilent: async () => {
    const stream = chat.completions.stream({ model: "silent", messages: user("Go.") });
    return (await stream.finalChatCompletion()).choices[0].message.content;
  },
  chatStreamFails: async () => all(await chat.completions.create({ model: "fails", messages: user("x"), stream: true })),
  chatRunTools: async () => {
    const asked = [];
    const weather = (args) => (asked.push(args), "sunny");
    const tools = [{ type: "function", function: { ...CHAT_TOOL.function, function: weather, parse: JSON.parse } }];
    const runner = chat.completions.runTools({ model: "assistant", messages: user(QUESTION), tools, stream: true });
    return { asked, text: await runner.finalContent() };
  },
});
