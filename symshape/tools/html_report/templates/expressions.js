"use strict";
/* Python's // and %: exact for whole numbers below 2**53. */
function mod(a, b) {
  const rest = a % b;
  return rest !== 0 && (rest < 0) !== (b < 0) ? rest + b : rest + 0;
}
function fdiv(a, b) { return (a - mod(a, b)) / b; }
function compiled(text) {
  const run = new Function("v", "fdiv", "mod", "return (" + text + ");");
  return values => run(values, fdiv, mod);
}
