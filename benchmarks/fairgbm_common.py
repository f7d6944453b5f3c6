"""What the FairGBM benchmarks share: data, splits, rates."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import fairkit
from fairkit.mitigators import Table
from fairkit_repair.mitigation.split import stratified

COMPAS = ["age", "sex", "race", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count", "c_charge_degree"]
ROLES = {
    "adult": {"label": "income", "favorable": ">50K", "sensitive": "sex", "drop": ["split"]},
    "german": {"label": "class", "favorable": 1, "sensitive": "age:26"},
    "compas": {"label": "two_year_recid", "favorable": 0, "sensitive": "sex", "features": COMPAS},
    "credit_default": {"label": "default_payment_next_month", "favorable": 0, "sensitive": "SEX", "drop": ["ID"]},
    "acs_income": {"label": "PINCP", "favorable": 1, "sensitive": "SEX", "drop": ["row_index", "split"]},
}


def folder() -> Path:
    """The folder with the public data sets."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    return Path(os.environ.get("FAIRKIT_DATA", default))


def load(name: str, rows: int | None = None, **changes) -> Table:
    import pyarrow.parquet as pq

    table = pq.read_table(folder() / f"{name}.parquet")
    if rows is not None:
        table = table.slice(0, rows)
    return Table.from_dataset(fairkit.load_data(table, name=name, **(ROLES[name] | changes)))


def split(table: Table, seed: int, share: float = 0.2) -> tuple[Table, Table]:
    groups = table.only_groups()
    cells = 2 * groups.codes + table.target.astype(int)
    held = stratified(cells, share, np.random.default_rng(seed))
    return table.take(~held), table.take(held)


@dataclass(frozen=True)
class Rates:
    accuracy: float
    fnr: np.ndarray
    fpr: np.ndarray
    gap: float
    half_width: float  # of the gap's 95 % interval, binomial

    @property
    def overall(self) -> float:
        return float(self.fnr.max() - self.fnr.min())


def rates(model, table: Table) -> Rates:
    chance = model.predict(table.columns).decision_probability
    codes, target = table.only_groups().codes, table.target
    groups = range(codes.max() + 1)
    fnr = np.array([1 - chance[(codes == g) & (target == 1)].mean() for g in groups])
    fpr = np.array([chance[(codes == g) & (target == 0)].mean() for g in groups])
    sizes = np.array([((codes == g) & (target == 1)).sum() for g in groups])
    half = 1.96 * np.sqrt((fnr * (1 - fnr) / sizes).sum())
    accuracy = np.where(target == 1, chance, 1 - chance).mean()
    return Rates(float(accuracy), fnr, fpr, float(fnr.max() - fnr.min()), float(half))


def line(*cells) -> None:
    print("  ".join(f"{cell:>14}" if not isinstance(cell, float) else f"{cell:14.4f}" for cell in cells), flush=True)
