from __future__ import annotations

import dataclasses
import json
import sqlite3

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairkit_registry import blobs as onnxfile
from fairkit_registry import jsonio as names
from fairkit_registry.errors import CertificateError, RegistryError, VerificationError
from fairkit_registry.store import index
from fairkit_registry.store import tables as events
from fairkit_registry.store.folder import INDEX_FILE
from fairkit_registry.store.index import AliasPolicy
from fairkit_registry.store.registry import Registry, check, gc, register, register_pair, resolve


@pytest.mark.parametrize("text", ["credit", "Credit-2.b_c", "credit@3", "credit@production", "a@b.c"])
def test_names_are_read_and_written(text):
    assert str(names.parse(text)) == text
    assert names.is_reference(text)


@pytest.mark.parametrize("text", ["", "a/b", "../a", "a@", "a@0", "a@03", "a@3x", "a@@b", "-a", "a b", "ü", "a" * 101])
def test_what_is_no_name_is_refused(text):
    assert not names.is_reference(text)
    with pytest.raises(RegistryError):
        names.parse(text)


def test_a_file_name_is_no_reference():
    assert not names.is_reference("credit.onnx")


def test_versions_count_up_and_come_back(registry, model, certify):
    one = registry.add("credit", model(1), certificates=[certify(model(1))], tags=["b", "a", "b"], notes="first")
    two = registry.add("credit", model(2), parent="credit@1")
    other = registry.add("loans", model(1))
    assert [one.reference, two.reference, other.reference] == ["credit@1", "credit@2", "loans@1"]
    assert one.tags == ("a", "b")
    assert len(one.certificates) == 1
    assert two.parent == "credit@1"
    assert other.model == one.model
    assert registry.versions("credit") == [two, one]
    assert registry.versions("credit", limit=1) == [two]
    assert registry.version("credit") == two
    assert registry.version("credit@1") == one
    assert registry.model_path(one).read_bytes() == model(1).read_bytes()
    assert [m["name"] for m in registry.models()] == ["credit", "loans"]
    assert registry.models()[0]["versions"] == 2
    assert check(registry).problems == ()


def test_the_newest_version_may_have_the_bytes_of_an_older_one(registry, model):
    assert registry.add("credit", model()).reference == "credit@1"
    assert registry.add("credit", model()).reference == "credit@2"
    assert check(registry).blobs == 1


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("credti", "Did you mean 'credit'"),
        ("credit@9", "its versions go from 1 to 1"),
        ("credit@prod", "no alias 'prod'"),
        ("credit@staging", "points to no version yet"),
    ],
)
def test_unknown_names_say_what_there_is(registry, model, reference, message):
    registry.add("credit", model())
    registry.set_alias("credit", "staging", AliasPolicy(open=True))
    with pytest.raises(RegistryError, match=message):
        registry.version(reference)


def test_a_refused_add_changes_nothing(registry, model, certify, tmp_path):
    registry.add("credit", model())
    before = (registry.versions("credit"), registry.log())
    with pytest.raises(VerificationError, match="about another model"):
        registry.add("credit", model(2), certificates=[certify(model(1))])
    with pytest.raises(RegistryError, match="no version 7"):
        registry.add("credit", model(2), parent="credit@7")
    with pytest.raises(RegistryError, match="no name"):
        registry.add("../credit", model(2))
    with pytest.raises(RegistryError, match="cannot read"):
        registry.add("credit", tmp_path / "missing.onnx")
    (tmp_path / "c.json").write_text("{}")
    with pytest.raises(CertificateError, match="not a certificate"):
        registry.add("credit", model(2), certificates=[tmp_path / "c.json"])
    assert (registry.versions("credit"), registry.log()) == before
    assert list(registry.blobs.temporary.iterdir()) == []
    assert check(registry).notes == ()


@pytest.mark.parametrize("content", [b"", b"hello", b"\x08\x07", b"PK\x03\x04" + b"x" * 50, b"\x80\x04\x95." * 9])
def test_only_onnx_files_are_taken(registry, tmp_path, content):
    (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(RegistryError, match=r"m\.onnx is not an ONNX file"):
        registry.add("credit", tmp_path / "m.onnx")


def test_a_model_with_weights_elsewhere_is_refused(registry, model, tmp_path):
    import onnx

    proto = onnx.load(str(model(width=2000)))
    tensor = proto.graph.initializer[0]
    tensor.raw_data = onnx.numpy_helper.to_array(tensor).tobytes()
    tensor.ClearField("float_data")
    onnx.save_model(proto, str(tmp_path / "split.onnx"), save_as_external_data=True, location="weights.bin")
    with pytest.raises(RegistryError, match="keeps weights in other files"):
        registry.add("credit", tmp_path / "split.onnx")


def test_a_word_in_a_model_is_no_external_weight(registry, tmp_path, model):
    import onnx

    proto = onnx.load(str(model()))
    proto.doc_string = "the location of the applicant"
    onnx.save_model(proto, str(tmp_path / "m.onnx"))
    assert registry.add("credit", tmp_path / "m.onnx").version == 1


def test_a_graph_is_summarised_without_running_it(tmp_path, model):
    summary = onnxfile.summarise(model(width=3))
    assert summary.operators == {"Mul": 1}
    assert summary.weights == 3
    assert summary.inputs == ("x: float[?, 3]",)


@pytest.mark.long
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_damaged_model_is_refused_or_summarised(tmp_path, data):
    from onnx import helper

    graph = helper.make_graph(
        [
            helper.make_node("Mul", ["x", "w"], ["y"]),
            helper.make_node("TreeEnsembleRegressor", ["x"], ["z"], domain="ai.onnx.ml", nodes_values=[1.0, 2.0]),
            helper.make_node("Constant", [], ["c"], value=helper.make_tensor("t", 1, [2], [1.0, 2.0])),
        ],
        "g",
        [helper.make_tensor_value_info("x", 1, [None, 1])],
        [helper.make_tensor_value_info("y", 1, ["N", 1])],
        [helper.make_tensor("w", 1, [1], [3.0])],
    )
    model = helper.make_model(graph)
    model.metadata_props.add(key="location", value="x")  # so that it is looked at for external weights
    raw = bytearray(model.SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "m.onnx"
    path.write_bytes(bytes(raw))
    for look in (onnxfile.check_file, onnxfile.summarise):
        try:
            json.dumps(dataclasses.asdict(summary) if (summary := look(path)) else None)
        except RegistryError as error:
            assert "m.onnx" in str(error)  # noqa: PT017 -- either outcome is fine


def test_certificates_are_attached_later_and_once(registry, model, certify):
    registry.add("credit", model())
    path = certify(model())
    assert len(registry.attach("credit@1", [path]).certificates) == 1
    registry.attach("credit", [path])
    assert [event.action for event in registry.log("credit")] == ["certify", "add"]
    with pytest.raises(VerificationError, match="another model"):
        registry.attach("credit@1", [certify(model(2))])
    assert check(registry).problems == ()


def test_the_log_chains_and_refuses_change(registry, model):
    registry.add("credit", model())
    registry.add("loans", model())
    newest, oldest = registry.log()
    assert oldest.previous == events.GENESIS
    assert newest.previous == oldest.digest
    assert [event.name for event in registry.log("loans")] == ["loans"]
    assert registry.log(limit=1) == [newest]
    for statement in ("UPDATE events SET name = 'x'", "DELETE FROM events"):
        with pytest.raises(RegistryError, match="append-only"), registry.folder.index.write() as connection:
            connection.execute(statement)


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (["DROP TRIGGER events_stay", "UPDATE events SET at = '2020' WHERE seq = 2"], "event 2 .* was changed"),
        (["DROP TRIGGER events_remain", "DELETE FROM events WHERE seq = 2"], "event 2 is missing.*"),
        (["UPDATE versions SET model = (SELECT model FROM versions WHERE version = 2)"], "credit@1 was changed"),
        (["UPDATE versions SET notes = 'better'"], "version credit@1 was changed"),
        (["DELETE FROM versions WHERE version = 2"], "version credit@2 is in the log but not in the tables"),
        (["UPDATE aliases SET version = 2"], "alias credit@staging was changed"),
        (["UPDATE aliases SET policy = replace(policy, 'true', 'false')"], "alias credit@staging was changed"),
        (["DELETE FROM certificates"], "is in the log but not in the tables"),
        (["UPDATE blobs SET size = 3"], "has another size"),
    ],
)
def test_check_finds_what_was_changed_behind_its_back(registry, model, certify, statements, message):
    from fairkit_registry.promotion.run import promote

    registry.add("credit", model(1), certificates=[certify(model(1))])
    registry.add("credit", model(2))
    registry.set_alias("credit", "staging", AliasPolicy(open=True))
    assert promote(registry, "credit@1", "staging").verdict == "pass"
    head = check(registry).head
    assert check(registry, head=head).problems == ()
    with sqlite3.connect(registry.path / INDEX_FILE, isolation_level=None) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()
    problems = "\n".join(check(registry).problems)
    import re

    assert re.search(message, problems), problems


def test_check_finds_damaged_missing_and_loose_blobs(registry, model):
    version = registry.add("credit", model(1))
    other = registry.add("credit", model(2))
    path = registry.blobs.path(version.model)
    path.chmod(0o644)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    registry.blobs.path(other.model).unlink()
    registry.blobs.keep(registry.blobs.stage([b"loose"]))
    (registry.blobs.root / "sha256" / "note.txt").write_text("x")
    result = check(registry)
    assert len(result.problems) == 2
    assert any("was changed or damaged" in text for text in result.problems)
    assert any("is missing" in text for text in result.problems)
    assert any("gc" in text for text in result.notes)
    assert any("no file of the registry" in text for text in result.notes)
    with pytest.raises(RegistryError, match="was changed or damaged"):
        registry.model_path(version)
    # adding the file again fixes the blob
    registry.add("credit", model(1))
    registry.add("credit", model(2))
    assert check(registry).problems == ()


def test_a_rewritten_log_is_found_by_a_head_noted_before(registry, model):
    registry.add("credit", model())
    assert "no longer in the log" in check(registry, head="a" * 64).problems[0]


def test_gc_removes_only_what_nothing_refers_to(registry, model):
    import os

    version = registry.add("credit", model())
    loose = registry.blobs.stage([b"loose"])
    registry.blobs.keep(loose)
    fresh = registry.blobs.stage([b"being written"])
    old = registry.blobs.stage([b"abandoned"])
    os.utime(old.path, (0, 0))
    would = gc(registry, dry_run=True)
    assert len(would.files) == 2
    assert old.path.exists()
    done = gc(registry)
    assert done == would
    assert done.size == len(b"loose") + len(b"abandoned")
    assert fresh.path.exists()
    assert registry.model_path(version).exists()
    assert gc(registry).files == ()


def test_resolve_gives_the_file_and_refuses_a_changed_one(registry, model):
    version = registry.add("credit", model())
    path = resolve("credit@1", registry.path)
    assert path.read_bytes() == model().read_bytes()
    path.chmod(0o644)
    path.write_bytes(b"other")
    with pytest.raises(RegistryError, match="was changed"):
        resolve("credit", registry.path)
    assert version.version == 1


def test_register_finds_the_parent_by_name_or_by_content(model, tmp_path):
    place = tmp_path / "new"
    register("credit", model(1), place)
    assert register("credit", model(2), place, base=model(1)).parent == "credit@1"
    assert register("credit", model(3), place, base="credit@1").parent == "credit@1"
    assert register("credit", model(4), place, base=model(5)).parent is None


def test_a_mitigated_model_is_registered_with_its_base_which_is_added_once(model, tmp_path):
    place = tmp_path / "new"
    first = register_pair("credit", model(1), model(2), place, method="rto")
    assert [version.reference for version in first] == ["credit@1", "credit@2"]
    assert first[1].parent == "credit@1"
    again = register_pair("credit", model(1), model(3), place, method="rto")
    assert [version.reference for version in again] == ["credit@1", "credit@3"]
    register("other", model(4), place)
    assert register_pair("credit", model(4), model(5), place, method="rto")[0].reference == "credit@4"


def test_a_folder_with_other_files_is_no_place_for_a_registry(tmp_path):
    (tmp_path / "thesis.txt").write_text("x")
    with pytest.raises(RegistryError, match="other files"):
        Registry(tmp_path, create=True)
    with pytest.raises(RegistryError, match="there is no registry in"):
        Registry(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_an_older_schema_is_migrated_and_a_newer_one_is_refused(registry, model, monkeypatch):
    registry.add("credit", model())
    step = "CREATE TABLE extra (a TEXT) STRICT;\nINSERT INTO extra VALUES ('x;y');\n"
    monkeypatch.setattr(index, "MIGRATIONS", (*index.MIGRATIONS, step))
    with Registry(registry.path) as newer:
        assert newer.version("credit").version == 1
        with newer.folder.index.read() as connection:
            assert connection.execute("SELECT a FROM extra").fetchone()[0] == "x;y"
            assert connection.execute("PRAGMA user_version").fetchone()[0] == 2
    monkeypatch.undo()
    with pytest.raises(RegistryError, match="newer fairkit"):
        Registry(registry.path)


def test_a_migration_that_fails_leaves_the_old_schema(registry, model, monkeypatch):
    registry.add("credit", model())
    broken = "CREATE TABLE extra (a TEXT) STRICT;\nINSERT INTO nowhere VALUES (1);\n"
    monkeypatch.setattr(index, "MIGRATIONS", (*index.MIGRATIONS, broken))
    with pytest.raises(RegistryError):
        Registry(registry.path)
    monkeypatch.undo()
    with Registry(registry.path) as same:
        assert check(same).problems == ()
        with same.folder.index.read() as connection:
            names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        assert "extra" not in names


@pytest.mark.parametrize("content", [b"", b"not a database, certainly not" * 50])
def test_a_file_that_is_no_index(tmp_path, content):
    (tmp_path / INDEX_FILE).write_bytes(content)
    with pytest.raises(RegistryError):
        Registry(tmp_path)


def test_the_database_of_another_program_is_left_alone(tmp_path):
    connection = sqlite3.connect(tmp_path / INDEX_FILE)
    connection.execute("CREATE TABLE t (a)")
    connection.close()
    with pytest.raises(RegistryError, match="another program"):
        Registry(tmp_path)


def test_records_are_json(registry, model, certify):
    version = registry.add("credit", model(), certificates=[certify(model())])
    registry.set_alias("credit", "p", AliasPolicy(max_age_days=3, data=("a",)))
    text = json.dumps([version.to_dict(), registry.alias("credit", "p").to_dict(), check(registry).to_dict()])
    assert json.loads(text)[0]["sha256"] == version.model


def test_an_old_sqlite_is_named(registry, monkeypatch):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 31, 1))
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.31.1")
    with pytest.raises(RegistryError, match=r"needs SQLite 3\.37\.0 or newer; this Python has 3\.31\.1"):
        Registry(registry.path)


def test_a_file_system_without_hard_links(tmp_path, model, monkeypatch):
    import os

    def refuse(*arguments):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with Registry(tmp_path / "r", create=True) as store:
        assert store.add("credit", model()).version == 1
        assert list(store.blobs.temporary.iterdir()) == []


def test_check_looks_at_certificates_beside_damaged_ones(registry, model, certify):
    """A certificate that belongs to another model is found although another blob is damaged."""
    from fairkit_registry.store import tables
    from fairkit_registry.store import tables as events

    registry.add("credit", model(1))
    other = registry.add("credit", model(2), certificates=[certify(model(2))])
    with registry.folder.index.write() as connection:
        tables.own(connection, "credit", 1, other.certificates[0], events.now())
    path = registry.blobs.path(other.model)
    path.chmod(0o644)
    path.write_bytes(b"x")
    problems = "\n".join(check(registry).problems)
    assert "of credit@1: the certificate is about another model" in problems
    assert "was changed or damaged" in problems
