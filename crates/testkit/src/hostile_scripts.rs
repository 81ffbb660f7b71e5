//! Scripts that attack: loops inside native functions, bombs of memory and of patterns, broken intrinsics.

/// How a call of a hostile script ends.
#[derive(Debug, Clone, Copy)]
pub enum HostileEnd {
    /// With this result, as JSON: the attack does nothing.
    InValue(&'static str),
    /// With an exception.
    InThrow,
    /// With a result that is refused for its size.
    TooLarge,
    /// With the death of its worker, at the deadline or at a limit of the kernel.
    ByKill,
    /// With any of these errors: it is slow, and on a busy machine its deadline may come first.
    InError,
    /// With a result, or at the deadline: it is slow, and no attack on anything else.
    Unharmed,
}

use HostileEnd::{ByKill, InError, InThrow, InValue, TooLarge, Unharmed};

/// The scripts: name, source, how the call ends.
pub const HOSTILE: &[(&str, &str, HostileEnd)] = &[
    ("endless loop", "function() { for (;;) {} }", ByKill),
    ("endless loop in a getter of the result", "function() { return { get a() { for (;;) {} } }; }", ByKill),
    ("endless loop in toJSON", "function() { return { toJSON: function() { while (true) {} } }; }", ByKill),
    ("endless generator", "function() { for (var x of (function*() { while (true) yield 1; })()) {} }", ByKill),
    ("endless microtasks", "async function() { while (true) await null; }", ByKill),
    (
        "endless microtasks after the result",
        "function() { (async function() { while (true) await null; })(); return 1; }",
        ByKill,
    ),
    (
        "endless proxy trap",
        "function() { return Object.keys(new Proxy({}, { ownKeys: function() { for (;;) {} } })); }",
        ByKill,
    ),
    (
        "endless toString in a throw",
        "function() { throw { toString: function() { for (;;) {} }, get message() { for (;;) {} }, toJSON: function() { for (;;) {} } }; }",
        ByKill,
    ),
    (
        "endless prepareStackTrace",
        "function() { Error.prepareStackTrace = function() { for (;;) {} }; return new Error('x').stack; }",
        InError,
    ),
    ("native loop: join of a sparse array", "function() { return (new Array(1e9) + '').length; }", InError),
    ("native loop: copyWithin", "function() { var a = new Uint8Array(40e6); for (;;) a.copyWithin(1, 0); }", ByKill),
    (
        "native loop: copyWithin of a sparse array",
        "function() { var a = []; a.length = 4e9; a.copyWithin(1, 0); }",
        ByKill,
    ),
    (
        "native loop: indexOf over a long text",
        "function() { var s = 'a'.repeat(2e7); return s.indexOf('a'.repeat(1e7) + 'b'); }",
        ByKill,
    ),
    (
        "native loop: lastIndexOf of a sparse array",
        "function() { return Array.prototype.lastIndexOf.call({ length: 2 ** 53 - 1 }, 1); }",
        ByKill,
    ),
    (
        "native loop: sort",
        "function() { var n = 0; return Array.prototype.sort.call({ length: 2 ** 53 - 1, get 0() { return 1; } }); }",
        InError,
    ),
    ("native loop: fill", "function() { return Array.prototype.fill.call({ length: 2 ** 53 - 1 }, 1); }", InError),
    ("native loop: reverse", "function() { return Array.prototype.reverse.call({ length: 2 ** 53 - 1 }); }", InError),
    ("native loop: padding", "function() { for (;;) 'x'.padEnd(1e8, 'ab'); }", InError),
    ("native loop: replace", "function() { return 'a'.repeat(1e6).replace(/a/g, 'b'.repeat(1e6)); }", InError),
    ("regex bomb", "function() { return /^(a+)+$/.test('a'.repeat(40) + 'b'); }", ByKill),
    (
        "regex bomb with backreference",
        r"function() { return /^(.*?,){30}P/.test('1,'.repeat(60)) && /(x+x+)+y/.test('x'.repeat(60)); }",
        ByKill,
    ),
    ("regex of many groups", "function() { return new RegExp('('.repeat(1e5) + ')'.repeat(1e5)).test('a'); }", InError),
    ("recursion", "function() { return (function f() { return f() + 1; })(); }", InThrow),
    ("recursion through natives", "function() { var f = function() { return [1].map(f); }; return f(); }", InThrow),
    ("recursion through a getter", "function() { var o = { get a() { return this.a; } }; return o.a; }", InThrow),
    (
        "recursion through toString",
        "function() { var o = {}; o.toString = function() { return '' + o; }; return '' + o; }",
        InThrow,
    ),
    (
        "recursion of a proxy",
        "function() { var p = new Proxy({}, {}); Object.setPrototypeOf(p, p); return p.x; }",
        InThrow,
    ),
    (
        "deep proxies",
        "function() { var p = {}; for (var i = 0; i < 1e5; i++) p = new Proxy(p, {}); return p.x === undefined; }",
        InError,
    ),
    (
        "deep nesting of the result",
        "function() { var a = []; for (var i = 0; i < 1e5; i++) a = [a]; return a; }",
        InError,
    ),
    (
        "nesting that only the server refuses",
        "function() { var a = []; for (var i = 0; i < 500; i++) a = [a]; return a; }",
        InThrow,
    ),
    ("deep nesting of JSON", "function() { return JSON.parse('['.repeat(1e6) + ']'.repeat(1e6)).length; }", InError),
    ("deep nesting of source", "function() { return eval('('.repeat(1e6) + '1' + ')'.repeat(1e6)); }", InError),
    (
        "deep chain of ropes",
        "function() { var s = ''; for (var i = 0; i < 3e6; i++) s = 'ab' + s; return s.length > 1 ? s.charCodeAt(5) : 0; }",
        Unharmed,
    ),
    ("cycle in the result", "function() { var a = {}; a.a = a; return a; }", InThrow),
    ("allocation of arrays", "function() { var a = []; for (;;) a.push(new Array(1000).fill(1)); }", InError),
    ("allocation of text", "function() { var s = 'x'; for (;;) s += s; }", InError),
    ("allocation of buffers", "function() { var a = []; for (;;) a.push(new ArrayBuffer(1e7)); }", InError),
    (
        "allocation that catches its errors",
        "function() { var a = []; for (;;) { try { a.push(new ArrayBuffer(1e6), 'x'.repeat(1e6)); } catch (error) {} } }",
        InError,
    ),
    ("allocation of a huge buffer", "function() { return new ArrayBuffer(2 ** 40).byteLength; }", InThrow),
    (
        "allocation of closures",
        "function() { var f = null; for (;;) f = (function(g) { return function() { return g; }; })(f); }",
        InError,
    ),
    ("huge result", "function() { return 'x'.repeat(2e6); }", TooLarge),
    ("huge result of escapes", "function() { return '\\u0001'.repeat(3e5); }", TooLarge),
    ("huge error", "function() { throw new Error('x'.repeat(3e6)); }", InError),
    ("huge log", "function() { for (var i = 0; i < 1e5; i++) ejsLog('file', 'x'.repeat(1e5)); return 1; }", InError),
    (
        "log of a thousand lines",
        "function() { for (var i = 0; i < 1000; i++) ejsLog('file', i); return 1; }",
        InValue("1"),
    ),
    (
        "log with hostile texts",
        "function() { try { ejsLog({ toString: function() { throw 1; } }, Symbol()); } catch (error) { return 'caught'; } }",
        InValue("\"caught\""),
    ),
    (
        "prototype pollution",
        "function() { Object.prototype.polluted = 'yes'; Array.prototype.concat = function() { return 'evil'; }; leaked = 1; return 1; }",
        InValue("1"),
    ),
    (
        "setter on Object.prototype",
        "function() { Object.defineProperty(Object.prototype, 'function', { set: function() { throw 1; }, get: function() { return 'evil'; } }); return 1; }",
        InValue("1"),
    ),
    (
        "toJSON on every prototype",
        "function() { Object.prototype.toJSON = function() { return { fail: 'forged' }; }; return [1]; }",
        InValue("{\"fail\":\"forged\"}"),
    ),
    (
        "JSON replaced",
        "function() { JSON.stringify = function() { return 'evil'; }; JSON = null; return { a: 1 }; }",
        InValue("{\"a\":1}"),
    ),
    (
        "globals deleted",
        "function() { for (var name of Object.getOwnPropertyNames(globalThis)) { try { delete globalThis[name]; } catch (error) {} } return 1; }",
        InValue("1"),
    ),
    (
        "Symbol.species and iterators",
        "function() { Array.prototype[Symbol.iterator] = function() { throw 1; }; Array[Symbol.species] = null; return [1, 2]; }",
        InValue("[1,2]"),
    ),
    (
        "frozen intrinsics",
        "function() { [Object, Array, Function, String, JSON, Math].forEach(Object.freeze); Object.freeze(Object.prototype); Object.freeze(globalThis); return 1; }",
        InValue("1"),
    ),
    (
        "valueOf with effects in a sort",
        "function() { var a = [3, 2, 1]; a.sort(function(x, y) { a.length = 0; return x - y; }); return a.length >= 0; }",
        InValue("true"),
    ),
    (
        "array shrunk while it is read",
        "function() { var a = new Array(1000).fill(0); a[0] = { toString: function() { a.length = 1; return 'x'; } }; return a.join('').length > 0; }",
        InValue("true"),
    ),
    (
        "buffer detached while it is read",
        "function() { var b = new ArrayBuffer(64), a = new Uint8Array(b); a.fill({ valueOf: function() { try { b.transfer(); } catch (error) {} return 7; } }); return 1; }",
        InError,
    ),
    ("Atomics.wait", "function() { return Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0); }", InThrow),
    ("eval and Function", "function() { return new Function('return (0, eval)(\"1 + 1\")')(); }", InValue("2")),
    (
        "constructor of generators",
        "function() { return (function*() {}).constructor('while (true) { yield 1 }')().next().value; }",
        InValue("1"),
    ),
    ("a promise that is never settled", "function() { return new Promise(function() {}); }", InThrow),
    ("a promise that is refused", "async function() { throw new Error('late'); }", InThrow),
    (
        "a thenable that resolves itself",
        "function() { var t = { then: function(ok) { ok(t); } }; return Promise.resolve(t); }",
        ByKill,
    ),
    (
        "files",
        "function() { return typeof require + typeof std + typeof os + typeof process + typeof scriptArgs + typeof load; }",
        InValue("\"undefinedundefinedundefinedundefinedundefinedundefined\""),
    ),
    ("import of a module", "async function() { return await import('/etc/passwd'); }", InThrow),
    (
        "a clock",
        "function() { var t = Date.now(); for (var i = 0; i < 1e5; i++); return [Date.now() - t, typeof performance]; }",
        InValue("[0,\"undefined\"]"),
    ),
    ("throw of null", "function() { throw null; }", InThrow),
    ("throw of nothing with a text", "function() { throw Object.create(null); }", InThrow),
    (
        "throw in toString of the throw",
        "function() { throw { toString: function() { throw 1; }, get name() { throw 2; }, get message() { throw 3; } }; }",
        InThrow,
    ),
    (
        "revoked proxy as the result",
        "function() { var r = Proxy.revocable({}, {}); r.revoke(); return r.proxy; }",
        InThrow,
    ),
    ("BigInt as the result", "function() { return 10n ** 100n; }", InThrow),
    ("huge BigInt", "function() { var n = 3n; for (;;) n = n * n; }", InError),
    ("single surrogates", "function() { return '\\ud800'; }", InThrow),
    ("undefined", "function() {}", InValue("null")),
    ("not a function", "1 + 1", InThrow),
    ("source that leaves its parentheses", "function() {}); while (true) {} (function() {}", ByKill),
    ("source with a syntax error", "function( {", InThrow),
    ("source with a zero byte", "function() { return '\0'; }", InThrow),
    (
        "finalizers",
        "function() { var r = new FinalizationRegistry(function() { for (;;) {} }); for (var i = 0; i < 1e4; i++) r.register({}, i); return 1; }",
        InError,
    ),
    ("many properties", "function() { var o = {}; for (var i = 0; i < 1e7; i++) o['k' + i] = i; return o; }", InError),
    ("sparse array as the result", "function() { var a = []; a[4e9] = 1; return a; }", InError),
];
