// The module of `cargo xtask bench tenants`.
var Bench = {
  pass: function (object) { return object; },
  // Runs the value of the object.
  run: function (object) { return eval("(" + object.values[0].data + ")")(object); }
};
