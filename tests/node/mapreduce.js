'use strict';
// MapReduce by the functions that Riak has built in, whole and streamed.

const { assert, call, refused, run } = require('./larder');

const erlang = (name) => ({ language: 'erlang', module: 'riak_kv_mapreduce', function: name });
const VALUES = { map: erlang('map_object_value') };

/** Stores the numbers below 30. */
async function fill(client, bucket) {
  for (let number = 0; number < 30; number += 1) {
    await call(client, 'storeValue', { bucket, key: `k-${number}`, value: Buffer.from(String(number)) });
  }
}

/** The response to a whole job, or the frames of a streamed one. */
function mapReduce(client, job, stream) {
  return new Promise((resolve, reject) => {
    const frames = [];
    const answer = (error, response) => {
      if (error) {
        reject(error instanceof Error ? error : new Error(error.msg || error));
      } else if (!stream) {
        resolve(response);
      } else {
        frames.push(response);
        if (response.done) resolve(frames);
      }
    };
    client.mapReduce(JSON.stringify(job), answer, stream);
  });
}

run({
  a_bucket_is_counted_and_summed: async (client) => {
    await fill(client, 'mapred');
    const count = { inputs: 'mapred', query: [{ reduce: erlang('reduce_count_inputs') }] };
    assert.deepStrictEqual(await mapReduce(client, count, false), { phase_0: [30], done: true });
    const query = [VALUES, { reduce: erlang('reduce_string_to_integer') }, { reduce: erlang('reduce_sum') }];
    assert.deepStrictEqual(await mapReduce(client, { inputs: 'mapred', query }, false), { phase_2: [435], done: true });
  },

  results_are_streamed_by_phase: async (client) => {
    await fill(client, 'streamed');
    const name = (name) => ({ language: 'javascript', name });
    const query = [{ map: { ...name('Riak.mapValuesJson'), keep: true } }, { reduce: name('Riak.reduceMax') }];
    const frames = await mapReduce(client, { inputs: 'streamed', query }, true);
    const of = (phase) => frames.filter((one) => one.phase === phase).flatMap((one) => one.response);
    assert.strictEqual(of(0).length, 30);
    assert.deepStrictEqual(of(1), [29]);
  },

  links_and_filters_choose_keys: async (client) => {
    await fill(client, 'filtered');
    const inputs = { bucket: 'filtered', key_filters: [['tokenize', '-', 2], ['string_to_int'], ['less_than', 3]] };
    const found = await mapReduce(client, { inputs, query: [VALUES] }, false);
    assert.deepStrictEqual(found.phase_0.sort(), ['0', '1', '2']);
  },

  refused_jobs_name_the_phase: async (client) => {
    const text =
      'Phase 0: invalid module named in PhaseSpec function:\n must be a valid module name (failed to load m: nofile)';
    const query = [{ map: { language: 'erlang', module: 'm', function: 'f' } }];
    await refused(mapReduce(client, { inputs: 'b', query }, true), text);
    await refused(mapReduce(client, { inputs: 'b' }, false), 'missing_field');
  },
});
