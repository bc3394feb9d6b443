// What the official client does with our /v1 routes. OPENAI_BASE_URL names the server; TOOLS_BASE_URL one whose model's
// chat template knows tools. tests/integration/test_openai_node.py starts both.
import assert from "node:assert/strict";
import { before, test } from "node:test";
import OpenAI from "openai";

const messages = [{ role: "user", content: "What is the capital of France?" }];
const client = new OpenAI({ apiKey: "unused", maxRetries: 0 });
let model;

before(async () => {
  for await (const entry of client.models.list()) model = entry.id;
});

async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

// The server's own word on what it is doing.
async function running() {
  const text = await (await fetch(new URL("/metrics", process.env.OPENAI_BASE_URL))).text();
  return Number(/^promptcached_requests_running (\d+)/m.exec(text)[1]);
}

async function until(condition) {
  const end = Date.now() + 10_000;
  while (!(await condition())) {
    assert.ok(Date.now() < end, "waited in vain");
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

test("models", async () => {
  assert.equal((await client.models.retrieve(model)).owned_by, "promptcached");
  await assert.rejects(client.models.retrieve("another"), OpenAI.NotFoundError);
});

test("a chat, whole and streamed, says the same", async () => {
  const body = { model, messages, temperature: 0, max_tokens: 12 };
  const whole = await client.chat.completions.create(body);
  assert.match(whole.choices[0].message.content, /Paris/);
  assert.equal(whole.choices[0].finish_reason, "stop");
  assert.equal(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens);

  const chunks = await collect(await client.chat.completions.create({ ...body, stream: true, stream_options: { include_usage: true } }));
  const last = chunks.pop();
  assert.deepEqual(last.choices, []);
  assert.equal(last.usage.completion_tokens, whole.usage.completion_tokens);
  assert.equal(chunks.map((chunk) => chunk.choices[0].delta.content ?? "").join(""), whole.choices[0].message.content);
  assert.equal(chunks.at(-1).choices[0].finish_reason, "stop");
});

test("the client's stream helper puts the message together", async () => {
  const body = { model, messages, temperature: 0, max_tokens: 12 };
  const whole = await client.chat.completions.create(body);
  const stream = client.chat.completions.stream({ ...body, stream_options: { include_usage: true } });
  let text = "";
  stream.on("content", (delta) => (text += delta));
  const final = await stream.finalChatCompletion();
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(final.choices[0].message.content, text);
  assert.deepEqual((await stream.totalUsage()).completion_tokens, whole.usage.completion_tokens);
});

test("completions, whole and streamed, several at once", async () => {
  const body = { model, prompt: "The capital of France is", temperature: 0, max_tokens: 6, n: 2 };
  const whole = await client.completions.create(body);
  assert.match(whole.choices[0].text, /^ Paris/);
  assert.deepEqual(whole.choices.map((choice) => choice.index), [0, 1]);
  assert.equal(whole.usage.completion_tokens, 12);
  const texts = ["", ""];
  for (const chunk of await collect(await client.completions.create({ ...body, stream: true }))) {
    for (const choice of chunk.choices) texts[choice.index] += choice.text;
  }
  assert.deepEqual(texts, whole.choices.map((choice) => choice.text));
});

test("the same prompt again is found in the cache", async () => {
  const prompt = "A sentence that this test alone says: " + Array.from({ length: 60 }, (_, i) => `word${i}`).join(" ");
  const body = { model, prompt, temperature: 0, max_tokens: 4 };
  const first = await client.completions.create(body);
  const second = await client.completions.create(body);
  assert.ok(second.usage.prompt_tokens_details.cached_tokens > first.usage.prompt_tokens_details.cached_tokens);
  assert.equal(second.choices[0].text, first.choices[0].text);
});

test("errors have the client's types", async () => {
  const create = (fields) => client.chat.completions.create({ model, messages, max_tokens: 1, ...fields });
  await assert.rejects(create({ model: "another" }), (error) => {
    assert.ok(error instanceof OpenAI.NotFoundError);
    assert.equal(error.param, "model");
    assert.equal(error.code, "not_found");
    assert.ok(error.requestID);
    return true;
  });
  for (const fields of [{ temperature: 3 }, { n: 0 }, { max_tokens: 0 }, { messages: [] }, { top_logprobs: 2 }]) {
    await assert.rejects(create(fields), (error) => {
      assert.ok(error instanceof OpenAI.BadRequestError, String(error));
      assert.equal(error.param, Object.keys(fields)[0]);
      return true;
    });
  }
  await assert.rejects(create({ messages: [{ role: "user", content: "word ".repeat(20_000) }], stream: true }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.code, "context_length_exceeded");
    return true;
  });
});

test("an aborted request is cancelled, streamed or not", async () => {
  const body = { model, prompt: "Count: one two three", max_tokens: 4000, ignore_eos: true };
  const stream = await client.completions.create({ ...body, stream: true });
  for await (const chunk of stream) {
    assert.ok(chunk.choices.length > 0);
    assert.equal(await running(), 1);
    break; // which aborts it
  }
  await until(async () => (await running()) === 0);

  const controller = new AbortController();
  const whole = client.completions.create(body, { signal: controller.signal });
  const rejected = assert.rejects(whole, OpenAI.APIUserAbortError);
  await until(async () => (await running()) === 1);
  controller.abort();
  await rejected;
  await until(async () => (await running()) === 0);
});

// A small model calls what it has been shown to call.
const tools = [
  {
    type: "function",
    function: { name: "get_weather", parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] } },
  },
];
const turns = (city, id) => [
  { role: "user", content: `What is the weather in ${city}?` },
  { role: "assistant", content: null, tool_calls: [{ id, type: "function", function: { name: "get_weather", arguments: JSON.stringify({ city }) } }] },
  { role: "tool", tool_call_id: id, content: "sunny" },
  { role: "assistant", content: `It is sunny in ${city}.` },
];
const shown = [...turns("Paris", "a"), ...turns("Oslo", "b"), { role: "user", content: "What is the weather in Rome?" }];

function checkCall(message) {
  assert.equal(message.tool_calls?.length, 1, JSON.stringify(message));
  const [call] = message.tool_calls;
  assert.equal(call.type, "function");
  assert.equal(call.function.name, "get_weather");
  assert.deepEqual(JSON.parse(call.function.arguments), { city: "Rome" });
  assert.ok(call.id);
}

test("tool calls arrive as such, whole and streamed", async () => {
  const server = new OpenAI({ baseURL: process.env.TOOLS_BASE_URL, apiKey: "unused", maxRetries: 0 });
  const body = { model: "", messages: shown, tools, temperature: 0, max_tokens: 40 };
  const whole = await server.chat.completions.create(body);
  checkCall(whole.choices[0].message);
  assert.equal(whole.choices[0].finish_reason, "tool_calls");

  const final = await server.chat.completions.stream(body).finalChatCompletion();
  checkCall(final.choices[0].message);
  assert.equal(final.choices[0].finish_reason, "tool_calls");

  const none = await server.chat.completions.create({ ...body, tool_choice: "none" });
  assert.equal(none.choices[0].message.tool_calls, undefined);
  const forced = await server.chat.completions.create({ ...body, tool_choice: "required", max_tokens: 200 });
  assert.equal(forced.choices[0].message.tool_calls.length, 1);
  assert.equal(forced.choices[0].message.tool_calls[0].function.name, "get_weather");
  const unknown = { type: "function", function: { name: "get_nothing" } };
  await assert.rejects(server.chat.completions.create({ ...body, tool_choice: unknown }), OpenAI.BadRequestError);
});
