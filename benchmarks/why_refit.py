"""What becomes of a gap when a model is trained again without the column that carries the most of it?

    python benchmarks/why_refit.py

Public tables (FAIRKIT_DATA), split in halves; a model trained on the one half is audited on the other, with
`why.refit`. Printed as rows of a table: the gap, the column, what the same model shows with the reference's values of
the column, and the gap after training again without it, paired on the same rows.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import fairkit
from fairkit.data.loading import load_data
from fairkit.data.table import Table
from fairkit.fitted import Run
from fairkit_repair.learners.fit import fit_learner


def cases():
    """Yield name, table and sensitive column; the label is ``y``, 1 is favorable."""
    folder = Path(os.environ.get("FAIRKIT_DATA", "shared/data"))
    adult = pd.read_parquet(folder / "adult.parquet").drop(columns=["fnlwgt", "education", "split"])
    adult["y"] = (adult.pop("income") == ">50K").astype(int)
    yield "Adult", adult, "sex"
    yield "Adult", adult[adult["race"].isin(["White", "Black"])], "race"
    acs = pd.read_parquet(folder / "acs_income.parquet").sample(60_000, random_state=0)
    acs = acs.rename(columns={"PINCP": "y"}).drop(columns=["row_index", "split"])
    yield "ACS", acs, "SEX"
    yield "ACS", acs[acs["RAC1P"].isin([1, 2])], "RAC1P"
    compas = pd.read_parquet(folder / "compas.parquet")
    compas["y"] = 1 - compas["two_year_recid"]
    kept = [
        "sex",
        "age",
        "race",
        "juv_fel_count",
        "juv_misd_count",
        "juv_other_count",
        "priors_count",
        "c_charge_degree",
    ]
    compas = compas[[*kept, "y"]]
    yield "COMPAS", compas[compas["race"].isin(["African-American", "Caucasian"])], "race"
    yield "COMPAS", compas, "sex"
    credit = pd.read_parquet(folder / "credit_default.parquet").drop(columns="ID")
    credit["y"] = 1 - credit.pop("default_payment_next_month")
    yield "credit", credit, "SEX"
    german = pd.read_parquet(folder / "german.parquet")
    german["y"] = (german.pop("class") == 1).astype(int)
    german["young"] = np.where(german["age"] < 30, "under 30", "30 and over")
    yield "German", german.drop(columns="age"), "young"


def main():
    print("| table, groups | reads it | gap | column | this model, other values | trained again without | change |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for (name, whole, sensitive), reads in ((case, reads) for case in cases() for reads in (True, False)):
        frame = whole.reset_index(drop=True)
        for column in frame.select_dtypes(exclude="number"):
            frame[column] = frame[column].astype(object)
        half = np.random.default_rng(0).random(len(frame)) < 0.5
        features = [c for c in frame if c != "y" and (reads or c != sensitive)]
        roles = {"label": "y", "favorable": 1, "sensitive": [sensitive], "features": features}
        train, test = load_data(frame[half], **roles), load_data(frame[~half], **roles)
        fitted = fit_learner("lightgbm", Table.from_dataset(train), Run(seed=0, threads=1))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "train.parquet"
            frame[half].to_parquet(path)
            settings = {"why": {"refit": str(path), "metric": ("selection_rate",), "calls": 100_000}}
            model = fitted.to_onnx().SerializeToString()
            report = fairkit.audit(model, test, auditors=["why"], parameters=settings)
        gone = next(one for one in report.findings if one.metric == "gap_without")
        told, ends = gone.evidence, gone.evidence["change_interval"]
        computed = told["with"] + told["computed_group"]["change"]
        print(
            f"| {name}, {sensitive} | {'yes' if reads else 'no'} | {told['with']:.3f} | {gone.parameters['without']} | "
            f"{computed:.3f} | {gone.value:.3f} [{gone.interval[0]:.3f}, {gone.interval[1]:.3f}] | "
            f"{told['change']:+.3f} [{ends[0]:+.3f}, {ends[1]:+.3f}] |",
            flush=True,
        )


if __name__ == "__main__":
    main()
