"""False passes when groups are missing or wrong: with and without the bounds on what they could do.

Missing: a true difference of .15, a quarter of the rows without a recorded group, all of them selected, so that the
recorded difference is about 0; the limit is .05. Wrong: a true difference of .10 with a tenth of the labels wrong, so
that the recorded one is .08; the limit is .09.

python benchmarks/unknown_groups.py [AUDITS]
"""

from __future__ import annotations

import sys

import numpy as np

import fairkit
from fairkit.models.columns import PredictedColumns


def verdict(sex, decision, limit, **told):
    data = fairkit.load_data(
        {"sex": sex, "y": np.arange(len(sex)) % 2, "decision": decision}, label="y", favorable=1, sensitive=["sex"]
    )
    rule = fairkit.Rule(metric="demographic_parity_difference", sensitive="sex", max=limit)
    model = PredictedColumns(decision="decision")
    return fairkit.audit(model, data, policy=[rule], parameters={"group": told}).verdict


def missing(seed, **told):
    rng = np.random.default_rng(seed)
    man = rng.random(20_000) < 0.5
    decision = (rng.random(len(man)) < np.where(man, 0.45, 0.30)).astype(int)
    gone = (decision == 1) & (rng.random(len(man)) < np.where(man, 0.75, 0.523))
    sex = np.where(man, "m", "f").astype(object)
    sex[gone] = None
    return verdict(sex, decision, 0.05, **told)


def wrong(seed, **told):
    rng = np.random.default_rng(seed)
    man = rng.random(20_000) < 0.5
    decision = (rng.random(len(man)) < np.where(man, 0.40, 0.30)).astype(int)
    recorded = man ^ (rng.random(len(man)) < 0.1)
    return verdict(np.where(recorded, "m", "f"), decision, 0.09, **told)


def main(audits=40):
    for name, one, settings in (
        ("missing groups, no bounds", missing, {"missing_share": 1.0}),
        ("missing groups", missing, {}),
        ("wrong groups, nothing said", wrong, {}),
        ("wrong groups, label_error sex=0.1:independent", wrong, {"label_error": ["sex=0.1:independent"]}),
        ("wrong groups, label_error sex=0.1", wrong, {"label_error": ["sex=0.1"]}),
    ):
        found = [one(seed, **settings) for seed in range(audits)]
        counts = ", ".join(f"{found.count(v)} {v}" for v in ("pass", "fail", "inconclusive"))
        print(f"{name:46} {counts} of {audits}; every pass is false", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
