// JSON of one reading: no key twice, no NaN, no number that no float holds, no nesting without end.

export class FormError extends Error {}

const MOST_DEEP = 200, LONGEST_NUMBER = 400;

export function readObject(bytes) {
  let text;
  try { text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes); } catch { throw new FormError("not-json"); }
  const value = new Parser(text).whole();
  if (value === null || typeof value !== "object" || Array.isArray(value)) throw new FormError("not-an-object");
  return value;
}

const SPACE = /[ \t\n\r]*/y, NUMBER = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;

class Parser {
  constructor(text) { this.text = text; this.at = 0; this.deep = 0; }

  whole() {
    const value = this.value();
    this.space();
    if (this.at !== this.text.length) throw new FormError("not-json");
    return value;
  }

  match(pattern) {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (!found) throw new FormError("not-json");
    this.at += found[0].length;
    return found[0];
  }

  space() {
    const code = this.text.charCodeAt(this.at);
    if (code <= 32) this.match(SPACE);
  }

  value() {
    this.space();
    switch (this.text[this.at]) {
      case "{": return this.nested(() => this.object());
      case "[": return this.nested(() => this.array());
      case '"': return this.string();
      case "t": return this.word("true", true);
      case "f": return this.word("false", false);
      case "n": return this.word("null", null);
      default: return this.number();
    }
  }

  nested(read) {
    if (++this.deep > MOST_DEEP) throw new FormError("too-deep");
    this.at++;
    const value = read();
    this.deep--;
    return value;
  }

  word(text, value) {
    if (!this.text.startsWith(text, this.at)) throw new FormError("not-json");
    this.at += text.length;
    return value;
  }

  // strings without escapes are cut out, others are read by the browser
  string() {
    const end = this.text.indexOf('"', this.at + 1);
    if (end < 0) throw new FormError("not-json");
    const inside = this.text.slice(this.at + 1, end);
    // eslint-disable-next-line no-control-regex
    if (!inside.includes("\\") && !/[\u0000-\u001f]/.test(inside)) { this.at = end + 1; return inside; }
    const start = this.at;
    for (let place = start + 1; ; place++) { // to the closing quote
      const sign = this.text[place];
      if (sign === undefined) throw new FormError("not-json");
      if (sign === "\\") { place++; continue; }
      if (sign === '"') { this.at = place + 1; break; }
    }
    try { return JSON.parse(this.text.slice(start, this.at)); } catch { throw new FormError("not-json"); }
  }

  number() {
    if (/^(NaN|Infinity|-Infinity)/.test(this.text.slice(this.at, this.at + 9))) throw new FormError("not-finite");
    const text = this.match(NUMBER), value = Number(text);
    if (text.length > LONGEST_NUMBER || !Number.isFinite(value)) throw new FormError("number-too-large");
    return value;
  }

  array() {
    const found = [];
    this.space();
    if (this.text[this.at] === "]") { this.at++; return found; }
    for (;;) {
      found.push(this.value());
      this.space();
      const sign = this.text[this.at++];
      if (sign === "]") return found;
      if (sign !== ",") throw new FormError("not-json");
    }
  }

  object() {
    const found = Object.create(null);
    this.space();
    if (this.text[this.at] === "}") { this.at++; return found; }
    for (;;) {
      this.space();
      if (this.text[this.at] !== '"') throw new FormError("not-json");
      const key = this.string();
      if (key in found) throw new FormError("key-twice");
      this.space();
      if (this.text[this.at++] !== ":") throw new FormError("not-json");
      found[key] = this.value();
      this.space();
      const sign = this.text[this.at++];
      if (sign === "}") return found;
      if (sign !== ",") throw new FormError("not-json");
    }
  }
}
