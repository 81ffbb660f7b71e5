// The module of `cargo xtask bench query`.
var Bench = {
  pass: function (object) { return object; },
  refuse: function () { return "fail"; },
  // Runs the value of the object.
  run: function (object) { return eval("(" + object.values[0].data + ")")(object); },
  one: function () { return [1]; },
  amount: function (object) { return [JSON.parse(object.values[0].data).amount]; },
  sum: function (values) {
    var total = 0;
    for (var i = 0; i < values.length; i++) total += values[i];
    return [total];
  }
};
