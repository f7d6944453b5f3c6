// Reads one case a line, {token, signature, roots}, and prints the proven time in milliseconds, or null where it is refused.
import { createInterface } from "node:readline";
import { decodeBase64 } from "../../../cli/fairkit_cli/verifier/envelope.mjs";
import { proven, readRoots } from "../../../cli/fairkit_cli/verifier/timestamps.mjs";

for await (const line of createInterface({ input: process.stdin })) {
  const { token, signature, roots } = JSON.parse(line);
  const signed = [{ sig: decodeBase64(signature), timestamps: [decodeBase64(token)] }];
  const at = await proven(signed, roots.flatMap(readRoots)).catch(error => { if (error.constructor.name === "SignatureError") return null; throw error; });
  process.stdout.write(JSON.stringify(at) + "\n");
}
