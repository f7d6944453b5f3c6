"""Tables of answers with a known difference."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def answers_table(
    seed=0, documents=60, names=40, each=4, groups=("black", "white"), gap=0.1, contexts=1, refused=0.0, noise=0.05
) -> pa.Table:
    """Return probabilities of yes: `gap` more for the last group; `refused` of the first group's are open."""
    rng = np.random.default_rng(seed)
    rows = []
    level = rng.uniform(0.3, 0.6, documents)
    effect = {(g, j): rng.normal(0, 0.02) for g in groups for j in range(names)}
    for t in range(documents):
        for c in range(contexts):
            for g in groups:
                for i in range(each):
                    j = (t * each + i) % names
                    y = level[t] + gap * (g == groups[-1]) * (c + 1) / contexts + effect[g, j] + rng.normal(0, noise)
                    out = rng.random() < refused and g == groups[0]
                    rows.append(
                        {
                            "document": f"d{t:03}",
                            "context": f"c{c}",
                            "race": g,
                            "name": f"{g} {j}",
                            "answer": None if out else float(np.clip(y, 0, 1)),
                            "outcome": "refused" if out else "answered",
                            "order": 0,
                        }
                    )
    order = rng.permutation(len(rows))
    for row, position in zip(rows, order, strict=True):
        row["order"] = int(position)
    return pa.Table.from_pylist(rows)
