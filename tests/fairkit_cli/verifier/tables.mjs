// Reads tables of counts as JSON lines and prints what the page's arithmetic says of each.
import { createInterface } from "node:readline";
import * as own from "../../../cli/fairkit_cli/verifier/arithmetic.mjs";
import { settled } from "../../../cli/fairkit_cli/verifier/policy.mjs";

const flat = one => one && [one.value, one.low, one.high];
for await (const line of createInterface({ input: process.stdin })) {
  const { counts, rows, others, over, confidence, place, limit } = JSON.parse(line);
  const made = (k, n) => k.map((count, i) => ({ group: `g${i}`, rate: count / n[i], n: n[i] }));
  const groups = made(counts, rows), second = made(others, over);
  const z = own.twoSided(confidence);
  const numbers = {
    limits: groups.map(one => own.shareLimits(one.rate, one.n, z)),
    difference: flat(own.spreadDifference(groups, confidence)),
    ratio: flat(own.spreadRatio(groups, confidence)),
    largest: flat(own.extreme(groups, confidence, true)),
    smallest: flat(own.extreme(groups, confidence, false)),
    odds: flat(own.oddsDifference(groups, second, confidence)),
    odds_ratio: flat(own.oddsRatio(groups, second, confidence)),
    gap_rms: flat(own.gapRms(groups, second, confidence)),
    against: ["difference", "ratio"].map(kind => own.againstReference(groups, place, kind, confidence, false).filter(Boolean).map(flat)),
    chosen: own.againstReference(groups, place, "difference", confidence, true).filter(Boolean).map(flat),
  };
  // 1: an interval keeps the limit, -1: it breaks it, 0: it contains it
  const verdict = (kind, one) => { const kept = settled({ [kind]: limit }, one.slice(1)); return kept === null ? 0 : kept ? 1 : -1; };
  const judged = ["difference", "ratio", "largest", "smallest", "odds", "odds_ratio", "gap_rms"].map(name => numbers[name]);
  const verdicts = judged.map(one => one && ["max", "min"].map(kind => verdict(kind, one)));
  process.stdout.write(JSON.stringify({ ...numbers, verdicts }) + "\n");
}
