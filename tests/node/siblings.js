'use strict';
// Siblings: seen, resolved by a function, written back with their context.

const { Riak, assert, call, refused, run } = require('./larder');

function place(key) {
  return { bucketType: 'many', bucket: 'siblings', key };
}

/** Stores these values without a look at each other. */
async function conflicting(client, key, ...values) {
  for (const value of values) {
    await call(client, 'storeValue', { ...place(key), value });
  }
  return place(key);
}

function texts(response) {
  return response.values.map((one) => one.value.toString()).sort();
}

/** Keeps every item of all lists. */
function merge(siblings) {
  const items = siblings.flatMap((one) => JSON.parse(one.value));
  return siblings[0].setValue(JSON.stringify([...new Set(items)].sort()));
}

run({
  async both_are_seen_with_their_metadata(client) {
    const at = place('seen');
    for (const writer of ['1', '2']) {
      const value = new Riak.Commands.KV.RiakObject().setValue(`value ${writer}`).setContentType('text/plain');
      value.setUserMeta([{ key: 'writer', value: writer }]).addToIndex('n_int', Number(writer));
      await call(client, 'storeValue', { ...at, value });
    }
    const got = await call(client, 'fetchValue', at);
    const seen = got.values.map((one) => [one.value.toString(), one.userMeta[0].value, one.indexes.n_int[0]]).sort();
    assert.deepStrictEqual(seen, [['value 1', '1', 1], ['value 2', '2', 2]]);
    assert.ok(got.values.every((one) => one.vclock.equals(got.vclock)));
  },

  async a_resolver_merges_and_the_context_removes_the_rest(client) {
    const at = await conflicting(client, 'merge', ['milk'], ['tea'], ['milk', 'salt']);
    const got = await call(client, 'fetchValue', { ...at, conflictResolver: merge });
    assert.deepStrictEqual(texts(got), ['["milk","salt","tea"]']);
    await call(client, 'storeValue', { value: got.values[0] });
    const again = await call(client, 'fetchValue', at);
    assert.deepStrictEqual(texts(again), ['["milk","salt","tea"]']);
    assert.ok(!again.vclock.equals(got.vclock));
  },

  async a_store_with_its_body_shows_the_conflict_and_resolves_it(client) {
    const at = await conflicting(client, 'shown', ['first']);
    const shown = await call(client, 'storeValue', { ...at, value: ['second'], returnBody: true });
    assert.deepStrictEqual(texts(shown), ['["first"]', '["second"]']);
    const third = { ...at, value: ['third'], returnBody: true, conflictResolver: merge };
    const merged = await call(client, 'storeValue', third);
    assert.deepStrictEqual(texts(merged), ['["first","second","third"]']);
    await call(client, 'storeValue', { value: merged.values[0] });
    assert.deepStrictEqual(texts(await call(client, 'fetchValue', at)), ['["first","second","third"]']);
  },

  async heads_of_siblings_have_no_values(client) {
    const at = await conflicting(client, 'heads', 'a', 'b');
    const got = await call(client, 'fetchValue', { ...at, headOnly: true });
    assert.deepStrictEqual(texts(got), ['', '']);
  },

  async read_modify_write_never_conflicts(client) {
    const at = await conflicting(client, 'rmw', '0');
    for (let round = 0; round < 20; round += 1) {
      const { values } = await call(client, 'fetchValue', at);
      assert.strictEqual(values.length, 1);
      await call(client, 'storeValue', { value: values[0].setValue(String(Number(values[0].value) + 1)) });
    }
    assert.deepStrictEqual(texts(await call(client, 'fetchValue', at)), ['20']);
  },

  async a_writer_with_an_old_context_leaves_a_sibling(client) {
    const at = await conflicting(client, 'old', 'one');
    const { vclock } = await call(client, 'fetchValue', at);
    await call(client, 'storeValue', { ...at, value: 'two', vclock });
    await call(client, 'storeValue', { ...at, value: 'three', vclock });
    assert.deepStrictEqual(texts(await call(client, 'fetchValue', at)), ['three', 'two']);
  },

  async a_delete_removes_what_its_context_saw(client) {
    const at = await conflicting(client, 'delete', 'a', 'b');
    const { vclock } = await call(client, 'fetchValue', at);
    await conflicting(client, 'delete', 'c');
    await call(client, 'deleteValue', { ...at, vclock });
    const left = await call(client, 'fetchValue', at);
    assert.deepStrictEqual(texts(left), ['c']);
    await call(client, 'deleteValue', { ...at, vclock: left.vclock });
    assert.strictEqual((await call(client, 'fetchValue', at)).isNotFound, true);
  },

  async a_bucket_without_allow_mult_keeps_one(client) {
    const at = { bucketType: 'single', bucket: 'b', key: 'k' };
    await call(client, 'storeValue', { ...at, value: '1' });
    await call(client, 'storeValue', { ...at, value: '2' });
    assert.deepStrictEqual(texts(await call(client, 'fetchValue', at)), ['2']);
  },

  async a_context_of_another_key_is_refused(client) {
    await conflicting(client, 'own', 'a');
    await conflicting(client, 'other', 'b');
    const { vclock } = await call(client, 'fetchValue', place('other'));
    const text = 'The vclock belongs to another bucket type, bucket or key';
    await refused(call(client, 'storeValue', { ...place('own'), value: 'c', vclock }), text);
    assert.deepStrictEqual(texts(await call(client, 'fetchValue', place('own'))), ['a']);
  },
});
