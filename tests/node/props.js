'use strict';
// Properties of buckets and of types: fetched, stored, reset.

const { assert, call, refused, run } = require('./larder');

const [QUORUM, ALL] = [0xfffffffd, 0xfffffffc];

function fetch(client, at) {
  return call(client, 'fetchBucketProps', at);
}

run({
  async a_bucket_has_the_defaults(client) {
    const props = await fetch(client, { bucket: 'fresh' });
    const { nVal, allowMult, lastWriteWins, r, w, pr, notFoundOk } = props;
    assert.deepStrictEqual(
      { nVal, allowMult, lastWriteWins, r, w, pr, notFoundOk },
      { nVal: 3, allowMult: false, lastWriteWins: false, r: QUORUM, w: QUORUM, pr: 0, notFoundOk: true }
    );
    assert.deepStrictEqual(props.precommit, []);
    assert.deepStrictEqual(props.chashKeyfun, { mod: 'riak_core_util', fun: 'chash_std_keyfun' });
  },

  async they_are_stored_and_reset(client) {
    const at = { bucket: 'changed' };
    await call(client, 'storeBucketProps', { ...at, nVal: 2, allowMult: true, r: 1, w: ALL, notFoundOk: false });
    const { nVal, allowMult, r, w, notFoundOk } = await fetch(client, at);
    assert.deepStrictEqual([nVal, allowMult, r, w, notFoundOk], [2, true, 1, ALL, false]);
    for (const value of ['a', 'b']) {
      await call(client, 'storeValue', { ...at, key: 'k', value });
    }
    assert.strictEqual((await call(client, 'fetchValue', { ...at, key: 'k' })).values.length, 2);
    await call(client, 'resetBucketProps', at);
    const after = await fetch(client, at);
    assert.deepStrictEqual([after.nVal, after.allowMult, after.r, after.notFoundOk], [3, false, QUORUM, true]);
  },

  async what_is_fetched_may_be_stored(client) {
    for (const at of [{ bucket: 'echo' }, { bucketType: 'many', bucket: 'echo' }]) {
      const before = await fetch(client, at);
      const known = Object.entries(before).filter(([name, value]) => value !== null && STORED.includes(name));
      assert.ok(known.length > 15, `${known}`);
      await call(client, 'storeBucketProps', { ...at, ...Object.fromEntries(known) });
      assert.deepStrictEqual(await fetch(client, at), before);
    }
  },

  async a_bucket_inherits_from_its_type(client) {
    const at = { bucketType: 'many', bucket: 'heir' };
    assert.strictEqual((await call(client, 'fetchBucketTypeProps', { bucketType: 'many' })).nVal, 1);
    assert.deepStrictEqual([(await fetch(client, at)).nVal, (await fetch(client, at)).allowMult], [1, true]);
    await call(client, 'storeBucketTypeProps', { bucketType: 'many', r: 1 });
    assert.strictEqual((await fetch(client, at)).r, 1);
    await call(client, 'storeBucketTypeProps', { bucketType: 'many', r: QUORUM });
    assert.strictEqual((await fetch(client, at)).r, QUORUM);
  },

  async values_that_make_no_sense_are_refused(client) {
    const at = { bucket: 'bad' };
    const text = 'Invalid bucket properties: [{r,not_valid_quorum}]';
    await refused(call(client, 'storeBucketProps', { ...at, nVal: 2, r: 0xfffffffb }), text);
    await refused(
      call(client, 'storeBucketTypeProps', { bucketType: 'default', nVal: 2 }),
      'Invalid bucket properties: no_default_update'
    );
    await refused(
      call(client, 'storeBucketTypeProps', { bucketType: 'sleeping', r: 2 }),
      'Invalid bucket properties: not_active'
    );
    assert.strictEqual((await fetch(client, at)).nVal, 3);
  },
});

/** The properties that the client also stores; it fetches hooks and functions in a form that it does not store. */
const STORED = [
  ...['nVal', 'allowMult', 'lastWriteWins', 'oldVClock', 'youngVClock', 'bigVClock', 'smallVClock', 'pr', 'r', 'w'],
  ...['pw', 'dw', 'rw', 'basicQuorum', 'notFoundOk', 'backend', 'chashKeyfun'],
];
