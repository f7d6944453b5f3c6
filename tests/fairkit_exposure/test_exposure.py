"""exposure against the linear programme over positions, on new queries, and from the command line to a certificate."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import fairkit
from fairkit.errors import DataError, FairkitError, ParameterError
from fairkit_datasets.loans import HIRING_ROLES, hiring_table
from fairkit_exposure import NUMBERS, disparity, learn_shifts
from fairkit_rankings import Chunk, queries_of

QUIET = lambda place: None  # noqa: E731 -- the smallest progress


def ranker(weights=(0.5, 0.5)):
    """A file that scores by a weighted mean of two columns."""
    graph = helper.make_graph(
        [
            helper.make_node("Concat", ["test", "recommendation"], ["x"], axis=1),
            helper.make_node("MatMul", ["x", "w"], ["y"]),
        ],
        "ranker",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None, 1]) for n in ("test", "recommendation")],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 1])],
        [helper.make_tensor("w", TensorProto.FLOAT, [2, 1], weights)],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return proto.SerializeToString()


def items(openings=12, size=6, seed=0):
    """Queries with as many items of each of two groups, so that one multiplier is one shift."""
    rng = np.random.default_rng(seed)
    query = np.repeat(np.arange(openings), size)
    group = np.tile([0] * (size // 2) + [1] * (size // 2), openings)
    score = rng.random(len(query)) - 0.3 * group
    return Chunk(query.astype(np.uint64), score[None], None, {"group": group})


def programme(chunk, limit):
    """Maximise the expected utility over all doubly stochastic matrices whose groups' mean exposures are so near."""
    from scipy.optimize import linprog

    query, score, group = chunk.query.astype(int), chunk.scores[0], chunk.groups["group"]
    cost, gap = [], []
    variable = 0
    equalities = []
    for q in np.unique(query):
        mine = np.flatnonzero(query == q)
        v = 1 / np.log2(2 + np.arange(len(mine)))
        block = np.arange(variable, variable + len(mine) ** 2).reshape(len(mine), -1)
        variable += len(mine) ** 2
        equalities += [*block, *block.T]
        for i in mine:
            count = (group[mine] == group[i]).sum()
            sign = 1.0 if group[i] == 0 else -1.0
            cost += list(-score[i] * v)
            gap += list(sign * v / count)
    count = len(np.unique(query))
    matrix = np.zeros((len(equalities), variable))
    for line, entries in enumerate(equalities):
        matrix[line, entries] = 1
    gaps = np.array(gap) / count
    found = linprog(
        cost, A_ub=[gaps, -gaps], b_ub=[limit, limit], A_eq=matrix, b_eq=np.ones(len(matrix)), bounds=(0, 1)
    )
    assert found.success
    return -found.fun


def utility(chunk, scores):
    total = 0.0
    for q in np.unique(chunk.query):
        mine = np.flatnonzero(chunk.query == q)
        order = mine[np.argsort(-scores[mine])]
        total += float(chunk.scores[0][order] @ (1 / np.log2(2 + np.arange(len(order)))))
    return total


@pytest.mark.parametrize("limit", [0.02, 0.08, 0.15])
def test_the_utility_is_that_of_the_linear_programme(limit):
    pytest.importorskip("scipy")
    chunk = items(25)
    shifts, before, after = learn_shifts(chunk, 2, "exposure", limit, 10, QUIET)
    assert disparity("exposure", before) > 0.15
    reached = disparity("exposure", after)
    assert limit - 0.02 < reached <= limit + 1e-9  # a sharp rule moves by whole items
    best = programme(chunk, reached)
    found = utility(chunk, chunk.scores[0] + shifts[chunk.groups["group"]])
    assert found <= best + 1e-9
    assert found == pytest.approx(best, rel=5e-4)


@pytest.mark.parametrize("constraint", list(NUMBERS))
def test_every_constraint_is_kept_on_training_queries_of_three_groups(constraint):
    rng = np.random.default_rng(1)
    query = np.sort(rng.integers(0, 200, 3_000))
    group = rng.integers(0, 3, 3_000)
    merit = rng.normal(size=3_000)
    chunk = Chunk(
        query.astype(np.uint64),
        (merit - 0.7 * (group == 0) - 0.2 * (group == 1))[None],
        np.digitize(merit, [0, 1]).astype(float),
        {"group": group},
    )
    shifts, before, after = learn_shifts(chunk, 3, constraint, 0.02, 5, QUIET)
    assert disparity(constraint, before) > 0.06
    assert disparity(constraint, after) <= 0.02
    moved = Chunk(chunk.query, chunk.scores + shifts[group], chunk.relevance, chunk.groups)
    again = NUMBERS[constraint](queries_of(moved, 5, [("group", 3)])[0])
    assert again == pytest.approx(after, abs=1e-3)
    assert shifts[0] > shifts[1] >= shifts[2]


def test_no_shift_where_the_tolerance_is_kept_and_all_of_it_where_scores_are_far_apart():
    chunk = items(20)
    shifts, before, after = learn_shifts(chunk, 2, "exposure", 1.0, 10, QUIET)
    assert not shifts.any()
    assert np.array_equal(before, after)
    apart = Chunk(chunk.query, chunk.scores - 100 * chunk.groups["group"], None, chunk.groups)
    _, _, after = learn_shifts(apart, 2, "exposure", 0.05, 10, QUIET)
    assert disparity("exposure", after) <= 0.05


@pytest.mark.long
def test_new_queries_keep_it_and_the_file_says_what_it_is(tmp_path):
    data = fairkit.load_data(hiring_table(600, 1), **HIRING_ROLES)
    test = fairkit.load_data(hiring_table(600, 2), **HIRING_ROLES)
    rule = fairkit.Rule(metric="exposure_difference", sensitive="sex", max=0.05)
    result = fairkit.mitigate("exposure", data, test=test, model=ranker(), tolerance=0.02, policy=[rule])
    assert result.before.verdict == "fail"
    assert result.after.verdict == "pass"
    assert result.before.find("exposure_difference", "sex").value > 0.06
    assert result.reads == ("sex",)
    assert not result.randomized
    assert [one.outcome for one in result.changes if one.metric == "exposure_difference"] == ["better"]
    path = result.save(tmp_path / "fair.onnx")
    settings = json.loads(next(e.value for e in onnx.load(path).metadata_props if e.key == "fairkit"))
    assert (settings["task"], settings["query"]) == ("ranking", "opening")
    assert fairkit.audit(path, test, policy=[rule]).verdict == "pass"


def test_a_classifier_ranks_by_its_probability():
    table = hiring_table(300, 4)
    hired = np.where(table["relevance"].to_numpy() >= 2, "yes", "no")
    table = table.append_column("hired", [hired]).drop_columns(["relevance", "score"])
    graph = onnx.load_from_string(ranker())
    graph.graph.node.append(helper.make_node("Sigmoid", ["y"], ["p"]))
    del graph.graph.output[:]
    graph.graph.output.append(helper.make_tensor_value_info("p", TensorProto.FLOAT, [None, 1]))
    roles = {"favorable": "yes", "sensitive": "sex", "query": "opening", "features": ["test", "recommendation"]}
    data = fairkit.load_data(table, label="hired", **roles)
    result = fairkit.mitigate("exposure", data, model=graph.SerializeToString(), tolerance=0.01)
    assert result.after.find("exposure_difference", "sex").value < 0.03
    again = fairkit.audit(result.onnx, data)
    assert again.model.task == "ranking"


@pytest.mark.long
def test_what_it_cannot_handle_is_refused_by_name():
    data = fairkit.load_data(hiring_table(60), **HIRING_ROLES)
    with pytest.raises(ParameterError, match="repairs a given model"):
        fairkit.mitigate("exposure", data)
    with pytest.raises(FairkitError, match="exposure is for ranking tasks"):
        fairkit.mitigate("exposure", fairkit.datasets.loans(200), model=ranker())
    for plugin in ("threshold-optimizer", "rto", "reject-option", "multicalibrate"):
        with pytest.raises(FairkitError, match=f"{plugin} is for binary tasks"):
            fairkit.mitigate(plugin, data, model=ranker())
    for plugin in ("linear-post", "barycenter", "fairgbm", "reweigh"):
        with pytest.raises(FairkitError, match=f"{plugin} is for .* tasks"):
            fairkit.mitigate(plugin, data)
    with pytest.raises(DataError, match="min_group"):
        fairkit.mitigate("exposure", data, model=ranker(), min_group=10_000)
    rule = fairkit.Rule(metric="exposure_difference", sensitive="sex", max=0.05)
    with pytest.raises(FairkitError, match="12 test queries cannot decide this policy"):
        fairkit.repair(data, [rule])


def test_equal_scores_leave_steps_and_say_so():
    table = hiring_table(60)
    table = table.set_column(2, "test", [np.zeros(len(table))]).set_column(
        3, "recommendation", [np.where(np.array(table["sex"].to_pylist()) == "male", 1.0, 0.0)]
    )
    result = fairkit.mitigate(
        "exposure", fairkit.load_data(table, **HIRING_ROLES), model=ranker(), tolerance=0.0, min_group=5
    )
    assert any("was not reached" in note for note in result.notes) or result.after.find(
        "exposure_difference", "sex"
    ).value == pytest.approx(0.0, abs=1e-9)


@pytest.mark.long
def test_from_the_command_line_to_a_certificate_that_can_be_computed_again(run, tmp_path):
    import pyarrow.parquet as pq

    for name, seed in (("train", 1), ("test", 2)):
        pq.write_table(hiring_table(400, seed), tmp_path / f"{name}.parquet")
    (tmp_path / "base.onnx").write_bytes(ranker())
    roles = [
        "--label",
        "relevance",
        "--sensitive",
        "sex",
        "--set",
        "data.query=opening",
        "--features",
        "test,recommendation",
    ]
    limit = ["--max", "exposure_difference:sex=0.06"]
    made = run(
        "mitigate", "--plugin", "exposure", "--model", "base.onnx", "--data", "train.parquet", "--test", "test.parquet",
        *roles, *limit, "--set", "tolerance=0.02", "--output", "fair.onnx",
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    audited = run("audit", "fair.onnx", "--data", "test.parquet", *limit, "--format", "json")
    assert audited.exit_code == 0, audited.output
    assert json.loads(audited.stdout)["model"]["task"] == "ranking"
    assert run("key", "new", "k").exit_code == 0
    signed = run("certify", "fair.onnx", "--data", "test.parquet", *limit, "--key", "k", "--output", "c.json")
    assert signed.exit_code == 0, signed.output
    held = run("verify", "c.json", "--model", "fair.onnx", "--key", "k.pub", "--data", "test.parquet", "--recompute")
    assert held.exit_code == 0, held.output
    compared = run("compare", "base.onnx", "fair.onnx", "--data", "test.parquet", *roles)
    assert compared.exit_code == 0, compared.output
    assert "exposure difference" in " ".join(compared.output.split())
    page = run("audit", "fair.onnx", "--data", "test.parquet", "--format", "html", "--output", "page.html")
    assert page.exit_code == 0, page.output
