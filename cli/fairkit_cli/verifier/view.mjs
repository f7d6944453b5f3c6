// The page: files in, sentences out. Text is only ever set as text, so that no name in a certificate can act.

import { FormError, readObject } from "./json.mjs";
import { SignatureError, readEnvelope, readKey } from "./envelope.mjs";
import { digestOf } from "./digest.mjs";
import { readRoots } from "./timestamps.mjs";
import { ContradictionError, LARGEST, RevokedError, checkCertificate, joined, readRevocations } from "./check.mjs";
import { ruleText } from "./policy.mjs";
import { nameOf } from "./statement.mjs";
import { english, fill, short } from "./sentences.mjs";

const SHOWN = 200, SVG = "http://www.w3.org/2000/svg", DIGEST = /^[0-9a-f]{64}$/, SMALL = 64 << 10;
const words = english;

const tame = text => String(text).replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "�").slice(0, 300);

export function element(name, given = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(given)) if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  made.append(...children.flat(Infinity).filter(one => one !== null && one !== undefined));
  return made;
}
const name = text => element("bdi", {}, tame(text));

// an interval with its value, and the limit of a rule, on the range that holds them
function drawn(finding, limit = null) {
  if (!finding || finding.value === null || !finding.interval) return "";
  const [low, high] = finding.interval.map((end, side) => end ?? finding.value + (side ? 1 : -1));
  const all = [low, high, finding.value, ...(limit === null ? [] : [limit])];
  const least = Math.min(0, ...all), most = Math.max(...all, least + 1e-9), at = value => 4 + 192 * (value - least) / (most - least);
  const made = (kind, given) => { const one = document.createElementNS(SVG, kind); for (const [key, value] of Object.entries(given)) one.setAttribute(key, value); return one; };
  const label = fill(words.drawn, { value: finding.value, low, high }) + (limit === null ? "" : `, ${fill(words.limit, { limit })}`);
  const picture = made("svg", { viewBox: "0 0 200 24", width: 200, height: 24, role: "img", "aria-label": label });
  picture.append(
    made("line", { x1: 4, x2: 196, y1: 12, y2: 12, class: "axis" }),
    made("line", { x1: at(low), x2: Math.max(at(high), at(low) + 2), y1: 12, y2: 12, class: "band" }),
    made("circle", { cx: at(finding.value), cy: 12, r: 4, class: "point" }),
  );
  if (limit !== null) picture.append(made("line", { x1: at(limit), x2: at(limit), y1: 1, y2: 23, class: "limit" }));
  return picture;
}

const table = (heads, rows, caption) => element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption }, element("table", {},
  element("thead", {}, element("tr", {}, heads.map(text => element("th", { scope: "col" }, text)))),
  element("tbody", {}, rows)));
const row = ([head, ...cells]) => element("tr", {}, element("th", { scope: "row" }, head), cells.map(cell => element("td", {}, cell)));
const section = (title, ...content) => [element("h3", {}, title), ...content];
const list = lines => element("ul", {}, lines.filter(Boolean).map(line => element("li", {}, tame(line))));

function rules(read) {
  const { body, examined } = read;
  if (!body.policy.length) return [];
  return section(words.rulesTitle, table([words.rule, words.verdict, words.again, words.interval], body.policy.map((rule, place) => {
    const finding = body.findings.find(one => one.metric === rule.metric && (rule.sensitive == null || one.sensitive === rule.sensitive) && !one.reference);
    const { again } = examined.verdicts[place];
    return row([name(ruleText(rule)), element("span", { class: `badge ${rule.verdict}` }, words[rule.verdict]),
      again === null ? words.notJudged : again === rule.verdict ? words.same : words[again], drawn(finding, rule.max ?? rule.min)]);
  }), words.rulesTitle));
}

function findings(read) {
  const { body, examined } = read, rows = body.findings.map(finding => () => {
    const apart = examined.recomputed.get(finding);
    const told = apart === undefined ? words.left[examined.left.get(finding)] ?? words.left["not-counts"] : `${words.yes} (${apart < 1e-12 ? "< 1e-12" : apart.toExponential(0)})`;
    const label = finding.parameters.class === undefined ? "" : ` (${finding.parameters.class})`;
    return row([name(nameOf(finding) + label), short(finding.value), drawn(finding), name(told)]);
  });
  const made = table([words.number, words.value, words.interval, words.checked], rows.slice(0, SHOWN).map(make => make()), words.findingsTitle);
  const content = [made];
  if (rows.length > SHOWN) {
    const button = element("button", { type: "button" }, fill(words.showAll, { all: rows.length }));
    button.addEventListener("click", () => { made.querySelector("tbody").append(...rows.slice(SHOWN).map(make => make())); button.remove(); });
    content.push(button);
  }
  return element("details", {}, element("summary", {}, `${words.findingsTitle} (${rows.length})`), content);
}

function everything(read) {
  const details = element("details", {}, element("summary", {}, words.everythingTitle));
  details.addEventListener("toggle", () => {
    if (details.querySelector("pre")) return;
    const text = JSON.stringify({ ...read.body, findings: read.body.findings.slice(0, SHOWN) }, null, 1);
    details.append(element("pre", { tabindex: 0 }, text.slice(0, 400000)));
  }, { once: true });
  return details;
}

const cut = digest => `${digest.slice(0, 16)}…`;
const day = date => `${date.toISOString().slice(0, 16).replace("T", " ")} UTC`;

function described(read, given) {
  const { body, examined } = read, all = body.findings.length, count = examined.recomputed.size;
  const worst = Math.max(0, ...examined.recomputed.values());
  const about = read.model === null ? fill(words.modelUnseen, { name: tame(read.name) })
    : fill(given.model ? words.modelFits : words.modelNamed, { name: tame(read.name), digest: cut(read.model) });
  const told = { name: tame(body.data.name), rows: body.data.rows, digest: cut(body.data.sha256) };
  const verdict = { pass: words.policyPass, fail: words.policyFail, inconclusive: words.policyInconclusive }[body.verdict] ?? words.policyNone;
  const judged = examined.verdicts.filter(one => one.again !== null).length;
  return [
    ...section(words.whoTitle, list([fill(words.signed, { keys: read.signers.map(cut).join(", ") }), words.kept])),
    ...section(words.whenTitle, list([fill(words.stated, { date: day(read.audited) }), read.provenAt ? fill(words.proven, { date: read.provenAt.toISOString().slice(0, 19).replace("T", " ") + " UTC" }) : read.stamped ? words.stamped : words.unproven])),
    ...section(words.whatTitle, list([about, fill(given.data ? words.tableFits : words.tableNamed, told)])),
    ...section(words.policyTitle, list([verdict, words.policyMeaning])),
    ...rules(read),
    ...section(words.numbersTitle, list([
      count ? fill(words.recomputed, { count, all, worst: worst < 1e-12 ? "below 1e-12" : worst.toExponential(1) }) : words.recomputedNone,
      body.policy.length && fill(words.judged, { count: judged, all: body.policy.length }), words.consistent])),
    ...section(words.notCheckedTitle, list([words.notAudit, words.notKeyOwner, !given.lists && words.notRevoked, !read.provenAt && words.notProven, all > count && fill(words.notOthers, { count: all - count })])),
    findings(read),
    everything(read),
  ];
}

// the sentence for an error, and what there is to say besides
function refusal(error) {
  if (error instanceof RevokedError) return [fill(words.revoked, { kind: words.kinds[error.entry.kind], at: error.entry.at, reason: tame(error.entry.reason || "–") })];
  if (error instanceof ContradictionError) {
    const lines = error.found.slice(0, 8).map(one => fill(words.contradictions[one.code], one));
    return [words.contradicts, list([...lines, error.found.length > 8 && fill(words.more, { count: error.found.length - 8 })])];
  }
  const [code, ...rest] = error.message.split(":");
  if (code in words.errors) return [fill(words.errors[code], { place: tame(rest.join(":")), message: tame(rest.join(":")) })];
  throw error;
}

const bytesOf = async (file, most, code) => {
  if (file.size > most) throw new FormError(code);
  try { return new Uint8Array(await file.arrayBuffer()); } catch (error) { throw new FormError(`unreadable:${error.message}`); }
};
const digestText = (field) => {
  const text = field.value.trim().toLowerCase().replace(/^sha256:/, "");
  if (text && !DIGEST.test(text)) throw new FormError("bad-digest");
  return text || null;
};

async function checked(fields, tables, say) {
  if (!globalThis.crypto?.subtle) throw new FormError("no-crypto");
  const file = fields.certificate.files[0], data = digestText(fields.table), fingerprint = digestText(fields.fingerprint);
  if (!file) throw new FormError("no-file");
  const bytes = await bytesOf(file, LARGEST, "too-large"), keys = [];
  for (const one of fields.keys.files) keys.push(await readKey(new TextDecoder().decode(await bytesOf(one, SMALL, "not-a-key"))));
  if (!keys.length) throw new FormError("no-key");
  const trusted = fingerprint === null ? keys : keys.filter(one => one.id === fingerprint);
  if (!trusted.length) throw new SignatureError("other-fingerprint");
  const lists = [];
  for (const one of fields.revocations.files) lists.push(await readRevocations(await bytesOf(one, LARGEST, "not-a-list"), trusted));
  lists.sort((a, b) => a.sequence - b.sequence);
  const roots = [];
  for (const one of fields.roots.files) roots.push(...readRoots(new TextDecoder().decode(await bytesOf(one, LARGEST, "not-a-root"))));
  const model = fields.model.files[0] ? await digestOf(fields.model.files[0], share => say(fill(words.hashing, { share: Math.floor(share * 100) }))) : null;
  const read = await checkCertificate(bytes, { keys: trusted, lists: joined(lists), roots, model, data, ...tables });
  return { read, given: { model, data, lists: lists.length } };
}

const TAKEN = [["certificate", false], ["keys", true], ["fingerprint", null], ["model", false], ["revocations", true], ["roots", true], ["table", null]];

export function start(root, tables) {
  const fields = {}, status = element("p", { role: "status", "aria-live": "polite" }), result = element("section", { tabindex: -1, "aria-label": words.result });
  const form = element("form", { novalidate: true }, TAKEN.map(([key, several]) => {
    fields[key] = element("input", { id: key, type: several === null ? "text" : "file", multiple: several, "aria-describedby": `${key}-help`, autocomplete: "off", spellcheck: several === null ? "false" : null });
    return element("div", { class: "field" }, element("label", { for: key }, words[key]), fields[key], element("p", { id: `${key}-help`, class: "help" }, words[`${key}Help`]));
  }), element("div", { class: "buttons" }, element("button", { type: "submit" }, words.check), element("button", { type: "reset" }, words.clear)));
  document.documentElement.lang = words.lang;
  root.replaceChildren(element("h1", {}, words.title), element("p", {}, words.intro), form, element("p", { class: "help" }, words.drop), status, result);

  const box = (kind, head, ...content) => element("div", { class: `verdict ${kind}` }, element("h2", {}, head), content);
  const show = (...content) => { result.replaceChildren(...content.flat()); status.textContent = result.querySelector("h2").textContent; result.focus(); };
  let latest = 0;

  async function run() {
    const turn = ++latest;
    status.textContent = words.working;
    result.replaceChildren();
    try {
      const { read, given } = await checked(fields, tables, text => { if (turn === latest) status.textContent = text; });
      if (turn !== latest) return;
      const late = read.overdue.map(one => fill(words.overdue, { key: cut(one.issuer), date: day(one.nextUpdate) }));
      const kind = late.length ? "inconclusive" : read.body.verdict ?? "pass";
      const head = late.length ? words.undecided : { fail: words.holdsFail, inconclusive: words.holdsInconclusive }[kind] ?? words.holds;
      show(box(kind, head, late.length ? list(late) : null), described(read, given));
    } catch (error) {
      if (turn !== latest) return;
      const said = refusal(error);
      const missing = error instanceof FormError && ["no-file", "no-key", "bad-digest", "no-crypto", "no-ed25519", "secret-key", "not-a-key", "another-kind-of-key", "not-a-root"].includes(error.message);
      show(box(missing ? "inconclusive" : "fail", missing ? words.nothing : words.fails, element("p", {}, said[0]), said.slice(1)));
    }
  }

  form.addEventListener("submit", event => { event.preventDefault(); run(); });
  form.addEventListener("reset", () => { latest++; result.replaceChildren(); status.textContent = ""; });
  addEventListener("dragover", event => event.preventDefault());
  addEventListener("drop", event => { event.preventDefault(); take(event.dataTransfer.files); });

  // put dropped files where they belong, and check
  async function take(files) {
    const sorted = { certificate: [], keys: [...fields.keys.files], model: [], revocations: [...fields.revocations.files], roots: [...fields.roots.files] };
    for (const file of files) sorted[await kindOf(file)].push(file);
    for (const [key, found] of Object.entries(sorted)) if (found.length) {
      const carrier = new DataTransfer();
      found.forEach(one => carrier.items.add(one));
      fields[key].files = carrier.files;
    }
    run();
  }
  return { fields, run, take };
}

async function kindOf(file) {
  if (/\.onnx$/i.test(file.name) || file.size > LARGEST && !/\.json$/i.test(file.name)) return "model";
  if (file.size > LARGEST) return "certificate";
  const bytes = new Uint8Array(await file.arrayBuffer()), text = new TextDecoder().decode(bytes);
  if (text.includes("-----BEGIN CERTIFICATE-----")) return "roots";
  if (/\.(pub|pem)$/i.test(file.name) || text.startsWith("-----BEGIN")) return "keys";
  try {
    return readObject(readEnvelope(bytes).payload).predicateType === "https://fairkit.dev/revocation/v1" ? "revocations" : "certificate";
  } catch { return bytes[0] === 0x7b ? "certificate" : "model"; }
}
