'use strict';
// Secondary indexes: stored terms, equality and ranges, pages, streams, the special indexes.

const { Riak, assert, call, parts, refused, run } = require('./larder');

const keys = (numbers) => numbers.map((number) => `k${String(number).padStart(2, '0')}`);
const range = (from, to) => Array.from({ length: to - from }, (_, at) => from + at);

async function fill(client, at) {
  for (const number of range(0, 20)) {
    const value = new Riak.Commands.KV.RiakObject().setValue(`${number}`);
    value.addToIndex('n_int', number - 5).addToIndex('t_bin', `t${number % 3}`);
    await call(client, 'storeValue', { ...at, key: keys([number])[0], value });
  }
}

async function found(client, query) {
  const whole = await call(client, 'secondaryIndexQuery', { ...query, stream: false });
  return { keys: whole.values.map((one) => one.objectKey), terms: whole.values.map((one) => one.indexKey), whole };
}

run({
  async one_value_and_ranges(client) {
    for (const at of [{ bucket: 'js-range' }, { bucketType: 'many', bucket: 'js-range' }]) {
      await fill(client, at);
      const numbers = { ...at, indexName: 'n_int' };
      assert.deepStrictEqual((await found(client, { ...numbers, indexKey: -2 })).keys, keys([3]));
      const ranged = await found(client, { ...numbers, rangeStart: -2, rangeEnd: 1, returnKeyAndIndex: true });
      assert.deepStrictEqual(ranged.keys, keys([3, 4, 5, 6]));
      assert.deepStrictEqual(ranged.terms.map(Number), [-2, -1, 0, 1]);
      const texts = await found(client, { ...at, indexName: 't_bin', indexKey: 't1' });
      assert.deepStrictEqual(texts.keys, keys(range(0, 20).filter((number) => number % 3 === 1)));
      const special = await found(client, { ...at, indexName: '$key', rangeStart: 'k05', rangeEnd: 'k07' });
      assert.deepStrictEqual(special.keys, keys([5, 6, 7]));
      const all = await found(client, { ...at, indexName: '$bucket', indexKey: at.bucket });
      assert.deepStrictEqual(all.keys, keys(range(0, 20)));
    }
  },

  async pages_and_streams(client) {
    const at = { bucket: 'js-pages' };
    await fill(client, at);
    const query = { ...at, indexName: 'n_int', rangeStart: -5, rangeEnd: 14 };
    const seen = [];
    let continuation;
    do {
      const page = await found(client, { ...query, maxResults: 8, continuation });
      seen.push(page.keys);
      continuation = page.whole.continuation;
    } while (continuation);
    assert.deepStrictEqual(seen.map((one) => one.length), [8, 8, 4]);
    assert.deepStrictEqual(seen.flat(), keys(range(0, 20)));
    const streamed = await parts(client, 'secondaryIndexQuery', query);
    assert.deepStrictEqual(streamed.flatMap((part) => part.values.map((one) => one.objectKey)), keys(range(0, 20)));
    const page = await parts(client, 'secondaryIndexQuery', { ...query, maxResults: 5 });
    assert.ok(page[page.length - 1].continuation, 'the last part has the continuation');
  },

  async refused_queries(client) {
    const text = '{field_parsing_failed,{<<"n_int">>,<<"x">>}}';
    for (const stream of [true, false]) {
      const query = { bucket: 'b', indexName: 'n_int', indexKey: 'x', stream };
      await refused(call(client, 'secondaryIndexQuery', query), text);
    }
    const unknown = { bucket: 'b', indexName: 'n', indexKey: 'x', stream: false };
    await refused(call(client, 'secondaryIndexQuery', unknown), '{unknown_field_type,<<"n">>}');
  },
});
