"""The libraries that grow the trees: which parameters each takes, and importing one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fairkit.errors import MissingExtraError, ParameterError

if TYPE_CHECKING:
    from fairkit.mitigators import Run

_OWN_XGBOOST = {
    "eta": "learning_rate",
    "learning_rate": "learning_rate",
    "max_leaves": "num_leaves",
    "num_boost_round": "n_estimators",
    "n_estimators": "n_estimators",
    "early_stopping_rounds": "early_stopping",
}
_REFUSED_XGBOOST = {
    "objective": "FairGBM is its own objective",
    "base_score": "it is the log-odds of the favorable share",
    "booster": "linear models and dart have no path of rounds to constrain",
    "num_class": "FairGBM is for binary tasks",
    "multi_strategy": "FairGBM is for binary tasks",
    "scale_pos_weight": "give weights, which the rates know too",
    "eval_metric": "the loss and the violation are reported as they are",
    "enable_categorical": "text goes in as one-hot columns, which have a form in ONNX",
    "num_parallel_tree": "a round is one tree here",
    "seed": "give the run's seed, which is kept in the report",
    "random_state": "give the run's seed, which is kept in the report",
    "nthread": "give the run's threads",
    "n_jobs": "give the run's threads",
}


def check(parameters: Any) -> None:
    """Refuse parameters of the other library, and those of XGBoost that contradict the method."""
    if parameters.backend == "xgboost" and parameters.lightgbm:
        raise ParameterError("fairgbm: backend=xgboost takes no lightgbm.KEY; give xgboost.KEY")
    if parameters.backend == "xgboost" and parameters.min_child_samples != 20:
        raise ParameterError(
            "fairgbm: XGBoost does not count the rows of a leaf; give xgboost.min_child_weight instead of "
            "min_child_samples"
        )
    if parameters.backend == "lightgbm" and parameters.xgboost:
        raise ParameterError("fairgbm: backend=lightgbm takes no xgboost.KEY; give lightgbm.KEY")
    for key in parameters.xgboost:
        if key in _OWN_XGBOOST:
            raise ParameterError(f"fairgbm: give {_OWN_XGBOOST[key]} itself instead of xgboost.{key}")
        if key in _REFUSED_XGBOOST:
            raise ParameterError(f"fairgbm: xgboost.{key} cannot be set: {_REFUSED_XGBOOST[key]}")


def xgboost_params(parameters: Any, run: Run) -> dict[str, Any]:
    """Return XGBoost's parameters: trees grow leaf by leaf, as LightGBM's do, unless the user says otherwise."""
    threads: Mapping[str, Any] = {} if run.threads is None else {"nthread": run.threads}
    return {
        "tree_method": "hist",
        "grow_policy": "lossguide",
        "max_depth": 0,
        "max_leaves": parameters.num_leaves,
        "eta": parameters.learning_rate,
        "seed": run.seed,
        "verbosity": 0,
        **threads,
        **parameters.xgboost,
    }


def machinery(backend: str | None, run: Run) -> Any:
    """Import a library and return the module that trains on it; numba gets as many threads."""
    library = backend or "lightgbm"
    try:
        __import__(library)  # the first to start its threads
    except ImportError as error:
        raise MissingExtraError(library, "fairgbm" if library == "lightgbm" else library) from error
    try:
        import numba
    except ImportError as error:
        raise MissingExtraError("numba", "fairgbm") from error
    from fairkit_fairgbm import trainer, xgb

    if run.threads is not None:
        most = int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
        numba.set_num_threads(max(1, min(run.threads, most)))
    return xgb if library == "xgboost" else trainer
