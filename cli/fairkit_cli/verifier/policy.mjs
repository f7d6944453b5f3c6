// One rule of a policy on one finding, judged from its interval.

export const UNKNOWNS = ["missing_bounds", "label_error_bounds", "outcome_error_bounds", "rounding_bounds"];
export const object = value => value !== null && typeof value === "object" && !Array.isArray(value);
export const ends = interval => interval && [interval[0] ?? -Infinity, interval[1] ?? Infinity];

export const ruleText = rule => `${rule.metric}${rule.sensitive == null ? "" : `:${rule.sensitive}`} ${"max" in rule ? `≤ ${rule.max}` : `≥ ${rule.min}`}`;

// true where the whole interval keeps the limit, false where it breaks it, null where it contains it
export function settled(rule, [low, high]) {
  if ("max" in rule) return high <= rule.max ? true : low > rule.max ? false : null;
  return low >= rule.min ? true : high < rule.min ? false : null;
}

// One rule on one finding, at the confidence that is stated (fairkit.results.policy says why).
export function judge(rule, finding) {
  const support = finding.parameters?.support ?? null;
  if ((finding.inconclusive ?? null) !== null || (rule.support != null && support !== rule.support)) return "inconclusive";
  if (finding.value === null || !finding.interval) return "inconclusive";
  const bound = "max" in rule ? finding.evidence?.upper_confidence_bound ?? null : null;
  const interval = ends(finding.interval);
  if (bound !== null) interval[1] = bound;
  const kept = settled(rule, interval);
  if (kept === null) return "inconclusive";
  for (const key of UNKNOWNS) {
    const told = finding.evidence?.[key];
    if (!told || !told.binding) continue;
    if (told.low === null) return "inconclusive";
    const reach = [told.low - told.stretch * (finding.value - interval[0]), told.high + told.stretch * (interval[1] - finding.value)];
    if (settled(rule, reach) === null) return "inconclusive";
  }
  if (!kept) return "fail";
  if (rule.support == null && finding.evidence?.climbs) return "inconclusive";
  const near = finding.evidence?.nearby;
  if (object(near) && settled(rule, [near.nearby_low, near.nearby_high]) === false) {
    const worse = "max" in rule ? near.change_low > 0 : near.change_high < 0;
    if (worse && settled(rule, [near.here_low, near.here_high]) !== false) return "inconclusive";
  }
  return "pass";
}
