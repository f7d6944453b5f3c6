"""Bloomberg's published rankings of GPT-3.5 and GPT-4 (2024), analysed again with lists and names as samples.

    git clone https://github.com/BloombergGraphics/2024-openai-gpt-hiring-racial-discrimination
    python benchmarks/correspondence_bloomberg.py 2024-openai-gpt-hiring-racial-discrimination

The data are Bloomberg's (Apache-2.0) and not part of fairkit. Of each model and job 1,000 lists of eight résumés, one
of each group, were ranked. Printed: what place, group and name do to the chance to be ranked first, and in how many of
28 pairs of groups a job the difference is significant with lists alone, and with names as samples too. The deviation of
names is that of the answers without the effects of places and texts: GPT-4 ranks one text first in 70 % of its lists
and another one in none, and with texts left in its deviation reads .020.
"""

from __future__ import annotations

import argparse
import json
import re
from itertools import combinations
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pyarrow as pa

from fairkit_correspondence.answers import adjusted
from fairkit_correspondence.interval import Cells, Parts, parts

MODELS = ("gpt-3.5-turbo", "gpt-4")


def lists(folder: Path) -> list[tuple[list[str], list[str], list[int | None], str]]:
    """Return each list's names and groups as shown, the rank of each (None: left out), and its prompt."""
    found = []
    for path in sorted(folder.glob("1121/*.json")):
        record = json.loads(path.read_text())
        names, groups = record["context"]["default_order"], record["context"]["demo_order"]
        text = record["choices"][0]["message"]["content"].upper()
        at = {name: match.start() for name in names if (match := re.search(rf"\b{re.escape(name)}\b", text))}
        order = sorted(at, key=at.__getitem__)
        found.append((names, groups, [order.index(n) if n in at else None for n in names], record["context"]["inputs"]))
    return found


def cells(job: list, one: str, other: str) -> Cells:
    """Return who was ranked first of two groups, list by list; who is left out was not ranked first."""
    rows = []
    for names, groups, ranks, _ in job:
        i, j = groups.index(one), groups.index(other)
        rows += [(len(rows) // 2, names[k], k == i, float(ranks[k] == 0)) for k in (i, j)]
    document, name, side, y = (np.array(column) for column in zip(*rows, strict=True))
    _, code = np.unique(name, return_inverse=True)
    return Cells(document, np.zeros_like(document), code, side, y, y, len(rows) // 2)


def unfloored(cells: Cells, found: Parts) -> float:
    """Return N_g + N_h by products of different lists alone, of a name's own answers less its group's mean.

    The auditor pairs each answer with the other group's on the same list: with one name of a group a list that brings
    the other name's noise in, and finds 36 and 10 significant pairs in place of 37 and 9.
    """
    total = 0.0
    for which, count in zip((True, False), found.counts, strict=True):
        rows = np.flatnonzero(cells.side == which)
        c = (cells.low[rows] - cells.low[rows].mean()) / cells.documents
        moved = np.bincount(cells.name[rows], c)
        total += count / (count - 1) * float((moved**2).sum()) - float((c**2).sum())
    return total


def without_places_and_texts(job: list) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return list, group, name and answer of every candidate, without the effects of places and texts."""
    rows = []
    for number, (names, groups, ranks, prompt) in enumerate(job):
        texts = prompt.split("<hr>")
        for place, name in enumerate(names):
            own = next(text.partition(name)[2] for text in texts if name in text)
            rows.append((number, groups[place], name, place, own.strip(), float(ranks[place] == 0)))
    number, group, name, place, text, first = (np.array(column) for column in zip(*rows, strict=True))
    table = pa.table({"place": place, "text": text})
    code = np.unique(group, return_inverse=True)[1]
    return number, group, name, adjusted(table, first, code, ["place", "text"])


def name_variance(name: np.ndarray, first: np.ndarray) -> float:
    """Return the variance of one group's names in the chance to be first, by products of different lists."""
    code = np.unique(name, return_inverse=True)[1]
    centred = first - first.mean()
    moved, count = np.bincount(code, centred), np.bincount(code)
    return float(((moved**2).sum() - (centred**2).sum()) / (count * (count - 1)).sum())


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path)
    root = options.parse_args().folder / "data" / "intermediary" / "resume_ranking"
    normal, pairs = NormalDist(), 0
    significant = np.zeros((2, 2), dtype=int)
    for model in MODELS:
        place, group, ratios, narrower, spread, left, torn, total = {}, {}, [], [], [], 0, 0, 0
        for job_folder in sorted((root / model).iterdir()):
            job = lists(job_folder)
            total += len(job)
            own: dict[str, list[float]] = {}
            for _, groups, ranks, _ in job:
                left += ranks.count(None)
                torn += None in ranks
                for k, rank in enumerate(ranks):
                    place.setdefault(k, []).append(rank == 0)
                    own.setdefault(groups[k], []).append(rank == 0)
            for one, values in own.items():
                group.setdefault(one, []).append(np.mean(values))
            number, of, name, first = without_places_and_texts(job)
            spread += [name_variance(name[of == one], first[of == one]) for one in own]
            clean = {one: first[of == one][np.argsort(number[of == one])] for one in own}
            for one, other in combinations(sorted(own), 2):
                paired = cells(job, one, other)
                found = parts(paired)
                v = float(found.differences.var(ddof=1)) / len(found.differences)
                names_part = unfloored(paired, found)
                both = v + max(names_part, 0.0)
                z = np.abs(found.value) / np.sqrt([v, both])
                significant[0] += z > 1.96
                significant[1] += z > normal.inv_cdf(1 - 0.025 / 28)
                ratios.append(np.sqrt(both / v))
                narrower.append(np.sqrt((clean[one] - clean[other]).var(ddof=1) / len(job) / v))
                pairs += 1
        rates = {k: float(np.mean(values)) for k, values in place.items()}
        low, high = min(min(v) for v in group.values()), max(max(v) for v in group.values())
        print(f"{model}: {total:,} lists; first if shown first {rates[0]:.2f}, if shown last {rates[7]:.2f}")
        mean, error = float(np.mean(spread)), float(np.std(spread, ddof=1) / np.sqrt(len(spread)))
        sd, most = (np.sqrt(max(value, 0)) for value in (mean, mean + 1.96 * error))
        print(f"  by group and job {low:.2f} to {high:.2f}; sd of names {sd:.3f} (at most {most:.3f})")
        print(f"  without places and texts the lists' error is {1 - np.mean(narrower):.0%} smaller")
        print(f"  left out {left / total / 8:.2%} of candidates, {torn / total:.1%} of lists")
        print(f"  two-way error {np.mean(ratios):.2f} times the lists' (worst {max(ratios):.2f})")
    (lists_only, with_names), (strict, strict_names) = significant.tolist()
    print(f"of {pairs} pairs |z| > 1.96 in {lists_only} (lists), {with_names} (names too)")
    print(f"Bonferroni over 28: {strict} and {strict_names}")


if __name__ == "__main__":
    main()
