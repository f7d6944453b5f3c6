"""Parity between sexes can widen the gap inside an ethnic group; parity of sex and race cannot (figure 1).

Adult, three classifiers. For each ethnic group the absolute difference of the rates of men and women: of the
classifier, after parity of sex, after parity of sex and race. On the fit part the last is 0 by construction;
the test part shows what is left by chance in groups of few rows.

    python benchmarks/rto_intersections.py --plot docs/images/rto-intersections.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import fairkit_datasets as datasets
from fairkit.mitigators import Run
from fairkit_onnx.write.rules import GroupColumn, GroupKeys, GroupRule
from fairkit_repair.scored_rows import ScoredRows
from fairkit_rto.mitigator import RandomizedThresholds

STATES = ("unmodified", "parity of sex", "parity of sex and race")


def classifiers():
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier

    return {
        "forest": RandomForestClassifier(max_depth=10, random_state=0),
        "knn": KNeighborsClassifier(10),
        "logistic": LogisticRegression(max_iter=1000),
    }


def chances(fit, test):
    """Learn on the fit rows; give h on both."""
    solution = RandomizedThresholds.with_values({"gamma": 0.05}).solve(fit, None, Run())
    count = len(fit.names)
    column = GroupColumn(name="g", keys=tuple(float(k) for k in range(count)))
    keys = GroupKeys(columns=(column,), names=fit.names, cells=tuple((k + 1,) for k in range(count)))
    rule = GroupRule(keys=keys, pieces=solution.pieces)
    return rule.probability(fit.scores, fit.codes), rule.probability(test.scores, test.codes)


def gaps(h, sex, race, names):
    return [abs(h[(race == k) & (sex == 1)].mean() - h[(race == k) & (sex == 0)].mean()) for k in range(len(names))]


def study():
    """Return the gaps by classifier, part and state, and the ethnic groups."""
    import pandas as pd
    from sklearn.preprocessing import StandardScaler

    frame = datasets.frame("adult")
    y = (frame.pop("income") == ">50K").to_numpy().astype(float)
    sex = (frame["sex"] == "Female").to_numpy().astype(np.int64)
    names, race = np.unique(frame["race"].to_numpy(str), return_inverse=True)
    X = pd.get_dummies(frame.drop(columns=["split", "fnlwgt"])).to_numpy(np.float64)
    train, fit, test = np.split(np.random.default_rng(0).permutation(len(y)), [len(y) // 3, 2 * len(y) // 3])
    X = StandardScaler().fit(X[train]).transform(X)
    found = {}
    for kind, model in classifiers().items():
        model.fit(X[train], y[train])
        scores = {part: model.predict_proba(X[rows])[:, 1] for part, rows in (("fit", fit), ("test", test))}

        def rows_of(part, index, codes, labels, scores=scores):
            return ScoredRows(scores=scores[part], codes=codes[index], names=labels, favorable=y[index])

        crossed = tuple(f"{s} & {r}" for s in ("men", "women") for r in names)
        chance = {
            STATES[0]: tuple((scores[part] >= 0.5).astype(float) for part in ("fit", "test")),
            STATES[1]: chances(*(rows_of(p, i, sex, ("men", "women")) for p, i in (("fit", fit), ("test", test)))),
            STATES[2]: chances(
                *(rows_of(p, i, sex * len(names) + race, crossed) for p, i in (("fit", fit), ("test", test)))
            ),
        }
        for place, (part, index) in enumerate((("fit", fit), ("test", test))):
            for state in STATES:
                found[kind, part, state] = gaps(chance[state][place], sex[index], race[index], names)
    return found, list(names)


def draw(found, names, path):
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    kinds = list(classifiers())
    figure, axes = plt.subplots(1, len(kinds), figsize=(13, 3.6), layout="constrained", sharey=True)
    for axis, kind in zip(axes, kinds, strict=True):
        for place, state in enumerate(STATES):
            at = np.arange(len(names)) + 0.27 * (place - 1)
            axis.bar(at, found[kind, "test", state], width=0.25, label=state)
        axis.set_xticks(range(len(names)), [name.replace("-", "\n") for name in names], fontsize=8)
        axis.set_title(kind, fontsize=10)
    axes[0].set_ylabel("gap between men and women")
    axes[0].legend(fontsize=8)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80, metadata={"Software": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plot")
    arguments = parser.parse_args()
    found, names = study()
    print(f"{'classifier':<12}{'part':<6}{'state':<26}" + "".join(f"{name:>20}" for name in names))
    for (kind, part, state), values in found.items():
        print(f"{kind:<12}{part:<6}{state:<26}" + "".join(f"{value:>20.4f}" for value in values))
    if arguments.plot:
        draw(found, names, arguments.plot)


if __name__ == "__main__":
    main()
