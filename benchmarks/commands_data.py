"""Tables and models for `commands.py`: raw tables as people have them, with the models that people train.

FAIRKIT_DATA=... python benchmarks/commands_data.py adult-forest FOLDER
"""

from __future__ import annotations

import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Callable

DATA = Path(os.environ.get("FAIRKIT_DATA", "."))


@dataclass(frozen=True)
class Raw:
    """A table, and what its columns are."""

    frame: pd.DataFrame
    label: str
    favorable: Any
    sensitive: tuple[str, ...]

    @property
    def features(self) -> list[str]:
        """All columns but the label."""
        return [column for column in self.frame if column != self.label]


def adult() -> Raw:
    """Adult without missing values: 45,222 rows, 13 raw columns."""
    frame = pd.read_parquet(DATA / "adult.parquet").dropna().drop(columns=["fnlwgt", "split"])
    return Raw(frame, "income", ">50K", ("sex", "race"))


def credit() -> Raw:
    """Credit default: 30,000 rows, 23 numbers."""
    frame = pd.read_parquet(DATA / "credit_default.parquet").drop(columns=["ID"])
    return Raw(frame, "default_payment_next_month", 0, ("SEX", "MARRIAGE"))


def acs() -> Raw:
    """200,000 rows of ACSIncome, codes as numbers."""
    frame = pd.read_parquet(DATA / "acs_income.parquet").iloc[:200_000]
    frame = frame.drop(columns=["split", "row_index"]).reset_index(drop=True)
    return Raw(frame, "PINCP", 1, ("SEX", "RAC1P"))


def loans() -> Raw:
    """1,000,000 of fairkit's synthetic loans."""
    from fairkit_datasets.loans import loans_table

    return Raw(loans_table(1_000_000, 1).to_pandas(), "decision", "approved", ("sex", "ethnicity"))


def mortgages(rows: int = 200_000) -> Raw:
    """Synthetic applications in the shape of the HMDA tables: texts, two columns of 40 values each."""
    rng = np.random.default_rng(0)
    state = rng.integers(0, 40, rows)
    lender = (rng.integers(0, 40, rows) + 3 * (state % 7)) % 40
    race = rng.choice(6, rows, p=[0.62, 0.12, 0.09, 0.02, 0.01, 0.14])
    sex = rng.choice(4, rows, p=[0.35, 0.25, 0.3, 0.1])
    income = np.exp(rng.normal(4.4, 0.6, rows) - 0.15 * (race == 1)).round(0)
    amount = np.exp(rng.normal(12.2, 0.6, rows)).round(-3)
    value = (amount / rng.uniform(0.5, 1.0, rows)).round(-3)
    debt = rng.choice(8, rows)
    score = 0.5 + 0.4 * np.log(income / 80) - 0.15 * debt + 0.02 * (lender % 5) + rng.normal(0, 1, rows)
    races = np.array(["White", "Black", "Asian", "Native", "Pacific", "not available"], dtype=object)
    sexes = np.array(["Male", "Female", "Joint", "not available"], dtype=object)
    text = {
        "state": np.array([f"S{number:02}" for number in range(40)], dtype=object)[state],
        "lender": np.array([f"bank {number}" for number in range(40)], dtype=object)[lender],
        "loan_purpose": rng.choice(np.array(["purchase", "refinance", "cash-out", "improvement"], object), rows),
        "debt_to_income": np.array([f"{20 + 5 * k}%-<{25 + 5 * k}%" for k in range(8)], dtype=object)[debt],
        "race": races[race],
        "sex": sexes[sex],
    }
    numbers = {"income": income, "loan_amount": amount, "property_value": value}
    action = np.where(score + 1.0 > 0, "originated", "denied").astype(object)
    return Raw(pd.DataFrame({**text, **numbers, "action": action}), "action", "originated", ("sex", "race"))


def forest(raw: Raw) -> bytes:
    """Train 60 trees of scikit-learn behind one-hot columns."""
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    X = raw.frame[raw.features]
    texts = [column for column in X if X[column].dtype.kind not in "if"]
    numbers = [column for column in X if column not in texts]
    X = X.astype(dict.fromkeys(numbers, np.float32))
    leaf = 1 if len(X) < 100_000 else 20
    encode = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), texts), ("passthrough", numbers))
    trees = RandomForestClassifier(60, min_samples_leaf=leaf, random_state=0, n_jobs=2)
    fitted = make_pipeline(encode, trees).fit(X, raw.frame[raw.label])
    types = [(column, StringTensorType([None, 1]) if column in texts else FloatTensorType([None, 1])) for column in X]
    content: bytes = to_onnx(fitted, initial_types=types, options={id(fitted): {"zipmap": False}}).SerializeToString()
    return content


def lightgbm(raw: Raw) -> bytes:
    """Train fairkit's own LightGBM on at most 200,000 rows."""
    import fairkit
    from fairkit.fitted import Run
    from fairkit.mitigators import Table
    from fairkit_onnx.write.export import export_bytes
    from fairkit_repair.learners import fit_learner

    data = fairkit.load_data(
        raw.frame.iloc[:200_000], label=raw.label, favorable=raw.favorable, sensitive=list(raw.sensitive)
    )
    table = Table.from_dataset(data, None)
    return export_bytes(fit_learner("lightgbm", table, Run(seed=0)), table)


def catboost(raw: Raw) -> bytes:
    """Train 300 trees of CatBoost on numbers."""
    import tempfile

    from catboost import CatBoostClassifier

    fitted = CatBoostClassifier(iterations=300, random_seed=0, verbose=False, allow_writing_files=False)
    fitted.fit(raw.frame[raw.features].to_numpy(np.float32), raw.frame[raw.label])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        fitted.save_model(str(path), format="onnx")
        return path.read_bytes()


def network(raw: Raw) -> bytes:
    """Train a torch network of two layers of 64 on numbers, with its scaling inside."""
    import io

    import torch

    torch.manual_seed(0)
    X = torch.tensor(raw.frame[raw.features].to_numpy(np.float32))
    y = torch.tensor((raw.frame[raw.label] == raw.favorable).to_numpy(np.float32))

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean, self.scale = torch.nn.Parameter(X.mean(0)), torch.nn.Parameter(X.std(0) + 1e-6)
            layers = [torch.nn.Linear(X.shape[1], 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)]
            self.body = torch.nn.Sequential(*layers, torch.nn.ReLU(), torch.nn.Linear(64, 1))

        def forward(self, x: Any) -> Any:
            return torch.sigmoid(self.body((x - self.mean) / self.scale))

    net = Net()
    optimizer = torch.optim.Adam(net.body.parameters(), 1e-3)
    for step in range(300):
        rows = torch.randint(len(X), (1_024,), generator=torch.Generator().manual_seed(step))
        loss = torch.nn.functional.binary_cross_entropy(net(X[rows])[:, 0], y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net.eval(),
            (X[:2],),
            out,
            dynamo=False,
            input_names=["features"],
            output_names=["score"],
            dynamic_axes={"features": {0: "n"}, "score": {0: "n"}},
        )
    return out.getvalue()


MAKERS: dict[str, tuple[Callable[[], Raw], Callable[[Raw], bytes], bool]] = {
    "adult-forest": (adult, forest, False),
    "credit-catboost": (credit, catboost, True),
    "credit-network": (credit, network, True),
    "mortgages-forest": (mortgages, forest, False),
    "acs-lightgbm": (acs, lightgbm, False),
    "loans-lightgbm": (loans, lightgbm, False),
}
"""By name: the table, the model, and whether the model takes all features as one matrix."""


def write(name: str, folder: Path) -> None:
    """Write a table, its model, and last the options that name its roles, one a line."""
    make, train, matrix = MAKERS[name]
    raw = make()
    raw.frame.to_parquet(folder / f"{name}.parquet")
    (folder / f"{name}.onnx").write_bytes(train(raw))
    options = ["--label", raw.label, "--favorable", str(raw.favorable), "--sensitive", ",".join(raw.sensitive)]
    options += ["--features", ",".join(raw.features)] if matrix else []
    (folder / f"{name}.roles").write_text("\n".join(options))


if __name__ == "__main__":
    write(sys.argv[1], Path(sys.argv[2]))
