// One rule of a policy on one finding, judged from its interval.

export const UNKNOWNS = ["missing_bounds", "label_error_bounds", "outcome_error_bounds", "rounding_bounds", "copies_bounds"];
export const ends = interval => interval && [interval[0] ?? -Infinity, interval[1] ?? Infinity];

export const ruleText = rule => `${rule.metric}${rule.sensitive == null ? "" : `:${rule.sensitive}`} ${"max" in rule ? `≤ ${rule.max}` : `≥ ${rule.min}`}`;

// true where the whole interval keeps the limit, false where it breaks it, null where it contains it
export function settled(rule, [low, high]) {
  if ("max" in rule) return high <= rule.max ? true : low > rule.max ? false : null;
  return low >= rule.min ? true : high < rule.min ? false : null;
}

// One rule on one finding, at the confidence that is stated (fairkit.results.policy says why).
export function judge(rule, finding) {
  if ((finding.inconclusive ?? null) !== null || (rule.support != null && (finding.parameters?.support ?? null) !== rule.support)) return "inconclusive";
  if (finding.value === null || !finding.interval) return "inconclusive";
  const bound = "max" in rule ? finding.evidence?.upper_confidence_bound ?? null : null;
  const interval = ends(finding.interval);
  if (bound !== null) interval[1] = bound;
  const kept = settled(rule, interval);
  if (kept === null) return "inconclusive";
  for (const key of UNKNOWNS) {
    const told = finding.evidence?.[key];
    if (!told || !told.binding) continue;
    if (told.low == null) return "inconclusive";
    const reach = [told.low - told.stretch * (finding.value - interval[0]), told.high + told.stretch * (interval[1] - finding.value)];
    if (settled(rule, reach) === null) return "inconclusive";
  }
  if (!kept) return "fail";
  return rule.support == null && finding.evidence?.climbs ? "inconclusive" : "pass";
}

// One rule on all findings that it is about: the worst of their verdicts; a sentence where it is about none.
export function judgeAll(rule, findings) {
  const within = JSON.stringify(rule.within ?? []), sensitive = rule.sensitive ?? null;
  let about = findings.filter(one => one.metric === rule.metric);
  if (rule.metric === "attribution" && sensitive !== null && !about.some(one => one.sensitive === sensitive)) about = about.filter(one => one.parameters.of !== "score").flatMap(parts);
  about = about.filter(one => JSON.stringify(one.within ?? []) === within);
  if (about.some(one => (one.reference ?? null) === null)) about = about.filter(one => (one.reference ?? null) === null);
  if (sensitive !== null) about = about.filter(one => one.sensitive === sensitive);
  if (!about.length) return { error: "it is about a number that is not there" };
  if (rule.support != null && about.some(one => one.inconclusive == null && one.parameters.support == null)) return { error: "its number has no support size" };
  const order = ["pass", "inconclusive", "fail"];
  return { verdict: order[Math.max(...about.map(one => order.indexOf(judge(rule, one))))], finding: about[0] };
}

// the size of each column's part of a divided gap, as a number that a rule may limit
function parts(finding) {
  return (finding.evidence.columns ?? []).map(({ column, value, interval }) => {
    const sizes = interval && interval.map(Math.abs), around = interval && interval[0] <= 0 && interval[1] >= 0;
    return { ...finding, sensitive: `${finding.sensitive}.${column}`, value: Math.abs(value), interval: interval && [around ? 0 : Math.min(...sizes), Math.max(...sizes)], evidence: {} };
  });
}
