"""What a repair did to people: given models of five data sets under the default objective, beside fairlearn's rule.

    FAIRKIT_DATA=... python benchmarks/repair_people.py [--data Adult] [--learners LightGBM] [--limit 0.05]

Every model is trained on a quarter of the rows by its library and given as an ONNX file. The repair learns from three
eighths and is looked at on the last three; fairlearn's rule of equal rates is learned from the same rows. Results are
written after each cell; the same command goes on from there.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import fairkit

RESULTS = Path(__file__).parent / "results" / "repair_people.json"
SEED = 0
# data: the label, the outcome that is good for the person, who is compared, the limit, the bank's cutoff
CASES: dict[str, tuple[str, Any, str, float, float]] = {
    "Adult": ("income", 1, "sex", 0.05, 0.5),
    "ACSIncome": ("PINCP", 1, "SEX", 0.05, 0.5),
    "credit default": ("repaid", 1, "AGE:30:45", 0.08, 0.8),
    "COMPAS": ("clear", 1, "race", 0.15, 0.5),
    "law school": ("pass_bar", 1, "race", 0.1, 0.9),
}
LEARNERS = ("LightGBM", "XGBoost", "logistic regression", "torch MLP")


def frame_of(name: str) -> pd.DataFrame:
    """Return the rows of a data set, all features as numbers."""
    file = {"credit default": "credit_default", "law school": "law_school", "ACSIncome": "acs_income"}
    frame = fairkit.datasets.frame(file.get(name, name.lower()))
    if name == "Adult":
        frame = frame.drop(columns=["split", "fnlwgt"]).assign(income=lambda f: (f["income"] == ">50K").astype(int))
    if name == "ACSIncome":
        frame = frame.drop(columns=["row_index", "split"]).sample(20_000, random_state=SEED)
        frame["SEX"] = frame["SEX"].map({1: "male", 2: "female"})
    if name == "credit default":
        frame = frame.drop(columns=["ID"]).rename(columns={"default_payment_next_month": "repaid"})
        frame["repaid"] = 1 - frame["repaid"]
    if name == "COMPAS":
        frame = frame[frame["race"].isin(["African-American", "Caucasian"])]
        columns = ["sex", "age", "race", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count",
                   "c_charge_degree", "two_year_recid"]  # fmt: skip
        frame = frame[columns].rename(columns={"two_year_recid": "clear"})
        frame["clear"] = 1 - frame["clear"]
    if name == "law school":
        frame = frame[["lsat", "ugpa", "zfygpa", "fulltime", "fam_inc", "male", "tier", "race", "pass_bar"]].dropna()
    return frame.reset_index(drop=True)


def encoded(frame: pd.DataFrame, label: str, sensitive: str) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows with text as numbers, the sensitive column as it is, and the names of the features."""
    hidden = sensitive.partition(":")[0]
    plain = frame.copy()
    for column in plain.columns:
        if column not in (label, hidden) and not pd.api.types.is_numeric_dtype(plain[column]):
            plain[column] = plain[column].astype("category").cat.codes.astype(float)
    features = [c for c in plain.columns if c not in (label, hidden)]
    if pd.api.types.is_numeric_dtype(plain[hidden]):
        features.append(hidden)
    return plain, features


def trained(learner: str, x: np.ndarray, y: np.ndarray, path: Path, names: list[str]) -> None:
    """Train with the library itself, and write the file that its users would give."""
    if learner == "logistic regression":
        from skl2onnx.common.data_types import FloatTensorType
    else:
        from onnxmltools.convert.common.data_types import FloatTensorType

    x = x.astype(np.float32)
    kind = [("x", FloatTensorType([None, x.shape[1]]))]
    if learner == "LightGBM":
        import lightgbm
        from onnxmltools import convert_lightgbm

        model = lightgbm.LGBMClassifier(n_estimators=80, num_leaves=15, n_jobs=1, verbose=-1, random_state=SEED)
        proto = convert_lightgbm(model.fit(x, y), initial_types=kind, zipmap=False, target_opset=15)
    elif learner == "XGBoost":
        import xgboost
        from onnxmltools import convert_xgboost

        model = xgboost.XGBClassifier(n_estimators=80, max_depth=4, n_jobs=1, random_state=SEED)
        proto = convert_xgboost(model.fit(x, y), initial_types=kind, target_opset=15)
    elif learner == "logistic regression":
        from skl2onnx import to_onnx
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(x, y)
        proto = to_onnx(model, initial_types=kind, options={"zipmap": False}, target_opset=15)
    else:
        _torch(x, y, path)
        return
    path.write_bytes(proto.SerializeToString())


def _torch(x: np.ndarray, y: np.ndarray, path: Path) -> None:
    import torch

    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    mean, scale = torch.tensor(x.mean(0)), torch.tensor(x.std(0) + 1e-6)

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = torch.nn.Sequential(
                torch.nn.Linear(x.shape[1], 32), torch.nn.ReLU(), torch.nn.Linear(32, 1), torch.nn.Sigmoid()
            )

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return self.body((rows - mean) / scale)

    net, rows, goal = Net(), torch.tensor(x), torch.tensor(y, dtype=torch.float32)[:, None]
    steps = torch.optim.Adam(net.parameters(), lr=0.003, weight_decay=1e-5)
    for _ in range(25):
        for part in torch.randperm(len(rows)).split(256):
            steps.zero_grad()
            torch.nn.functional.binary_cross_entropy(net(rows[part]), goal[part]).backward()
            steps.step()
    torch.onnx.export(net, rows[:2], str(path), input_names=["x"], output_names=["p"], dynamo=False,
                      dynamic_axes={"x": {0: "n"}, "p": {0: "n"}})  # fmt: skip


def cell(name: str, learner: str, folder: Path, limit: float | None = None) -> dict[str, Any]:
    """Repair one model, and say what became of the people of the test rows."""
    label, good, sensitive, usual, cutoff = CASES[name]
    limit = usual if limit is None else limit
    frame, features = encoded(frame_of(name), label, sensitive)
    order = np.random.default_rng(SEED).permutation(len(frame))
    train, fit, test = (
        frame.iloc[np.sort(part)].reset_index(drop=True)
        for part in np.split(order, [len(order) // 4, 5 * len(order) // 8])
    )
    path = folder / f"{name}-{learner}.onnx".replace(" ", "-")
    means = train[features].mean()
    train, fit, test = (part.fillna(means) for part in (train, fit, test))
    trained(learner, train[features].to_numpy(), train[label].to_numpy(), path, features)
    roles: dict[str, Any] = {"label": label, "favorable": good, "sensitive": sensitive, "features": features}
    rule = fairkit.Rule("demographic_parity_difference", sensitive.partition(":")[0], max=limit)
    begun = time.perf_counter()
    result = fairkit.repair(
        fairkit.load_data(fit, **roles), [rule], test=fairkit.load_data(test, **roles), model=str(path),
        threshold=cutoff, threads=1, anyway=True, seed=SEED,
    )  # fmt: skip
    people = result.people
    return {
        "seconds": time.perf_counter() - begun,
        "rows": len(test),
        "verdict": result.after.verdict,
        "picked": result.search.choice.name,
        "chance": result.search.choice.chance,
        "power": result.search.power.chance,
        "needed": result.search.power.needed,
        "gap": [_gap(one, sensitive) for one in (result.before, result.after)],
        "people": people.to_dict(),
        "fairlearn": fairlearn(result, fit, test, label, sensitive, cutoff),
    }


def _gap(report: Any, sensitive: str) -> float:
    return float(report.find("demographic_parity_difference", sensitive.partition(":")[0]).value)


def fairlearn(result: Any, fit: pd.DataFrame, test: pd.DataFrame, label: str, sensitive: str, cutoff: float) -> Any:
    """Return fairlearn's rule at the rate of before: equal rates, its own curves, its own interpolation."""
    from fairlearn.postprocessing._tradeoff_curve_utilities import _tradeoff_curve

    from fairkit.data.table import Table

    parts = []
    roles = {"label": label, "favorable": 1, "sensitive": sensitive}
    for rows in (fit, test):
        data = fairkit.load_data(rows, **roles)
        parts.append(Table.from_dataset(data))
    base = result.fitted.base if hasattr(result.fitted, "base") else None
    if base is None:
        return None
    scores = [base.scores(part.columns) for part in parts]
    groups = [next(iter(part.groups.values())) for part in parts]
    rate = float((scores[0] >= cutoff).mean())
    chance = np.zeros(len(test))
    for code, group in enumerate(groups[0].names):
        own, new = groups[0].codes == code, groups[1].codes == groups[1].names.index(group)
        frame = pd.DataFrame({"score": scores[0][own], "label": parts[0].target[own].astype(int)})
        curve = _tradeoff_curve(frame, group, flip=False, x_metric="selection_rate", y_metric="accuracy_score")
        at = min(int(np.searchsorted(curve["x"], rate)), len(curve["x"]) - 1)
        low, high = curve["x"][max(at - 1, 0)], curve["x"][at]
        share = 1.0 if high <= low else (rate - low) / (high - low)
        for place, weight in ((max(at - 1, 0), 1 - share), (at, share)):
            chance[new] += weight * (scores[1][new] > curve["operation"][place]._threshold)
    y = parts[1].target
    return {"rate": float(chance.mean()), "precision": float((y * chance).sum() / chance.sum()),
            "accuracy": float(np.where(y > 0, chance, 1 - chance).mean())}  # fmt: skip


def main() -> None:
    """Run the cells that are not there yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=",".join(CASES))
    parser.add_argument("--learners", default=",".join(LEARNERS))
    parser.add_argument("--limit", type=float, help="in place of the data set's own")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    done = json.loads(options.output.read_text()) if options.output.exists() and not options.again else {}
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / "repair_people"
    folder.mkdir(exist_ok=True)
    for name in options.data.split(","):
        for learner in options.learners.split(","):
            key = f"{name}, {learner}" + ("" if options.limit is None else f", at {options.limit:g}")
            if key in done:
                continue
            found = done[key] = cell(name, learner, folder, options.limit)
            options.output.write_text(json.dumps(done, indent=1, sort_keys=True) + "\n")
            told = found["people"]
            print(
                name,
                learner,
                found["verdict"],
                [round(g, 3) for g in found["gap"]],
                [round(told["approved"][k], 4) for k in ("before", "after")],
                f"{found['seconds']:.0f} s",
                flush=True,
            )
    print(table(done))


def table(done: dict[str, Any]) -> str:
    """Return the table of the docs."""
    heads = ["model", "verdict", "gap", "approved", "of those with a bad outcome", "good among the approved",
             "fairlearn's", "another answer"]  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for name, one in done.items():
        told = one["people"]
        pairs = [f"{told[key]['before']:.3f} → {told[key]['after']:.3f}"
                 for key in ("approved", "approved_bad", "objective")]  # fmt: skip
        theirs = "" if one["fairlearn"] is None else f"{one['fairlearn']['precision']:.3f}"
        gap = f"{one['gap'][0]:.3f} → {one['gap'][1]:.3f}"
        changed = f"{1000 * told['changed']:.0f} of 1,000"
        lines.append(f"| {' | '.join([name, one['verdict'], gap, *pairs, theirs, changed])} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
