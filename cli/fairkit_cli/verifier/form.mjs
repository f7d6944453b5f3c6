// The form of a statement by its JSON Schema: the part of JSON Schema that fairkit's own schemas use.

const SILENT = new Set(["$schema", "$id", "$defs", "title", "description", "then", "else"]);
const isNumber = value => typeof value === "number";
const isObject = value => value !== null && typeof value === "object" && !Array.isArray(value);
const TYPES = {
  object: isObject, array: Array.isArray, string: value => typeof value === "string", boolean: value => typeof value === "boolean",
  null: value => value === null, number: isNumber, integer: Number.isInteger,
};
const KEYWORDS = {
  type: wanted => value => [wanted].flat().some(name => TYPES[name](value)),
  required: names => value => !isObject(value) || names.every(name => name in value),
  const: wanted => value => value === wanted,
  enum: choices => value => choices.includes(value),
  pattern: text => { const pattern = new RegExp(text, "u"); return value => typeof value !== "string" || pattern.test(value); },
  minimum: limit => value => !isNumber(value) || value >= limit,
  maximum: limit => value => !isNumber(value) || value <= limit,
  exclusiveMinimum: limit => value => !isNumber(value) || value > limit,
  exclusiveMaximum: limit => value => !isNumber(value) || value < limit,
  minItems: least => value => !Array.isArray(value) || value.length >= least,
  maxItems: most => value => !Array.isArray(value) || value.length <= most,
  minProperties: least => value => !isObject(value) || Object.keys(value).length >= least,
};

// Returns a function of a value: where it does not have the form of the first schema, as a path; null where it does.
export function validator(...schemas) {
  const documents = new Map(schemas.map(one => [one.$id, one])), known = new Map();

  function follow(text, home) {
    const [address, pointer = ""] = text.split("#"), place = address || home, key = `${place}#${pointer}`;
    if (!documents.has(place)) throw new Error(`unknown schema ${text}`);
    return value => {
      if (!known.has(key)) {
        let part = documents.get(place);
        for (const step of pointer.split("/").filter(Boolean)) part = part[step];
        known.set(key, compile(part, place));
      }
      return known.get(key)(value);
    };
  }

  function keyword(name, argument, schema, home) {
    const inner = one => compile(one, home);
    if (name in KEYWORDS) { const holds = KEYWORDS[name](argument); return value => holds(value) ? null : []; }
    if (name === "$ref") return follow(argument, home);
    if (name === "allOf") { const parts = argument.map(inner); return value => first(parts, value); }
    if (name === "anyOf" || name === "oneOf") {
      const parts = argument.map(inner);
      return value => { const fitting = parts.filter(part => part(value) === null).length; return fitting === 1 || (fitting && name === "anyOf") ? null : []; };
    }
    if (name === "not") { const part = inner(argument); return value => part(value) === null ? [] : null; }
    if (name === "if") {
      const [condition, then, otherwise] = [argument, schema.then ?? true, schema.else ?? true].map(inner);
      return value => (condition(value) === null ? then : otherwise)(value);
    }
    if (name === "items") {
      const part = inner(argument);
      return value => { if (Array.isArray(value)) for (let i = 0; i < value.length; i++) { const path = part(value[i]); if (path) return [i, ...path]; } return null; };
    }
    if (name === "properties") {
      const parts = Object.entries(argument).map(([key, one]) => [key, inner(one)]);
      return value => { if (isObject(value)) for (const [key, part] of parts) if (key in value) { const path = part(value[key]); if (path) return [key, ...path]; } return null; };
    }
    if (name === "additionalProperties") {
      const part = inner(argument), named = new Set(Object.keys(schema.properties ?? {}));
      return value => { if (isObject(value)) for (const key in value) if (!named.has(key)) { const path = part(value[key]); if (path) return [key, ...path]; } return null; };
    }
    throw new Error(`unknown keyword ${name}`);
  }

  const first = (parts, value) => { for (const part of parts) { const path = part(value); if (path) return path; } return null; };
  function compile(schema, home) {
    if (typeof schema === "boolean") return () => schema ? null : [];
    const parts = Object.entries(schema).filter(([name]) => !SILENT.has(name)).map(([name, argument]) => keyword(name, argument, schema, home));
    return value => first(parts, value);
  }
  return compile(schemas[0], schemas[0].$id);
}
