"""The arithmetic of the networks' checker against a slow twin in floats, enumeration and float32 itself."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import random
import struct
import sys
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from .test_all_inputs import CHANCE, FLIP, SCORE
from .test_checker import DOCS
from .test_checker_arithmetic import finding, refused

HALF = Fraction(1, 2)


@pytest.fixture(scope="module", autouse=True)
def _beside():
    sys.path.insert(0, str(DOCS))
    yield
    sys.path.remove(str(DOCS))


@pytest.fixture(scope="module")
def check():
    import all_inputs_network_check

    return all_inputs_network_check


@pytest.fixture(scope="module")
def bounds():
    import all_inputs_network_bounds

    return all_inputs_network_bounds


@pytest.fixture(scope="module")
def read():
    import all_inputs_read

    return all_inputs_read


# numbers and lines


@pytest.mark.parametrize("text", ["1/3", "-1/3", "5/4", "-7", "0"])
def test_numbers_are_rounded_to_multiples(bounds, text):
    number = Fraction(text)
    for scale in (0, 3, 60):
        high, low = (Fraction(one(number, scale), 1 << scale) for one in (bounds.up, bounds.down))
        assert low <= number <= high
        assert high - low == (0 if (number * (1 << scale)).denominator == 1 else Fraction(1, 1 << scale))
    assert bounds.up(number) == bounds.up(number, 60)
    assert bounds.down(number) == bounds.down(number, 60)


ENDS = [(-3, 5), (-5, 3), (-4, 4), (1, 2), (0, 2), (-2, 0), (-2, -1), (0, 0), (3, 3)]


@pytest.mark.parametrize(("least", "most"), ENDS)
def test_the_lines_around_relu_touch_it(bounds, least, most):
    under, below, over, above = (Fraction(v, 1 << 50) for v in bounds.unit_lines(least << 60, most << 60))
    below, above = below * (1 << 50) / (1 << 60), above * (1 << 50) / (1 << 60)
    grid = [Fraction(least) + Fraction((most - least) * k, 64) for k in range(65)]
    gaps = [(max(z, 0) - (under * z + below), over * z + above - max(z, 0)) for z in grid]
    tiny = Fraction(1, 1 << 45)
    assert all(gap >= 0 for pair in gaps for gap in pair)
    assert min(one for one, _ in gaps) <= tiny
    assert max(gaps[0][1], gaps[-1][1]) <= tiny
    if least >= 0 or most <= 0:
        assert all(gap <= tiny for pair in gaps for gap in pair)
    else:  # the line below has the side that loses the smaller area
        assert (under, below) == (int(most > -least), 0)


@pytest.mark.parametrize(("least", "most"), ENDS)
@pytest.mark.parametrize(("low", "high"), [(-2, 3), (-3, -1), (1, 2), (0, 2), (-2, 0), (0, 0)])
def test_the_lines_around_a_difference_of_relus_touch_it(bounds, least, most, low, high):
    made = bounds.difference_lines(least << 60, most << 60, low << 60, high << 60)
    under, below, over, above = (Fraction(made[i], 1 << (50 if i % 2 == 0 else 60)) for i in range(4))
    small, large = int(least >= 0), int(most > 0)
    tiny = Fraction(1, 1 << 45)
    floor = [min(small * t, large * t) for t in (low, high)]
    ceiling = [max(small * t, large * t) for t in (low, high)]
    for t, f, c in zip((low, high), floor, ceiling, strict=True):
        assert under * t + below <= f
        assert over * t + above >= c
        if low < 0 < high:  # a chord of a concave and of a convex function
            assert f - (under * t + below) <= tiny
            assert over * t + above - c <= tiny
    if not low < 0 < high:
        near = 0 if low < 0 else 1  # the end further from 0
        t = (low, high)[near]
        assert abs(under * t + below - floor[near]) <= tiny
        assert abs(over * t + above - ceiling[near]) <= tiny


def test_slopes_and_constants(bounds):
    assert bounds.slope(3, 4) == 3 << 48
    assert bounds.slope(1, 0) == 0
    assert bounds.slope(-1, 3) == -((1 << 50) // 3) - 1
    row, more = bounds.back([2, -3, 0], [(1, 10, 2, 20), (3, 30, 4, 40), (5, 50, 6, 60)])
    assert (row, more) == ([4, -9, 0], 2 * 20 - 3 * 30)


# boxes


def test_the_largest_sum_over_a_box_is_that_of_a_corner(bounds):
    plain = [(0, -2, 3), (1, 1, 1)]
    sets = [[[(2, 0, 4), (3, 1, -1)], [(2, -5, -5)]], [[(3, 2, 3)], []]]
    box = bounds.Box(None, plain, sets)
    for row in ([1, 2, 3, 4], [-1, -2, -3, -4], [0, 1, -1, 2], [2, 0, 1, -3]):
        corners = []
        for x, (one, two) in itertools.product((-2, 3), itertools.product((0, 1), (0, 1))):
            cells = [sets[0][one], sets[1][two]]
            for picks in itertools.product((1, 2), repeat=sum(map(len, cells))):
                pick, total = iter(picks), row[0] * x + row[1]
                for cell in cells:
                    total += sum(row[entry[0]] * entry[next(pick)] for entry in cell)
                corners.append(total)
        assert box.most(row) == max(corners)
    assert box.sizes(([0, 0, 1, -7], [0, -2, 0, 6])) == [3, 2 + 1, 1 + 5, 7 + 1 + 3]


def random_hexagon(rng):
    """Ends of z, z' and z - z' that some pair has."""
    z, other = rng.integers(-6, 7, size=2)
    ends = [z - rng.integers(0, 6), z + rng.integers(0, 6), other - rng.integers(0, 6), other + rng.integers(0, 6),
            z - other - rng.integers(0, 5), z - other + rng.integers(0, 5)]  # fmt: skip
    return [int(v) for v in ends]


@pytest.mark.parametrize("seed", range(40))
def test_relus_are_largest_at_the_vertices(bounds, seed):
    rng = np.random.default_rng(seed)
    ends = random_hexagon(rng)
    least, most, least2, most2, low, high = ends
    # whole ends have whole vertices of every quadrant, so that a grid holds them
    inside = [
        (z, o) for z, o in itertools.product(range(least, most + 1), range(least2, most2 + 1)) if low <= z - o <= high
    ]
    corners = bounds.vertices(ends)
    assert set(corners) <= set(inside)
    for _ in range(30):
        a, b, p, q = rng.integers(-5, 6, size=4).tolist()

        def value(pair, a=a, b=b, p=p, q=q):
            return a * max(pair[0], 0) + b * max(pair[1], 0) - p * pair[0] - q * pair[1]

        assert max(map(value, corners)) == max(map(value, inside))


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("signs", [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1), (1, -1), (-1, 1)])
def test_signs_of_split_sums_narrow_the_ends_to_what_is_left(bounds, seed, signs):
    least, most, least2, most2, low, high = ends = random_hexagon(np.random.default_rng(seed))
    left = [
        (z, o)
        for z, o in itertools.product(range(least, most + 1), range(least2, most2 + 1))
        if low <= z - o <= high and z * signs[0] >= 0 and o * signs[1] >= 0
    ]
    found = bounds.hold(ends, *signs)
    if not left:
        assert any(found[i] > found[i + 1] for i in (0, 2, 4))
        return
    z, o = zip(*left, strict=True)
    d = [one - other for one, other in left]
    assert found == (min(z), max(z), min(o), max(o), min(d), max(d))


# a twin of the whole bound


class Twin:
    """The bound of a box in floats, from the same lines."""

    def __init__(self, parts, plain, sets, sides, threshold, band):
        self.layers = [{k: np.array(part[k], dtype=float) for k in ("weights", "bias", "spread", "rough", "base")}
                       for part in parts]  # fmt: skip
        self.plain, self.sets, self.sides = plain, sets, np.array(sides, dtype=float)
        self.threshold, self.band = threshold, band

    def most(self, row):
        total = sum(row[j] * (high if row[j] >= 0 else low) for j, low, high in self.plain)
        return total + sum(
            max(sum(max(row[j] * a, row[j] * b) for j, a, b in cell) for cell in cells) for cells in self.sets
        )

    def followed(self, lines, depth, row, side=None):
        total, row = 0.0, np.array(row, dtype=float)
        for i in range(depth - 1, -1, -1):
            picked = [line[2:] if w >= 0 else line[:2] for w, line in zip(row, lines[i], strict=True)]
            total += sum(w * c for w, (_, c) in zip(row, picked, strict=True))
            row = np.array([w * s for w, (s, _) in zip(row, picked, strict=True)])
            total += row @ self.layers[i]["bias"] if side is not None else 0.0
            row = row @ self.layers[i]["weights"]
        if side is None:
            return total + row @ (self.sides[0] - self.sides[1])
        return total + row @ self.sides[side] + self.most(row)

    @staticmethod
    def unit(least, most):
        if least < 0 < most:
            tilt = most / (most - least)
            return (float(most > -least), 0.0, tilt, -tilt * least)
        return (float(least >= 0), 0.0) * 2

    @staticmethod
    def apart(least, most, low, high):
        small, large = float(least >= 0), float(most > 0)
        under, over = (lambda t: min(small * t, large * t)), (lambda t: max(small * t, large * t))
        if low < 0 < high:
            tilts = [(rule(high) - rule(low)) / (high - low) for rule in (under, over)]
        else:
            tilts = [small if low >= 0 else large, large if high > 0 else small]
        below = min(under(t) - tilts[0] * t for t in (low, high))
        return tilts[0], below, tilts[1], max(over(t) - tilts[1] * t for t in (low, high))

    def ranges(self, signs):
        lines, differences, ends = ([], []), [], []
        for depth, layer in enumerate(self.layers[:-1]):
            made = []
            for unit, row in enumerate(layer["weights"]):
                own, bias = [], layer["bias"][unit]
                for run in (0, 1):
                    most = self.followed(lines[run], depth, row, run) + bias
                    least = bias - self.followed(lines[run], depth, -row, run)
                    if depth:
                        pairs = [(max(one[2 * run], 0), max(one[2 * run + 1], 0)) for one in ends[-1]]
                        most = min(most, sum(w * pair[int(w > 0)] for w, pair in zip(row, pairs, strict=True)) + bias)
                        least = max(
                            least, sum(w * pair[int(w <= 0)] for w, pair in zip(row, pairs, strict=True)) + bias
                        )
                    own += [least, most]
                high = min(self.followed(differences, depth, row), own[1] - own[2])
                low = max(-self.followed(differences, depth, -row), own[0] - own[3])
                made.append([*own, low, high])
            if signs is not None:
                made = [self.hold(one, *sign) for one, sign in zip(made, signs[depth], strict=True)]
            if any(one[i] > one[i + 1] + 1e-15 for one in made for i in (0, 2, 4)):
                return None
            ends.append(made)
            for run in (0, 1):
                lines[run].append([self.unit(*one[2 * run : 2 * run + 2]) for one in made])
            differences.append([self.apart(min(o[0], o[2]), max(o[1], o[3]), *o[4:]) for o in made])
        return ends, lines

    @staticmethod
    def hold(ends, first, second):
        a, b, c, d, low, high = ends
        a, b = (max(a, 0) if first > 0 else a), (min(b, 0) if first < 0 else b)
        c, d = (max(c, 0) if second > 0 else c), (min(d, 0) if second < 0 else d)
        a, c = max(a, c + low), max(c, a - high)
        b, d = min(b, d + high), min(d, b - low)
        return [a, b, c, d, max(low, a - d), min(high, b - c)]

    def dual(self, ends, rates, multipliers):
        from all_inputs_network_bounds import vertices

        last, total = self.layers[-1]["weights"][0], (rates[0] - rates[1]) * self.layers[-1]["bias"][0]
        for depth, layer in enumerate(self.layers[:-1]):
            if depth + 2 < len(self.layers):
                after = [np.array(row) @ self.layers[depth + 1]["weights"] for row in multipliers[depth + 1]]
            else:
                after = [rates[0] * last, -rates[1] * last]
            for unit, own in enumerate(ends[depth]):
                (a, b), (p, q) = [pair[unit] for pair in after], [pair[unit] for pair in multipliers[depth]]
                total += max(a * max(z, 0) + b * max(o, 0) - p * z - q * o for z, o in vertices(own))
            total += (np.array(multipliers[depth][0]) + multipliers[depth][1]) @ layer["bias"]
        rows = [np.array(row) @ self.layers[0]["weights"] for row in multipliers[0]]
        return total + rows[0] @ self.sides[0] + rows[1] @ self.sides[1] + self.most(rows[0] + rows[1])

    def rounding(self, ends):
        first = np.abs(self.sides).max(axis=0)
        for j, low, high in self.plain:
            first[j] += max(abs(low), abs(high))
        for cells in self.sets:
            for j in {entry[0] for cell in cells for entry in cell}:
                first[j] += max(max(abs(a), abs(b)) for cell in cells for k, a, b in cell if k == j)
        errors, sizes = [np.zeros(len(first))] * 2, [first, first]
        differs = self.sides[0] != self.sides[1]
        still = not differs.any()
        for depth, layer in enumerate(self.layers):
            errors = [layer["base"] + layer["spread"] @ e + layer["rough"] @ (s + e)
                      for e, s in zip(errors, sizes, strict=True)]  # fmt: skip
            if depth == len(self.layers) - 1:
                return max(errors[0][0], errors[1][0]), still
            differs = (layer["spread"] * differs).any(axis=1)
            off = [np.array([own[2 * run + 1] + e <= 0 for own, e in zip(ends[depth], errors[run], strict=True)])
                   for run in (0, 1)]  # fmt: skip
            differs = differs & ~(off[0] & off[1])
            errors = [np.where(off[run], 0.0, errors[run]) for run in (0, 1)]
            sizes = [np.array([max(own[2 * run + 1], 0.0) for own in ends[depth]]) for run in (0, 1)]
            still = still or not differs.any()
        raise AssertionError

    def bound(self, question, signs, rates, multipliers):
        found = self.ranges(signs)
        if found is None:
            return None
        ends, lines = found
        error, still = self.rounding(ends)
        depth, last, bias = len(self.layers) - 1, self.layers[-1]["weights"][0], self.layers[-1]["bias"][0]
        if question == SCORE:
            gap = self.dual(ends, (1.0, 1.0), multipliers)
            return min(gap, 0.0) if still else gap + 2 * error
        first, most = (bias + self.followed(lines[run], depth, last, run) for run in (0, 1))
        lowest, least = (bias - self.followed(lines[run], depth, -last, run) for run in (0, 1))
        if question == FLIP:
            if still:
                return None
            rate = min(max(rates[0], 0.0), 1.0)
            gap = self.dual(ends, (rate, 1 - rate), multipliers) + (1 - 2 * rate) * self.threshold
            return min(gap, first - self.threshold, self.threshold - least) + error + self.band
        if still:
            return 0.0
        gap = self.dual(ends, rates, multipliers)
        a, b = rates
        apart = min(gap / a, first - least) if a == b and a > 0 else first - least
        logistic = lambda x: 1 / (1 + math.exp(-x))  # noqa: E731 -- short
        grid = np.linspace(least, max(most, least), 20_001)
        found = max(max(0.0, logistic(min(first, g + apart)) - logistic(g)) for g in grid) if apart > 0 else 0.0
        found = 0.0 if first <= least else found
        if a >= 0 and b >= 0:
            parts = []
            for rate, ends_of in ((a, (min(lowest, first), first)), (b, (-most, -min(least, most)))):
                x = np.linspace(*ends_of, 20_001)
                parts.append((1 / (1 + np.exp(-x)) - rate * x).max())
            found = min(found, gap + sum(parts) - 1)
        return found + error / 2 + 1e-6


def random_problem(check, monkeypatch, seed, widths, still=False):
    """A network over two numbers, two sets and what changes; the checker's form and the twin's."""
    rng = np.random.default_rng(seed)
    features, parts, before = 6, [], 6
    for width in (*widths, 1):
        weights = np.round(rng.normal(size=(width, before)) * 8) / 8
        bias = np.round(rng.normal(size=width) * 8) / 8
        if still and before == features:
            weights[:, 5] = 0
        part = check.mapped(check.values_of(before), [[Fraction(float(w)) for w in row] for row in weights])
        parts.append(check.moved(part, [Fraction(float(b)) for b in bias]))
        before = width
    monkeypatch.setattr(check, "layers_of", lambda *_: (parts, False))
    net, _ = check.network_of({"matrix": "x", "output": "y", "direction": 1}, None, features)
    band = float(rng.integers(0, 2)) / 16
    net |= {"grain": 4, "band": Fraction(band)}
    ends = np.sort(rng.integers(-16, 17, size=(2, 2)), axis=1)
    plain = [(j, int(low), int(high)) for j, (low, high) in enumerate(ends)]
    sets = [[[(2, *sorted(map(int, rng.integers(-16, 17, 2)))), (3, int(v), int(v))] for v in rng.integers(-16, 17, 3)],
            [[(4, int(v), int(v))] if v else [] for v in rng.integers(0, 17, 2)]]  # fmt: skip
    sides = [[0, 0, 0, 0, 0, int(v)] for v in rng.choice(33, 2, replace=False) - 16]
    threshold = float(rng.integers(-8, 9)) / 8
    whole = lambda some: [(j, low / 16, high / 16) for j, low, high in some]  # noqa: E731 -- short
    twin = Twin(parts, whole(plain), [[whole(cell) for cell in cells] for cells in sets],
                [[v / 16 for v in side] for side in sides], threshold, band)  # fmt: skip
    return rng, net, check.Box(net, plain, sets), sides, threshold, twin


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("widths", [(4,), (5, 3), (3, 3, 2)])
def test_the_bound_is_that_of_the_twin(check, monkeypatch, seed, widths):
    rng, net, box, sides, threshold, twin = random_problem(check, monkeypatch, seed, widths, still=seed == 11)
    for attempt in range(4):
        signs = None
        if attempt:
            signs = [[(0, 0)] * width for width in widths]
            for _ in range(attempt):
                depth = int(rng.integers(len(widths)))
                signs[depth][int(rng.integers(widths[depth]))] = tuple(map(int, rng.integers(-1, 2, 2)))
        rates = rng.integers(-2, 14, size=2) / 8
        rates = rates[[0, 0]] if attempt % 2 else rates
        multipliers = [np.round(rng.normal(size=(2, width)) * 8) / 8 for width in widths]
        scaled = [[[int(v * (1 << 50)) for v in row] for row in pair] for pair in multipliers]
        for question in (SCORE, FLIP, CHANCE):
            most = check.bound(net, question, box, sides, signs, tuple(int(r * (1 << 50)) for r in rates), scaled,
                               Fraction(threshold))  # fmt: skip
            expected = twin.bound(question, signs, rates.tolist(), multipliers)
            if expected is None:
                assert most is None
            else:  # between points of the twin's grid the logistic function is a little larger
                assert float(most) == pytest.approx(expected, rel=1e-9, abs=2e-4 if question == CHANCE else 1e-9)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rates", [(1.0, 0.25), (0.0, 0.75), (-0.5, 1.0)])
def test_the_programmes_part_is_that_of_the_twin(check, bounds, monkeypatch, seed, rates):
    """Random multipliers are seldom what a whole bound is made of: their part alone."""
    rng, net, box, sides, _, twin = random_problem(check, monkeypatch, seed, (3, 2))
    ends, _ = bounds.ranges(net, box, sides, None)
    plain_ends = [[[v / (1 << 60) for v in own] for own in layer] for layer in ends]
    multipliers = [np.round(rng.normal(size=(2, width)) * 8) / 8 for width in (3, 2)]
    scaled = [[[int(v * (1 << 50)) for v in row] for row in pair] for pair in multipliers]
    found = bounds.dual(net, ends, box, sides, [int(r * (1 << 50)) for r in rates], scaled)
    assert float(found) == pytest.approx(twin.dual(plain_ends, rates, multipliers), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("rates", [(0, 1), (1, 0), (0, 0), (1, 1)])
def test_a_rate_of_nothing_bounds_the_probabilities_too(bounds, monkeypatch, rates):
    """f - g is a f - b g with a or b 0 as well: with a programme that is tight the tangents decide."""
    whole = 1 << 50
    net = {"layers": [{"rows": [[1]], "bias": [0], "columns": [[1]]}], "scale": 0}
    monkeypatch.setattr(bounds, "ranges", lambda *_: ([], ([], [])))
    monkeypatch.setattr(bounds, "rounding", lambda *_: (Fraction(0), False))
    monkeypatch.setattr(bounds, "followed", lambda *_: Fraction(4))  # both sums lie between -4 and 4
    monkeypatch.setattr(bounds, "dual", lambda *_: Fraction(-3))
    sides = [[0], [0]]
    found = bounds.bound(net, CHANCE, None, sides, None, tuple(r * whole for r in rates), None, Fraction(0))
    logistic = lambda x: 1 / (1 + math.exp(-x))  # noqa: E731 -- short
    plain = logistic(4) - logistic(-4)
    tangents = [{0: logistic(4), 1: logistic(-4) + 4}[rate] for rate in rates]
    own = 0.0 if rates == (1, 1) else plain
    assert float(found) == pytest.approx(min(own, -3 + sum(tangents) - 1) + 1e-6, abs=1e-9)


def test_errors_of_inputs_that_are_off_count_too(bounds):
    """Rough parts weigh the sizes with their errors: two layers of one unit, in eighths."""
    layer = {"rows": [[1]], "spread": [[8]], "rough": [[1 << 79]], "base": [1 << 77]}  # 1, a half, an eighth
    net = {"layers": [layer, layer], "scale": 3, "grain": 0}
    box = bounds.Box(net, [(0, -2, 3)], [])
    # sizes 3 + 1: an error of 1/8 + 4/2; then 1/8 + that + (2 + that) / 2
    ends = [[(-(1 << 60), 2 << 60) * 2 + (0, 0)]]
    error, still = bounds.rounding(net, ends, box, ([1], [0]))
    first = Fraction(1, 8) + 2
    assert (error, still) == (Fraction(1, 8) + first + (2 + first) / 2, False)
    assert bounds.rounding(net, ends, box, ([1], [1]))[1]


@pytest.mark.parametrize("seed", range(6))
def test_float32_stays_within_the_error(check, bounds, monkeypatch, seed):
    """Whatever the order of the additions: sums of a random order, and of halves."""
    rng, net, box, sides, _, twin = random_problem(check, monkeypatch, seed, (5, 4))
    ends, _ = bounds.ranges(net, box, sides, None)
    error, still = bounds.rounding(net, ends, box, sides)
    assert not still
    assert 0 < error < 1e-4
    worst = 0.0
    for _ in range(300):
        x = np.array(sides[int(rng.integers(2))], dtype=float) / 16
        for j, low, high in twin.plain:
            x[j] += rng.uniform(low, high)
        for cells in twin.sets:
            for j, low, high in cells[int(rng.integers(len(cells)))]:
                x[j] += rng.uniform(low, high)
        x = x.astype(np.float32)
        exact, single = x.astype(float), x
        for depth, layer in enumerate(twin.layers):
            exact = layer["weights"] @ exact + layer["bias"]
            products = layer["weights"].astype(np.float32) * single
            order = rng.permutation(products.shape[1])
            total = np.zeros(len(products), dtype=np.float32)
            for k in order:
                total = (total + products[:, k]).astype(np.float32)
            single = (total + layer["bias"].astype(np.float32)).astype(np.float32)
            if depth < len(twin.layers) - 1:
                exact, single = np.maximum(exact, 0), np.maximum(single, 0)
        worst = max(worst, abs(float(single[0]) - exact[0]))
    assert worst <= float(error)


def test_the_logistic_function_is_rounded_up(bounds):
    for text in ("0", "1/3", "-7/2", "30", "-30", "250", "-250", "1000", "-1000"):
        x = Fraction(text)
        value = bounds.logistic(x)
        assert float(value) == pytest.approx(1 / (1 + math.exp(-float(x))) if x > -700 else 0.0, rel=1e-12, abs=1e-39)
        assert value <= 1
        assert value + bounds.logistic(-x) >= 1
        assert value + bounds.logistic(-x) - 1 <= Fraction(3, 10**40)
    assert bounds.logistic(Fraction(0)) == HALF + Fraction(1, 10**40)


@pytest.mark.parametrize(
    ("first", "least", "most", "gap"),
    [(2, -3, 1, 1), (2, 0, 1, 1), (2, -3, -2, 1), (0.5, -3, 1, 1), (5, -1, 4, 20), (-2, -9, -1, 2), (3, 2.5, 2.75, 9)],
)
def test_the_largest_change_of_a_probability(bounds, first, least, most, gap):
    g = np.linspace(least, most, 100_001)
    f = np.minimum(first, g + gap)
    best = (1 / (1 + np.exp(-f)) - 1 / (1 + np.exp(-g))).max()
    found = bounds.chance(*(Fraction(v) for v in (first, least, most, gap)))
    assert best - 1e-12 <= float(found) <= best + 1e-9
    for nothing in ((first, least, most, 0), (first, least, most, -1), (least, least, most, gap)):
        assert bounds.chance(*map(Fraction, nothing)) == 0


@pytest.mark.parametrize("rate", ["0", "1/10", "1/5", "1/4", "1/2"])
@pytest.mark.parametrize(("low", "high"), [(-3, -1), (-3, 0), (0, 2), (1, 4), (-2, 5), (-0.5, 0.25), (-8, 8)])
def test_the_logistic_function_less_a_line(bounds, rate, low, high):
    x = np.linspace(low, high, 200_001)
    best = (1 / (1 + np.exp(-x)) - float(Fraction(rate)) * x).max()
    found = bounds.tangent(Fraction(rate), Fraction(low), Fraction(high))
    assert best - 1e-12 <= float(found) <= best + 1e-9


# layers


def test_sums_are_followed_with_what_rounding_adds(check):
    unit = check.UNIT
    more = lambda n: Fraction(101, 100) * n * unit * (1 + n * unit)  # noqa: E731 -- short
    matrix = [[Fraction(2), Fraction(-3)], [HALF, Fraction(0)]]
    part = check.mapped(check.values_of(2), matrix)
    sizes = [[abs(w) for w in row] for row in matrix]
    assert part["weights"] == matrix
    assert part["spread"] == sizes
    assert part["rough"] == [[more(3) * s for s in row] for row in sizes]
    assert part["bias"] == part["size"] == part["base"] == [0, 0]
    assert not part["plain"]
    moved = check.moved(part, [Fraction(-1), Fraction(4)])
    assert moved["bias"] == [-1, 4]
    assert moved["size"] == [1, 4]
    assert moved["base"] == [more(1), 4 * more(1)]
    assert moved["rough"] == [[(more(3) + more(1)) * s for s in row] for row in sizes]
    scaled = check.scaled(moved, [Fraction(-2), HALF])
    assert scaled["weights"] == [[-4, 6], [HALF / 2, 0]]
    assert scaled["spread"] == [[4, 6], [HALF / 2, 0]]
    assert (scaled["bias"], scaled["size"]) == ([2, 2], [2, 2])
    assert scaled["base"] == [2 * more(1) + 2 * more(1), 2 * more(1) + 2 * more(1)]
    assert scaled["rough"][0] == [2 * (more(3) + more(1)) * s + more(1) * 2 * s for s in sizes[0]]
    # a second product without a layer between
    twice = check.mapped(moved, [[Fraction(1), Fraction(-1)]])
    assert twice["weights"] == [[Fraction(3, 2), -3]]
    assert twice["spread"] == [[Fraction(5, 2), 3]]
    assert (twice["bias"], twice["size"]) == ([-5], [5])
    assert twice["base"] == [5 * more(1) + 5 * more(3)]
    assert twice["rough"] == [[(more(3) + more(1)) * s + more(3) * s for s in (Fraction(5, 2), 3)]]


def graph_of(nodes, constants, inputs=("x",)):
    return SimpleNamespace(nodes=nodes, constants=constants, inputs=list(inputs))


CONSTANTS = {
    "w": ([2, 3], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
    "b": ([3], [1.0, -1.0, 0.5]),
    "one": ([1], [2.0]),
    "row": ([1, 3], [1.0, 2.0, 4.0]),
    "v": ([3, 1], [1.0, 1.0, -1.0]),
    "pair": ([3, 2], [1.0, 2.0, 0.0, 1.0, 1.0, 3.0]),
    "shape": ([2], [-1, 3]),
    "flat": ([1], [-1]),
    "odd": ([2], [2, 3]),
    "keep": ([2], [0, -1]),
    "line": ([6], [1.0] * 6),
    "inf": ([1], [math.inf]),
    "off": ([2], [-1, 2]),
}


def layers(check, *nodes, output="y", width=2):
    return check.layers_of(graph_of(nodes, CONSTANTS), "x", output, width)


FIRST = ("Gemm", ["x", "w", "b"], ["a"], {})
LAST = ("MatMul", ["h", "v"], ["y"], {})


def test_layers_are_read(check):
    (first, last), two = layers(check, FIRST, ("Relu", ["a"], ["h"], {}), LAST)
    assert not two
    assert first["weights"] == [[1, 4], [2, 5], [3, 6]]
    assert first["bias"] == [1, -1, HALF]
    assert last["weights"] == [[1, 1, -1]]
    for middle in (
        [("Identity", ["a"], ["c"], {})],
        [("Dropout", ["a"], ["c"], {})],
        [("Flatten", ["a"], ["c"], {})],
        [("Flatten", ["a"], ["c"], {"axis": 1})],
        [("Reshape", ["a", "shape"], ["c"], {})],
        [("Reshape", ["a", "keep"], ["c"], {})],
        [("Cast", ["a"], ["c"], {"to": 1})],
        [("Cast", ["a"], ["c"], {"to": 11})],
        [("Other", ["z"], ["q"], {}), ("Identity", ["a"], ["c"], {})],
    ):
        (same, _), _ = layers(check, FIRST, *middle, ("Relu", ["c"], ["h"], {}), LAST)
        assert (same["weights"], same["bias"]) == (first["weights"], first["bias"])
        assert (same["rough"] == first["rough"]) == (middle[-1][0] != "Cast")
    for node, weights, bias in (
        (("Add", ["a", "one"], ["c"], {}), [[1, 4], [2, 5], [3, 6]], [3, 1, 2.5]),
        (("Add", ["row", "a"], ["c"], {}), [[1, 4], [2, 5], [3, 6]], [2, 1, 4.5]),
        (("Sub", ["a", "row"], ["c"], {}), [[1, 4], [2, 5], [3, 6]], [0, -3, -3.5]),
        (("Mul", ["a", "row"], ["c"], {}), [[1, 4], [4, 10], [12, 24]], [1, -2, 2]),
        (("Mul", ["one", "a"], ["c"], {}), [[2, 8], [4, 10], [6, 12]], [2, -2, 1]),
    ):
        (made, _), _ = layers(check, FIRST, node, ("Relu", ["c"], ["h"], {}), LAST)
        assert (made["weights"], made["bias"]) == (weights, bias)
    gemm = ("Gemm", ["h", "pair", "one"], ["y"], {"alpha": 0.5, "beta": 4.0})
    (_, last), two = layers(check, FIRST, ("Relu", ["a"], ["h"], {}), gemm)
    assert two
    assert (last["weights"], last["bias"]) == ([[HALF, HALF, 1]], [0])
    turned = ("Gemm", ["x", "pair"], ["a"], {"transB": 1})
    (made, _), _ = layers(check, turned, ("Relu", ["a"], ["h"], {}), LAST)
    assert made["weights"] == [[1, 2], [0, 1], [1, 3]]
    assert made["bias"] == [0, 0, 0]
    (plain,), _ = layers(check, FIRST, ("MatMul", ["a", "v"], ["y"], {}))
    assert plain["weights"] == [[0, 3]]


def test_factors_of_a_gemm_are_rounded_where_they_are_not_1(check):
    plain = check.dense(graph_of([], CONSTANTS), check.values_of(2), "Gemm", ["x", "w", "b"], {}, "n")
    more = lambda n: Fraction(101, 100) * n * check.UNIT * (1 + n * check.UNIT)  # noqa: E731 -- short
    for own, rough in (
        ({"alpha": 2.0}, 2 * more(3) + 2 * more(1) + 2 * more(1)),
        ({"beta": 2.0}, more(3) + 2 * more(1)),
        ({}, more(3) + more(1)),
    ):
        made = check.dense(graph_of([], CONSTANTS), check.values_of(2), "Gemm", ["x", "w", "b"], own, "n")
        assert made["rough"][0][0] == rough, own
    assert plain["rough"][0][0] == more(3) + more(1)
    for inputs in (["x", "w"], ["x", "w", ""]):
        assert check.dense(graph_of([], CONSTANTS), check.values_of(2), "Gemm", inputs, {}, "n")["bias"] == [0, 0, 0]


REFUSED = {
    "another operator": ([("LeakyRelu", ["a"], ["h"], {}), LAST], "not read here"),
    "an earlier layer": ([("Relu", ["a"], ["h"], {}), ("Add", ["a", "b"], ["y"], {})], "earlier layer"),
    "two of them": ([("Relu", ["a"], ["h"], {}), ("Add", ["h", "h"], ["y"], {})], "earlier layer"),
    "whole numbers": ([("Cast", ["a"], ["c"], {"to": 7})], "whole numbers"),
    "no constant": ([("Add", ["a", "z"], ["y"], {})], "no constant"),
    "another shape": ([("Add", ["a", "line"], ["y"], {})], "another shape"),
    "a column": ([("Add", ["a", "v"], ["y"], {})], "another shape"),
    "three of them": ([("Add", ["a", "b", "b"], ["y"], {})], "not read here"),
    "a constant less a sum": ([("Sub", ["b", "a"], ["y"], {})], "not read here"),
    "a reshape": ([("Reshape", ["a", "flat"], ["y"], {})], "not read here"),
    "another reshape": ([("Reshape", ["a", "odd"], ["y"], {})], "not read here"),
    "a third reshape": ([("Reshape", ["a", "off"], ["y"], {})], "not read here"),
    "a flatten": ([("Flatten", ["a"], ["y"], {"axis": 0})], "not read here"),
    "a transposed product": ([("Gemm", ["a", "w"], ["y"], {"transA": 1})], "no product with constants"),
    "a product of two": ([("MatMul", ["a", "z"], ["y"], {})], "no product with constants"),
    "no matrix": ([("MatMul", ["a", "line"], ["y"], {})], "no matrix"),
    "another width": ([("MatMul", ["a", "w"], ["y"], {})], "another width"),
    "three sums": ([("Relu", ["a"], ["y"], {})], "no single sum"),
    "no end": ([("Relu", ["a"], ["h"], {})], "does not end"),
    "an endless weight": ([("Mul", ["a", "inf"], ["y"], {})], "no finite number"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_read_is_refused(check, read, name):
    nodes, words = REFUSED[name]
    with refused(read, words):
        layers(check, FIRST, *nodes)


def test_a_network_is_one_of_whole_numbers(check, monkeypatch, read):
    nodes = [FIRST, ("Relu", ["a"], ["h"], {}), LAST]
    graph = graph_of(nodes, CONSTANTS)
    for direction in (1, -1):
        net, two = check.network_of({"matrix": "x", "output": "y", "direction": direction}, graph, 2)
        assert not two
        scale = net["scale"]
        assert scale >= 1
        assert net["layers"][0]["rows"] == [[v << scale for v in row] for row in ((1, 4), (2, 5), (3, 6))]
        assert net["layers"][0]["columns"] == [[v << scale for v in row] for row in ((1, 2, 3), (4, 5, 6))]
        assert net["layers"][0]["bias"] == [2 << (scale - 1), -2 << (scale - 1), 1 << (scale - 1)]
        assert net["layers"][1]["rows"] == [[direction * v << scale for v in (1, 1, -1)]]
        assert net["layers"][1]["spread"] == [[1 << scale] * 3]
    constants = CONSTANTS | {"b": ([3], [1.0, 1.0, 1.0]), "v": ([3, 1], [2.0**-50, 1.0, 1.0])}
    net, _ = check.network_of({"matrix": "x", "output": "y", "direction": 1}, graph_of(nodes, constants), 2)
    assert net["scale"] == 50
    for text, good in (("4000", True), ("4001", False)):
        part = {"weights": [[Fraction(1, 1 << int(text))]], "spread": [[Fraction(1)]], "bias": [Fraction(0)],
                "rough": [[Fraction(0)]], "base": [Fraction(0)]}  # fmt: skip
        monkeypatch.setattr(check, "layers_of", lambda *_, part=part: ([part], False))
        if good:
            assert check.network_of({"matrix": "x", "output": "y", "direction": 1}, None, 1)[0]["scale"] == 4000
        else:
            with refused(read, "binary fractions"):
                check.network_of({"matrix": "x", "output": "y", "direction": 1}, None, 1)


# domains


def domain_told(**changes):
    """A column of numbers in three cells, a set of three texts, and one of two that changes."""
    hexed = lambda *rows: [[float(v).hex() for v in row] for row in rows]  # noqa: E731 -- short
    told = {
        "changing": 2, "matrix": "x", "inputs": [["x", "tensor(float)", ["n", "t", "s"]]],
        "domain": [
            {"name": "n", "columns": ["n"], "low": 0.0.hex(), "ends": [v.hex() for v in (1.0, 2.0, 4.0)], "whole": True,
             "single": False},
            {"name": "t", "columns": ["t"], "members": [[["a"], 0], [["b"], 1], [["c"], 2]],
             "choices": [[0.0], [3.0], [1.0]]},
            {"name": "s", "columns": ["s"], "members": [[["f"], 0], [["m"], 1]], "choices": [[0.0], [1.0]]},
        ],
        "features": {"fixed": [v.hex() for v in (0.0, 0.0, 0.0)], "blocks": [
            {"columns": [0], "range": True, "first": hexed([0], [2], [3]), "last": hexed([1], [2], [4])},
            {"columns": [1], "range": False, "first": hexed([0], [3], [1]), "last": hexed([0], [3], [1])},
            {"columns": [2], "range": False, "first": hexed([0], [1]), "last": hexed([0], [1])},
        ]},
    }  # fmt: skip
    told |= {key: value for key, value in changes.items() if key in told}
    for place in range(3):
        told["features"]["blocks"][place] |= changes.get(f"block{place}", {})
        told["domain"][place] |= changes.get(f"domain{place}", {})
    return told


def test_a_domain_in_whole_numbers(check):
    domain = check.Domain(
        domain_told(features=domain_told()["features"] | {"fixed": [v.hex() for v in (0.0, 0.25, 0.0)]})
    )
    assert domain.grain == 2
    assert domain.fixed == [0, 1, 0]
    assert domain.sizes == [3, 3, 2]
    assert domain.first[0] == [[0], [8], [12]]
    assert domain.last[0] == [[4], [8], [16]]
    assert domain.side(0) == [0, 0, 0]
    assert domain.side(1) == [0, 0, 4]
    assert domain.root() == [[0, 2], 0b111, [0, 0]]
    box = domain.opened("net", [[1, 2], 0b110, [0, 0]])
    assert box.net == "net"
    assert box.plain == [(0, 8, 16)]
    assert box.sets == [[[(1, 12, 12)], [(1, 4, 4)]]]
    turned = check.Domain(
        domain_told(
            block0={"first": [["0x1p+2"], ["0x1p+1"], ["0x1p+0"]], "last": [["0x1p+2"], ["0x1p+1"], ["0x0p+0"]]}
        )
    )
    assert turned.opened(None, [[0, 2], 0b1, [0, 0]]).plain == [(0, 0, 4)]
    assert turned.opened(None, [[0, 2], 0b1, [0, 0]]).sets == [[[]]]
    fixed = domain_told()
    fixed["features"]["fixed"].append((1.5).hex())
    assert check.Domain(fixed).opened(None, [[0, 0], 1, [0, 0]]).plain == [(3, 3, 3), (0, 0, 2)]


WRONG = {
    "a feature of two blocks": ({"block1": {"columns": [0]}}, "two blocks"),
    "a feature that is not there": ({"block1": {"columns": [3]}}, "two blocks"),
    "no such block": ({"changing": 3}, "those of the domain"),
    "a negative block": ({"changing": -1}, "those of the domain"),
    "fewer cells": ({"block0": {"first": [["0x0p+0"]] * 2}}, "another number of cells"),
    "fewer ends": ({"block0": {"last": [["0x0p+0"]] * 2}}, "another number of cells"),
    "several values": ({"block2": {"last": [["0x0p+0"], ["0x1p+1"]]}}, "several values"),
    "two features of a cell": ({"block1": {"first": [["0x0p+0"] * 2] * 3}}, "another number of features"),
    "a turn": ({"block0": {"first": [["0x0p+0"], ["0x1p+3"], ["0x1p+1"]]}}, "turns"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_domain_that_does_not_fit_is_refused(check, read, name):
    changes, words = WRONG[name]
    with refused(read, words):
        check.Domain(domain_told(**changes))


def test_sets_may_turn_and_ranges_of_what_changes(check):
    check.Domain(
        domain_told(
            block1={"first": [["0x1p+0"], ["0x0p+0"], ["0x1p+1"]], "last": [["0x1p+0"], ["0x0p+0"], ["0x1p+1"]]}
        )
    )
    told = domain_told(changing=0, block0={"last": domain_told()["features"]["blocks"][0]["first"]})
    told["features"]["blocks"][0]["first"] = told["features"]["blocks"][0]["last"] = [
        ["0x0p+0"],
        ["0x1p+1"],
        ["0x1p+0"],
    ]
    assert check.Domain(told).root()[0] == [0, 0]


def test_the_last_end_of_single_numbers_may_hold_none(check, read):
    high = float(np.nextafter(np.float32(2.0), np.float32(0)))
    told = {"low": (1.0).hex(), "ends": [high.hex(), math.nextafter(high, 9).hex()], "whole": False, "single": True}
    assert check.intervals(told) == [(1.0, high)]
    with refused(read, "empty"):
        check.intervals(told | {"ends": [(2.0).hex(), (1.5).hex(), (3.0).hex()]})
    with refused(read, "empty"):
        check.intervals(told | {"single": False, "ends": [(2.0).hex(), (1.5).hex()]})
    for wrong in ("inf", "-inf"):
        with refused(read, "no end"):
            check.intervals(told | {"ends": [wrong]})


@pytest.mark.parametrize("low", [-2.0, -1e-45, 0.0, 1.0, 2.0**30])
def test_the_next_number_follows(check, low):
    single = float(np.float32(low))
    ends = [single, float(np.nextafter(np.float32(low), np.float32(np.inf))) + 1.0, math.nan]
    told = {"low": single.hex(), "ends": [v.hex() for v in ends], "whole": False, "single": True}
    found = check.intervals(told)
    assert found[0] == (single, single)
    after = float(np.nextafter(np.float32(low), np.float32(np.inf)))
    assert found[1][0] == after or (low == 0 and found[1][0] == struct.unpack("<f", struct.pack("<i", 1))[0])
    assert np.isnan(found[2]).all()
    assert check.intervals(told | {"single": False})[1][0] == math.nextafter(single, math.inf)
    whole = check.intervals({"low": (0.0).hex(), "ends": [(2.0).hex(), (5.0).hex()], "whole": True, "single": False})
    assert whole == [(0.0, 2.0), (3.0, 5.0)]


def test_raw_values_of_every_cell_and_of_any_combination(check):
    told = domain_told(domain0={"whole": False})
    rows = list(check.inputs_of(told, random.Random(1)))
    alone, mixed = rows[:-300], rows[-300:]
    assert len(alone) == 3 * 5 + 3 + 2
    for place, count in ((0, 15), (1, 3), (2, 2)):
        moved = alone[:count]
        alone = alone[count:]
        for row in moved:
            assert all(row[other] == (0, [0.0], "in") for other in range(3) if other != place)
        if place == 0:
            ends = check.intervals(told["domain"][0])
            for cell, (low, high) in enumerate(ends):
                some = [(value[0], where) for c, value, where in (row[0] for row in moved) if c == cell]
                assert some[:2] == [(low, "first"), (high, "last")]
                assert all(low <= value <= high and where == "in" for value, where in some[2:])
        else:
            assert [row[place][:2] for row in moved] == list(enumerate(told["domain"][place]["choices"]))
    for place, size in enumerate((3, 3, 2)):
        assert {row[place][0] for row in mixed} == set(range(size))
    whole = list(check.inputs_of(domain_told(), random.Random(1)))
    assert len(whole) == 3 * 2 + 3 + 2 + 300
    assert check.first_of(told["domain"][0]) == [0.0]
    assert check.first_of(told["domain"][1]) == [0.0]


def encoders(check, **changes):
    told = domain_told(**changes)
    check.run_encoders(told, graph_of([], {}), check.Domain(told))


def test_the_features_of_each_cell_are_run_again(check, read):
    encoders(check)
    encoders(check, inputs=[["x", "tensor(double)", ["n", "t", "s"]]])
    for wrong in (
        {"block0": {"first": [["0x0p+0"], ["0x1p+1"], ["0x1p+1"]]}},
        {"block0": {"last": [["0x1p+0"], ["0x1p+1"], ["0x1.8p+2"]]}},
        {"block1": {"first": [["0x0p+0"]] * 3, "last": [["0x0p+0"]] * 3}},
        {"block2": {"first": [["0x1p+0"], ["0x0p+0"]], "last": [["0x1p+0"], ["0x0p+0"]]}},
        {"inputs": [["x", "tensor(float)", ["n", "s", "t"]]]},
    ):
        with refused(read, "other features"):
            encoders(check, **wrong)
    with refused(read, "another number of features"):
        encoders(check, inputs=[["x", "tensor(float)", ["n", "t", "s", "s"]]])
    with refused(read, "float numbers"):
        encoders(check, inputs=[["x", "tensor(int64)", ["n", "t", "s"]]])
    # a feature that no block has stands still
    told = domain_told(inputs=[["x", "tensor(float)", ["n", "t", "s", "t"]]])
    told["features"]["fixed"].append("0x0p+0")
    with refused(read, "other features"):
        check.run_encoders(told, graph_of([], {}), check.Domain(told))


def test_features_of_no_block_stand_still(check, read, monkeypatch):
    told = domain_told()
    told["features"]["fixed"].append((0.5).hex())

    def run(fourth):
        monkeypatch.setattr(check, "features_of", lambda told, graph, table: [
            [row["n"], row["t"], row["s"], fourth(row)] for row in table])  # fmt: skip
        check.run_encoders(told, graph_of([], {}), check.Domain(told))

    run(lambda row: 0.5)
    for fourth in (lambda row: 0.25, lambda row: 0.5 + row["t"]):
        with refused(read, "other features"):
            run(fourth)


def test_a_range_of_single_numbers_may_not_turn_either(check, read):
    single = {"whole": False, "single": True}
    check.Domain(domain_told(domain0=single))
    with refused(read, "turns"):
        check.Domain(domain_told(domain0=single, block0={"first": [["0x0p+0"], ["0x1p+1"], ["0x1p+3"]]}))


def test_single_numbers_are_rounded_to_single(check):
    graph = graph_of([], {})
    table = [{"a": 0.1, "b": 2.0}]
    told = {"matrix": "x", "inputs": [["x", "tensor(float)", ["b", "a"]]]}
    assert check.features_of(told, graph, table) == [[2.0, float(np.float32(0.1))]]
    told["inputs"] = [["z", "tensor(float)", ["b"]], ["x", "tensor(double)", ["a"]]]
    assert check.features_of(told, graph, table) == [[0.1]]


# logs


def boxes(check, splits, units=4, **changes):
    return list(check.boxes_of(check.Domain(domain_told(**changes)), splits, units))


def test_logs_cover_everything(check, read):
    whole = [[0, 2], 0b111, [0, 0]]
    assert boxes(check, [0]) == [(whole, {})]
    assert boxes(check, [[0, 1], 0, 0]) == [([[0, 0], 0b111, [0, 0]], {}), ([[1, 2], 0b111, [0, 0]], {})]
    assert boxes(check, [[1, "5"], 0, 0]) == [([[0, 2], 0b101, [0, 0]], {}), ([[0, 2], 0b010, [0, 0]], {})]
    assert boxes(check, [["u", 3], 0, 0]) == [(whole, {3: -1}), (whole, {3: 1})]
    # of the second side, whose split keeps what was known
    assert boxes(check, [["u", 0], ["u", 1], 0, 0, 0]) == [
        (whole, {0: -1, 1: -1}),
        (whole, {0: -1, 1: 1}),
        (whole, {0: 1}),
    ]
    # empty sides hold no input
    assert boxes(check, [[0, 0], 0, 0]) == [(whole, {})]
    assert boxes(check, [[0, 3], 0, 0]) == [(whole, {})]
    assert boxes(check, [[1, "7"], 0, 0]) == [(whole, {})]
    inner = boxes(check, [[0, 1], [0, 2], 0, 0, [0, 1], 0, 0])
    assert [box[0] for box, _ in inner] == [[0, 0], [1, 2]]


@pytest.mark.parametrize(
    ("splits", "words"),
    [
        ([0, 0], "goes on"),
        ([], "open"),
        ([[0, 1], 0], "open"),
        ([False], "no split"),
        ([1], "no split"),
        ([[0, 1, 2], 0, 0], "no split"),
        ([["u", 4], 0, 0], "the unit 4"),
        ([["u", -1], 0, 0], "the unit -1"),
        ([["u", True], 0, 0], "the unit True"),
        ([["u", 0], ["u", 0], 0, 0, 0], "the unit 0"),
        ([[3, 1], 0, 0], "not there"),
        ([[-1, 1], 0, 0], "not there"),
        ([[True, 1], 0, 0], "not there"),
        ([[0, 0.5], 0, 0], "no cell"),
        ([[0, "1"], 0, 0], "no cell"),
    ],
)
def test_logs_that_are_none(check, read, splits, words):
    with refused(read, words):
        boxes(check, splits)


def test_every_box_has_its_multipliers_and_signs(check, read, monkeypatch):
    """What is handed to the bound, box by box; the largest of them is what is proved."""
    domain = check.Domain(domain_told())
    net = {"layers": [{"bias": [0] * 2}, {"bias": [0]}, {"bias": [0]}]}
    told = {"threshold": (0.25).hex()}
    answers = {}
    seen = []

    def bound(*arguments):
        seen.append(arguments)
        return answers.get(len(seen))

    monkeypatch.setattr(check, "bound", bound)
    row = [0.5, 0.25, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]  # two rates; two units in both runs, one unit in both runs
    log = {"0,1": {"splits": [["u", 4], 0, 0], "multipliers": [row, row]}, "1,0": {"splits": [0], "multipliers": [row]}}
    answers |= {1: Fraction(-3), 2: Fraction(-1), 3: Fraction(-2)}
    assert check.proved(told, net, domain, FLIP, log) == -1
    whole = 1 << 50
    assert len(seen) == 3
    for place, (_, question, _, sides, signs, rates, multipliers, threshold) in enumerate(seen):
        assert question == FLIP
        assert threshold == Fraction(1, 4)
        assert rates == (whole // 2, whole // 4)
        assert multipliers == [[[whole, 2 * whole], [3 * whole, 4 * whole]], [[5 * whole], [6 * whole]]]
        assert sides == ([[0, 0, 0], [0, 0, 1]] if place < 2 else [[0, 0, 1], [0, 0, 0]])
        # units are counted over the layers of the first run and then of the second: 2, 1, 2, 1
        expected = {0: [[(0, 0), (0, -1)], [(0, 0)]], 1: [[(0, 0), (0, 1)], [(0, 0)]], 2: None}[place]
        assert signs == expected
    seen.clear()
    answers.clear()
    assert check.proved(told, net, domain, SCORE, log) is None
    for wrong, words in (([row], "a multiplier for each"), ([row, row[:-1]], "a multiplier for each"),
                         ([row, [*row, 0.0]], "a multiplier for each"), ([row, row, row], "more multipliers"),
                         ([row, tuple(row)], "a multiplier for each"), ([], "a multiplier for each")):  # fmt: skip
        with refused(read, words):
            check.proved(told, net, domain, SCORE, log | {"0,1": log["0,1"] | {"multipliers": wrong}})
    for pairs in ({"0,1": log["0,1"]}, log | {"1,1": log["1,0"]}, {}):
        with refused(read, "every pair"):
            check.proved(told, net, domain, SCORE, pairs)
    with refused(read, "no threshold"):
        check.proved({"threshold": None}, net, domain, FLIP, log)
    assert check.proved({"threshold": None}, net, domain, SCORE, log) is None
    assert check.proved({"threshold": "inf"}, net, domain, FLIP, log) is None
    with refused(read, "finite"):
        check.proved({"threshold": "nan"}, net, domain, FLIP, log)
    only = check.Domain(domain_told(changing=0, block0={"last": [["0x0p+0"], ["0x1p+1"], ["0x1.8p+1"]]}))
    with refused(read, "every pair"):
        check.proved(told, net, only, SCORE, log)


# claims


def held(check, monkeypatch, question, largest, high, low=0.0, told=None, **changes):
    told = told or {"a": 1, "logs": {name: {"0,1": 0} for name in (FLIP, SCORE, CHANCE)}}
    monkeypatch.setattr(check, "proved", lambda *_: largest)
    statement = {name: value for name, value in told.items() if name != "logs"}
    digest = hashlib.sha256(json.dumps(statement, sort_keys=True).encode()).hexdigest()
    claim = finding(metric=question, interval=[low, high], evidence={"statement_sha256": digest}) | changes
    return check.holds(told, None, None, question, claim)


def test_an_upper_end_is_no_less_than_what_is_proved(check, read, monkeypatch):
    def good(*arguments, **changes):
        return held(check, monkeypatch, *arguments, **changes)[0]

    tiny = Fraction(1, 10**30)
    assert good(SCORE, HALF, 0.5)
    assert not good(SCORE, HALF + tiny, 0.5)
    assert good(SCORE, -HALF, 0.0)
    assert not good(SCORE, tiny, 0.0)
    assert good(CHANCE, HALF, 0.5)
    assert not good(CHANCE, HALF + tiny, 0.5)
    assert good(FLIP, -tiny, 0.0)
    assert not good(FLIP, Fraction(0), 0.0)
    assert good(FLIP, None, 0.0)
    assert held(check, monkeypatch, SCORE, HALF, 0.5) == (True, HALF)
    assert held(check, monkeypatch, FLIP, HALF, 1.0) is None
    assert held(check, monkeypatch, CHANCE, HALF, 1.0) is None
    assert held(check, monkeypatch, CHANCE, HALF, 2.0) is None
    assert held(check, monkeypatch, SCORE, HALF, 1.0) == (True, HALF)
    assert held(check, monkeypatch, CHANCE, Fraction(1), 0.99) == (False, 1)
    assert good(SCORE, HALF, 0.5, low=0.5)
    for low, high in ((0.6, 0.5), (math.nan, 0.5), (0.0, math.inf), (-math.inf, 0.5), (0.0, math.nan)):
        with refused(read, "the interval is none"):
            held(check, monkeypatch, SCORE, HALF, high, low=low)
    with refused(read, "another proof"):
        held(check, monkeypatch, SCORE, HALF, 0.5, evidence={"statement_sha256": "0"})
    with refused(read, "another proof"):
        held(check, monkeypatch, SCORE, HALF, 0.5, evidence={})
    with refused(read, "near people"):
        held(check, monkeypatch, SCORE, HALF, 0.5, parameters={"near": 0.1})
    for logs in ({}, {SCORE: {}}, {FLIP: {"0,1": 0}}):
        with refused(read, "no log"):
            held(check, monkeypatch, SCORE, HALF, 0.5, told={"logs": logs})
    with refused(read, "no box"):
        held(check, monkeypatch, SCORE, None, 0.5)
    with refused(read, "no box"):
        held(check, monkeypatch, CHANCE, None, 0.5)


def test_the_band_around_the_threshold_is_that_of_the_link(check, read, monkeypatch):
    told = domain_told() | {"model_sha256": "m", "direction": 1, "output": "y", "band": (0.0).hex()}
    graph = graph_of([], {})
    graph.sha256 = "m"
    monkeypatch.setattr(check, "run_encoders", lambda *_: None)
    wide = float(check.SOFTMAX) * 1.001
    for two, band, good in ((False, 0.0, True), (False, -1e-9, False), (True, 0.0, False), (True, wide, True),
                            (True, float(check.SOFTMAX) * 0.999, False)):  # fmt: skip
        monkeypatch.setattr(check, "network_of", lambda *_, two=two: ({"layers": []}, two))
        if good:
            net, domain = check.problem_of(told | {"band": band.hex()}, graph)
            assert (net["band"], net["grain"]) == (Fraction(band), domain.grain)
        else:
            with refused(read, "surer"):
                check.problem_of(told | {"band": band.hex()}, graph)
    for wrong, words in (
        ({"model_sha256": "n"}, "another model"),
        ({"direction": 0}, "direction"),
        ({"direction": 2}, "direction"),
    ):
        with refused(read, words):
            check.problem_of(told | wrong, graph)
    monkeypatch.setattr(check, "network_of", lambda *_: ({"layers": []}, False))
    check.problem_of(told | {"direction": -1}, graph)


def test_the_words_of_an_outcome(check, read, monkeypatch, tmp_path, capsys):
    """Every question is answered on a line; one that is refuted, or nothing that is claimed, is an error."""
    monkeypatch.setattr(check, "Graph", lambda data: SimpleNamespace(sha256="m"))
    monkeypatch.setattr(check, "problem_of", lambda told, graph: (None, None))
    (tmp_path / "m.onnx").write_bytes(b"")

    def run(outcomes, digest="m", schema=check.SCHEMA):
        monkeypatch.setattr(check, "holds", lambda told, net, domain, question, claim: outcomes[question])
        (tmp_path / "p.json").write_text(json.dumps({"schema": schema}))
        report = {"model": {"sha256": digest}, "findings": [finding(metric=name) for name in outcomes]}
        (tmp_path / "r.json").write_text(json.dumps(report))
        code = check.main(tmp_path / "p.json", tmp_path / "m.onnx", tmp_path / "r.json")
        return code, capsys.readouterr().out

    code, said = run({FLIP: (True, None), SCORE: (True, HALF), CHANCE: None})
    assert (code, said.count("holds"), said.count("nothing to prove")) == (0, 2, 1)
    assert "all_inputs_flip: at most 0.5, proved nothing: holds" in said
    assert "all_inputs_score_change: at most 0.5, proved 0.5: holds" in said
    for outcomes in ({FLIP: (False, HALF), SCORE: (True, HALF)}, {FLIP: (True, None), SCORE: (False, HALF)}):
        code, said = run(outcomes)
        assert (code, said.count("holds"), said.count("REFUTED")) == (1, 1, 1)
    code, said = run({FLIP: None})
    assert (code, "claims nothing" in said) == (1, True)
    code, said = run({FLIP: (True, None)}, digest="n")
    assert (code, "another model file" in said) == (1, True)
    code, said = run({FLIP: (True, None)}, schema="fairkit.all-inputs/2")
    assert (code, "another version" in said) == (1, True)
