// A certificate checked, step after step; nothing is shown here, and nothing is fetched.

import { FormError, readObject } from "./json.mjs";
import { SignatureError, readEnvelope, signedBy } from "./envelope.mjs";
import { sha256 } from "./digest.mjs";
import { validator } from "./form.mjs";
import { proven } from "./timestamps.mjs";
import { examine } from "./statement.mjs";

export const LARGEST = 16 << 20; // bytes of the largest file that is read
export const MOST_FINDINGS = 20000;
const CLOCK_SKEW = 300e3; // milliseconds by which an audit may be dated after its timestamp
const PAYLOAD = "application/vnd.in-toto+json", STATEMENT = "https://in-toto.io/Statement/v1";
const REVOCATION = "https://fairkit.dev/revocation/v1";
const TIME = /^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)$/;
const DIGEST = /^[0-9a-f]{64}$/;

export class RevokedError extends Error { constructor(entry) { super("revoked"); this.entry = entry; } }
export class ContradictionError extends Error { constructor(found) { super("contradiction"); this.found = found; } }

function time(text) {
  if (typeof text !== "string" || !TIME.test(text) || Number.isNaN(Date.parse(text))) throw new FormError("no-time");
  return new Date(text);
}

// A revocation list by one of the keys.
export async function readRevocations(bytes, keys) {
  const envelope = readEnvelope(bytes), good = await signedBy(envelope, keys);
  if (!good.size) throw new SignatureError("list-not-trusted");
  const statement = readObject(envelope.payload), body = statement.predicate;
  if (envelope.type !== PAYLOAD || statement._type !== STATEMENT || statement.predicateType !== REVOCATION || !body) throw new FormError("not-a-list");
  if (!good.has(body.issuer)) throw new SignatureError("list-issuer");
  if (!Number.isInteger(body.sequence) || body.sequence < 1 || body.sequence >= 1e9 || !Array.isArray(body.revoked)) throw new FormError("not-a-list");
  const entries = body.revoked.map(one => {
    const fits = ["certificate", "model", "key"].includes(one?.kind) && DIGEST.test(one.sha256) && typeof one.reason === "string" && (one.kind === "key" || one.invalidSince === undefined);
    if (!fits) throw new FormError("not-a-list");
    time(one.at);
    if (one.invalidSince !== undefined) time(one.invalidSince);
    return one;
  });
  time(body.issuedAt);
  return { issuer: body.issuer, sequence: body.sequence, nextUpdate: time(body.nextUpdate), entries, sha256: sha256(bytes) };
}

// The newest list of each issuer; one that cannot follow another is refused.
export function joined(lists) {
  const newest = new Map();
  for (const list of lists) {
    const older = newest.get(list.issuer);
    if (older && older.sha256 !== list.sha256) {
      if (list.sequence <= older.sequence) throw new SignatureError("list-older");
      const has = new Map(list.entries.map(one => [one.kind + one.sha256, one]));
      for (const one of older.entries) {
        const now = has.get(one.kind + one.sha256);
        if (!now || (now.invalidSince && (!one.invalidSince || now.invalidSince > one.invalidSince))) throw new SignatureError("list-takes-back");
      }
    }
    newest.set(list.issuer, list);
  }
  return [...newest.values()];
}

// keys: trusted; revokers: keys whose lists count against everybody; lists: of `joined`; roots: of time-stamping authorities,
// with any of which a timestamp is asked for; schemas, declared: fairkit's tables
export async function checkCertificate(bytes, { keys, revokers = [], lists = [], roots = [], model = null, data = null, schemas, declared, now = new Date() }) {
  if (bytes.length > LARGEST) throw new FormError("too-large");
  const envelope = readEnvelope(bytes);
  if (envelope.type !== PAYLOAD) throw new SignatureError("payload-type");
  if (!keys.length) throw new FormError("no-key");
  const good = await signedBy(envelope, keys);
  if (!good.size) throw new SignatureError("not-signed");
  const read = readStatement(envelope.payload, schemas);
  const examined = examine(read.body, declared);
  if (examined.contradictions.length) throw Object.assign(new ContradictionError(examined.contradictions), { read, examined });
  const ages = new Map();
  if (roots.length && lists.some(list => list.entries.some(one => one.invalidSince)))
    for (const [id, signatures] of good) ages.set(id, await proven(signatures, roots).catch(() => null));
  const identity = sha256(envelope.payload), targets = new Set([`certificate${identity}`, ...(read.model ? [`model${read.model}`] : [])]);
  let entry = null;
  const counting = [...good.keys()].filter(id => {
    const spared = one => one.invalidSince && (ages.get(id) ?? Infinity) < time(one.invalidSince);
    const against = lists.filter(one => one.issuer === id || revokers.some(key => key.id === one.issuer)).flatMap(one => one.entries)
      .find(one => (targets.has(one.kind + one.sha256) || (one.kind === "key" && one.sha256 === id)) && !spared(one));
    entry ??= against ?? null;
    return !against;
  });
  if (!counting.length) throw new RevokedError(entry);
  if (model !== null && read.model === null) throw new SignatureError("no-model");
  if (model !== null && model !== read.model) throw new SignatureError("another-model");
  if (data !== null && data !== read.body.data.sha256) throw new SignatureError("another-table");
  const at = roots.length ? await proven(counting.flatMap(id => good.get(id)), roots) : null;
  if (roots.length && at === null) throw new SignatureError("no-timestamp");
  if (at !== null && read.audited > at + CLOCK_SKEW)
    throw Object.assign(new ContradictionError([{ code: "audited-later", audited: read.audited.toISOString(), proven: new Date(at).toISOString() }]), { read, examined });
  const stamped = envelope.signatures.some(one => one.timestamps.length), provenAt = at === null ? null : new Date(at);
  return { ...read, examined, identity, signers: counting.sort(), stamped, provenAt, overdue: lists.filter(one => now > one.nextUpdate) };
}

// A statement's form, subject and time; for what is shown although nobody vouches for it, too.
export function readStatement(payload, schemas) {
  const statement = readObject(payload), body = statement.predicate;
  if (statement.predicateType !== schemas[0].properties.predicateType.const) throw new FormError("another-predicate");
  if (Array.isArray(body?.findings) && body.findings.length > MOST_FINDINGS) throw new FormError("too-many-findings");
  const path = (readStatement.form ??= validator(...schemas))(statement);
  if (path) throw new FormError(`form:${path.join("/")}`);
  const unseen = body.model === null, subject = statement.subject[0].digest.sha256;
  if ((unseen ? body.data.sha256 : body.model.sha256) !== subject) throw new SignatureError("two-subjects");
  return { body, model: unseen ? null : subject, name: statement.subject[0].name, audited: time(body.auditedAt) };
}
