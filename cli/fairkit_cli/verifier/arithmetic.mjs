// Intervals of rates from counts: the formulas of fairkit.intervals, written a second time.
// Everything here is a pure function of numbers; node runs it in the tests against the audit's own code.

const FEW = 25; // below so many counted or not counted rows limits are exact
const MANY = 4, EVEN = 0.7; // from so many groups of similar precision on, the upper end may use a smaller factor
const SQRT2 = Math.sqrt(2);

// erf by its series up to 3, beyond by the continued fraction of erfc (Abramowitz & Stegun 7.1.6, 7.1.14)
export function erf(x) {
  if (x < 0) return -erf(-x);
  if (x > 6) return 1;
  if (x < 3) {
    let term = x, total = x;
    for (let n = 1; term > total * 1e-17; n++) { term *= 2 * x * x / (2 * n + 1); total += term; }
    return 2 / Math.sqrt(Math.PI) * Math.exp(-x * x) * total;
  }
  let fraction = 0;
  for (let k = 60; k > 0; k--) fraction = k / 2 / (x + fraction);
  return 1 - Math.exp(-x * x) / Math.sqrt(Math.PI) / (x + fraction);
}

export const normalCdf = x => 0.5 * (1 + erf(x / SQRT2));
const density = x => Math.exp(-x * x / 2) / Math.sqrt(2 * Math.PI);

// a rational start (Abramowitz & Stegun 26.2.23), then Newton's steps
export function normalQuantile(p) {
  if (p < 0.5) return -normalQuantile(1 - p);
  const t = Math.sqrt(-2 * Math.log(1 - p));
  let x = t - (2.515517 + 0.802853 * t + 0.010328 * t * t) / (1 + 1.432788 * t + 0.189269 * t * t + 0.001308 * t ** 3);
  for (let i = 0; i < 30; i++) {
    const step = (normalCdf(x) - p) / density(x);
    x -= step;
    if (Math.abs(step) < 1e-15 * Math.max(1, Math.abs(x))) break;
  }
  return x;
}

const remembered = (maker, most = 20000) => {
  const known = new Map();
  return (...given) => {
    const key = given.join();
    if (!known.has(key)) { if (known.size > most) known.clear(); known.set(key, maker(...given)); }
    return known.get(key);
  };
};

export const twoSided = remembered(confidence => normalQuantile(0.5 + confidence / 2));
export const guarded = confidence => 1 - 0.8 * (1 - confidence);

// log P(at most k of n), k whole and n real, for k below 26: the last term, and the sum relative to it
function logBinomialCdf(k, n, p, logChoose) {
  let term = 1, total = 1;
  for (let j = k; j > 0; j--) { term *= j / (n - j + 1) * ((1 - p) / p); total += term; }
  return logChoose + k * Math.log(p) + (n - k) * Math.log1p(-p) + Math.log(total);
}

// false position with halving (Illinois) for a function that changes its sign once
function root(f, low, high) {
  let below = f(low), above = f(high), side = 0;
  for (let i = 0; i < 300; i++) {
    const middle = (low * above - high * below) / (above - below), value = f(middle);
    if (value === 0 || Math.abs(high - low) <= 1e-15 * Math.abs(high)) return middle;
    if ((value < 0) === (below < 0)) { if (side < 0) above /= 2; low = middle; below = value; side = -1; }
    else { if (side > 0) below /= 2; high = middle; above = value; side = 1; }
    if (Math.abs(value) < 1e-16) return middle;
  }
  return (low + high) / 2;
}

function ofWhole(count, n, z) {
  const tail = normalCdf(-Math.abs(z));
  const solve = (k, target) => {
    let logChoose = 0;
    for (let j = 0; j < k; j++) logChoose += Math.log((n - j) / (j + 1));
    const f = p => logBinomialCdf(k, n, p, logChoose) - Math.log(target);
    let high = Math.min((k + 1) / n, 0.5);
    while (f(high) > 0) high += (1 - high) / 2;
    let low = high / 2;
    while (f(low) < 0) low /= 2;
    return root(f, low, high);
  };
  return [count < 1 ? 0 : solve(count - 1, 1 - tail), count >= n ? 1 : solve(count, tail)];
}

function exactLimits(rate, n, z) {
  let count = Math.min(rate, 1 - rate) * n;
  const whole = Math.round(count);
  if (Math.abs(count - whole) < 1e-9 * Math.max(n, 1)) count = whole;
  const below = Math.floor(count), part = count - below;
  let [low, high] = ofWhole(below, n, z);
  if (part > 0) {
    const more = ofWhole(Math.min(below + 1, n), n, z);
    low += part * (more[0] - low);
    high += part * (more[1] - high);
  }
  return rate > 0.5 ? [1 - high, 1 - low] : [low, high];
}

export function wilson(rate, n, z) {
  const scale = 1 / (1 + z * z / n), centre = (rate + z * z / (2 * n)) * scale;
  const half = z * Math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n)) * scale;
  return [centre - half, centre + half];
}

// limits of a share: exact where few rows count or do not, else Wilson's, moved by skewness and a quarter of a row
export const shareLimits = remembered((rate, n, z) => {
  if (Math.min(rate, 1 - rate) * n < FEW - 1e-9) return exactLimits(rate, n, z);
  const [low, high] = wilson(rate, n, z);
  const skew = (z * z - 1) * (1 - 2 * rate) / (6 * n), part = 0.25 / n;
  return [Math.min(Math.max(low - skew - part, 0), rate), Math.max(Math.min(high - skew + part, 1), rate)];
});

// the normal distribution function, linear between the points of a grid: the factors are defined on it
function gridded(low, high, points) {
  const step = (high - low) / (points - 1);
  let table = null;
  return x => {
    if (x <= low) return 0;
    if (x >= high) return 1;
    table ??= Float64Array.from({ length: points }, (_, i) => normalCdf(low + step * i));
    const place = Math.min(Math.floor((x - low) / step), points - 2), part = (x - (low + step * place)) / step;
    return table[place] + part * (table[place + 1] - table[place]);
  };
}
const rangeCdf = gridded(-9, 9, 7201), selectionCdf = gridded(-9, 9, 3601);

function trapezoid(f, low, high, points) {
  const step = (high - low) / (points - 1);
  let total = (f(low) + f(low + step * (points - 1))) / 2;
  for (let i = 1; i < points - 1; i++) total += f(low + step * i);
  return total * step;
}

// the quantile of the range of k standard normals: k ∫ φ(x) [Φ(x) - Φ(x - q)]^(k-1) dx = confidence (Tukey 1953)
export const studentisedRange = remembered((groups, confidence) => {
  const f = q => groups * trapezoid(x => density(x) * Math.max(normalCdf(x) - rangeCdf(x - q), 0) ** (groups - 1), -9, 9, 1801) - confidence;
  return root(f, twoSided(confidence), 50);
});

export const pairwiseQuantile = (groups, confidence) =>
  groups <= 2 ? twoSided(confidence) : studentisedRange(groups, confidence) / SQRT2;

// the factor that bounds the largest of many differences from above (fairkit.limits derives it)
const selected = remembered((groups, tenths, twentieths, tail) => {
  const apart = tenths / 10, scale = Math.max(twentieths, 1) / 20, others = groups - 2;
  const inside = factor => {
    const width = SQRT2 * (apart - factor), shift = apart / SQRT2;
    if (width <= 0) return 0;
    return trapezoid(x => {
      const left = selectionCdf(x + width + shift) - selectionCdf(x + shift);
      const right = selectionCdf(x + width - shift) - selectionCdf(x - shift);
      const middle = selectionCdf((x + width) / scale) - selectionCdf(x / scale);
      return (density(x + shift) * right + density(x - shift) * left) * middle ** others
        + others * density(x / scale) / scale * left * right * middle ** (others - 1);
    }, -shift - 6, shift + 6, 301);
  };
  let low = 0, high = normalQuantile(1 - tail);
  for (let i = 0; i < 16; i++) {
    const middle = (low + high) / 2;
    if (inside(middle) > tail) low = middle; else high = middle;
  }
  return high;
});

export function selectedQuantile(groups, apart, evenness, tail) {
  const z = normalQuantile(1 - tail);
  if (groups <= 2 || apart > 4 + 2 * z) return z;
  return selected(groups, Math.ceil(apart * 10 - 1e-9), Math.floor(evenness * 20 + 1e-9), tail);
}

// a group is {rate, n}; its ends are [rate, low, high]
const endsOf = (groups, z) => groups.map(({ rate, n }) => [rate, ...shareLimits(rate, n, z)]);

// limits of a - b from those of the two (Newcombe's method 10)
export function differenceLimits([p, pl, ph], [q, ql, qh]) {
  return [p - q - Math.hypot(p - pl, qh - q), p - q + Math.hypot(ph - p, q - ql)];
}

// limits of a / b from those of the two (Donner & Zou 2012)
export function ratioLimits([p, pl, ph], [q, ql, qh]) {
  const under = qh * (2 * q - qh), over = ql * (2 * q - ql);
  let low, high = Infinity;
  if (2 * q - qh > 0) {
    const inside = (p * q) ** 2 - pl * qh * (2 * p - pl) * (2 * q - qh);
    low = (p * q - Math.sqrt(Math.max(inside, 0))) / under;
  } else low = pl / Math.max(qh, 1e-300);
  if (ql > 0) {
    const inside = (p * q) ** 2 - ph * ql * (2 * p - ph) * (2 * q - ql);
    high = (p * q + Math.sqrt(Math.max(inside, 0))) / over;
  }
  return [Math.max(low, 0), high];
}

const factors = (groups, confidence) => {
  const inner = pairwiseQuantile(groups, guarded(confidence));
  return [inner, groups <= 2 ? inner : twoSided(confidence)];
};

function absoluteEnds(ends) {
  let low = 0, high = 0;
  for (let i = 0; i < ends.length; i++) for (let j = i + 1; j < ends.length; j++) {
    const [down, up] = differenceLimits(ends[i], ends[j]);
    low = Math.max(low, down, -up);
    high = Math.max(high, up, -down);
  }
  return [low, high];
}

// largest minus smallest rate of two or more groups
export function spreadDifference(groups, confidence) {
  const rates = groups.map(one => one.rate), [inner, outer] = factors(groups.length, confidence);
  const outside = endsOf(groups, outer);
  let high = absoluteEnds(outside)[1];
  if (groups.length >= MANY) {
    const errors = outside.map(([, low, most]) => (most - low) / (2 * outer));
    const least = Math.min(...errors), evenness = Math.max(...errors) > 0 ? least / Math.max(...errors) : 0;
    const tail = normalCdf(-outer);
    for (let i = 0; i < 6 && evenness >= EVEN; i++) {
      const factor = selectedQuantile(groups.length, high / (SQRT2 * least), evenness, tail);
      if (factor >= outer) break;
      high = absoluteEnds(endsOf(groups, factor))[1];
    }
  }
  return { value: Math.max(...rates) - Math.min(...rates), low: absoluteEnds(endsOf(groups, inner))[0], high };
}

// smallest rate over the largest; null where all are 0
export function spreadRatio(groups, confidence) {
  const rates = groups.map(one => one.rate), most = Math.max(...rates);
  if (!(most > 0)) return null;
  const [inner, outer] = factors(groups.length, confidence);
  const over = (z, side) => {
    const ends = endsOf(groups, z);
    let least = Infinity;
    for (let i = 0; i < ends.length; i++) for (let j = 0; j < ends.length; j++)
      if (i !== j) least = Math.min(least, ratioLimits(ends[i], ends[j])[side]);
    return least;
  };
  return { value: Math.min(...rates) / most, low: Math.max(over(outer, 0), 0), high: Math.min(over(inner, 1), 1) };
}

// equalized odds and gap_max: the larger of the two rates' differences, each family at the square root of the confidence
export function oddsDifference(positive, negative, confidence) {
  const families = [positive, negative].filter(one => one.length >= 2);
  const parts = families.map(one => spreadDifference(one, Math.sqrt(confidence))), single = families.map(one => spreadDifference(one, confidence));
  const most = (from, key) => Math.max(...from.map(one => one[key]));
  return parts.length ? { value: most(parts, "value"), low: most(parts, "low"), high: most(single, "high") } : null;
}
