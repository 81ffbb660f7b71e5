'use strict';
// Objects: store, fetch, delete, metadata, conditions.

const { Riak, assert, call, refused, run } = require('./larder');

const BYTES = Buffer.alloc(256000, Buffer.from(Array.from({ length: 256 }, (_, byte) => byte)));

function object(value, contentType) {
  return new Riak.Commands.KV.RiakObject().setValue(value).setContentType(contentType);
}

async function only(client, at) {
  const found = await call(client, 'fetchValue', at);
  assert.strictEqual(found.isNotFound, false);
  assert.strictEqual(found.values.length, 1);
  return found.values[0];
}

run({
  async it_pings_and_names_a_version(client) {
    assert.strictEqual(await call(client, 'ping'), true);
    const info = await call(client, 'fetchServerInfo');
    assert.match(info.server_version, /^\d+\.\d+\.\d+$/);
    assert.match(info.node, /@/);
  },

  async json_comes_back_as_a_value(client) {
    const at = { bucket: 'people', key: 'ada' };
    const ada = { name: 'Ada', born: 1815, langs: ['en', 'fr'], ü: 'ñ' };
    await call(client, 'storeValue', { ...at, value: ada });
    const got = await call(client, 'fetchValue', { ...at, convertToJs: true });
    assert.deepStrictEqual(got.values[0].value, ada);
    assert.strictEqual(got.values[0].contentType, 'application/json');
  },

  async bytes_and_metadata_come_back(client) {
    const at = { bucket: 'raw', key: 'blob' };
    const stored = object(BYTES, 'application/octet-stream');
    stored.setContentEncoding('identity');
    stored.setUserMeta([{ key: 'colour', value: 'red' }, { key: 'größe', value: '12 ½' }]);
    stored.addToIndex('age_int', 42, -7).addToIndex('name_bin', 'ada', 'lovelace');
    stored.setLinks([{ bucket: 'other bucket', key: 'c/d', tag: 'odd tag' }]);
    const begun = Date.now();
    await call(client, 'storeValue', { ...at, value: stored });
    const got = await only(client, at);
    assert.ok(BYTES.equals(got.value));
    assert.strictEqual(got.contentType, 'application/octet-stream');
    assert.strictEqual(got.contentEncoding, 'identity');
    assert.deepStrictEqual(pairs(got.userMeta), [['colour', 'red'], ['größe', '12 ½']]);
    assert.deepStrictEqual(got.indexes.age_int.sort((a, b) => a - b), [-7, 42]);
    assert.deepStrictEqual(got.indexes.name_bin.sort(), ['ada', 'lovelace']);
    assert.deepStrictEqual(got.links, [{ bucket: 'other bucket', key: 'c/d', tag: 'odd tag' }]);
    assert.ok(got.lastModified >= begun - 1000 && got.lastModified <= Date.now() + 1000, `${got.lastModified}`);
  },

  async an_object_fetched_and_stored_keeps_its_metadata(client) {
    const at = { bucket: 'kept', key: 'k' };
    const stored = object('one', 'text/plain').setUserMeta([{ key: 'a', value: 'b' }]).addToIndex('n_int', 1);
    await call(client, 'storeValue', { ...at, value: stored });
    const got = await only(client, at);
    await call(client, 'storeValue', { value: got.setValue('two') });
    const again = await only(client, at);
    assert.strictEqual(again.value.toString(), 'two');
    assert.strictEqual(again.contentType, 'text/plain');
    assert.deepStrictEqual(pairs(again.userMeta), [['a', 'b']]);
    assert.deepStrictEqual(again.indexes, { n_int: [1] });
  },

  async bodies_may_be_empty_and_large(client) {
    await call(client, 'storeValue', { bucket: 'sizes', key: 'empty', value: '' });
    assert.strictEqual((await only(client, { bucket: 'sizes', key: 'empty' })).value.length, 0);
    const large = Buffer.alloc(9 * 1024 * 1024, 'larder ');
    await call(client, 'storeValue', { bucket: 'sizes', key: 'large', value: object(large, 'x/y') });
    assert.ok(large.equals((await only(client, { bucket: 'sizes', key: 'large' })).value));
    await call(client, 'storeValue', { bucket: 'sizes', key: 'small', value: 's' });
    assert.strictEqual((await only(client, { bucket: 'sizes', key: 'small' })).value.toString(), 's');
  },

  async keys_may_have_any_characters_and_bytes(client) {
    const keys = ['a/b', 'a b', 'a+b', 'grüße/日本 語', '100%', '?q=1', '#', Buffer.from([0, 255, 254, 47])];
    for (const [number, key] of keys.entries()) {
      await call(client, 'storeValue', { bucket: 'odd/bücket name', key, value: `value ${number}` });
    }
    for (const [number, key] of keys.entries()) {
      assert.strictEqual((await only(client, { bucket: 'odd/bücket name', key })).value.toString(), `value ${number}`);
    }
  },

  async a_missing_key_gets_a_name(client) {
    const stored = await call(client, 'storeValue', { bucket: 'made', value: 'x', returnBody: true });
    assert.ok(stored.generatedKey);
    assert.strictEqual(stored.values[0].key, stored.generatedKey);
    assert.strictEqual((await only(client, { bucket: 'made', key: stored.generatedKey })).value.toString(), 'x');
  },

  async what_is_not_there_is_not_found(client) {
    const got = await call(client, 'fetchValue', { bucket: 'people', key: 'nobody' });
    assert.deepStrictEqual(got, { isNotFound: true, isUnchanged: false, vclock: null, values: [] });
    assert.strictEqual(await call(client, 'deleteValue', { bucket: 'people', key: 'nobody' }), true);
  },

  async a_deleted_key_shows_its_context_alone(client) {
    const at = { bucket: 'deleted', key: 'k' };
    await call(client, 'storeValue', { ...at, value: 'one' });
    await call(client, 'deleteValue', at);
    assert.strictEqual((await call(client, 'fetchValue', at)).isNotFound, true);
    const gone = await call(client, 'fetchValue', { ...at, returnDeletedVClock: true });
    assert.strictEqual(gone.isNotFound, false);
    assert.strictEqual(gone.values[0].isTombstone, true);
    assert.ok(gone.vclock.length > 0);
    await call(client, 'storeValue', { ...at, value: 'two', vclock: gone.vclock });
    assert.strictEqual((await only(client, at)).value.toString(), 'two');
  },

  async only_the_first_store_with_if_none_match_succeeds(client) {
    const at = { bucket: 'once', key: 'k', ifNoneMatch: true };
    await call(client, 'storeValue', { ...at, value: '1' });
    await refused(call(client, 'storeValue', { ...at, value: '2' }), 'match_found');
    assert.strictEqual((await only(client, { bucket: 'once', key: 'k' })).value.toString(), '1');
  },

  async a_store_with_an_old_context_and_if_not_modified_is_refused(client) {
    const at = { bucket: 'checked', key: 'k' };
    const first = await call(client, 'storeValue', { ...at, value: '1', returnBody: true });
    const second = { ...at, ifNotModified: true, vclock: first.vclock };
    await call(client, 'storeValue', { ...second, value: '2' });
    await refused(call(client, 'storeValue', { ...second, value: '3' }), 'modified');
    assert.strictEqual((await only(client, at)).value.toString(), '2');
    const missing = { bucket: 'checked', key: 'none', ifNotModified: true };
    await refused(call(client, 'storeValue', { ...missing, value: '4' }), 'notfound');
  },

  async heads_have_metadata_without_a_value(client) {
    const at = { bucket: 'heads', key: 'k' };
    const value = object('body', 'text/plain').setUserMeta([{ key: 'a', value: 'b' }]);
    const body = await call(client, 'storeValue', { ...at, value, returnBody: true });
    assert.strictEqual(body.values[0].value.toString(), 'body');
    const stored = await call(client, 'storeValue', { ...at, value, vclock: body.vclock, returnHead: true });
    const fetched = await call(client, 'fetchValue', { ...at, headOnly: true });
    assert.ok(stored.vclock.equals(fetched.vclock));
    for (const head of [stored.values[0], fetched.values[0]]) {
      assert.strictEqual(head.value.length, 0);
      assert.strictEqual(head.contentType, 'text/plain');
      assert.deepStrictEqual(pairs(head.userMeta), [['a', 'b']]);
    }
  },

  async a_context_that_changed_brings_the_new_value(client) {
    // The client cannot read the answer for an unchanged object: it expects a context, and Riak sends none.
    const at = { bucket: 'modified', key: 'k' };
    const first = await call(client, 'storeValue', { ...at, value: '1', returnBody: true });
    await call(client, 'storeValue', { ...at, value: '2', vclock: first.vclock });
    const got = await call(client, 'fetchValue', { ...at, ifModified: first.vclock });
    assert.strictEqual(got.values[0].value.toString(), '2');
  },

  async types_are_different_places(client) {
    const at = { bucket: 'same', key: 'k' };
    await call(client, 'storeValue', { ...at, bucketType: 'many', value: 'typed' });
    await call(client, 'storeValue', { ...at, value: 'untyped' });
    assert.strictEqual((await only(client, { ...at, bucketType: 'many' })).value.toString(), 'typed');
    assert.strictEqual((await only(client, at)).value.toString(), 'untyped');
  },

  async quorums_are_accepted_up_to_the_copies(client) {
    const at = { bucket: 'quorums', key: 'k' };
    const [one, all] = [0xfffffffe, 0xfffffffc];
    await call(client, 'storeValue', { ...at, value: '1', w: all, dw: 1, pw: one, timeout: 5000 });
    await call(client, 'fetchValue', { ...at, r: 3, pr: 1, notFoundOk: true, useBasicQuorum: true, timeout: 5000 });
    await refused(call(client, 'fetchValue', { ...at, r: 4 }), '{n_val_violation,3}');
    await refused(call(client, 'storeValue', { ...at, value: '2', w: 4 }), '{n_val_violation,3}');
    await call(client, 'deleteValue', { ...at, r: 2, w: 2, dw: 1, timeout: 5000 });
    assert.strictEqual((await call(client, 'fetchValue', at)).isNotFound, true);
  },
});

function pairs(meta) {
  return meta.map(({ key, value }) => [key, value]).sort();
}
