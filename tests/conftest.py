"""Fixtures for all tests: where the public data sets are, and small tables made by formula."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# the same examples in every run, however slow the machine: `benchmarks/fuzz_input.py` draws new ones
settings.register_profile("steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")

ROOT = Path(__file__).resolve().parents[1]

LONGEST = (
    "fairkit_testing/test_every_plugin.py",
    "fairkit_registry/test_crash.py",
    "outside/distributed/test_certificates.py",
    "outside/sources/test_queries.py",
    "fairkit_mlflow/test_evaluator.py",
    "docs/test_pages.py",
    "docs/test_site.py",
    "fairkit_repair/test_estimators.py",
)
"""Files that take longest, or bring a room of `TOGETHER` with them: begun first, so that no worker waits at the end."""

TOGETHER = (
    {"fairkit_all_inputs"}, {"fairkit_budro", "fairkit_individual", "fairkit_sensei", "fairkit_similarity"},
    {"fairkit_mlflow"}, {"fairkit_testing"}, {"distributed"}, {"sources"},
)  # fmt: skip
"""Rooms whose tests run the same compiled loops, servers or environments: one worker has them, else two make each."""


OUTSIDE = (
    ROOT / "tests" / "outside",
    *(ROOT / "tests" / "docs" / f"test_{name}.py" for name in ("from_fairlearn", "pages", "site")),
)
"""Folders and files that start servers or fresh environments, or run whole pages as typed: all are long."""


def pytest_sessionstart() -> None:
    """Leave the garbage collector off while tests are collected: it would look through all of them again and again.

    A job in the background of a shell is deaf to Ctrl-C, and so would be the commands that tests interrupt.
    """
    gc.disable()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Leave what was collected to the end of the session, and collect what the tests leave."""
    gc.freeze()
    gc.enable()


def pytest_sessionfinish() -> None:
    """Let everything be collected at the end, else libraries say that objects of theirs leaked."""
    gc.unfreeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give a worker whole files as `--dist loadfile` does, and whole rooms where `TOGETHER` says so."""
    from xdist.scheduler import LoadFileScheduling

    class ByRoom(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            rooms = next((rooms for rooms in TOGETHER if rooms & set(file.split("/"))), None)
            return file if rooms is None else " ".join(sorted(rooms))

    return ByRoom(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file of only long tests where none is run."""
    return (config.option.markexpr == "not long" and collection_path in OUTSIDE) or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files; the others keep their order."""
    places = {ROOT / "tests" / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
    outside = {path for path in {item.path for item in items} if any(map(path.is_relative_to, OUTSIDE))}
    for item in items:
        if item.path in outside:
            item.add_marker(pytest.mark.long)


def data_folder() -> Path | None:
    """The folder with the public data sets: FAIRKIT_DATA, else shared/data beside the repository."""
    named = os.environ.get("FAIRKIT_DATA")
    folder = Path(named) if named else ROOT.parent / "shared" / "data"
    return folder if (folder / "adult.parquet").is_file() else None


@pytest.fixture(autouse=True, scope="session")
def own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A state folder of the tests' own: what registries and keys remember never goes to the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("COLUMNS", raising=False)  # which workers of pytest set: text is as wide as in a pipe
        os.unsetenv("COLUMNS")  # readline sets it for other processes alone
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def public_data() -> Path:
    """The folder with the public data sets; the test is skipped where there is none."""
    folder = data_folder()
    if folder is None:
        pytest.skip("set FAIRKIT_DATA to a folder with the public data sets as Parquet files")
    return folder


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`invoke` in an empty folder."""
    from tests.commands import invoke

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FAIRKIT_REGISTRY", raising=False)
    return invoke


@dataclass(frozen=True)
class BuiltModel:
    """An ONNX file, and a data file to audit it on."""

    path: Path
    data: Path

    def again(self, path: Path) -> Path:
        """Write the same model in other bytes."""
        import onnx

        model = onnx.load(self.path)
        model.metadata_props.add(key="written", value=path.name)
        path.write_bytes(model.SerializeToString())
        return path


LOANS_AUDIT = ("--label", "decision", "--favorable", "approved", "--sensitive", "sex")


@pytest.fixture(scope="session")
def loans_model(tmp_path_factory: pytest.TempPathFactory) -> BuiltModel:
    """A scikit-learn pipeline on the synthetic loans, one ONNX input per column, and the loans to audit it on."""
    import pyarrow.parquet as pq
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    from fairkit_datasets.loans import loans_table

    folder = tmp_path_factory.mktemp("loans")
    train = loans_table(4_000, 1).to_pandas()
    texts = ["sex", "ethnicity", "region", "employment"]
    numbers = ["age", "income", "debt_ratio", "amount"]
    columns = make_column_transformer((OneHotEncoder(), texts), (StandardScaler(), numbers))
    pipeline = make_pipeline(columns, LogisticRegression(max_iter=1000)).fit(train[texts + numbers], train["decision"])
    types = [(c, StringTensorType([None, 1])) for c in texts] + [(c, FloatTensorType([None, 1])) for c in numbers]
    (folder / "loans.onnx").write_bytes(convert_sklearn(pipeline, initial_types=types).SerializeToString())
    pq.write_table(loans_table(4_000, 2), folder / "loans.parquet")
    return BuiltModel(folder / "loans.onnx", folder / "loans.parquet")
