// Runs first in each context, in sloppy mode. `host.log(file, text)` writes a line to the server's log. The result is what the
// engine keeps: `setNow` before each call, `harden` and `functionNames` once after the modules where the context `isShared`.
(function (host, isShared) {
  var global = globalThis;
  var now = 0;

  // A clock that stands still during a call: the time of the call, in UTC.
  var NativeDate = Date;
  function CallDate() {
    if (!new.target) return new NativeDate(now).toString();
    return Reflect.construct(NativeDate, arguments.length === 0 ? [now] : arguments, new.target);
  }
  Object.defineProperty(CallDate, "name", { value: "Date" });
  CallDate.prototype = NativeDate.prototype;
  CallDate.prototype.constructor = CallDate;
  CallDate.UTC = NativeDate.UTC;
  CallDate.parse = NativeDate.parse;
  CallDate.now = function () { return now; };
  define(global, "Date", CallDate);

  function define(target, name, value) {
    Object.defineProperty(target, name, { value: value, writable: true, configurable: true, enumerable: false });
  }

  define(global, "ejsLog", function ejsLog(file, text) { host.log(String(file), String(text)); });

  // Larder's own helpers: why a text is not JSON that matches a JSON schema, and why a text is no schema; undefined where it is.
  define(global, "Larder", {
    schemaFault: function (schema, text) { return host.schemaFault(String(schema), String(text)); },
    schemaError: function (schema) { return host.schemaError(String(schema)); }
  });

  // The helpers that scripts written for Riak use, as functions of map and reduce phases.
  function isMissing(value) { return Boolean(value) && Boolean(value.not_found); }
  function best(isBetter) {
    return function (values) {
      if (values.length === 0) return [];
      var chosen = values[0];
      for (var i = 1; i < values.length; i++) if (isBetter(values[i], chosen)) chosen = values[i];
      return [chosen];
    };
  }
  var Riak = {
    filterNotFound: function (values) {
      return values.filter(function (value) { return !isMissing(value); });
    },
    mapValues: function (value) {
      if (isMissing(value)) return [];
      return value.values.map(function (sibling) { return sibling.data; });
    },
    mapValuesJson: function (value) {
      return Riak.mapValues(value).map(function (data) { return JSON.parse(data); });
    },
    mapByFields: function (value, keyData, fields) {
      return Riak.mapValuesJson(value).filter(function (found) {
        return Object.keys(fields).every(function (name) { return found[name] === fields[name]; });
      });
    },
    reduceSum: function (values) {
      var present = Riak.filterNotFound(values);
      if (present.length === 0) return [0];
      var sum = present[0], i = 1;
      while (i < present.length && typeof sum !== "string") sum = sum + present[i++];
      if (typeof sum !== "string") return [sum];
      // All that follows is text. Joined at the end, each is copied once; added one by one, the sum is copied for each.
      var texts = [sum];
      while (i < present.length) texts.push("" + present[i++]);
      return [texts.join("")];
    },
    reduceMin: best(function (value, chosen) { return value < chosen; }),
    reduceMax: best(function (value, chosen) { return value > chosen; }),
    // The argument is the source of a function that compares two values.
    reduceSort: function (values, source) {
      var compare;
      try { compare = source ? (0, eval)("(" + source + ")") : undefined; } catch (error) { compare = undefined; }
      return typeof compare === "function" ? values.sort(compare) : values.sort();
    },
    reduceNumericSort: function (values) {
      return values.sort(function (a, b) { return a - b; });
    },
    // One value fewer than the argument, as in Riak.
    reduceLimit: function (values, limit) { return values.slice(0, limit - 1); },
    reduceSlice: function (values, range) {
      return range[1] > values.length ? values : values.slice(range[0], range[1]);
    }
  };
  define(global, "Riak", Riak);

  var ownKeys = Reflect.ownKeys, describe = Reflect.getOwnPropertyDescriptor, prototypeOf = Reflect.getPrototypeOf;
  var preventExtensions = Reflect.preventExtensions, redefine = Reflect.defineProperty, push = [].push;
  var intrinsics = new Set();
  var provided = ownKeys(global);

  // Every object that the engine and this file provide, collected before a module can hide one.
  function collect(root) {
    var waiting = [root];
    while (waiting.length > 0) {
      var object = waiting.pop();
      if (object === null || (typeof object !== "object" && typeof object !== "function")) continue;
      if (object === global || intrinsics.has(object)) continue;
      intrinsics.add(object);
      waiting.push(prototypeOf(object));
      ownKeys(object).forEach(function (key) {
        var property = describe(object, key);
        waiting.push(property.value, property.get, property.set);
      });
    }
  }
  // A context of one call goes with it: only a shared one is hardened, and collecting takes longer than most calls.
  if (isShared) {
    provided.forEach(function (key) { collect(describe(global, key).value); });
    [function* () {}, async function () {}, async function* () {}, [][Symbol.iterator](), new Map().entries(),
      new Set().values(), "".matchAll(/x/g), ""[Symbol.iterator](), prototypeOf(Uint8Array)].forEach(collect);
  }

  // Assigning to an inherited property that is frozen fails. These are the ones that scripts assign on their own objects.
  var ASSIGNED = { constructor: 1, toString: 1, toLocaleString: 1, valueOf: 1, toJSON: 1, name: 1, message: 1, stack: 1,
    hasOwnProperty: 1, length: 1, get: 1, set: 1, value: 1 };

  // An accessor that reads as the value does, and lets an object that inherits it have its own.
  function assignable(object, key, value) {
    redefine(object, key, {
      get: function () { return value; },
      set: function (own) {
        if (this !== object) redefine(this, key, { value: own, writable: true, enumerable: true, configurable: true });
      },
      enumerable: false,
      configurable: false
    });
  }

  function freeze(object) {
    ownKeys(object).forEach(function (key) {
      var property = describe(object, key);
      if (!property.configurable) {
        if (property.writable) redefine(object, key, { writable: false });
      } else if ("value" in property) {
        if (typeof object === "object" && typeof key === "string" && ASSIGNED[key] === 1) assignable(object, key, property.value);
        else redefine(object, key, { writable: false, configurable: false });
      } else redefine(object, key, { configurable: false });
    });
    preventExtensions(object);
  }

  return {
    setNow: function (milliseconds) { now = milliseconds; },
    // No call can change what the next one finds: only variables of modules stay as a call left them.
    harden: function () {
      intrinsics.forEach(freeze);
      provided.forEach(function (key) {
        var property = describe(global, key);
        if (property && property.configurable && "value" in property) {
          redefine(global, key, { value: property.value, writable: false, configurable: false });
        }
      });
    },
    // The functions that modules defined, and those of `Riak`, by their paths.
    functionNames: function (max) {
      var names = [], known = new Set(intrinsics);
      function visit(object, prefix, depth) {
        ownKeys(object).forEach(function (key) {
          if (typeof key !== "string" || names.length >= max || (prefix === "" && isProvided(key))) return;
          var value = (describe(object, key) || {}).value;
          if (typeof value === "function") names.push(prefix + key);
          if (typeof value !== "object" && typeof value !== "function" || value === null || known.has(value)) return;
          known.add(value);
          if (depth < 4) visit(value, prefix + key + ".", depth + 1);
        });
      }
      function isProvided(key) { return provided.indexOf(key) >= 0; }
      ownKeys(Riak).forEach(function (key) { names.push("Riak." + key); });
      ownKeys(Larder).forEach(function (key) { names.push("Larder." + key); });
      visit(global, "", 0);
      return names;
    }
  };
})
