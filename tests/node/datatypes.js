'use strict';
// Data types: counters, sets, maps, HyperLogLogs. Of sets that only grow the client has the messages alone: the commands for them
// are those of sets with another operation.

const { getProtoFor } = require('basho-riak-client/lib/protobuf/riakprotobuf');
const { Riak, assert, call, refused, run } = require('./larder');

const GSetOp = getProtoFor('GSetOp');

function at(bucketType, key) {
  return { bucketType, bucket: 'data', key };
}

const strings = { setsAsBuffers: false };

class UpdateGset extends Riak.Commands.CRDT.UpdateSet {
  constructPbRequest() {
    const request = super.constructPbRequest();
    const { op } = request;
    op.gset_op = new GSetOp();
    op.gset_op.adds = op.set_op.adds;
    op.set_op = null;
    return request;
  }

  onSuccess(answer) {
    if (answer) answer.set_value = answer.gset_value;
    return super.onSuccess(answer);
  }
}

class FetchGset extends Riak.Commands.CRDT.FetchSet {
  onSuccess(answer) {
    const value = answer.getValue();
    if (value) value.set_value = value.gset_value;
    return super.onSuccess(answer);
  }
}

/** Runs a command that the client has no function for. */
function execute(client, Command, options) {
  return new Promise((resolve, reject) => {
    client.execute(new Command(options, (error, response) => (error ? reject(error) : resolve(response))));
  });
}

run({
  async counters_count(client) {
    const place = at('counters', 'c');
    assert.strictEqual((await call(client, 'fetchCounter', place)).notFound, true);
    await call(client, 'updateCounter', { ...place, increment: 5 });
    const back = await call(client, 'updateCounter', { ...place, increment: -7, returnBody: true });
    assert.strictEqual(Number(back.counterValue), -2);
    assert.strictEqual(Number((await call(client, 'fetchCounter', place)).counterValue), -2);
  },

  async a_key_is_made_by_the_server(client) {
    const made = await call(client, 'updateCounter', { bucketType: 'counters', bucket: 'data', increment: 3 });
    assert.ok(made.generatedKey.length > 20);
    const found = await call(client, 'fetchCounter', at('counters', made.generatedKey));
    assert.strictEqual(Number(found.counterValue), 3);
  },

  async sets_take_and_lose_elements(client) {
    const place = { ...at('sets', 's'), ...strings };
    assert.strictEqual((await call(client, 'fetchSet', place)).notFound, true);
    await call(client, 'updateSet', { ...place, additions: ['b', 'a', 'c'] });
    const found = await call(client, 'fetchSet', place);
    assert.deepStrictEqual(found.values, ['a', 'b', 'c']);
    const removed = { ...place, context: found.context, removals: ['b'], returnBody: true };
    assert.deepStrictEqual((await call(client, 'updateSet', removed)).values, ['a', 'c']);
  },

  async sets_that_only_grow_take_elements(client) {
    const place = { ...at('gsets', 'g'), ...strings };
    assert.strictEqual((await execute(client, FetchGset, place)).isNotFound, true);
    const back = await execute(client, UpdateGset, { ...place, additions: ['b', 'a'], returnBody: true });
    assert.deepStrictEqual(back.values, ['a', 'b']);
    await execute(client, UpdateGset, { ...place, additions: ['c', 'a'] });
    const found = await execute(client, FetchGset, place);
    assert.deepStrictEqual(found.values, ['a', 'b', 'c']);
    assert.strictEqual(found.context, null);
  },

  async an_addition_survives_a_removal_that_did_not_see_it(client) {
    const place = { ...at('sets', 'race'), ...strings };
    await call(client, 'updateSet', { ...place, additions: ['x'] });
    const { context } = await call(client, 'fetchSet', place);
    await call(client, 'updateSet', { ...place, additions: ['x'] });
    await call(client, 'updateSet', { ...place, context, removals: ['x'] });
    assert.deepStrictEqual((await call(client, 'fetchSet', place)).values, ['x']);
  },

  async maps_hold_values_of_every_type(client) {
    const place = { ...at('maps', 'm'), ...strings };
    const op = new Riak.Commands.CRDT.UpdateMap.MapOperation();
    op.incrementCounter('visits', 2).addToSet('tags', 'x').addToSet('tags', 'y');
    op.setRegister('name', Buffer.from('Ann')).setFlag('vip', true);
    op.map('address').setRegister('zip', Buffer.from('1'));
    await call(client, 'updateMap', { ...place, op });
    const found = await call(client, 'fetchMap', place);
    assert.strictEqual(Number(found.map.counters.visits), 2);
    assert.deepStrictEqual(found.map.sets.tags, ['x', 'y']);
    assert.strictEqual(found.map.registers.name.toString(), 'Ann');
    assert.strictEqual(found.map.flags.vip, true);
    assert.strictEqual(found.map.maps.address.registers.zip.toString(), '1');
    const less = new Riak.Commands.CRDT.UpdateMap.MapOperation();
    less.removeFromSet('tags', 'x').removeRegister('name').setFlag('vip', false);
    less.map('address').removeRegister('zip');
    const back = await call(client, 'updateMap', { ...place, op: less, context: found.context, returnBody: true });
    assert.deepStrictEqual(back.map.sets.tags, ['y']);
    assert.strictEqual(back.map.registers.name, undefined);
    assert.strictEqual(back.map.flags.vip, false);
    assert.strictEqual(back.map.maps.address.registers.zip, undefined);
  },

  async hyperloglogs_estimate(client) {
    const { FetchHll, UpdateHll } = Riak.Commands.CRDT;
    const additions = Array.from({ length: 1000 }, (_, number) => `visitor ${number}`);
    await execute(client, UpdateHll, { ...at('hlls', 'h'), additions });
    const found = await execute(client, FetchHll, at('hlls', 'h'));
    assert.ok(Math.abs(Number(found.cardinality) - 1000) < 50, String(found.cardinality));
  },

  async an_edit_of_another_type_is_refused(client) {
    const other = call(client, 'updateSet', { ...at('counters', 'other'), additions: ['a'] });
    await refused(other, 'Operation type is `set` but  bucket type is `counter`.');
  },

  async a_removal_of_what_is_not_there_is_refused(client) {
    const place = { ...at('maps', 'absent'), ...strings };
    const context = Buffer.from('not a context');
    const op = new Riak.Commands.CRDT.UpdateMap.MapOperation().removeRegister('gone');
    await refused(
      call(client, 'updateMap', { ...place, op, context }),
      'The context was not issued by this server or is damaged',
    );
  },
});
