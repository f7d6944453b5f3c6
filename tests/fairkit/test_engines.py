"""The engine of this process, and one pass over the rows for several models."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import fairkit
from fairkit.auditing.measure import score_once
from fairkit.auditing.prepare import LoadedAuditors
from fairkit.data.source import Source
from fairkit.engines import LocalEngine
from fairkit.engines.local import Here
from fairkit.errors import DataError, ParameterError
from fairkit.progress import no_progress
from fairkit.settings import AuditSettings, ModelOptions
from fairkit_repair.scored_rows import audit_beside


def people(n: int = 500, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"g": rng.choice(["a", "b"], n), "y": rng.integers(0, 2, n), "s": rng.random(n), "t": rng.random(n)}


def data(**more: Any) -> fairkit.Dataset:
    return fairkit.load_data(people(), label="y", favorable=1, sensitive="g", name="people", **more)


class Counting:
    """A model that knows how often each of its rows was scored."""

    def __init__(self, column: str) -> None:
        self.model, self.rows = fairkit.PredictedColumns(score=column), 0

    def bind(self, dataset: fairkit.Dataset, options: ModelOptions) -> Any:
        bound, count = self.model.bind(dataset, options), self

        class Bound:
            info, task, columns, classes = bound.info, bound.task, bound.columns, bound.classes

            def predict(self, columns: Any) -> Any:
                count.rows += len(next(iter(columns.values())))
                return bound.predict(columns)

        return Bound()


def sums(source: Source, start: int, column: str, factor: float) -> float:
    return factor * sum(np.asarray(batch.column(column)).sum() for batch in source.batches([column], 100)) + 0 * start


def test_a_table_is_one_piece():
    source, engine = data().source, LocalEngine()
    assert engine.here
    expected = 2 * people()["s"].sum()
    assert engine.total(sums, source, "s", 2.0) == pytest.approx(expected)
    pieces = engine.map(sums, source, "s", engine.share(2.0))
    assert pieces.pieces == 1
    assert pieces.derive(lambda found, more: found + more, 1.0).total() == pytest.approx(expected + 1)


def test_pieces_add_up_in_order():
    pieces = Here(("a", None, "b", "c"))
    assert pieces.total() == "abc"
    assert pieces.merged().collect() == ["abc"]
    assert pieces.numbered(lambda piece, own: (piece, own), range(4)).collect()[3] == ("c", 3)
    assert Here((None, None)).total() is None


def test_the_rows_that_are_done_are_told():
    seen: list[int] = []
    LocalEngine().total(sums, data().source, "s", 1.0, told=seen.append)
    assert seen == [100, 200, 300, 400, 500]


def double(item: int, factor: int) -> int:
    if item < 0:
        raise ParameterError("negative")
    return item * factor


@pytest.mark.long
@pytest.mark.parametrize("processes", [1, 2])
def test_each_item_once_here_or_in_processes(processes: int):
    done: list[int] = []
    LocalEngine(processes).each(double, [1, 2, 3], 10, done=done.append)
    assert sorted(done) == [10, 20, 30]
    with pytest.raises(ParameterError, match="negative"):
        LocalEngine(processes).each(double, [-1, 2], 10, done=done.append)


def test_one_pass_for_two_audits_and_a_comparison():
    """Each row is scored once by each model, and the numbers are those of passes of their own."""
    models = [Counting("s"), Counting("t")]
    told: list[tuple[str, int, int]] = []
    reports, comparison = audit_beside(
        LocalEngine(),
        models,
        data(),
        LoadedAuditors.of(AuditSettings()),
        [ModelOptions()] * 2,
        lambda doing, done, total, **_: told.append((doing, done, total)),
    )
    assert [model.rows for model in models] == [500, 500]
    assert told[-1] == ("scoring rows", 500, 500)
    for column, report in zip("st", reports, strict=True):
        assert report.to_dict() == fairkit.audit(fairkit.PredictedColumns(score=column), data()).to_dict()
    apart = fairkit.compare([fairkit.PredictedColumns(score=column) for column in "st"], data())
    assert comparison.to_dict() == apart.to_dict()


class Rows(fairkit.Auditor):
    """Counts rows, and is told of pieces."""

    name = "rows"
    spread = True

    def measure(self, batch: Any, predictions: Any, context: fairkit.AuditContext) -> int:
        return len(batch)

    def findings(self, total: Any, context: fairkit.AuditContext) -> list[fairkit.Finding]:
        return [fairkit.Finding(auditor="rows", metric="rows", value=float(sum(total.collect())))]


def test_totals_as_large_as_the_rows_stay_in_pieces():
    dataset = data()
    scorer = fairkit.PredictedColumns(score="s").bind(dataset, ModelOptions())
    auditor = Rows()
    context = fairkit.AuditContext(dataset=dataset, scorer=scorer)

    class Reader:
        columns, spread = (), True

        def measure(self, batch: Any, said: Any) -> Any:
            return auditor.measure(batch, said[0], context)

    (total,) = score_once(LocalEngine(), dataset, [scorer], [Reader()], no_progress)
    assert auditor.findings(total, context)[0].value == 500


def test_what_travels_leaves_the_rows_behind():
    """An audit on its way to a worker: small, and whoever reads the whole table there is told where that belongs."""
    dataset = data()
    dataset.learn()
    scorer = fairkit.PredictedColumns(score="s").bind(dataset, ModelOptions())
    prepared = LoadedAuditors.of(AuditSettings()).about(scorer, dataset, LocalEngine(), print)
    sent = pickle.loads(pickle.dumps(prepared.readers[0]))
    assert sent.context.progress is no_progress
    assert sent.context.dataset.group_names("g") == ["a", "b"]
    with pytest.raises(DataError, match="belongs in its method `begin`"):
        next(sent.context.dataset.batches())


def test_a_scheduler_needs_an_engine():
    models = [fairkit.PredictedColumns(score=column) for column in "st"]
    with pytest.raises(ParameterError, match="add `engine=dask`"):
        fairkit.compare(models, data(), scheduler="tcp://127.0.0.1:9")
    with pytest.raises(ParameterError, match="there is no engine 'spark'"):
        fairkit.compare(models, data(), engine="spark")


def test_mitigate_scores_each_held_out_row_once_by_each_model(monkeypatch: pytest.MonkeyPatch):
    """Two audits, one comparison, one pass; the numbers of the reports are those of that pass."""
    from fairkit_datasets.loans import loans_table
    from fairkit_onnx.read.scorer import OnnxScorer

    seen: dict[str, int] = {}
    real = OnnxScorer.predict

    def predict(self: Any, columns: Any) -> Any:
        seen[self.info.name] = seen.get(self.info.name, 0) + len(next(iter(columns.values())))
        return real(self, columns)

    monkeypatch.setattr(OnnxScorer, "predict", predict)
    loans = fairkit.load_data(
        loans_table(500, 1), label="decision", favorable="approved", sensitive=["sex"], name="loans"
    )
    told: list[str] = []
    result = fairkit.mitigate(
        "reweigh", loans, learner="logistic", threads=1, progress=lambda doing, *_, **__: told.append(doing)
    )
    # the decisions before are asked for once more, for what happens to people
    assert seen == {"before": 2 * result.test_rows, "after": result.test_rows}
    assert result.test_rows == 100
    assert told == ["scoring rows"]


def test_the_first_pass_is_a_step_that_is_called(monkeypatch: pytest.MonkeyPatch):
    """The profile of a table never reads it by itself."""
    dataset, read = data(), []
    batches = Source.batches

    def watched(self: Source, *asked: Any, **options: Any) -> Any:
        read.append(self.name)
        return batches(self, *asked, **options)

    monkeypatch.setattr(Source, "batches", watched)
    for what in ("profile", "sha256", "splits"):
        with pytest.raises(DataError, match="call its method `learn` first"):
            getattr(dataset, what)
    with pytest.raises(DataError, match="people: its rows have not been read yet"):
        dataset.group_names("g")
    assert read == []
    found = dataset.learn()
    once = len(read)
    assert once > 0
    assert dataset.learn() is found is dataset.profile
    assert len(read) == once
