// Proven time: tokens of time-stamping authorities (RFC 3161, in CMS of RFC 5652), by roots that the reader trusts.

import { FormError } from "./json.mjs";
import { SignatureError, decodeBase64, hex } from "./envelope.mjs";

const LARGEST = 1 << 20, MOST_CHECKS = 64, LONGEST_CHAIN = 6;
const SEQUENCE = 0x30, SET = 0x31, INTEGER = 2, BITS = 3, OCTETS = 4, NULL = 5, OID = 6, UTC_TIME = 23, TIME = 24, TRUE = 255;
const SIGNED_DATA = "2a864886f70d010702", TOKEN = "2a864886f70d0109100104";
const CONTENT_TYPE = "2a864886f70d010903", MESSAGE_DIGEST = "2a864886f70d010904";
const SIGNER = { "2a864886f70d010910020c": "SHA-1", "2a864886f70d010910022f": "SHA-256" }; // ESSCertID, ESSCertIDv2
const DIGESTS = { "2b0e03021a": "SHA-1", "608648016503040201": "SHA-256", "608648016503040202": "SHA-384", "608648016503040203": "SHA-512" };
const RSA = "2a864886f70d010101", CURVES = { "2a8648ce3d030107": ["P-256", 32], "2b81040022": ["P-384", 48], "2b81040023": ["P-521", 66] };
const SIGNED_BY = {
  "2a864886f70d01010b": "SHA-256", "2a864886f70d01010c": "SHA-384", "2a864886f70d01010d": "SHA-512",
  "2a8648ce3d040302": "SHA-256", "2a8648ce3d040303": "SHA-384", "2a8648ce3d040304": "SHA-512",
};
const CONSTRAINTS = "551d13", USAGE = "551d0f", PURPOSE = "551d25", TIME_STAMPING = "2b06010505070308", KEY_CERT_SIGN = 4;

const bad = () => new SignatureError("timestamp");
const need = condition => { if (!condition) throw bad(); };
const same = (one, other) => one.length === other.length && one.every((byte, place) => byte === other[place]);

// One element of DER: its tag, its content, and all its bytes.
function element(bytes, at = 0) {
  const tag = bytes[at], first = bytes[at + 1], count = first & 0x80 ? first & 0x7f : 0;
  need(first !== undefined && (tag & 31) !== 31 && first !== 0x80 && count <= 4);
  let size = count ? 0 : first;
  for (let place = 0; place < count; place++) size = size * 256 + bytes[at + 2 + place];
  const start = at + 2 + count, end = start + size;
  need(end <= bytes.length && (!count || size > 127));
  return { tag, content: bytes.subarray(start, end), whole: bytes.subarray(at, end) };
}
function elements(bytes) {
  const found = [];
  for (let at = 0; at < bytes.length; at += found.at(-1).whole.length) found.push(element(bytes, at));
  return found;
}
// the elements of a SET OF, in the order that DER asks for
function ordered(bytes) {
  const found = elements(bytes);
  found.slice(1).forEach((one, place) => need(hex(found[place].whole) <= hex(one.whole)));
  return found;
}
function take(one, tag) { need(one?.tag === tag); return one.content; }
const parts = (one, tag = SEQUENCE) => elements(take(one, tag));
const oid = one => hex(take(one, OID));
// an algorithm without parameters: none of those that are taken has any
function algorithm(one) {
  const [name, parameters, ...rest] = parts(one);
  need(!rest.length && (!parameters || (parameters.tag === NULL && !parameters.content.length)));
  return oid(name);
}
const number = one => hex(take(one, INTEGER));
function bits(one) { const held = take(one, BITS); need(held[0] === 0); return held.subarray(1); }
const only = bytes => { const all = elements(bytes); need(all.length === 1); return all[0]; };

function time(one) {
  const text = new TextDecoder().decode(one?.content), match = /^(\d{2}|\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(\.\d+)?Z$/.exec(text);
  need(match && (one.tag === TIME ? match[1].length === 4 : one.tag === UTC_TIME && match[1].length === 2));
  const [year, month, day, hour, minute, second] = match.slice(1, 7).map(Number);
  const at = Date.UTC(one.tag === TIME ? year : year + (year < 50 ? 2000 : 1900), month - 1, day, hour, minute, second) + Math.floor(Number(match[7] ?? 0) * 1000);
  need(month >= 1 && month <= 12 && day >= 1 && day <= 31 && hour < 24 && minute < 60 && second < 61);
  return at;
}

function certificate(bytes) {
  const whole = element(bytes);
  need(whole.whole.length === bytes.length);
  const [body, signedBy, signature] = parts(whole), fields = parts(body);
  if (fields[0].tag === 0xa0) fields.shift();
  const [serial, sameBy, issuer, validity, subject, key, ...rest] = fields;
  need(same(sameBy.whole, signedBy.whole));
  const extensions = new Map(), box = rest.find(one => one.tag === 0xa3);
  for (const one of box ? parts(only(box.content)) : []) {
    const [kind, ...more] = parts(one), critical = more.length === 2 && take(more[0], 1)[0] === TRUE;
    need(!extensions.has(oid(kind)) && (!critical || [CONSTRAINTS, USAGE, PURPOSE].includes(oid(kind))));
    extensions.set(oid(kind), { critical, value: only(take(more.at(-1), OCTETS)) });
  }
  const [from, until] = parts(validity).map(time);
  return {
    bytes, body: body.whole, signedBy: algorithm(signedBy), signature: bits(signature), serial: take(serial, INTEGER),
    issuer: issuer.whole, subject: subject.whole, key: key.whole, from, until, extensions,
  };
}

// The roots in a PEM file.
export function readRoots(pem) {
  const found = [...pem.matchAll(/-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]+)-----END CERTIFICATE-----/g)];
  if (!found.length || pem.length > LARGEST) throw new FormError("not-a-root");
  try { return found.map(match => certificate(decodeBase64(match[1].replace(/\s+/g, "")))); } catch { throw new FormError("not-a-root"); }
}

// r and s in a row, each of `size` bytes
function pair(der, size) {
  const raw = new Uint8Array(2 * size), numbers = parts(only(der));
  need(numbers.length === 2);
  numbers.forEach((one, place) => {
    const digits = take(one, INTEGER), from = digits.findIndex(byte => byte !== 0), value = digits.subarray(from < 0 ? digits.length : from);
    need(digits.length && !(digits[0] & 0x80) && value.length <= size);
    raw.set(value, (place + 1) * size - value.length);
  });
  return raw;
}

async function verifies(key, digest, signature, message) {
  const [kind, curve] = parts(parts(element(key))[0]);
  need(digest && digest !== "SHA-1");
  const [name, size] = oid(kind) === RSA ? [] : CURVES[curve?.tag === OID ? oid(curve) : ""] ?? [null];
  need(name !== null);
  const scheme = name ? { name: "ECDSA", namedCurve: name, hash: digest } : { name: "RSASSA-PKCS1-v1_5", hash: digest };
  try {
    const ready = await crypto.subtle.importKey("spki", key, scheme, false, ["verify"]);
    return await crypto.subtle.verify(scheme, ready, name ? pair(signature, size) : signature, message);
  } catch { return false; }
}

// may this certificate sign others, with so many authorities below it?
function isAuthority({ extensions }, below) {
  const constraints = extensions.get(CONSTRAINTS), usage = extensions.get(USAGE);
  const [authority, longest] = constraints ? parts(constraints.value) : [];
  if (authority?.tag !== 1 || authority.content[0] !== TRUE || (longest && below > longest.content.at(-1))) return false;
  return !usage || Boolean(take(usage.value, BITS)[1] & KEY_CERT_SIGN);
}

// does a chain lead from a certificate to a root, all of it valid at that time?
async function chained(one, others, roots, at, budget, below = 0) {
  if (at < one.from || at > one.until || below > LONGEST_CHAIN) return false;
  if (roots.some(root => same(root.bytes, one.bytes))) return true;
  for (const issuer of [...roots, ...others]) {
    if (!same(issuer.subject, one.issuer) || !isAuthority(issuer, below)) continue;
    need(budget.checks-- > 0);
    if (await verifies(issuer.key, SIGNED_BY[one.signedBy], one.signature, one.body) && await chained(issuer, others, roots, at, budget, below + 1)) return true;
  }
  return false;
}

// Since when some bytes are proven to exist, in milliseconds, by a token in DER; refused where an authority of these roots does not say so.
export async function timeOf(token, signature, roots) {
  need(token.length <= LARGEST);
  const [status, answer] = parts(only(token));
  need(number(parts(status)[0]) === "00");
  const [kind, box] = parts(answer);
  need(oid(kind) === SIGNED_DATA);
  const [version, digests, content, ...rest] = parts(only(take(box, 0xa0))), signerInfos = parts(rest.at(-1), SET);
  need(number(version) === "03" && signerInfos.length === 1);
  const [contentKind, contentBox] = parts(content), info = take(only(take(contentBox, 0xa0)), OCTETS);
  need(oid(contentKind) === TOKEN);
  const held = rest.find(one => one.tag === 0xa0), certificates = held ? ordered(held.content).map(one => certificate(one.whole)) : [];

  // who signed, and what: the attributes, which hold the digest of the content and of the signer's certificate
  const [signerVersion, name, digestBy, attributes, signedBy, sealed] = parts(signerInfos[0]);
  need(number(signerVersion) === "01" && ordered(take(digests, SET)).map(algorithm).includes(algorithm(digestBy)));
  const [issuer, serial] = parts(name), signer = certificates.find(one => same(one.issuer, issuer.whole) && same(one.serial, take(serial, INTEGER)));
  need(signer && attributes.tag === 0xa0);
  const digest = DIGESTS[algorithm(digestBy)], known = new Map();
  for (const one of ordered(attributes.content)) {
    const [key, values] = parts(one);
    need(!known.has(oid(key)));
    known.set(oid(key), only(take(values, SET)));
  }
  const hashed = async (by, bytes) => { need(by); return new Uint8Array(await crypto.subtle.digest(by, bytes)); };
  need(known.has(CONTENT_TYPE) && oid(known.get(CONTENT_TYPE)) === TOKEN && known.has(MESSAGE_DIGEST) && digest !== "SHA-1");
  need(same(take(known.get(MESSAGE_DIGEST), OCTETS), await hashed(digest, info)));
  const bound = Object.keys(SIGNER).filter(key => known.has(key));
  need(bound.length);
  for (const key of bound) {
    const [first, second] = parts(parts(parts(known.get(key))[0])[0]), named = first.tag === SEQUENCE;
    need(same(take(named ? second : first, OCTETS), await hashed(named ? DIGESTS[algorithm(first)] : SIGNER[key], signer.bytes)));
  }
  const signed = attributes.whole.slice();
  signed[0] = SET;
  const scheme = algorithm(signedBy);
  need(await verifies(signer.key, scheme === RSA ? digest : SIGNED_BY[scheme], take(sealed, OCTETS), signed));

  const [, , imprint, , at] = parts(only(info)), [imprintBy, message] = parts(imprint), hash = DIGESTS[algorithm(imprintBy)];
  need(hash !== "SHA-1" && same(take(message, OCTETS), await hashed(hash, signature)));
  const purpose = signer.extensions.get(PURPOSE), moment = time(at);
  need(purpose?.critical && parts(purpose.value).map(oid).join() === TIME_STAMPING);
  need(await chained(signer, certificates, roots, moment, { checks: MOST_CHECKS }));
  return moment;
}

// The earliest proven time of signatures that hold; null where no timestamp on them does.
export async function proven(signatures, roots) {
  const times = [];
  let refused = null;
  for (const one of signatures) for (const token of one.timestamps) {
    try { times.push(await timeOf(token, one.sig, roots)); } catch (error) {
      refused = error instanceof SignatureError || error instanceof FormError ? error : bad(); // a token of another shape
    }
  }
  if (!times.length && refused) throw refused instanceof SignatureError ? refused : bad();
  return times.length ? Math.min(...times) : null;
}
