"""Bound a network's sums in one box, in whole numbers and fractions: a part of all_inputs_network_check.py.

Every range is a multiple of 2^-60, rounded outward, every slope and multiplier a multiple of 2^-50, and what is computed from
them is exact: no number here is a float. It knows nothing of fairkit, and needs Python alone.
"""

from decimal import Context, Decimal
from fractions import Fraction
from operator import mul

ENDS, SLOPES, ERRORS = 60, 50, 80  # numbers are multiples of 2 to the minus this
ONE = 1 << ENDS


def up(number, scale=ENDS):
    """The least multiple of 2^-scale that is no smaller."""
    return -(-(number.numerator << scale) // number.denominator)


def down(number, scale=ENDS):
    """The largest multiple of 2^-scale that is no larger."""
    return (number.numerator << scale) // number.denominator


def slope(rise, run):
    """A slope, rounded: which one is a matter of width, never of truth."""
    return (rise << SLOPES) // run if run else 0


def below(rule, tilt, ends):
    """The constant of a line below a concave function: it is below it at both ends, so everywhere between them."""
    return min(((rule(z) << SLOPES) - tilt * z) >> SLOPES for z in ends)


def above(rule, tilt, ends):
    """The constant of a line above a convex function."""
    return max(-((tilt * z - (rule(z) << SLOPES)) >> SLOPES) for z in ends)


def relu(z):
    """The larger of z and 0."""
    return max(z, 0)


def unit_lines(least, most):
    """Slopes and constants of the lines below and above relu between two ends."""
    if least < 0 < most:
        tilt = slope(most, most - least)
        return (1 << SLOPES if most > -least else 0, 0, tilt, above(relu, tilt, (least, most)))
    flat = 1 << SLOPES if least >= 0 else 0
    return flat, 0, flat, 0


def difference_lines(least, most, low, high):
    """Lines around relu(z) - relu(z') as functions of z - z', which lies between `low` and `high`."""
    small, large = int(least >= 0), int(most > 0)
    under, over = (lambda t: min(small * t, large * t)), (lambda t: max(small * t, large * t))
    if low < 0 < high:
        tilts = [slope(rule(high) - rule(low), high - low) for rule in (under, over)]
    else:
        tilts = [(small if low >= 0 else large) << SLOPES, (large if high > 0 else small) << SLOPES]
    return tilts[0], below(under, tilts[0], (low, high)), tilts[1], above(over, tilts[1], (low, high))


def back(row, lines):
    """Weights of a layer's values as weights of its sums, for an upper bound, and what is added: scales grow by 50, 60."""
    picked = [line[2:] if weight >= 0 else line[:2] for weight, line in zip(row, lines, strict=True)]
    return [w * line[0] for w, line in zip(row, picked, strict=True)], sum(
        w * line[1] for w, line in zip(row, picked, strict=True)
    )


class Box:
    """The features' ranges in a box: numbers as (feature, least, most), sets as cells of (feature, first, last)."""

    def __init__(self, net, plain, sets):
        self.net, self.plain, self.sets = net, plain, sets

    def most(self, row):
        """The largest weighted sum of features."""
        total = sum(row[j] * (high if row[j] >= 0 else low) for j, low, high in self.plain)
        for cells in self.sets:
            total += max(sum(max(row[j] * one, row[j] * two) for j, one, two in cell) for cell in cells)
        return total

    def sizes(self, sides):
        """The largest absolute value of each feature, with what changes at either value."""
        found = [max(abs(one), abs(two)) for one, two in zip(*sides, strict=True)]
        for j, low, high in self.plain:
            found[j] += max(abs(low), abs(high))
        for cells in self.sets:
            largest = {}
            for cell in cells:
                for j, one, two in cell:
                    largest[j] = max(largest.get(j, 0), abs(one), abs(two))
            for j, size in largest.items():
                found[j] += size
        return found


def followed(net, lines, depth, row, box, side):
    """The largest weighted sum of the values before a layer, by lines that are followed back to the features."""
    scale, total = net["scale"], Fraction(0)
    for index in range(depth - 1, -1, -1):
        layer = net["layers"][index]
        row, more = back(row, lines[index])
        total += Fraction(more, 1 << scale + ENDS)
        scale += SLOPES
        total += Fraction(sum(map(mul, row, layer["bias"])), 1 << scale + net["scale"])
        row = [sum(map(mul, row, column)) for column in layer["columns"]]
        scale += net["scale"]
    return total + Fraction(sum(map(mul, row, side)) + box.most(row), 1 << scale + net["grain"])


def differing(net, lines, depth, row, apart):
    """The largest weighted sum of the differences of the values before a layer."""
    scale, total = net["scale"], Fraction(0)
    for index in range(depth - 1, -1, -1):
        row, more = back(row, lines[index])
        total += Fraction(more, 1 << scale + ENDS)
        row = [sum(map(mul, row, column)) for column in net["layers"][index]["columns"]]
        scale += SLOPES + net["scale"]
    return total + Fraction(sum(map(mul, row, apart)), 1 << scale + net["grain"])


def ranges(net, box, sides, signs):
    """By hidden layer the ends of z, of z' and of z - z' of each unit; None where no input has the signs."""
    lines, differences, ends = ([], []), [], []
    apart = [one - two for one, two in zip(*sides, strict=True)]
    for depth, layer in enumerate(net["layers"][:-1]):
        made, before = [], ends[-1] if ends else []
        for unit, row in enumerate(layer["rows"]):
            turned, bias, own = [-w for w in row], Fraction(layer["bias"][unit], 1 << net["scale"]), []
            for run in (0, 1):
                most = up(followed(net, lines[run], depth, row, box, sides[run]) + bias)
                least = down(bias - followed(net, lines[run], depth, turned, box, sides[run]))
                if depth:  # the arithmetic of intervals, too: it is sometimes tighter
                    pairs = [(relu(one[2 * run]), relu(one[2 * run + 1])) for one in before]
                    sums = [
                        sum(w * pair[(w > 0) == top] for w, pair in zip(row, pairs, strict=True))
                        for top in (True, False)
                    ]
                    most = min(most, up(Fraction(sums[0], 1 << net["scale"] + ENDS) + bias))
                    least = max(least, down(Fraction(sums[1], 1 << net["scale"] + ENDS) + bias))
                own += [least, most]
            high = min(up(differing(net, differences, depth, row, apart)), own[1] - own[2])
            low = max(down(-differing(net, differences, depth, turned, apart)), own[0] - own[3])
            made.append([*own, low, high])
        if signs is not None:
            made = [hold(one, *sign) for one, sign in zip(made, signs[depth], strict=True)]
        if any(one[i] > one[i + 1] for one in made for i in (0, 2, 4)):
            return None
        ends.append(made)
        for run in (0, 1):
            lines[run].append([unit_lines(*one[2 * run : 2 * run + 2]) for one in made])
        differences.append([difference_lines(min(o[0], o[2]), max(o[1], o[3]), *o[4:]) for o in made])
    return ends, lines


def hold(ends, first, second):
    """A unit's ends with the signs of its split sums, and what one run's ends say about the other's."""
    least, most, least2, most2, low, high = ends
    least, most = (max(least, 0) if first > 0 else least), (min(most, 0) if first < 0 else most)
    least2, most2 = (max(least2, 0) if second > 0 else least2), (min(most2, 0) if second < 0 else most2)
    least, least2 = max(least, least2 + low), max(least2, least - high)
    most, most2 = min(most, most2 + high), min(most2, most - low)
    return least, most, least2, most2, max(low, least - most2), min(high, most - least2)


def vertices(ends):
    """The corners of what z and z' can be: relu is linear in each quadrant of that hexagon."""
    least, most, least2, most2, low, high = ends
    least, most = max(least, least2 + low), min(most, most2 + high)
    least2, most2 = max(least2, least - high), min(most2, most - low)
    found = set()
    for z in (least, most, min(max(0, least), most)):
        found |= {(z, max(least2, z - high)), (z, min(most2, z - low))}
    for z in (least2, most2, min(max(0, least2), most2)):
        found |= {(max(least, z + low), z), (min(most, z + high), z)}
    inside = least <= 0 <= most and least2 <= 0 <= most2 and low <= 0 <= high
    return found | {(0, 0)} if inside else found


def dual(net, ends, box, sides, rates, multipliers):
    """An upper bound of a f - b g from multipliers alone: whatever they are, a unit's part is largest at a vertex."""
    layers, scale = net["layers"], net["scale"]
    last, hidden = layers[-1]["rows"][0], layers[:-1]
    total = Fraction((rates[0] - rates[1]) * layers[-1]["bias"][0], 1 << SLOPES + scale)
    for depth, layer in enumerate(hidden):
        if depth + 1 < len(hidden):
            next_weights = [
                [sum(map(mul, some, column)) for column in layers[depth + 1]["columns"]]
                for some in multipliers[depth + 1]
            ]
        else:
            next_weights = [[rates[0] * w for w in last], [-rates[1] * w for w in last]]
        part = 0
        for unit, own in enumerate(ends[depth]):
            (a, b), (p, q) = ([some[unit] for some in pair] for pair in (next_weights, multipliers[depth]))
            part += max(a * relu(z) + b * relu(other) - (p * z + q * other << scale) for z, other in vertices(own))
        both = [p + q for p, q in zip(*multipliers[depth], strict=True)]
        total += Fraction(part, 1 << SLOPES + scale + ENDS)
        total += Fraction(sum(map(mul, both, layer["bias"])), 1 << SLOPES + scale)
    rows = [[sum(map(mul, some, column)) for column in layers[0]["columns"]] for some in multipliers[0]]
    shared = [p + q for p, q in zip(*rows, strict=True)]
    moved = sum(sum(map(mul, row, side)) for row, side in zip(rows, sides, strict=True))
    return total + Fraction(moved + box.most(shared), 1 << SLOPES + scale + net["grain"])


def rounding(net, ends, box, sides):
    """How far the runtime's float32 sums may be off, in any order of additions, and whether both are the same number."""
    shift = ERRORS - ENDS
    first = [up(Fraction(size, 1 << net["grain"]), ERRORS) for size in box.sizes(sides)]
    errors, sizes = [[0] * len(first), [0] * len(first)], [first, first]
    differs = [one != two for one, two in zip(*sides, strict=True)]
    still = not any(differs)
    for depth, layer in enumerate(net["layers"]):
        sums = []
        for error, size in zip(errors, sizes, strict=True):
            whole = [s + e for s, e in zip(size, error, strict=True)]
            rows = zip(layer["spread"], layer["rough"], layer["base"], strict=True)
            sums.append([
                base - (-sum(map(mul, error, row)) >> net["scale"]) - (-sum(map(mul, whole, rough)) >> ERRORS)
                for row, rough, base in rows
            ])  # fmt: skip
        errors = sums
        if depth == len(net["layers"]) - 1:
            break
        differs = [any(d and w for d, w in zip(differs, row, strict=True)) for row in layer["spread"]]
        off = [
            [(own[2 * run + 1] << shift) + error <= 0 for own, error in zip(ends[depth], errors[run], strict=True)]
            for run in (0, 1)
        ]  # fmt: skip
        differs = [d and not (one and two) for d, one, two in zip(differs, *off, strict=True)]
        errors = [[0 if o else e for o, e in zip(off[run], errors[run], strict=True)] for run in (0, 1)]
        sizes = [[relu(own[2 * run + 1]) << shift for own in ends[depth]] for run in (0, 1)]
        still = still or not any(differs)
    return Fraction(max(errors[0][0], errors[1][0]), 1 << ERRORS), still


def logistic(x):
    """At least 1 / (1 + exp(-x)), by at most 1e-40: the exponential of decimal numbers is rounded correctly."""
    some = Context(prec=60)
    size = some.divide(Decimal(abs(x).numerator), Decimal(abs(x).denominator))
    small = Fraction(some.exp(-size)) if size < 200 else Fraction(0)
    value = 1 / (1 + small) if x >= 0 else small / (1 + small)
    return min(Fraction(1), value + Fraction(1, 10**40))


def chance(first, least, most, gap):
    """At least the largest logistic(f) - logistic(g) for f <= first, least <= g <= most and f - g <= gap."""
    if gap <= 0 or first <= least:
        return Fraction(0)
    # g up to first - gap: logistic(g + gap) - logistic(g) is largest nearest to -gap / 2; beyond, it falls
    g = min(max(-gap / 2, least), max(most, least), max(first - gap, least))
    return logistic(min(first, g + gap)) - logistic(g) + Fraction(2, 10**40)


def tangent(rate, low, high):
    """At least the largest logistic(x) - rate · x between two ends: convex below 0, under any tangent above."""
    some = [low, high] if high <= 0 else [low] if low < 0 else []
    found = [logistic(x) - rate * x for x in some]
    if high > 0:
        share = (1 + max(0.0, 1 - 4 * float(rate)) ** 0.5) / 2
        odds = share / max(1 - share, 1e-300)
        at = Fraction(Decimal(repr(odds)).ln(Context(prec=40))) if odds > 1 else Fraction(0)
        at = min(max(at, low, Fraction(0)), high)
        value = logistic(at)
        steep = value * (1 - value)
        found += [value - steep * at + (steep - rate) * x for x in (max(low, Fraction(0)), high)]
    return max(found) + Fraction(1, 10**30)


def bound(net, question, box, sides, signs, rates, multipliers, threshold):
    """An upper bound of a question's objective in a box, with the runtime's rounding; None where no input is in it."""
    found = ranges(net, box, sides, signs)
    if found is None:
        return None
    ends, lines = found
    error, still = rounding(net, ends, box, sides)
    depth, last = len(net["layers"]) - 1, net["layers"][-1]["rows"][0]
    bias, turned = Fraction(net["layers"][-1]["bias"][0], 1 << net["scale"]), [-w for w in last]
    whole = 1 << SLOPES
    if question == "all_inputs_score_change":
        gap = dual(net, ends, box, sides, (whole, whole), multipliers)
        return min(gap, Fraction(0)) if still else gap + 2 * error
    first, most = (bias + followed(net, lines[run], depth, last, box, sides[run]) for run in (0, 1))
    lowest, least = (bias - followed(net, lines[run], depth, turned, box, sides[run]) for run in (0, 1))
    if question == "all_inputs_flip":
        if still:  # equal sums are decided alike
            return None
        rate = min(max(rates[0], 0), whole)
        gap = dual(net, ends, box, sides, (rate, whole - rate), multipliers)
        gap += Fraction(whole - 2 * rate, whole) * threshold
        return min(gap, first - threshold, threshold - least) + error + net["band"]
    if still:
        return Fraction(0)
    gap = dual(net, ends, box, sides, rates, multipliers)
    a, b = (Fraction(rate, whole) for rate in rates)
    apart = min(gap / a, first - least) if a == b and a > 0 else first - least
    found = chance(first, least, most, apart)
    if a >= 0 and b >= 0:
        lowest, least = min(lowest, first), min(least, most)
        found = min(found, gap + tangent(a, lowest, first) + tangent(b, -most, -least) - 1)
    return found + error / 2 + Fraction(1, 10**6)
