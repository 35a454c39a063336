// The official openai client from npm, unchanged, against a shoal.
//
// Environment: SHOAL_BASES and SHOAL_ADMINS, the agents' API and admin addresses (host:port), separated by commas.
// Prints "ok NAME" or "FAIL NAME: REASON" for each check; exits 1 where one failed.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import OpenAI, * as errors from 'openai';

const { version } = JSON.parse(readFileSync('node_modules/openai/package.json', 'utf8'));
const bases = process.env.SHOAL_BASES.split(',').map((a) => `http://${a}/v1`);
const admins = process.env.SHOAL_ADMINS.split(',');
const clients = bases.map((baseURL) => new OpenAI({ baseURL, apiKey: 'none-needed', maxRetries: 0, timeout: 30_000 }));
const client = clients[0];
const messages = [
  { role: 'system', content: 'You are a helpful assistant.' },
  { role: 'user', content: 'Say something about the sea.' },
];
let model = '';

async function read(stream) {
  let text = '', finish = null, usage = null, chunks = 0;
  for await (const chunk of stream) {
    chunks++;
    usage = chunk.usage ?? usage;
    for (const choice of chunk.choices) {
      text += choice.delta.content ?? '';
      finish = choice.finish_reason ?? finish;
    }
  }
  return { text, finish, usage, chunks };
}

async function expectError(kind, status, param, call) {
  try {
    await call();
  } catch (e) {
    assert(e instanceof kind, `${e.constructor.name}: ${e.message}`);
    assert.equal(e.status, status);
    assert.equal(e.param, param);
    assert.equal(e.type, 'invalid_request_error');
    assert(!e.message.includes('127.0.0.1'), e.message);
    return e;
  }
  assert.fail('no error came');
}

async function inFlight() {
  let total = 0;
  for (const a of admins) {
    const status = await (await fetch(`http://${a}/status`)).json();
    for (const p of status.peers) {
      total += p.pending;
      if (p.self) total += p.load.InFlight + Math.max(0, p.load.Running) + Math.max(0, p.load.Waiting);
    }
  }
  return total;
}

const checks = {
  async models() {
    const ids = [];
    for await (const m of client.models.list()) ids.push(m.id);
    assert(ids.length > 0 && new Set(ids).size === ids.length, `models: ${ids}`);
    model = ids[0];
  },
  async model_retrieve() {
    assert.equal((await client.models.retrieve(model)).id, model);
  },
  async chat() {
    const { data, response } = await client.chat.completions.create({ model, messages, max_tokens: 8 }).withResponse();
    assert.equal(data.object, 'chat.completion');
    assert.equal(data.choices[0].message.role, 'assistant');
    assert(data.choices[0].message.content && data.usage.prompt_tokens > 0 && data.usage.completion_tokens <= 8, JSON.stringify(data));
    assert(['a1', 'a2', 'a3'].includes(response.headers.get('x-shoal-peer')), 'X-Shoal-Peer is missing');
  },
  async stream() {
    const r = await read(await client.chat.completions.create({
      model, messages, max_tokens: 16, stream: true, stream_options: { include_usage: true } }));
    assert(r.text && ['stop', 'length'].includes(r.finish) && r.chunks > 2, JSON.stringify(r));
    assert(r.usage?.prompt_tokens > 0 && r.usage.completion_tokens > 0, JSON.stringify(r));
  },
  async stream_helper() {
    const runner = client.chat.completions.stream({ model, messages });
    let deltas = 0;
    runner.on('content', () => deltas++);
    const final = await runner.finalChatCompletion();
    assert(deltas > 0 && final.choices[0].message.content, JSON.stringify(final));
  },
  async stream_through_every_agent_at_once() {
    const all = await Promise.all(Array.from({ length: 24 }, async (_, i) => read(await clients[i % clients.length].chat.completions.create({
      model, max_tokens: 12, stream: true, messages: [...messages, { role: 'user', content: `And number ${i}?` }] }))));
    for (const r of all) assert(r.text && r.finish, JSON.stringify(r));
  },
  async completion() {
    const c = await client.completions.create({ model, prompt: 'The sea is', max_tokens: 4 });
    assert(c.object === 'text_completion' && c.choices[0].text, JSON.stringify(c));
  },
  async embeddings() {
    for (const extra of [{}, { encoding_format: 'float' }]) {
      const e = await client.embeddings.create({ model, input: ['the sea', 'a fish'], ...extra });
      assert.deepEqual(e.data.map((d) => d.index), [0, 1]);
      for (const d of e.data) assert(d.embedding.length > 0 && typeof d.embedding[0] === 'number');
    }
  },
  async unknown_model_is_not_found() {
    for (const stream of [false, true]) {
      const e = await expectError(errors.NotFoundError, 404, 'model',
        () => client.chat.completions.create({ model: 'no-such-model', messages, stream }));
      assert.equal(e.code, 'model_not_found');
    }
  },
  async empty_messages_are_a_bad_request() {
    await expectError(errors.BadRequestError, 400, 'messages', () => client.chat.completions.create({ model, messages: [] }));
  },
  async aborted_streams_leave_nothing_behind() {
    const streams = [];
    for (let i = 0; i < 12; i++) {
      const stream = await clients[i % clients.length].chat.completions.create({
        model, max_tokens: 500, stream: true, messages: [...messages, { role: 'user', content: `Go on, ${i}.` }] });
      const chunks = stream[Symbol.asyncIterator]();
      assert.equal((await chunks.next()).done, false);
      streams.push(stream);
    }
    assert(await inFlight() >= streams.length, `${await inFlight()} requests are in flight while ${streams.length} streams are open`);
    for (const stream of streams) stream.controller.abort();
    const limit = Date.now() + 15_000;
    let left;
    while ((left = await inFlight()) > 0 && Date.now() < limit) await new Promise((r) => setTimeout(r, 100));
    assert.equal(left, 0, `${left} requests are still in flight 15 s after their clients left`);
  },
};

let failed = 0;
console.log(`# openai ${version}, Node.js ${process.version}`);
for (const [name, check] of Object.entries(checks)) {
  try {
    await check();
    console.log(`ok ${name}`);
  } catch (e) {
    failed++;
    console.log(`FAIL ${name}: ${String(e.message ?? e).replaceAll('\n', ' ')}`);
    console.error(e);
  }
}
process.exit(failed > 0 ? 1 : 0);
