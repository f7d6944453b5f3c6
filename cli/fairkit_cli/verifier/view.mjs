// The page: files in, sentences out. Text is only ever set as text, so that no name in a certificate can act.

import { Refusal } from "./json.mjs";
import { Missing, readKey } from "./envelope.mjs";
import { digestOf } from "./digest.mjs";
import { LARGEST, checkCertificate, nameOf } from "./check.mjs";
import { judgeAll, ruleText } from "./policy.mjs";

const SHOWN = 200, SVG = "http://www.w3.org/2000/svg", SMALL = 64 << 10;
const FIELDS = [
  ["certificate", "Certificate", "The signed file (JSON), at most 16 MB.", false],
  ["keys", "Public key that you trust", "A file in PEM, such as auditor.pub. Get it from the signer by a way that you trust; a key inside a certificate never counts.", true],
  ["fingerprint", "Fingerprint of the key (optional)", "64 hexadecimal digits that the signer published. The key file is held against it.", null],
  ["model", "Model file (optional)", "The ONNX file that the certificate must be about. Its digest is computed here; large files take a while.", false],
  ["table", "Content digest of the table (optional)", "As fairkit prints it, 64 hexadecimal digits.", null],
];
const HEADS = { fail: "This certificate holds, and it says that its policy is broken.", inconclusive: "This certificate holds, and it says that its policy is undecided." };
const VERDICTS = {
  pass: "Every rule of its policy is kept, with the uncertainty of the numbers counted in.", fail: "At least one rule of its policy is surely broken.",
  inconclusive: "The policy is undecided: for at least one rule the numbers are too uncertain, or the audit forbids a verdict.", null: "It states no policy, so it says neither pass nor fail.",
};

const tame = text => String(text).replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "�").slice(0, 300);
const short = value => value === null ? "–" : Number.isInteger(value) ? value.toLocaleString("en") : String(Number(value.toPrecision(4)));
const cut = digest => `${digest.slice(0, 16)}…`;
const day = date => `${date.toISOString().slice(0, 16).replace("T", " ")} UTC`;

export function element(name, given = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(given)) if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  made.append(...children.flat(Infinity).filter(one => one !== null && one !== undefined));
  return made;
}
const name = text => element("bdi", {}, tame(text));
const list = lines => element("ul", {}, lines.filter(Boolean).map(line => element("li", {}, tame(line))));
const section = (title, ...content) => [element("h3", {}, title), ...content];
const row = ([head, ...cells]) => element("tr", {}, element("th", { scope: "row" }, head), cells.map(cell => element("td", {}, cell)));
const table = (heads, rows, caption) => element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption }, element("table", {},
  element("thead", {}, element("tr", {}, heads.map(text => element("th", { scope: "col" }, text)))), element("tbody", {}, rows)));

// an interval with its value, and the limit of a rule, on the range that holds them
function drawn(finding, limit = null) {
  if (!finding || finding.value === null || !finding.interval) return "";
  const [low, high] = finding.interval.map((end, side) => end ?? finding.value + (side ? 1 : -1));
  const all = [low, high, finding.value, ...(limit === null ? [] : [limit])];
  const least = Math.min(0, ...all), most = Math.max(...all, least + 1e-9), at = value => 4 + 192 * (value - least) / (most - least);
  const made = (kind, given) => { const one = document.createElementNS(SVG, kind); for (const [key, value] of Object.entries(given)) one.setAttribute(key, value); return one; };
  const label = `value ${short(finding.value)}, interval ${short(low)} to ${short(high)}${limit === null ? "" : `, limit ${short(limit)}`}`;
  const picture = made("svg", { viewBox: "0 0 200 24", width: 200, height: 24, role: "img", "aria-label": label });
  picture.append(
    made("line", { x1: 4, x2: 196, y1: 12, y2: 12, class: "axis" }),
    made("line", { x1: at(low), x2: Math.max(at(high), at(low) + 2), y1: 12, y2: 12, class: "band" }),
    made("circle", { cx: at(finding.value), cy: 12, r: 4, class: "point" }),
  );
  if (limit !== null) picture.append(made("line", { x1: at(limit), x2: at(limit), y1: 1, y2: 23, class: "limit" }));
  return picture;
}

function findings(body) {
  const rows = body.findings.map(one => () => row([name(nameOf(one) + (one.parameters.class === undefined ? "" : ` (${one.parameters.class})`)), short(one.value), drawn(one)]));
  const made = table(["Number", "Value", "Interval"], rows.slice(0, SHOWN).map(make => make()), "All numbers"), content = [made];
  if (rows.length > SHOWN) {
    const button = element("button", { type: "button" }, `Show all ${short(rows.length)} numbers`);
    button.addEventListener("click", () => { made.querySelector("tbody").append(...rows.slice(SHOWN).map(make => make())); button.remove(); });
    content.push(button);
  }
  return element("details", {}, element("summary", {}, `All numbers (${rows.length})`), content);
}

function described({ body, model, name: about, audited, until, signers }, given) {
  const rules = table(["Rule", "Verdict", "Interval"], body.policy.map(rule =>
    row([name(ruleText(rule)), element("span", { class: `badge ${rule.verdict}` }, rule.verdict), drawn(judgeAll(rule, body.findings).finding, rule.max ?? rule.min)])), "Rules");
  const file = model === null ? `No model was seen: it is about decisions in a table (${tame(about)}).` : given.model ? `It is about the model file that you gave: ${tame(about)} (${cut(model)}).`
    : `It is about the model ${tame(about)} with the digest ${cut(model)}. You gave no model file, so that was not compared.`;
  const rows = `The table is ${tame(body.data.name)} with ${short(body.data.rows)} rows and the content digest ${cut(body.data.sha256)}${given.data ? ", which is the one that you named." : "; the table itself was not compared."}`;
  return [
    ...section("Who", list([`It is signed by the key ${signers.map(cut).join(", ")}, which you named as trusted.`, "Nothing in the signed statement was changed since."])),
    ...section("When", list([`The signer says that the audit was made on ${day(audited)}.`, until && `It is valid until ${day(until)}.`, body.policyLock && "It carries a policy lock, which it keeps: table, settings, and made before the audit."])),
    ...section("About what", list([file, rows])),
    ...section("Policy", list([VERDICTS[body.verdict], "This is said of these metrics on these rows. It does not say that the model is fair."])),
    ...body.policy.length ? section("Rules, judged again here from their intervals with the same verdict", rules) : [],
    ...section("Not checked here", list(["Whether the numbers are those of the model and the rows: that needs the model, the table and fairkit verify --recompute.",
      "Whether the key belongs to the person or company that you think, and has since been revoked: ask them."])),
    findings(body),
    element("details", {}, element("summary", {}, "The whole statement"), element("pre", { tabindex: 0 }, JSON.stringify({ ...body, findings: body.findings.slice(0, SHOWN) }, null, 1).slice(0, 400000))),
  ];
}

const bytesOf = async (file, most, sentence) => {
  if (file.size > most) throw new Refusal(sentence);
  try { return new Uint8Array(await file.arrayBuffer()); } catch (error) { throw new Refusal(`A file cannot be read: ${error.message}`); }
};
const digestText = field => {
  const text = field.value.trim().toLowerCase().replace(/^sha256:/, "");
  if (text && !/^[0-9a-f]{64}$/.test(text)) throw new Missing("A digest or fingerprint has 64 hexadecimal digits.");
  return text || null;
};

async function checked(fields, tables, say) {
  if (!globalThis.crypto?.subtle) throw new Missing("This browser has no WebCrypto here, so nothing can be checked.");
  const file = fields.certificate.files[0], data = digestText(fields.table), fingerprint = digestText(fields.fingerprint), keys = [];
  if (!file) throw new Missing("Give a certificate.");
  const bytes = await bytesOf(file, LARGEST, "The file is larger than 16 MB: that is no certificate.");
  for (const one of fields.keys.files) keys.push(await readKey(new TextDecoder().decode(await bytesOf(one, SMALL, "A key file is no public key in PEM."))));
  const trusted = fingerprint === null ? keys : keys.filter(one => one.id === fingerprint);
  if (keys.length && !trusted.length) throw new Refusal("None of the keys that you gave has that fingerprint.");
  const model = fields.model.files[0] ? await digestOf(fields.model.files[0], share => say(`Reading the model: ${Math.floor(share * 100)} %`)) : null;
  return { read: await checkCertificate(bytes, { keys: trusted, model, data, ...tables }), given: { model, data } };
}

export function start(root, tables) {
  const fields = {}, status = element("p", { role: "status", "aria-live": "polite" }), result = element("section", { tabindex: -1, "aria-label": "Result" });
  const form = element("form", { novalidate: true }, FIELDS.map(([key, label, help, several]) => {
    fields[key] = element("input", { id: key, type: several === null ? "text" : "file", multiple: several, "aria-describedby": `${key}-help`, autocomplete: "off", spellcheck: several === null ? "false" : null });
    return element("div", { class: "field" }, element("label", { for: key }, label), fields[key], element("p", { id: `${key}-help`, class: "help" }, help));
  }), element("div", { class: "buttons" }, element("button", { type: "submit" }, "Check"), element("button", { type: "reset" }, "Start again")));
  const intro = "This page checks a certificate that somebody signed about a model or a table of decisions. It works without a network: no file leaves this computer, and the page may not open a connection.";
  root.replaceChildren(element("h1", {}, "Check a fairness certificate"), element("p", {}, intro), form, element("p", { class: "help" }, "You can also drop all files anywhere on this page."), status, result);
  const show = (kind, head, ...content) => {
    result.replaceChildren(element("div", { class: `verdict ${kind}` }, element("h2", {}, head)), ...content.flat());
    status.textContent = head;
    result.focus();
  };
  let latest = 0;

  async function run() {
    const turn = ++latest;
    status.textContent = "Checking …";
    result.replaceChildren();
    try {
      const { read, given } = await checked(fields, tables, text => { if (turn === latest) status.textContent = text; });
      if (turn === latest) show(read.body.verdict ?? "pass", HEADS[read.body.verdict] ?? "This certificate holds.", described(read, given));
    } catch (error) {
      if (!(error instanceof Refusal || error instanceof Missing)) throw error;
      const missing = error instanceof Missing, lines = error.found ?? [];
      if (turn === latest) show(missing ? "inconclusive" : "fail", missing ? "Nothing was checked." : "This certificate does not hold.", element("p", {}, tame(error.message)), list([...lines.slice(0, 8), lines.length > 8 && `and ${lines.length - 8} more.`]));
    }
  }

  form.addEventListener("submit", event => { event.preventDefault(); run(); });
  form.addEventListener("reset", () => { latest++; result.replaceChildren(); status.textContent = ""; });
  addEventListener("dragover", event => event.preventDefault());
  addEventListener("drop", async event => { // dropped files go where they belong
    event.preventDefault();
    const sorted = { certificate: [], keys: [...fields.keys.files], model: [] };
    for (const file of event.dataTransfer.files) {
      const start = new TextDecoder().decode(await file.slice(0, 64).arrayBuffer());
      sorted[start.startsWith("-----BEGIN") ? "keys" : /\.onnx$/i.test(file.name) || start[0] !== "{" ? "model" : "certificate"].push(file);
    }
    for (const [key, found] of Object.entries(sorted)) if (found.length) {
      const carrier = new DataTransfer();
      found.forEach(one => carrier.items.add(one));
      fields[key].files = carrier.files;
    }
    run();
  });
}
