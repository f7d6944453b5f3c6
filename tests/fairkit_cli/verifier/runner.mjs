// Answers the cases of the conformance suite with the page's own modules, in node.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import * as check from "../../../cli/fairkit_cli/verifier/check.mjs";
import { SignatureError, decodeBase64, readKey } from "../../../cli/fairkit_cli/verifier/envelope.mjs";
import { readRoots } from "../../../cli/fairkit_cli/verifier/timestamps.mjs";
import { FormError } from "../../../cli/fairkit_cli/verifier/json.mjs";

const root = new URL("../../../", import.meta.url);
const load = name => JSON.parse(readFileSync(new URL(name, root), "utf-8"));
const schemas = [load("registry/fairkit_registry/schemas/fairness-audit-1.schema.json"), load("core/fairkit/schemas/report-1.json")];
const declared = load("registry/fairkit_registry/evidence/declared.json");

async function answer({ kind, input }) {
  if (!["certificate", "revocations"].includes(kind)) return { answer: "unsupported" };
  const keys = await Promise.all(input.keys.map(readKey)), revokers = await Promise.all((input.revokers ?? []).map(readKey));
  const bytes = decodeBase64(input.file);
  if (kind === "revocations") {
    const list = await check.readRevocations(bytes, keys);
    return { answer: "verified", signers: [list.issuer], sequence: list.sequence };
  }
  const lists = [];
  for (const text of input.revocations ?? []) lists.push(await check.readRevocations(decodeBase64(text), [...keys, ...revokers]));
  const read = await check.checkCertificate(bytes, {
    keys, revokers, lists: check.joined(lists), roots: (input.timestamp_roots ?? []).flatMap(readRoots), model: input.model_sha256 ?? null, data: input.data_sha256 ?? null, schemas, declared, now: new Date(input.now),
  });
  return {
    answer: read.overdue.length ? "undecided" : "verified", verdict: read.body.verdict, signers: read.signers,
    recomputed: read.examined.recomputed.size, worst: Math.max(0, ...read.examined.recomputed.values()), findings: read.body.findings.length,
    ...(read.provenAt && { proven_at: read.provenAt.toISOString().replace(/(\.000)?Z$/, "+00:00") }),
  };
}

for await (const line of createInterface({ input: process.stdin })) {
  let told;
  try { told = await answer(JSON.parse(line)); } catch (error) {
    const because = error instanceof check.ContradictionError ? "contradiction" : error instanceof check.RevokedError ? "revoked"
      : error instanceof SignatureError ? "signature" : error instanceof FormError ? "form" : null;
    if (because === null) throw error;
    told = { answer: "refused", because, message: error.found ? error.found.map(one => one.code) : error.message };
  }
  process.stdout.write(JSON.stringify(told) + "\n");
}
