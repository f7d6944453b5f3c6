// A statement held against itself: what follows from signed counts is computed again, and the policy is judged again.

import * as arithmetic from "./arithmetic.mjs";
import { UNKNOWNS, ends, judge, object, ruleText } from "./policy.mjs";

const OVER = {
  selection_rate: "rows", accuracy: "rows", true_positive_rate: "positives", false_negative_rate: "positives",
  false_positive_rate: "negatives", true_negative_rate: "negatives", precision: "selected",
};
const OWNERS = {
  performance_gap: "restricted-dro", dif: "dif", consistency: "consistency", counterfactual_score_change: "consistency", attribution: "why",
  unexplained_difference: "why", gap_without: "why", base_rate_part: "why", true_positive_rate_part: "why", false_positive_rate_part: "why",
};
const PARTS = ["base_rate_part", "true_positive_rate_part", "false_positive_rate_part"];
const ALL_ROWS = new Set(["accuracy", "selection_rate", "mean_prediction", "log_loss", "brier_score", "mean_absolute_error", "mean_squared_error"]);
const BETWEEN = new Set([...ALL_ROWS, "true_positive_rate", "false_positive_rate", "true_negative_rate", "false_negative_rate", "precision"]);
const CLASSES = ["class_gap_rms", "class_gap_mean", "class_gap_max"];
const ROUNDING = 1e-9, SLACK = 1e-6;

const about = (one, other, by = ROUNDING) => Math.abs(one - other) <= by * Math.max(1, Math.abs(one), Math.abs(other));
const known = groups => groups.filter(one => one.value !== null);
export const nameOf = f => `${f.auditor}/${f.metric}` + (f.sensitive === null ? "" : `/${f.sensitive}`)
  + (f.reference ? ` against ${f.reference}` : "") + (f.within?.length ? ` | ${f.within.join("+")}` : "");
const classOf = f => String(f.parameters.class ?? "");
const isPlain = f => !f.reference && !f.within?.length && !("probabilities" in f.parameters);

// What a metric's name says: range, direction, how it is made; from the table of what fairkit's plugins declare.
export function factsOf(declared) {
  const facts = new Map();
  for (const [name, { range: [low, high], better, alias }] of Object.entries(declared.metrics)) {
    const [least, most] = [low ?? -Infinity, high ?? Infinity], spread = Number.isFinite(most - least) ? most - least : Infinity;
    facts.set(name, { low: least, high: most, better, kind: "value", base: null });
    for (const stem of [name, alias].filter(Boolean)) {
      facts.set(`${stem}_difference`, { low: 0, high: spread, better: "lower", kind: "difference", base: name });
      facts.set(`${stem}_ratio`, { low: 0, high: 1, better: "higher", kind: "ratio", base: name });
    }
    facts.set(`${name}_group_min`, { low: least, high: most, better, kind: "smallest", base: name });
    facts.set(`${name}_group_max`, { low: least, high: most, better, kind: "largest", base: name });
  }
  for (const name of ["equalized_odds_difference", "gap_max", "gap_rms", ...CLASSES]) facts.set(name, { low: 0, high: 1, better: "lower", kind: "", base: null });
  facts.set("equalized_odds_ratio", { low: 0, high: 1, better: "higher", kind: "", base: null });
  facts.set("statistical_parity_ks", { low: 0, high: 1, better: "lower", kind: "largest", base: null });
  facts.set("worst_group_loss", { low: 0, high: Infinity, better: "lower", kind: "largest", base: null });
  return facts;
}

// Looks at a predicate: {contradictions: [{code, ...}], recomputed: Map(finding -> difference), left: Map(finding -> why)}
export function examine(body, declared) {
  return new Examination(body, declared).all();
}

class Examination {
  constructor(body, declared) {
    this.body = body;
    this.declared = declared;
    this.facts = factsOf(declared);
    this.settings = body.settings;
    this.data = this.settings.data ?? {};
    this.found = [];
    this.recomputed = new Map();
    this.left = new Map();
    this.plain = body.findings.filter(isPlain);
    this.weighted = this.data.weights != null;
    this.dependent = this.data.cluster != null || this.data.query != null;
    const own = this.settings.parameters?.group ?? {}, usual = declared.auditors.group.defaults;
    this.least = Number(own.min_group ?? usual.min_group);
    this.binding = Number(own.missing_share ?? usual.missing_share);
  }

  say(code, given = {}) { this.found.push({ code, ...given }); }

  all() {
    this.rows();
    this.ofSettings();
    const asked = new Set(this.settings.auditors ?? []);
    for (const finding of this.body.findings) {
      if (this.declared.auditors[finding.auditor]?.headlines.includes(finding.metric)) this.ofOwnAuditor(finding, asked);
      else if ((OWNERS[finding.metric] ?? finding.auditor) !== finding.auditor) this.say("foreign-metric", { name: nameOf(finding), owner: OWNERS[finding.metric] });
      else if (isPlain(finding)) this.ofFinding(finding, asked);
      else this.ofCondition(finding);
    }
    this.twice();
    this.leftOut();
    this.pooled();
    this.counts();
    this.references();
    this.missing();
    const verdicts = this.policy();
    for (const finding of this.body.findings)
      if (!this.recomputed.has(finding) && !this.left.has(finding)) this.left.set(finding, this.reasonLeft(finding));
    return { contradictions: this.found, recomputed: this.recomputed, left: this.left, verdicts };
  }

  reasonLeft(finding) {
    if (finding.value === null) return "no-value";
    if (finding.auditor !== "group") return "another-auditor";
    if (this.weighted) return "weights";
    if (this.dependent) return "dependent";
    return "not-counts";
  }

  rows() {
    for (const [sensitive, sizes] of Object.entries(this.body.data.groups)) {
      const total = Object.values(sizes).reduce((sum, one) => sum + one, 0) + (this.body.data.missing?.[sensitive] ?? 0);
      if (total !== this.body.data.rows) this.say("rows-do-not-add-up", { sensitive, total, rows: this.body.data.rows });
    }
  }

  ofSettings() {
    const { settings, body } = this;
    for (const key of ["confidence", "seed"]) if (settings[key] !== body[key]) this.say("settings-differ", { key, settings: settings[key], report: body[key] });
    if ((settings.adjustment ?? null) !== (body.adjustment ?? null)) this.say("settings-differ", { key: "adjustment", settings: settings.adjustment, report: body.adjustment });
    const columns = this.data.sensitive;
    if (Array.isArray(columns) && columns.length !== Object.keys(body.data.groups).length) this.say("other-columns", { settings: columns.join(", ") });
    for (const [key, stated] of [["label", body.data.label], ["favorable", body.data.favorable]])
      if (stated != null && this.data[key] == null) this.say("settings-differ", { key, settings: this.data[key], report: stated });
  }

  place(finding, value, interval, group) {
    const more = { name: nameOf(finding), group, value };
    if (!interval) return;
    const [low, high] = ends(interval);
    if (low > high) this.say("reversed", more);
    else if (value === null) this.say("interval-without-value", more);
    else if ((low > value && !about(low, value)) || (value > high && !about(value, high))) this.say("outside-interval", { ...more, low, high });
  }

  ofFinding(finding, asked) {
    const name = nameOf(finding), fact = finding.auditor === "group" ? this.facts.get(finding.metric) : undefined;
    if (asked.size && !asked.has(finding.auditor)) this.say("foreign-auditor", { name, auditor: finding.auditor });
    const owner = OWNERS[finding.metric] ?? (this.facts.has(finding.metric) ? "group" : finding.auditor);
    if (owner !== finding.auditor) this.say("foreign-metric", { name, owner });
    this.place(finding, finding.value, finding.interval);
    if (!about(finding.confidence, this.body.confidence)) this.say("other-confidence", { name, confidence: finding.confidence });
    if (fact) this.range(finding, fact, name);
    this.bounds(finding, name);
    for (const group of [...finding.groups, ...(finding.missing ? [finding.missing] : [])]) {
      this.place(finding, group.value, group.interval, group.group);
      if (group.rows > this.body.data.rows) this.say("too-many-rows", { name, group: group.group });
    }
    if (finding.auditor === "group" && finding.sensitive !== null) {
      if (fact && fact.kind && fact.kind !== "value") this.disparity(finding, fact, name);
      this.groups(finding, name);
    }
    if (!this.dependent) this.width(finding, fact, name);
    this.forms(finding, name);
  }

  // against an auditor's own counts, where it signs some
  ofOwnAuditor(finding, asked) {
    const name = nameOf(finding);
    if (asked.size && !asked.has(finding.auditor)) this.say("foreign-auditor", { name, auditor: finding.auditor });
    this.place(finding, finding.value, finding.interval);
    if (finding.auditor === "why" && PARTS.includes(finding.metric) && Array.isArray(finding.evidence.counts_group)) {
      const again = partOf(finding.evidence, PARTS.indexOf(finding.metric), finding.confidence);
      this.compare(finding, again);
    }
  }

  ofCondition(finding) {
    this.place(finding, finding.value, finding.interval);
    for (const part of [...finding.groups, ...(finding.strata ?? [])]) this.place(finding, part.value, part.interval, part.group ?? part.stratum);
    if (!("probabilities" in finding.parameters) && !(finding.sensitive in this.body.data.groups)) this.say("no-such-groups", { name: nameOf(finding) });
  }

  range(finding, fact, name) {
    if (finding.better !== fact.better) this.say("other-direction", { name, better: finding.better, right: fact.better });
    const inside = (value, of) => value >= of.low - ROUNDING && value <= of.high + ROUNDING;
    const group = (fact.base && this.facts.get(fact.base)) || fact;
    if (finding.value !== null && !inside(finding.value, fact)) this.say("out-of-range", { name, value: finding.value });
    if (finding.groups.some(one => one.value !== null && !inside(one.value, group))) this.say("out-of-range", { name, value: null });
    if (finding.interval && !ends(finding.interval).every(end => inside(end, fact))) this.say("interval-out-of-range", { name });
  }

  bounds(finding, name) {
    const bound = finding.evidence.upper_confidence_bound;
    if (bound === undefined || bound === null) return;
    if (finding.auditor === "group") this.say("foreign-bound", { name });
    else if (typeof bound !== "number") this.say("no-bound", { name });
    else if (finding.value !== null && bound < finding.value && !about(bound, finding.value)) this.say("bound-below-value", { name });
  }

  disparity(finding, fact, name) {
    const values = known(finding.groups).map(one => one.value), most = Math.max(...values), least = Math.min(...values);
    let again = null;
    if (fact.kind === "smallest" || fact.kind === "largest") again = values.length ? (fact.kind === "smallest" ? least : most) : null;
    else if (values.length >= 2) again = fact.kind === "difference" ? most - least : most > 0 && least >= 0 ? least / most : null;
    if (again === null && finding.value !== null) this.say("fewer-than-two-groups", { name });
    else if (again !== null && finding.value !== null && !about(again, finding.value)) this.say("groups-give-another", { name, value: finding.value, again });
  }

  groups(finding, name) {
    const sizes = this.body.data.groups[finding.sensitive];
    if (!sizes) return this.say("no-such-groups", { name });
    const stated = new Map(finding.groups.map(one => [one.group, one.rows]));
    if (stated.size !== finding.groups.length) this.say("group-twice", { name });
    const same = stated.size === Object.keys(sizes).length && [...stated].every(([group, rows]) => sizes[group] === rows);
    if (finding.groups.length && !same) this.say("other-groups", { name });
    const without = this.body.data.missing?.[finding.sensitive] ?? 0;
    if (finding.missing && finding.missing.rows !== without) this.say("other-groups", { name });
    if (finding.value === null || finding.inconclusive !== null && finding.inconclusive !== undefined) return undefined;
    if (!finding.groups.length && this.facts.has(finding.metric) && !CLASSES.includes(finding.metric)) this.say("no-groups", { name });
    const small = finding.groups.find(one => one.rows < this.least);
    if (small) this.say("small-group", { name, group: small.group, rows: small.rows });
    const unknown = finding.groups.find(one => one.value === null);
    if (unknown) this.say("unknown-group", { name, group: unknown.group });
    return undefined;
  }

  // an interval of a difference is not narrower than the limits of its groups allow
  width(finding, fact, name) {
    const groups = known(finding.groups);
    if (!fact || finding.auditor !== "group" || fact.kind !== "difference" || !finding.interval || groups.length < 2 || groups.length >= 4) return;
    if (!groups.every(one => one.interval && one.interval.every(Number.isFinite))) return;
    let least = 0, most = 0;
    for (const a of groups) for (const b of groups) if (a !== b) {
      const [low, high] = arithmetic.differenceLimits([a.value, ...a.interval], [b.value, ...b.interval]);
      least = Math.max(least, low);
      most = Math.max(most, high);
    }
    const slack = SLACK * Math.max(1, most), [low, high] = ends(finding.interval);
    if (high < most - slack || low > least + slack) this.say("too-narrow", { name, low: least, high: most });
  }

  forms(finding, name) {
    const finite = value => typeof value === "number" && Number.isFinite(value);
    for (const key of UNKNOWNS) {
      const told = finding.evidence[key];
      if (told === undefined || told === null) continue;
      const both = object(told) ? [told.low, told.high] : [];
      const whole = object(told) && (both.every(finite) || both.every(one => one === null)) && typeof told.binding === "boolean" && typeof told.reason === "string" && finite(told.stretch);
      if (!whole) this.say("no-bounds", { name, key });
    }
    const counts = finding.evidence.score_counts;
    if (!this.weighted && finding.auditor === "group" && Array.isArray(counts) && finding.groups.length) {
      const width = Math.floor(counts.length / finding.groups.length);
      if (width * finding.groups.length !== counts.length || !counts.every(finite)) this.say("chart-form", { name });
      else finding.groups.forEach((group, place) => {
        const total = counts.slice(place * width, (place + 1) * width).reduce((sum, one) => sum + one, 0);
        if (Math.abs(total - group.rows) > 1e-3 * Math.max(1, group.rows)) this.say("chart-rows", { name, group: group.group });
      });
    }
  }

  twice() {
    const seen = new Set();
    for (const finding of this.body.findings) {
      const key = nameOf(finding) + JSON.stringify(Object.entries(finding.parameters).sort((a, b) => (a[0] < b[0] ? -1 : 1)));
      if (seen.has(key)) this.say("twice", { name: nameOf(finding) });
      seen.add(key);
    }
  }

  leftOut() {
    const stated = new Map(Object.keys(this.body.data.groups).map(one => [one, new Set()])), everywhere = new Set();
    for (const finding of this.plain) {
      const fact = this.facts.get(finding.metric);
      if (finding.auditor !== "group" || !stated.has(finding.sensitive) || !fact || !(["difference", "ratio"].includes(fact.kind) || !fact.base)) continue;
      const key = `${finding.metric} ${classOf(finding)}`.trim();
      stated.get(finding.sensitive).add(key);
      everywhere.add(key);
    }
    for (const [sensitive, names] of stated) {
      const lost = [...everywhere].find(one => !names.has(one));
      if (lost) this.say("left-out", { name: lost, sensitive });
    }
  }

  pooled() {
    const overall = new Map(this.plain.filter(one => one.auditor === "group" && one.sensitive === null).map(one => [`${one.metric} ${classOf(one)}`, one]));
    for (const finding of this.plain) {
      const fact = this.facts.get(finding.metric);
      if (finding.auditor !== "group" || !fact || fact.kind !== "difference") continue;
      if (this.body.data.missing?.[finding.sensitive] && !finding.missing) continue;
      const whole = overall.get(`${fact.base} ${classOf(finding)}`), lines = [...finding.groups, ...(finding.missing ? [finding.missing] : [])];
      const values = known(lines).map(one => one.value);
      if (!whole || whole.value === null || !values.length || !BETWEEN.has(fact.base)) continue;
      if (whole.value < Math.min(...values) - ROUNDING || whole.value > Math.max(...values) + ROUNDING) this.say("whole-outside", { name: nameOf(whole), sensitive: finding.sensitive });
      else if (ALL_ROWS.has(fact.base) && !this.weighted && values.length === lines.length) {
        const mean = lines.reduce((sum, one) => sum + one.rows * one.value, 0) / lines.reduce((sum, one) => sum + one.rows, 0);
        if (Math.abs(mean - whole.value) > 1e-6 * Math.max(1, Math.abs(mean))) this.say("whole-not-the-mean", { name: nameOf(whole), sensitive: finding.sensitive });
      }
    }
  }

  // rates as counts of people: shares of the same rows, and every interval from them
  counts() {
    if (this.weighted || ["regression", "ranking"].includes(this.task())) return;
    const places = new Map(), whole = new Map();
    for (const finding of this.plain) {
      const fact = this.facts.get(finding.metric);
      if (finding.auditor !== "group" || !fact) continue;
      const label = classOf(finding);
      if (finding.sensitive === null && finding.metric in OVER) add(whole, label, finding);
      else if (finding.sensitive !== null && (fact.base in OVER || ["equalized_odds_difference", "equalized_odds_ratio", "gap_max", "gap_rms"].includes(finding.metric)))
        add(places, JSON.stringify([finding.sensitive, label]), finding);
    }
    for (const [key, findings] of places) this.column(JSON.parse(key), findings, whole.get(JSON.parse(key)[1]) ?? []);
  }

  task() { return this.body.model?.task ?? this.body.predictions?.task ?? this.body.task; }

  column([sensitive], findings, whole) {
    const differences = new Map(), shares = new Map(), rows = new Map();
    for (const finding of findings) {
      const fact = this.facts.get(finding.metric);
      if (fact.kind === "difference" && finding.metric === `${fact.base}_difference`) differences.set(fact.base, finding);
    }
    for (const [rate, finding] of differences)
      for (const group of [...finding.groups, ...(finding.missing ? [finding.missing] : [])]) {
        rows.set(group.group, group.rows);
        if (group.value !== null && group.denominator > 0) {
          if (!shares.has(group.group)) shares.set(group.group, {});
          shares.get(group.group)[rate] = { value: group.value, over: group.denominator, count: group.value * group.denominator };
        }
      }
    for (const [group, own] of shares) this.identities(sensitive, group, own, rows.get(group));
    const sharp = [...shares.values()].every(own => Object.values(own).every(one => Math.abs(one.count - Math.round(one.count)) <= SLACK + 1e-9 * one.over));
    for (const finding of findings) {
      if (!sharp) { this.left.set(finding, "drawn"); continue; }
      if (this.dependent) { this.left.set(finding, "dependent"); continue; }
      this.interval(finding, differences);
    }
    const missing = [...differences.values()].map(one => one.missing ?? null);
    if (missing.every(Boolean) || !missing.some(Boolean))
      for (const finding of whole) this.overall(finding, shares, sensitive, sharp);
  }

  identities(sensitive, group, own, rows) {
    const slack = SLACK + 1e-9 * rows, over = { rows };
    for (const [rate, share] of Object.entries(own)) {
      over[OVER[rate]] ??= share.over;
      if (Math.abs(over[OVER[rate]] - share.over) > slack) return this.say("not-shares-of-the-same-rows", { sensitive, group });
    }
    for (const kind of ["positives", "negatives"])
      if (kind in over && Math.abs(over[kind] - Math.round(over[kind])) > slack) return this.say("not-whole", { sensitive, group });
    if ("positives" in over && "negatives" in over && Math.abs(over.positives + over.negatives - rows) > slack) return this.say("not-shares-of-the-same-rows", { sensitive, group });
    const yes = own.true_positive_rate ?? own.false_negative_rate, no = own.false_positive_rate ?? own.true_negative_rate;
    if (!yes && !no) return undefined;
    const positives = yes ? yes.over : rows - no.over;
    const right = own.true_positive_rate ? own.true_positive_rate.count : yes ? yes.over - yes.count : 0;
    const wrong = own.false_positive_rate ? own.false_positive_rate.count : no ? no.over - no.count : 0;
    const said = {
      selection_rate: right + wrong, accuracy: right + rows - positives - wrong, true_positive_rate: right,
      false_negative_rate: positives - right, false_positive_rate: wrong, true_negative_rate: rows - positives - wrong,
    };
    for (const [rate, share] of Object.entries(own))
      if (rate in said && Math.abs(share.count - said[rate]) > slack) return this.say("not-shares-of-the-same-rows", { sensitive, group });
    if (own.precision && Math.abs(own.precision.value * (right + wrong) - right) > slack) this.say("not-shares-of-the-same-rows", { sensitive, group });
    return undefined;
  }

  sharesOf(finding) {
    return finding.groups.filter(one => one.value !== null && one.denominator > 0)
      .map(one => ({ group: one.group, rate: one.value, n: one.denominator, interval: one.interval }));
  }

  interval(finding, differences) {
    const fact = this.facts.get(finding.metric), confidence = finding.confidence;
    if (finding.value === null) return;
    if (!fact.base) {
      const [positive, negative] = ["true_positive_rate", "false_positive_rate"].map(rate => differences.get(rate));
      if (!positive || !negative) return;
      const [first, second] = [this.sharesOf(positive), this.sharesOf(negative)];
      const make = { equalized_odds_difference: arithmetic.oddsDifference, gap_max: arithmetic.oddsDifference, equalized_odds_ratio: arithmetic.oddsRatio, gap_rms: arithmetic.gapRms }[finding.metric];
      this.compare(finding, make(first, second, confidence));
      return;
    }
    const base = differences.get(fact.base);
    if (!base) return;
    const groups = this.sharesOf(base);
    if (finding !== base && JSON.stringify(finding.groups.map(one => [one.group, one.value, one.interval, one.denominator])) !== JSON.stringify(base.groups.map(one => [one.group, one.value, one.interval, one.denominator])))
      this.say("groups-differ", { name: nameOf(finding) });
    let worst = 0;
    for (const one of groups) {
      if (!one.interval) continue;
      const again = arithmetic.shareLimits(one.rate, one.n, arithmetic.twoSided(confidence));
      worst = Math.max(worst, distance(one.interval, again));
      if (distance(one.interval, again) > SLACK) this.say("count-gives-another", { name: nameOf(finding), group: one.group, low: again[0], high: again[1] });
    }
    if (groups.length < (fact.kind === "difference" || fact.kind === "ratio" ? 2 : 1)) return;
    const again = fact.kind === "difference" ? arithmetic.spreadDifference(groups, confidence)
      : fact.kind === "ratio" ? arithmetic.spreadRatio(groups, confidence) : arithmetic.extreme(groups, confidence, fact.kind === "largest");
    this.compare(finding, again, worst);
  }

  overall(finding, shares, sensitive, sharp) {
    const parts = [...shares.values()].map(own => own[finding.metric]).filter(Boolean), over = parts.reduce((sum, one) => sum + one.over, 0);
    if (finding.value === null || !parts.length || !(over > 0) || (finding.metric === "precision" && !sharp)) return;
    const again = parts.reduce((sum, one) => sum + one.count, 0) / over;
    if (Math.abs(again - finding.value) > 1e-9 + SLACK / over) this.say("whole-not-the-mean", { name: nameOf(finding), sensitive });
    else if (sharp && !this.dependent && finding.interval) {
      const [low, high] = arithmetic.shareLimits(again, over, arithmetic.twoSided(finding.confidence));
      this.compare(finding, { value: again, low, high });
    }
  }

  // every group against one: Dunnett's factor
  references() {
    if (this.weighted || this.dependent || ["regression", "ranking"].includes(this.task())) return;
    for (const finding of this.body.findings) {
      if (finding.auditor !== "group" || !finding.reference || finding.within?.length || finding.value === null) continue;
      const fact = finding.metric === "impact_ratio" ? { kind: "ratio", base: "selection_rate" } : this.facts.get(finding.metric);
      if (!fact || !(fact.base in OVER) || !["difference", "ratio"].includes(fact.kind)) continue;
      const base = this.plain.find(one => one.auditor === "group" && one.metric === `${fact.base}_difference` && one.sensitive === finding.sensitive && classOf(one) === classOf(finding));
      if (!base || this.left.get(base) === "drawn") continue;
      const groups = this.sharesOf(base), place = groups.findIndex(one => one.group === finding.reference);
      if (place < 0 || groups.length < 2) continue;
      const chosen = (this.data.reference ?? []).some(text => text === `${finding.sensitive}=@highest`);
      const again = arithmetic.againstReference(groups, place, fact.kind, finding.confidence, chosen).filter(Boolean);
      let worst = 0;
      for (const group of finding.groups) {
        const own = again.find(one => one.group === group.group);
        if (!own || group.value === null) continue;
        const apart = Math.max(Math.abs(own.value - group.value), group.interval ? distance(group.interval, [own.low, own.high]) : 0);
        worst = Math.max(worst, apart);
        if (!(apart <= SLACK * Math.max(1, Math.abs(own.value)))) this.say("count-gives-another", { name: nameOf(finding), group: group.group, low: own.low, high: own.high });
      }
      this.recomputed.set(finding, worst);
    }
  }

  compare(finding, again, worst = 0) {
    if (!again) return;
    const apart = Math.max(worst, Math.abs(again.value - finding.value), finding.interval ? distance(finding.interval, [again.low, again.high]) : 0);
    if (!(apart <= SLACK * Math.max(1, Math.abs(again.value)))) this.say("counts-give-another", { name: nameOf(finding), ...again });
    this.recomputed.set(finding, apart);
  }

  missing() {
    for (const finding of this.plain) {
      const fact = this.facts.get(finding.metric), gone = this.body.data.missing?.[finding.sensitive];
      if (!gone || finding.auditor !== "group" || !fact || !["difference", "ratio"].includes(fact.kind) || finding.value === null) continue;
      const told = finding.evidence.missing_bounds;
      if (!object(told)) { this.say("missing-hidden", { name: nameOf(finding), rows: gone }); continue; }
      const low = told.low ?? finding.value, high = told.high ?? finding.value;
      if (low - ROUNDING > finding.value || finding.value > high + ROUNDING) this.say("outside-bounds", { name: nameOf(finding) });
      if ((told.low != null || gone > this.binding * this.body.data.rows) && !told.binding) this.say("missing-not-binding", { name: nameOf(finding) });
    }
  }

  // the policy judged again, from the intervals: one {rule, verdict, again} for each rule
  policy() {
    const order = ["pass", "inconclusive", "fail"], stated = this.body.policy.map(rule => rule.verdict);
    const worst = stated.length ? order[Math.max(...stated.map(one => order.indexOf(one)))] : null;
    if (worst !== this.body.verdict) this.say("another-verdict", { verdict: this.body.verdict, again: worst });
    const limits = rule => JSON.stringify(["metric", "sensitive", "max", "min", "support", "within"].map(key => rule[key] ?? null));
    const told = this.settings.policy;
    if (told?.length && JSON.stringify(told.map(limits)) !== JSON.stringify(this.body.policy.map(limits))) this.say("other-rules");
    return this.body.policy.map(rule => {
      const again = this.judged(rule);
      if (again === undefined) this.say("rule-without-finding", { rule: ruleText(rule) });
      else if (again !== null) {
        const fits = this.body.adjustment == null ? again === rule.verdict : [again, "inconclusive"].includes(rule.verdict);
        if (!fits) this.say("verdict-not-given", { rule: ruleText(rule), verdict: rule.verdict, again });
      }
      return { rule, again: again ?? null };
    });
  }

  // undefined: there is no such finding; null: this page does not judge such a rule
  judged(rule) {
    const inside = JSON.stringify(rule.within ?? []);
    if (rule.metric === "attribution" && rule.sensitive?.includes(".")) return null;
    let named = this.body.findings.filter(one => one.metric === rule.metric && JSON.stringify(one.within ?? []) === inside);
    const unreferred = named.filter(one => !one.reference);
    if (unreferred.length) named = unreferred;
    if (rule.sensitive != null) named = named.filter(one => one.sensitive === rule.sensitive);
    if (!named.length) return undefined;
    const order = ["pass", "inconclusive", "fail"];
    return order[Math.max(...named.map(one => order.indexOf(judge(rule, one))))];
  }
}

const add = (map, key, value) => { if (!map.has(key)) map.set(key, []); map.get(key).push(value); };
const distance = (one, other) => Math.max(...[0, 1].map(i => (one[i] ?? (i ? Infinity : -Infinity)) === other[i] ? 0 : Math.abs(one[i] - other[i])));
// A part of a gap in selection rates from the cells of two groups (Kitagawa 1955), with its limits by the delta method.
function partOf(evidence, place, confidence) {
  const cells = [evidence.counts_group, evidence.counts_reference], design = evidence.design_effects[place];
  const rates = (four, added) => {
    const [nn, ny, yn, yy] = four.map(one => one + added), over = [nn + ny + yn + yy, yn + yy, nn + ny];
    return [(yn + yy) / over[0], yy / over[1], ny / over[2]].map((rate, i) => ({ rate, over: over[i] }));
  };
  const parts = (a, b) => {
    const [pi, t, f] = a.map((one, i) => (one.rate + b[i].rate) / 2), [dPi, dT, dF] = a.map((one, i) => one.rate - b[i].rate);
    return { values: [dPi * (t - f), dT * pi, dF * (1 - pi)], slopes: sign => [[sign * (t - f), dPi / 2, -dPi / 2], [dT / 2, sign * pi, 0], [-dF / 2, 0, sign * (1 - pi)]] };
  };
  const value = parts(...cells.map(one => rates(one, 0))).values[place], smooth = cells.map(one => rates(one, 0.5)), made = parts(...smooth);
  let variance = 0;
  smooth.forEach((group, side) => made.slopes(side ? -1 : 1)[place].forEach((slope, i) => { variance += slope ** 2 * group[i].rate * (1 - group[i].rate) / group[i].over; }));
  const half = arithmetic.twoSided(arithmetic.guarded(confidence)) * Math.sqrt(variance * design), middle = made.values[place];
  return { value, low: Math.min(middle - half, value), high: Math.max(middle + half, value) };
}
