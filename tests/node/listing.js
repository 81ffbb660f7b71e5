'use strict';
// Keys and buckets, listed whole and streamed.

const { assert, call, parts, run } = require('./larder');

run({
  async keys_are_listed_whole_and_streamed(client) {
    for (const at of [{ bucket: 'listed' }, { bucketType: 'many', bucket: 'listed' }]) {
      const names = Array.from({ length: 30 }, (_, number) => `key-${number} ü`);
      await Promise.all(names.map((key) => call(client, 'storeValue', { ...at, key, value: 'v' })));
      await call(client, 'deleteValue', { ...at, key: names[7] });
      const expected = names.filter((_, number) => number !== 7).sort();
      const whole = await call(client, 'listKeys', { ...at, stream: false, timeout: 10000 });
      assert.deepStrictEqual(whole.keys.sort(), expected);
      const streamed = await parts(client, 'listKeys', at);
      assert.deepStrictEqual(streamed.flatMap((part) => part.keys).sort(), expected);
    }
  },

  async a_long_list_comes_in_parts(client) {
    const at = { bucket: 'long' };
    const names = Array.from({ length: 1500 }, (_, number) => `key-${number}`);
    for (let from = 0; from < names.length; from += 100) {
      const some = names.slice(from, from + 100);
      await Promise.all(some.map((key) => call(client, 'storeValue', { ...at, key, value: 'v' })));
    }
    const streamed = await parts(client, 'listKeys', at);
    assert.deepStrictEqual(streamed.flatMap((part) => part.keys).sort(), names.sort());
    assert.ok(streamed.length > 2, `${streamed.length} parts`);
    const whole = await call(client, 'listKeys', { ...at, stream: false });
    assert.strictEqual(whole.keys.length, names.length);
  },

  async buckets_are_listed_whole_and_streamed(client) {
    await call(client, 'storeValue', { bucket: 'öne', key: 'k', value: 'v' });
    await call(client, 'storeValue', { bucketType: 'many', bucket: 'two', key: 'k', value: 'v' });
    const inDefault = (await call(client, 'listBuckets', { stream: false })).buckets;
    const inMany = (await call(client, 'listBuckets', { stream: false, bucketType: 'many' })).buckets;
    assert.ok(inDefault.includes('öne') && !inDefault.includes('two'), `${inDefault}`);
    assert.ok(inMany.includes('two') && !inMany.includes('öne'), `${inMany}`);
    for (const [bucketType, expected] of [['default', inDefault], ['many', inMany]]) {
      const streamed = await parts(client, 'listBuckets', { bucketType });
      assert.deepStrictEqual(streamed.flatMap((part) => part.buckets).sort(), expected.sort());
    }
  },

  async an_empty_bucket_has_no_keys(client) {
    assert.deepStrictEqual((await call(client, 'listKeys', { bucket: 'empty', stream: false })).keys, []);
    const parted = await parts(client, 'listKeys', { bucket: 'empty' });
    assert.deepStrictEqual(parted.map(({ keys, done }) => [keys, done]), [[[], true]]);
    assert.deepStrictEqual((await call(client, 'listBuckets', { bucketType: 'single', stream: false })).buckets, []);
  },
});
