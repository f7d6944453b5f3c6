// A certificate checked, step after step as `fairkit verify` does; nothing is shown here, and nothing is fetched.

import { Refusal, isObject, readObject } from "./json.mjs";
import { Missing, readEnvelope, signedBy } from "./envelope.mjs";
import { sha256 } from "./digest.mjs";
import { validator } from "./form.mjs";
import { UNKNOWNS, ends, judgeAll, ruleText } from "./policy.mjs";

export const LARGEST = 16 << 20; // bytes of the largest file that is read
const CLOCK_SKEW = 300e3, ROUNDING = 1e-9; // milliseconds by which clocks differ; what adding in another order changes
const PAYLOAD = "application/vnd.in-toto+json", LOCK = "https://fairkit.dev/policy-lock/v1";
const TIME = /^(\d{4})-(\d\d)-(\d\d)T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$/;

function time(text) {
  const [, year, month, day] = (typeof text === "string" && TIME.exec(text)) || [];
  const date = new Date(Date.UTC(year, month - 1, day));
  if (!(year > 0) || date.getUTCMonth() !== month - 1 || date.getUTCDate() !== Number(day)) throw new Refusal("It has a time that cannot be read.");
  return new Date(text);
}

// keys: trusted; model, data: digests that it must be about, or null; schemas, declared: fairkit's tables
export async function checkCertificate(bytes, { keys, model = null, data = null, schemas, declared, now = new Date() }) {
  if (bytes.length > LARGEST) throw new Refusal("The file is larger than 16 MB: that is no certificate.");
  const envelope = readEnvelope(bytes);
  if (envelope.type !== PAYLOAD) throw new Refusal("The envelope contains another kind of document.");
  if (!keys.length) throw new Missing("Give the public key that you trust. Without a key anybody may have written the file.");
  const signers = await signedBy(envelope, keys);
  if (!signers.length) throw new Refusal("None of the keys that you gave has signed it, or it was changed after it was signed.");
  const read = readStatement(envelope.payload, schemas), { body } = read;
  const found = contradictions(body, declared);
  if (found.length) throw Object.assign(new Refusal("A trusted key signed it, but it contradicts itself:"), { found });
  if (body.policyLock !== undefined) checkLock(read, readEnvelope(body.policyLock));
  if (read.until !== null && now > read.until) throw new Refusal(`It was valid until ${body.validUntil}, and is so no longer.`);
  if (model !== null && read.model === null) throw new Refusal("It is about decisions in a table: no model was seen, so it says nothing about your model file.");
  if (model !== null && model !== read.model) throw new Refusal("It is about another model than the file that you gave.");
  if (data !== null && data !== body.data.sha256) throw new Refusal("It is about another table than the one that you named.");
  return { ...read, signers };
}

// A statement's form, subject and times.
function readStatement(payload, schemas) {
  const statement = readObject(payload), body = statement.predicate;
  if (statement.predicateType !== schemas[0].properties.predicateType.const) throw new Refusal("A trusted key signed it, but it is no fairness certificate.");
  const path = (readStatement.form ??= validator(...schemas))(statement);
  if (path) throw new Refusal(`A trusted key signed it, but it does not have the form of a fairness certificate (at ${path.join("/")}).`);
  const unseen = body.model === null || body.model.endpoint !== undefined, subject = statement.subject[0].digest.sha256;
  if ((unseen ? body.data.sha256 : body.model.sha256) !== subject) throw new Refusal("It names two different models or tables.");
  return { body, model: unseen ? null : subject, name: statement.subject[0].name, audited: time(body.auditedAt), until: body.validUntil === undefined ? null : time(body.validUntil) };
}

const same = (one, other) => one === other || (typeof one === "object" && typeof other === "object" && one && other && Array.isArray(one) === Array.isArray(other)
  && Object.keys(one).length === Object.keys(other).length && Object.keys(one).every(key => key in other && same(one[key], other[key])));

// The policy lock that a certificate carries was kept: its table, its settings, and made before the audit.
function checkLock({ body, audited }, envelope) {
  const said = readObject(envelope.payload), lock = said.predicate;
  if (envelope.type !== PAYLOAD || said.predicateType !== LOCK || !isObject(lock)) throw new Refusal("What it carries as its policy lock is none.");
  if (lock.sealed === true && body.lockSalt === undefined) throw new Refusal("Its policy lock is sealed, and nothing in it opens the lock.");
  const asked = body.findings.some(one => one.evidence.requests_sha256 === said.subject?.[0]?.digest?.sha256) ? said.subject[0].digest.sha256 : body.data.sha256;
  const table = lock.sealed === true ? sha256(new TextEncoder().encode(`fairkit sealed rows ${body.lockSalt} ${asked}`)) : asked;
  if (said.subject?.[0]?.digest?.sha256 !== table) throw new Refusal("Its policy lock is about another table.");
  if (!same(lock.settings, body.settings)) throw new Refusal("Its audit is not the one of its policy lock.");
  if (time(lock.lockedAt) - audited > CLOCK_SKEW) throw new Refusal("Its policy lock was made after the audit.");
}

export const nameOf = one => `${one.auditor}/${one.metric}${one.sensitive ? `:${[one.sensitive, ...one.within ?? []].join("|")}` : ""}`;
const isNumber = value => typeof value === "number";

// What no audit gives, whoever signed it (fairkit_registry.evidence.charts).
export function contradictions(body, declared) {
  const found = [], say = text => found.push(text), { settings } = body, seen = new Set();
  const pairs = [...["confidence", "adjustment", "seed"].map(key => [settings[key] ?? null, body[key] ?? null, key]),
    [body.data.label == null ? null : settings.data.label ?? null, body.data.label ?? null, "label"],
    [settings.data.predictions || {}, (body.model === null && body.predictions?.columns) || {}, "columns of predictions"],
    [settings.data.join && !isObject(settings.data.join) ? "" : settings.data.join?.sha256 ?? null, body.data.joined?.sha256 ?? null, "joined table"]];
  for (const [told, stated, key] of pairs) if (!same(told, stated)) say(`its settings and its report differ in ${key}`);
  for (const one of body.findings) {
    const name = nameOf(one), names = declared[one.auditor];
    if (settings.auditors.length && !settings.auditors.includes(one.auditor)) say(`${name}: its auditor is not one of those in the settings`);
    if (names && !names.includes(one.metric)) say(`${name}: its auditor does not declare this metric`);
    if (Math.abs(one.confidence - body.confidence) > ROUNDING) say(`${name}: its confidence is ${one.confidence}`);
    for (const part of [one, ...one.groups, ...one.missing ? [one.missing] : []]) whole(part.value, part.interval && ends(part.interval), text => say(`${name}: ${text}`));
    const bound = one.evidence.upper_confidence_bound ?? null;
    if (bound !== null && (!isNumber(bound) || (one.value !== null && bound < one.value - ROUNDING * (1 + Math.abs(bound))))) say(`${name}: its bound is below its value`);
    for (const key of UNKNOWNS) {
      const told = one.evidence[key] ?? null;
      if (told === null) continue;
      const form = isObject(told) && (isNumber(told.low) && isNumber(told.high) || (told.low ?? null) === null && (told.high ?? null) === null);
      if (!form || typeof told.binding !== "boolean" || !isNumber(told.stretch)) say(`${name}: its ${key} are no bounds`);
    }
    const key = JSON.stringify([one.auditor, one.metric, one.sensitive, one.reference ?? null, one.within ?? [], Object.entries(one.parameters).sort()]);
    if (seen.has(key)) say(`${name}: it is there twice`);
    seen.add(key);
  }
  if (!found.length) policy(body, say); // rules are judged from findings that are whole
  return found;
}

function whole(value, interval, say) {
  if (!interval) return;
  const [low, high] = interval, slack = ROUNDING * Math.max(1, Math.abs(value ?? 0));
  if (low > high) say("an interval is reversed");
  else if (value === null || value === undefined) say("an interval without a value");
  else if (value < low - slack || value > high + slack) say(`the value ${value} lies outside its interval`);
}

function policy(body, say) {
  const order = ["pass", "inconclusive", "fail"], worst = order[Math.max(...body.policy.map(one => order.indexOf(one.verdict)))] ?? null;
  if (worst !== body.verdict) say(`its verdict is ${body.verdict}, and its rules together give ${worst}`);
  const limits = rule => JSON.stringify(["metric", "sensitive", "max", "min", "support", "within"].map(key => (key === "within" && !rule.within?.length ? null : rule[key] ?? null)));
  const told = body.settings.policy;
  if (told.length && JSON.stringify(told.map(limits)) !== JSON.stringify(body.policy.map(limits))) say("its policy is not the one in its settings");
  for (const rule of body.policy) {
    const { verdict, error } = judgeAll(rule, body.findings);
    if (error) say(`the rule ${ruleText(rule)} cannot be judged: ${error}`);
    else if (rule.verdict !== verdict && !(body.adjustment != null && rule.verdict === "inconclusive")) say(`the verdict on ${ruleText(rule)} is ${rule.verdict}, and its numbers give ${verdict}`);
  }
}
