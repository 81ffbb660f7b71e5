'use strict';
// Requests that are refused: the client gets the text of the server at once, and its connection goes on.

const { Riak, assert, call, connect, parts, refused, run, stop } = require('./larder');

const AT = { bucket: 'b', key: 'k' };
const TYPED = { ...AT, bucketType: 'many' };

/** Runs `test` on a client with one connection, which has to survive it. */
function oneConnection(test) {
  return async () => {
    const client = await connect({ minConnections: 1, maxConnections: 1 });
    await test(client);
    assert.strictEqual(await call(client, 'ping'), true);
    await stop(client);
  };
}

run({
  unknown_types_are_named: oneConnection(async (client) => {
    for (const bucketType of ['nosuch', 'sleeping']) {
      const at = { ...AT, bucketType };
      await refused(call(client, 'fetchValue', at), 'no_type');
      await refused(call(client, 'storeValue', { ...at, value: 'v' }), 'no_type');
      await refused(call(client, 'deleteValue', at), 'no_type');
      const text = `No bucket-type named '${bucketType}'`;
      await refused(call(client, 'fetchBucketProps', { bucket: 'b', bucketType }), text);
      await refused(call(client, 'storeBucketProps', { bucket: 'b', bucketType, nVal: 1 }), text);
      await refused(call(client, 'listKeys', { bucket: 'b', bucketType, stream: false }), text);
      await refused(parts(client, 'listKeys', { bucket: 'b', bucketType }), text);
      await refused(call(client, 'listBuckets', { bucketType, stream: false }), text);
      await refused(call(client, 'fetchBucketTypeProps', { bucketType }), `Invalid bucket type: <<"${bucketType}">>`);
    }
  }),

  data_types_need_their_bucket_type: oneConnection(async (client) => {
    const fetch = '`undefined` is not a supported type';
    const update = 'Bucket datatype `undefined` is not a supported type';
    await refused(call(client, 'fetchCounter', TYPED), fetch);
    await refused(call(client, 'updateCounter', { ...TYPED, increment: 1 }), update);
    await refused(call(client, 'fetchSet', TYPED), fetch);
    await refused(call(client, 'updateSet', { ...TYPED, additions: ['a'] }), update);
    await refused(call(client, 'fetchMap', TYPED), fetch);
    const op = new Riak.Commands.CRDT.UpdateMap.MapOperation().incrementCounter('n', 1);
    await refused(call(client, 'updateMap', { ...TYPED, op }), update);
    const missing = call(client, 'fetchSet', { ...AT, bucketType: 'nosuch' });
    await refused(missing, 'Error no bucket type `<<"nosuch">>`');
  }),

  search_and_time_series_are_unknown: oneConnection(async (client) => {
    await refused(call(client, 'search', { indexName: 'i', q: '*:*' }), 'Unknown message code: 27');
    await refused(call(client, 'fetchIndex', { indexName: 'i' }), 'Unknown message code: 54');
    await refused(call(client, 'storeIndex', { indexName: 'i' }), 'Unknown message code: 56');
    await refused(call(client, 'deleteIndex', { indexName: 'i' }), 'Unknown message code: 57');
    await refused(call(client, 'fetchSchema', { schemaName: 's' }), 'Unknown message code: 58');
    await refused(call(client, 'storeSchema', { schemaName: 's', schema: '<x/>' }), 'Unknown message code: 60');
    await refused(call(client, 'tsQuery', { query: 'select * from t' }), 'Unknown message code: 90');
  }),

  names_and_index_terms_are_checked: oneConnection(async (client) => {
    const long = 'k'.repeat(12 * 1024 + 1);
    for (const part of ['key', 'bucket']) {
      const store = call(client, 'storeValue', { ...AT, [part]: long, value: 'v' });
      await refused(store, `The ${part} is longer than 12288 bytes`);
    }
    for (const [index, term, reason] of [
      ['n_int', 'x', '{field_parsing_failed,{<<"n_int">>,<<"x">>}}'],
      ['other', 'x', '{unknown_field_type,<<"other">>}'],
    ]) {
      const value = new Riak.Commands.KV.RiakObject().setValue('v').addToIndex(index, term);
      await refused(call(client, 'storeValue', { ...AT, value }), `{precommit_fail,[${reason}]}`);
    }
    assert.strictEqual((await call(client, 'fetchValue', AT)).isNotFound, true);
  }),

  objects_above_the_limit_are_refused: oneConnection(async (client) => {
    for (const [key, mebibytes] of [['a', 16], ['b', 17], ['c', 60]]) {
      const at = { bucket: 'large', key };
      const store = call(client, 'storeValue', { ...at, value: Buffer.alloc(mebibytes * 1024 * 1024 + 1) });
      await assert.rejects(store, /^Error: \{too_large,\d+\}$/);
      assert.strictEqual((await call(client, 'fetchValue', at)).isNotFound, true);
    }
  }),

  credentials_need_security: async () => {
    const auth = { user: 'u', password: 'p', ca: ['-'] };
    await assert.rejects(connect({ minConnections: 1, auth }), /Security not enabled; STARTTLS not allowed\.$/);
  },
});
