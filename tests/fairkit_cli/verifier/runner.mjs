// Answers certificates with the page's own modules, in node: one JSON line in, one out.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { checkCertificate } from "../../../cli/fairkit_cli/verifier/check.mjs";
import { Missing, decodeBase64, readKey } from "../../../cli/fairkit_cli/verifier/envelope.mjs";
import { Refusal } from "../../../cli/fairkit_cli/verifier/json.mjs";

const tables = JSON.parse(readFileSync(process.argv[2], "utf-8"));
for await (const line of createInterface({ input: process.stdin })) {
  const { file, keys, model, data } = JSON.parse(line);
  let told;
  try {
    const read = await checkCertificate(decodeBase64(file), { keys: await Promise.all(keys.map(readKey)), model, data, ...tables });
    told = { answer: "verified", verdict: read.body.verdict, signers: read.signers };
  } catch (error) {
    if (!(error instanceof Refusal || error instanceof Missing)) throw error;
    told = { answer: "refused", because: [error.message, ...(error.found ?? [])].join(" ") };
  }
  process.stdout.write(JSON.stringify(told) + "\n");
}
