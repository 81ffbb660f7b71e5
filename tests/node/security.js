'use strict';
// A user with a password or a certificate, over TLS: what it was granted, and what it was not.

const { assert, call, connect, credentials, refused, run } = require('./larder');

const AT = { bucket: 'b', key: 'node' };

run({
  async a_user_stores_and_reads(client) {
    await call(client, 'storeValue', { ...AT, value: 'v' });
    assert.strictEqual((await call(client, 'fetchValue', AT)).values[0].value.toString(), 'v');
  },

  async what_was_not_granted_is_refused(client) {
    const text = "Permission denied: User 'clients' does not have 'riak_core.get_bucket' on default/b";
    await refused(call(client, 'fetchBucketProps', { bucket: 'b' }), text);
  },

  async another_user_is_refused_with_this_proof() {
    // A refusal takes five seconds; after three the client would call it a timeout.
    const options = { minConnections: 1, connectionTimeout: 10000, auth: credentials('others') };
    await assert.rejects(connect(options), /received RpbErrorResp \(0\) Authentication failed$/);
  },

  async a_client_in_clear_is_refused() {
    const client = await connect({ auth: undefined });
    await refused(call(client, 'fetchValue', AT), 'Security is enabled, please STARTTLS first');
  },
});
