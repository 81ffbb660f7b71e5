'use strict';
// What the scripts share: clients of the server under test, promises of their calls, and a runner.

const assert = require('assert');
const fs = require('fs');
const Riak = require('basho-riak-client');

/** The longest time of one test in milliseconds: a call without an answer fails it. */
const DEADLINE = 20000;

/** A client with these options of its node, or of both gateways where there are two; `queued` lets calls wait for a free connection. */
function connect(options, queued) {
  const ports = [process.env.LARDER_PB_PORT, process.env.LARDER_OTHER_PB_PORT].filter(Boolean).map(Number);
  const secured = process.env.LARDER_CA ? { auth: credentials('clients') } : {};
  const place = (remotePort) => ({ remoteAddress: '127.0.0.1', remotePort });
  const nodes = ports.map((port) => new Riak.Node(Object.assign(place(port), secured, options)));
  const queue = queued ? { queueCommands: true, queueSubmitInterval: 1 } : {};
  const cluster = new Riak.Cluster(Object.assign({ nodes, executionAttempts: 1 }, queue));
  return new Promise((resolve, reject) => {
    new Riak.Client(cluster, (error, client) => (error ? reject(problem(error)) : resolve(client)));
  });
}

/** The name with the proof of the user `clients`: its certificate where it has one, else its password. */
function credentials(user) {
  const { LARDER_CA: authority, LARDER_CERT: cert, LARDER_KEY: key } = process.env;
  const proof = cert ? { cert: fs.readFileSync(cert), key: fs.readFileSync(key) } : { password: 'Test1234' };
  return Object.assign({ user, ca: [fs.readFileSync(authority)] }, proof);
}

/** Ends a client. */
function stop(client) {
  return new Promise((resolve, reject) => client.stop((error) => (error ? reject(problem(error)) : resolve())));
}

/** The answer of a method of the client; an error that the client reports rejects the promise. */
function call(client, method, options) {
  return new Promise((resolve, reject) => {
    const answer = (error, response) => (error ? reject(problem(error)) : resolve(response));
    if (options === undefined) {
      client[method](answer);
    } else {
      client[method](options, answer);
    }
  });
}

/** All parts of a streamed answer. */
function parts(client, method, options) {
  return new Promise((resolve, reject) => {
    const all = [];
    client[method](Object.assign({ stream: true }, options), (error, part) => {
      if (error) {
        reject(problem(error));
      } else {
        all.push(part);
        if (part.done) resolve(all);
      }
    });
  });
}

/** Fails unless the call is refused with exactly this text. */
async function refused(promise, text) {
  let answer;
  try {
    answer = await promise;
  } catch (error) {
    assert.strictEqual(error.message, text);
    return;
  }
  assert.fail(`answered ${JSON.stringify(answer)} instead of: ${text}`);
}

/** The client reports errors as texts, and as errors where it fails itself. */
function problem(error) {
  return error instanceof Error ? error : new Error(error.msg || error);
}

function late() {
  return new Promise((_, reject) => {
    setTimeout(() => reject(new Error(`no end in ${DEADLINE} ms`)), DEADLINE).unref();
  });
}

/** Runs all tests one after the other, each with a client of its own, and ends the process. */
async function run(tests) {
  let failed = 0;
  for (const [name, test] of Object.entries(tests)) {
    try {
      const client = await Promise.race([connect(), late()]);
      await Promise.race([test(client), late()]);
      await Promise.race([stop(client), late()]);
      console.log('ok   ', name);
    } catch (error) {
      failed += 1;
      console.log('FAIL ', name, error.stack);
    }
  }
  process.exit(failed === 0 ? 0 : 1);
}

module.exports = { Riak, assert, call, connect, credentials, parts, refused, run, stop };
