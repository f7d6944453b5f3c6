// DSSE envelopes, keys and signatures; nothing in a file is ever a key.

import { Refusal, isObject, readObject } from "./json.mjs";
import { sha256 } from "./digest.mjs";

export class Missing extends Error {} // what the reader did not give, as a sentence
const NO_ENVELOPE = "The file is not a certificate: it is no signed envelope (DSSE).";

const ED25519 = "302a300506032b6570032100", P256 = "3059301306072a8648ce3d020106082a8648ce3d03010703420004";
const ORDER = 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n;
export const hex = bytes => Array.from(bytes, one => one.toString(16).padStart(2, "0")).join("");

export function decodeBase64(text) {
  if (typeof text !== "string") throw new Refusal(NO_ENVELOPE);
  const plain = text.replaceAll("-", "+").replaceAll("_", "/");
  if (plain.length % 4 || !/^[A-Za-z0-9+/]*={0,2}$/.test(plain)) throw new Refusal("A part of the envelope was changed or damaged: it is not base64.");
  return Uint8Array.from(atob(plain), one => one.charCodeAt(0));
}

// A public key in PEM: {id, kind, key}; its id is the SHA-256 of its DER form.
export async function readKey(pem) {
  if (pem.includes("PRIVATE KEY")) throw new Missing("That is a secret key. Never give it to a page; use the public one, the file that ends in .pub.");
  const body = /-----BEGIN PUBLIC KEY-----([A-Za-z0-9+/=\s]+)-----END PUBLIC KEY-----/.exec(pem);
  if (!body) throw new Missing("A key file is no public key in PEM.");
  const der = decodeBase64(body[1].replace(/\s+/g, "")), text = hex(der);
  const kind = text.startsWith(ED25519) && der.length === 44 ? "ed25519" : text.startsWith(P256) && der.length === 91 ? "ecdsa-p256" : null;
  if (kind === null) throw new Missing("A key is of another kind than ed25519 and ECDSA P-256.");
  const algorithm = kind === "ed25519" ? { name: "Ed25519" } : { name: "ECDSA", namedCurve: "P-256" };
  try {
    return { id: sha256(der), kind, key: await crypto.subtle.importKey("spki", der, algorithm, false, ["verify"]) };
  } catch (error) {
    throw new Missing(error.name === "NotSupportedError" ? "This browser cannot check ed25519 signatures. Use a newer one, or fairkit verify." : "A key file is no public key in PEM.");
  }
}

// r and s of an ECDSA signature in DER, one after the other; null where it is not in DER. High and low s are both good.
export function fromDer(der) {
  let at = 0;
  const integer = () => {
    if (der[at] !== 2) return null;
    const size = der[at + 1], bytes = der.subarray(at + 2, at + 2 + size);
    if (size < 1 || size > 33 || bytes.length !== size || bytes[0] & 0x80 || (size > 1 && bytes[0] === 0 && !(bytes[1] & 0x80))) return null;
    at += 2 + size;
    const value = BigInt(`0x${hex(bytes)}`);
    return value > 0n && value < ORDER ? value : null;
  };
  if (der[0] !== 0x30 || der[1] !== der.length - 2) return null;
  at = 2;
  const r = integer(), s = r === null ? null : integer();
  if (s === null || at !== der.length) return null;
  const raw = new Uint8Array(64);
  [r, s].forEach((value, part) => { for (let i = 31; i >= 0; i--, value >>= 8n) raw[part * 32 + i] = Number(value & 255n); });
  return raw;
}

async function holds(key, signature, message) {
  const raw = key.kind === "ed25519" ? signature : fromDer(signature);
  if (raw === null || raw.length !== 64) return false;
  return crypto.subtle.verify(key.kind === "ed25519" ? { name: "Ed25519" } : { name: "ECDSA", hash: "SHA-256" }, key.key, raw, message);
}

// The envelope in a file: payload bytes, type and signatures, which nobody has checked.
export function readEnvelope(bytes) {
  const record = isObject(bytes) && !(bytes instanceof Uint8Array) ? bytes : readObject(bytes), { signatures, payload, payloadType } = record;
  if ("dsseEnvelope" in record) throw new Refusal("The file is a Sigstore bundle, which is not read; its dsseEnvelope is a certificate.");
  if (!Array.isArray(signatures) || !signatures.length || typeof payloadType !== "string") throw new Refusal(NO_ENVELOPE);
  return {
    payload: decodeBase64(payload),
    type: payloadType,
    signatures: signatures.map(one => {
      if (!isObject(one) || typeof ("keyid" in one ? one.keyid : "") !== "string") throw new Refusal(NO_ENVELOPE);
      if ("timestamp" in one) throw new Refusal("It carries a timestamp of an authority, which is not checked here: openssl ts does it. Take it out of the envelope.");
      return decodeBase64(one.sig);
    }),
  };
}

export function pae(type, payload) {
  const encoder = new TextEncoder(), kind = encoder.encode(type);
  const head = encoder.encode(`DSSEv1 ${kind.length} `), middle = encoder.encode(` ${payload.length} `);
  const whole = new Uint8Array(head.length + kind.length + middle.length + payload.length);
  let at = 0;
  for (const part of [head, kind, middle, payload]) { whole.set(part, at); at += part.length; }
  return whole;
}

// The ids of the trusted keys that signed: every key is tried on every signature, the key id decides nothing.
export async function signedBy(envelope, keys) {
  const message = pae(envelope.type, envelope.payload), found = new Set();
  for (const key of keys) for (const one of envelope.signatures) if (!found.has(key.id) && await holds(key, one, message)) found.add(key.id);
  return [...found].sort();
}
