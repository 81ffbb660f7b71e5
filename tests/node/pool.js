'use strict';
// Many calls at a time over a pool of connections.

const { assert, call, connect, run, stop } = require('./larder');

const CALLS = 400;

/** Runs `test` on a client with this pool, whose calls wait for a connection. */
async function pooled(size, test) {
  const client = await connect(size, true);
  await test(client);
  await stop(client);
}

async function eachGetsItsOwn(client, bucket, calls) {
  const numbers = Array.from({ length: calls }, (_, number) => number);
  const at = (number) => ({ bucket, key: `key ${number}` });
  await Promise.all(numbers.map((n) => call(client, 'storeValue', { ...at(n), value: `value ${n}`.repeat(n + 1) })));
  const got = await Promise.all(numbers.map((number) => call(client, 'fetchValue', at(number))));
  got.forEach((one, number) => {
    assert.strictEqual(one.values[0].value.toString(), `value ${number}`.repeat(number + 1));
  });
}

run({
  async each_call_gets_its_own_answer() {
    await pooled({ minConnections: 1, maxConnections: 1 }, (client) => eachGetsItsOwn(client, 'pool of 1', 50));
    await pooled({ minConnections: 4, maxConnections: 32 }, (client) => eachGetsItsOwn(client, 'pool of 32', CALLS));
  },

  async refusals_and_answers_do_not_mix() {
    await pooled({ minConnections: 2, maxConnections: 8 }, async (client) => {
      await call(client, 'storeValue', { bucket: 'mixed', key: 'k', value: 'v' });
      const one = async (number) => {
        if (number % 3 === 0) {
          const at = { bucketType: 'nosuch', bucket: 'mixed', key: 'k' };
          return call(client, 'fetchValue', at).then(() => 'answered', (error) => error.message);
        }
        const key = number % 3 === 1 ? 'k' : 'missing';
        const got = await call(client, 'fetchValue', { bucket: 'mixed', key });
        return got.isNotFound ? 'not found' : got.values[0].value.toString();
      };
      const outcomes = await Promise.all(Array.from({ length: CALLS }, (_, number) => one(number)));
      outcomes.forEach((outcome, number) => assert.strictEqual(outcome, ['no_type', 'v', 'not found'][number % 3]));
    });
  },

  async a_preflist_names_the_gateway(client) {
    const { preflist } = await call(client, 'fetchPreflist', { bucket: 'b', key: 'k' });
    const { node } = await call(client, 'fetchServerInfo');
    assert.strictEqual(preflist.length, 3);
    assert.ok(preflist.every((copy) => copy.primary && copy.node === node), JSON.stringify(preflist));
  },
});
