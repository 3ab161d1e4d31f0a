// SPDX-License-Identifier: GPL-2.0-or-later
// Hot functions, objects, typed arrays, JSON, hashing, and three hundred functions made at run time.
function fib(n) {
  return n < 2 ? n : fib(n - 1) + fib(n - 2);
}
let h = 0;
for (let i = 0; i < 30; i++) {
  const o = {};
  for (let k = 0; k < 20000; k++) o["k" + ((k * 7919) % 5003)] = (o["k" + k] || 0) + k * i;
  h = (h * 31 + Object.keys(o).length + fib(18)) >>> 0;
}
const a = new Float64Array(200000);
for (let r = 0; r < 20; r++) for (let i = 1; i < a.length; i++) a[i] = Math.sqrt(a[i - 1] + i * r);
const s = JSON.stringify(Array.from({ length: 20000 }, (_, i) => ({ i, s: "x" + i, f: i / 3 })));
const p = JSON.parse(s);
let f = 7;
for (let i = 0; i < 300; i++) {
  const made = new Function("x", "let y = x; for (let i = 0; i < 300; i++) y = (y * " + (i + 3) + " + i) % 1000003; return y;");
  let q = 0;
  for (let k = 0; k < 60; k++) q += made(k);
  f = (f * 31 + q) % 1000000007;
}
console.log("RESULT node", h, a[199999].toFixed(6), p.length, require("crypto").createHash("sha256").update(s).digest("hex"), f);
