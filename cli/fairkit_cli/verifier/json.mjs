// JSON of one reading: no key twice, no NaN, no number that no float holds, no nesting without end.

export class Refusal extends Error {} // its message is the sentence that people read
const MOST_DEEP = 200, LONGEST_NUMBER = 400;
const TOKEN = /[ \t\n\r]*(?:([{}[\],:])|("[^"\\\u0000-\u001f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\u0000-\u001f]*)*")|(-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)|(true|false|null))/y;

export function readObject(bytes) {
  const bad = why => { throw new Refusal(`The file is not a certificate: ${why}.`); };
  let text, deep = 0;
  try { text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes); } catch { bad("it is no text"); }
  TOKEN.lastIndex = 0;
  const token = () => TOKEN.exec(text) ?? bad("it is no JSON, or a part of it is missing");
  const sign = wanted => { const found = token()[1]; return found !== undefined && wanted.includes(found) ? found : bad("it is no JSON, or a part of it is missing"); };

  function value([, mark, string, number, word]) {
    if (string !== undefined) return JSON.parse(string);
    if (word !== undefined) return { true: true, false: false, null: null }[word];
    if (number !== undefined) {
      if (number.length > LONGEST_NUMBER || !Number.isFinite(Number(number))) bad("it has a number that no computer reads alike");
      return Number(number);
    }
    if (mark !== "{" && mark !== "[") bad("it is no JSON, or a part of it is missing");
    if (++deep > MOST_DEEP) bad("it is nested too deeply");
    const found = mark === "[" ? [] : Object.create(null), end = mark === "[" ? "]" : "}";
    for (let first = token(); first[1] !== end; first = token()) {
      if (mark === "[") found.push(value(first));
      else {
        const key = first[2] === undefined ? bad("it is no JSON, or a part of it is missing") : JSON.parse(first[2]);
        if (key in found) bad("a key stands twice in one object, so readers could disagree on what was signed");
        sign(":");
        found[key] = value(token());
      }
      if (sign(`,${end}`) === end) { deep--; return found; }
      const next = TOKEN.lastIndex;
      if (token()[1] === end) bad("it is no JSON, or a part of it is missing"); // a comma before the end
      TOKEN.lastIndex = next;
    }
    deep--;
    return found;
  }

  const whole = value(token());
  if (!/^[ \t\n\r]*$/.test(text.slice(TOKEN.lastIndex))) bad("something follows its end");
  return isObject(whole) ? whole : bad("it is no JSON object");
}

export const isObject = value => value !== null && typeof value === "object" && !Array.isArray(value);
