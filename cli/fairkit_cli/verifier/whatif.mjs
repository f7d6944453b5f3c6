// What if the threshold were another one: rates, differences and verdicts from the page's own score histograms.
// Nothing of it is signed or audited; the panel says so.

import * as arithmetic from "./arithmetic.mjs";
import { judge, ruleText } from "./policy.mjs";

const NAMES = [
  ["demographic_parity_difference", "selection_rate", "difference"], ["demographic_parity_ratio", "selection_rate", "ratio"],
  ["equal_opportunity_difference", "true_positive_rate", "difference"], ["false_positive_rate_difference", "false_positive_rate", "difference"],
  ["accuracy_difference", "accuracy", "difference"],
];
const ALIASES = { selection_rate_difference: "demographic_parity_difference", selection_rate_ratio: "demographic_parity_ratio", true_positive_rate_difference: "equal_opportunity_difference" };
const RATES = ["selection_rate", "true_positive_rate", "false_positive_rate", "accuracy"];

// The counts of a group whose scores from edge number `from` on are favorable.
export function countsAt(bins, from) {
  const count = { selected: 0, right: 0, wrong: 0, positives: 0, rows: 0 };
  bins.forEach(([other, favorable], place) => {
    count.rows += other + favorable;
    count.positives += favorable;
    if (place >= from) { count.selected += other + favorable; count.right += favorable; count.wrong += other; }
  });
  return count;
}

export function ratesOf(count) {
  const negatives = count.rows - count.positives, right = count.right + negatives - count.wrong;
  return {
    selection_rate: [count.selected, count.rows], true_positive_rate: [count.right, count.positives],
    false_positive_rate: [count.wrong, negatives], accuracy: [right, count.rows],
  };
}

// Everything that follows from thresholds, one edge for each group: rates, disparities and the verdicts of rules.
export function outcome({ groups, confidence, sensitive, rules, least }, edges) {
  const names = Object.keys(groups), rates = new Map(names.map((name, i) => [name, ratesOf(countsAt(groups[name], edges[i]))]));
  const shares = Object.fromEntries(RATES.map(rate => [rate, names.filter(name => rates.get(name)[rate][1] > 0)
    .map(name => ({ group: name, rate: rates.get(name)[rate][0] / rates.get(name)[rate][1], n: rates.get(name)[rate][1] }))]));
  const z = arithmetic.twoSided(confidence);
  const each = names.map(name => ({
    name, rates: Object.fromEntries(RATES.map(rate => {
      const [count, over] = rates.get(name)[rate];
      return [rate, over > 0 ? [count / over, ...arithmetic.shareLimits(count / over, over, z)] : null];
    })),
  }));
  const made = NAMES.map(([metric, rate, kind]) => [metric, shares[rate].length < 2 ? null : kind === "ratio" ? arithmetic.spreadRatio(shares[rate], confidence) : arithmetic.spreadDifference(shares[rate], confidence), shares[rate]]);
  const odds = arithmetic.oddsDifference(shares.true_positive_rate, shares.false_positive_rate, confidence);
  made.push(["equalized_odds_difference", odds, [...shares.true_positive_rate, ...shares.false_positive_rate]]);
  const findings = new Map(made.map(([metric, spread, over]) => [metric, {
    metric, sensitive, value: spread ? spread.value : null, interval: spread && [spread.low, spread.high], parameters: {}, evidence: {},
    inconclusive: over.some(one => one.n < least) ? "a group is too small" : null,
  }]));
  const judged = rules.map(rule => {
    const finding = findings.get(ALIASES[rule.metric] ?? rule.metric);
    return { rule, verdict: finding ? judge(rule, finding) : null };
  });
  return { each, disparities: [...findings.values()], judged };
}

const round = value => Number(value.toPrecision(3));
const shown = three => three === null || three[0] === null ? "–" : `${round(three[0])} [${round(three[1])}, ${round(three[2])}]`;

function element(name, given, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(given)) if (value !== null) made.setAttribute(key, value);
  made.append(...children.flat());
  return made;
}
const table = (label, heads, rows) => element("div", { class: "scroll" }, element("table", { "aria-label": label, class: "rows", style: heads.map((text, i) => `--h${i + 1}:"${text}"`).join(";") },
  element("thead", {}, element("tr", {}, heads.map(text => element("th", { scope: "col" }, text)))),
  element("tbody", {}, rows.map(([first, ...rest]) => element("tr", {}, element("th", { scope: "row" }, first), rest.map(text => element("td", {}, text)))))));

function panel(root, number) {
  const told = JSON.parse(root.dataset.scores), names = Object.keys(told.groups), last = told.edges.length - 1;
  const result = element("div", { "aria-live": "polite" }), sliders = [];
  const slider = (label, key) => {
    const id = `whatif-${number}-${key}`, value = element("output", { for: id });
    const input = element("input", { id, type: "range", min: 0, max: last, step: 1, value: told.start });
    input.addEventListener("input", draw);
    const line = element("p", { class: "filter" }, element("label", { for: id }, label, " "), input, " ", value);
    sliders.push({ input, value, line });
    return line;
  };
  const apart = element("input", { id: `whatif-${number}-apart`, type: "checkbox" });
  const all = slider("Threshold for everybody:", "all"), own = names.map((name, i) => slider(`Threshold for ${name}:`, i));
  const box = element("p", { class: "filter" }, apart, " ", element("label", { for: apart.id }, "a threshold for each group"));
  apart.addEventListener("change", () => { if (apart.checked) sliders.slice(1).forEach(one => { one.input.value = sliders[0].input.value; }); draw(); });
  root.append(all, box, ...own, result);

  function draw() {
    own.forEach(line => { line.hidden = !apart.checked; });
    all.hidden = apart.checked;
    for (const { input, value } of sliders) {
      value.textContent = Number(input.value) === last ? `above ${round(told.edges[last])}` : `at least ${round(told.edges[input.value])}`;
      input.setAttribute("aria-valuetext", value.textContent);
    }
    const edges = names.map((_, i) => Number(sliders[apart.checked ? i + 1 : 0].input.value)), found = outcome(told, edges);
    result.replaceChildren(
      table("Rates under these thresholds", ["group", "selected", "true positive rate", "false positive rate", "accuracy"], found.each.map(one => [one.name, ...RATES.map(rate => shown(one.rates[rate]))])),
      table("Disparities under these thresholds", ["between groups", "value and interval"], found.disparities.map(one => [one.metric, one.value === null ? "–" : shown([one.value, ...one.interval])])),
      ...(found.judged.length ? [table("Policy under these thresholds", ["rule", "verdict"], found.judged.map(one => [ruleText(one.rule), one.verdict ?? "not from histograms"]))] : []),
    );
  }
  draw();
  root.hidden = false;
}

export function start(place) {
  place.querySelectorAll(".whatif[data-scores]").forEach(panel);
}
