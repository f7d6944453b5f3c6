"""Files that were damaged or forged, fed to the command: each run must end with a code that the manual lists.

    python benchmarks/fuzz_input.py                 # everything in full
    python benchmarks/fuzz_input.py settings 200 7  # one kind, so many cases, another seed

Kinds: ``settings`` (fairkit.toml), ``state`` (of a frontier), ``rows`` (of a registry's index), ``metadata`` (of an
ONNX file), ``watch`` (log and statements), ``certificates`` (signed again by a trusted key), ``plans`` (of questions,
and a pilot's report). A run of more than a minute, an error inside fairkit (code 70), or an exception that nobody
caught, is a bug; it is printed with the case that made it. The same seed makes the same cases.
``tests/fairkit_cli/test_mistakes.py`` runs a few of each.
"""

from __future__ import annotations

import base64
import copy
import datetime
import json
import os
import random
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, suppress
from pathlib import Path
from typing import Any, NamedTuple

LISTED = frozenset({0, 1, 2, 3})
COUNTS = {"settings": 600, "state": 2_000, "rows": 1_000, "metadata": 400}
COUNTS |= {"watch": 1_000, "certificates": 1_000, "plans": 1_000}
SLOW = 60.0
"""Seconds."""


class Case(NamedTuple):
    """One damaged input: what was done to it, the code that the command ended with, and what it printed."""

    kind: str
    what: str
    code: int
    said: str


VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 10**30, 10**400, 0.5, -0.0, 1e308),
    *(float("inf"), float("-inf"), float("nan")),
    *("", " ", "x", "sex", "decision", "\x00", "a\x00b", "\x1b[2J", "\u202e", "\ud800", "a\nb"),
    *("x" * 5_000, "9" * 5_000, "../../etc/passwd", "/", ".", "~", "%s", "{0}", "[/x]", "-1", "nan", "inf"),
    *("1e999", "*", "[", "sex:1", "sex+"),
    *([], [[]], [None], ["sex", "sex"], [1, 2], ["\x00"], [[["sex"]]], {}, {"x": 1}, {"": {}}, [{}]),
    *({"sex": ["a"]}, datetime.date(2020, 1, 1), datetime.time(1, 2)),
    datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in nested tables and lists."""
    if path:
        yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for i, one in enumerate(value[:3]):
            yield from places(one, (*path, i))


def damaged(record: Any, rng: random.Random, values: tuple[Any, ...]) -> tuple[Any, str]:
    """One place of a record replaced, removed, doubled or put under another key."""
    record = copy.deepcopy(record)
    path = rng.choice(list(places(record)))
    holder = record
    for key in path[:-1]:
        holder = holder[key]
    last, act = path[-1], rng.random()
    if act < 0.75:
        holder[last] = rng.choice(values)
        return record, f"{path} = {holder[last]!r:.60}"
    if act < 0.85:
        del holder[last]
        return record, f"{path} removed"
    if isinstance(holder, list):
        holder.append(copy.deepcopy(holder[last]))
        return record, f"{path} doubled"
    holder[rng.choice(["", "x", "\x1b", "a.b", "x" * 300])] = holder.pop(last)
    return record, f"{path} renamed"


def scrambled(content: bytes, rng: random.Random) -> tuple[bytes, str]:
    """Bytes changed, cut, doubled or put in."""
    at = rng.randrange(max(1, len(content)))
    act = rng.randrange(4)
    if act == 0:
        return content[:at], f"cut at {at}"
    if act == 1:
        return content[:at] + bytes([rng.randrange(256)]) + content[at + 1 :], f"byte {at} changed"
    if act == 2:
        return content[:at] + rng.randbytes(rng.randrange(1, 9)) + content[at:], f"bytes put in at {at}"
    return content[:at] + content[at // 2 :], f"a piece before {at} doubled"


def command(*arguments: object) -> tuple[int, str]:
    """Run the command in this process: its code and what it printed; an exception that passes is code -1."""
    from typer.testing import CliRunner

    from fairkit_cli.main import app

    began = time.monotonic()
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if time.monotonic() - began > SLOW:
        return -2, f"it took {time.monotonic() - began:.0f} seconds"
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return -1, f"{type(result.exception).__name__}: {result.exception}"
    return result.exit_code, result.output


def toml(value: Any) -> str:
    """TOML text; what TOML cannot say becomes something that it can."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(k))} = {toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(toml(one) for one in value) + "]"
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return {"None": '"none"'}.get(str(value), str(value))


def tables(settings: Any) -> str:
    """The text of a fairkit.toml."""
    if not isinstance(settings, dict):
        return toml(settings)
    return "".join(f"{json.dumps(str(name))} = {toml(table)}\n" for name, table in settings.items())


def settings_cases(count: int, rng: random.Random, folder: Path) -> Iterator[Case]:
    """Damaged fairkit.toml."""
    model, data = sample(folder)
    whole = {
        "data": {"path": str(data), "label": "decision", "favorable": "approved", "sensitive": ["sex", "age:25:60"],
                 "drop": ["would_repay"], "features": None, "weights": None, "missing": "drop", "test": str(data)},
        "audit": {"auditors": ["group"], "confidence": 0.9, "seed": 3, "task": "binary", "adjust": "bonferroni",
                  "consistency": {"sensitive": ["sex"], "values": {"sex": ["female", "male"]}}},
        "model": {"threshold": 0.5, "score_kind": "probability", "score_output": "probabilities", "favorable_class": 1},
        "mitigate": {"plugin": "reweigh", "output": "out.onnx", "holdout": 0.2, "learner": "logistic", "seed": 1},
        "registry": {"path": "registry"},
        "policy": [{"metric": "accuracy", "min": 0.1},
                   {"metric": "accuracy_difference", "sensitive": "sex", "max": 0.5}],
    }  # fmt: skip
    for place in ("features", "weights"):
        del whole["data"][place]  # type: ignore[attr-defined]
    for i in range(count):
        if i % 5:
            record, what = damaged(whole, rng, VALUES)
            content = tables(record).encode("utf-8", "surrogatepass")
        else:
            content, what = scrambled(tables(whole).encode(), rng)
        (folder / "fairkit.toml").write_bytes(content)
        act: tuple[str, ...] = ("audit", str(model)) if i % 7 else ("registry", "list")
        yield Case("settings", what, *command(*act))
    (folder / "fairkit.toml").unlink(missing_ok=True)


def sample(folder: Path) -> tuple[Path, Path]:
    """A small model and 200 rows to audit it on."""
    import numpy as np
    import pyarrow.parquet as pq
    from onnx import TensorProto, checker, helper, numpy_helper

    from fairkit_datasets.loans import loans_table

    model, data = folder / "model.onnx", folder / "loans.parquet"
    if model.exists():
        return model, data
    pq.write_table(loans_table(200, 2), data)
    graph = helper.make_graph(
        [helper.make_node("Mul", ["debt_ratio", "w"], ["s"]), helper.make_node("Sigmoid", ["s"], ["probabilities"])],
        "sample",
        [helper.make_tensor_value_info("debt_ratio", TensorProto.FLOAT, [None, 1])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [None, 1])],
        [numpy_helper.from_array(np.array([-2.0], np.float32), "w")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(made)
    model.write_bytes(made.SerializeToString())
    return model, data


def metadata_cases(count: int, rng: random.Random, folder: Path) -> Iterator[Case]:
    """Damaged metadata of an ONNX file: settings that a model carries, names, bytes that are no UTF-8."""
    import onnx

    model, data = sample(folder)
    plain = onnx.load(model)
    carried = {"label": "decision", "favorable": "approved", "sensitive": ["sex"], "features": ["debt_ratio"]}
    for i in range(count):
        made = onnx.ModelProto()
        made.CopyFrom(plain)
        record, what = damaged({"fairkit.data": carried, "fairkit": carried}, rng, VALUES)
        for key, value in record.items() if isinstance(record, dict) else ():
            entry = made.metadata_props.add()
            entry.key = str(key).encode("utf-8", "replace").decode()
            entry.value = json.dumps(value, default=str)
        content = made.SerializeToString()
        if i % 3 == 0:
            content, more = scrambled(content, rng)
            what += f", {more}"
        if i % 4 == 0:
            content = content.replace(b"decision", b"d\xff\xfe\x80sion").replace(b"debt_ratio", b"debt\xff\xfeatio")
            what += ", no UTF-8"
        (folder / "damaged.onnx").write_bytes(content)
        yield Case("metadata", what, *command("audit", folder / "damaged.onnx", "--data", data))


def state_cases(count: int, rng: random.Random, folder: Path) -> Iterator[Case]:
    """Damaged state of a frontier."""
    from fairkit_repair.frontiers.state import _digest

    _, data = sample(folder)
    state = folder / "state.json"
    call = ("frontier", "--plugin", "reweigh", "--vary", "strength=0,1", "--learner", "logistic",
            "--set", "frontier.jobs=1",
            "--data", data, "--label", "decision", "--favorable", "approved", "--sensitive", "sex",
            "--drop", "would_repay,ethnicity,region,employment", "--state", state)  # fmt: skip
    code, said = command(*call)
    if code != 0:
        raise SystemExit(f"the frontier to damage ended with {code}: {said}")
    whole = state.read_bytes()
    for i in range(count):
        if i % 3:
            record, what = damaged(json.loads(whole), rng, VALUES)
            record = json.loads(json.dumps(record, default=str))
            if i % 2 and isinstance(record, dict) and {"schema", "about", "points"} <= record.keys():
                record["digest"] = _digest(record)  # a forger makes it again
            content = json.dumps(record, default=str).encode()
        else:
            content, what = scrambled(whole, rng)
        state.write_bytes(content)
        yield Case("state", what, *command(*call))


ROWS: tuple[Any, ...] = (
    *(None, 0, -1, 1, 2, 10**18, -(2**63), 0.5, float("inf"), b"", b"\xff\xfe", "", " ", "x", "\x00", "\x1b[2J", "[]"),
    *("{}", "null", "[[", '{"keys": 1}', "[1, null, {}]", '{"rules": [{}]}', '{"keys": ["x"], "confidence": "x"}'),
    *("[" * 100_000, "9" * 5_000, '{"a": ' * 3_000, "../../x", "a" * 64, "0" * 64, "credit", "credit@1", "production"),
    *("2020-13-45", "2020-01-01T00:00:00Z", "NaN", '{"confidence": NaN}', "1e999", "\u202e"),
)


def rows_cases(count: int, rng: random.Random, folder: Path) -> Iterator[Case]:
    """Damaged rows of a registry's index, also of types and bytes that its tables refuse to take."""
    model, data = sample(folder)
    whole = folder / "whole"
    setup = [
        ("key", "new", folder / "k"),
        ("certify", model, "--data", data, "--label", "decision", "--favorable", "approved", "--sensitive", "sex",
         "--max", "accuracy_difference:sex=0.9", "--key", folder / "k", "--output", folder / "c.json"),
        ("registry", "add", "credit", model, "--certificate", folder / "c.json", "--registry", whole, "--tag", "t"),
        ("registry", "add", "credit", model, "--parent", "credit@1", "--registry", whole),
        ("registry", "alias", "credit", "production", "--key", folder / "k.pub", "--registry", whole),
        ("registry", "promote", "credit@1", "production", "--registry", whole),
    ]  # fmt: skip
    for arguments in setup:
        code, said = command(*arguments)
        if code not in LISTED:
            raise SystemExit(f"{arguments} ended with {code}: {said}")
    acts = (
        ("list",), ("list", "credit"), ("show", "credit@1"), ("show", "credit@production", "--format", "json"),
        ("show", "--log"), ("alias",), ("promote", "credit@1", "production", "--dry-run"),
        ("verify", "credit@production"), ("check",), ("check", "--gc"), ("show", "credit@1", "--format", "markdown"),
        ("export", "credit", "--output", folder / "out.tar"), ("promote", "credit@2", "production"),
        ("add", "credit", model, "--parent", "credit@1"),
    )  # fmt: skip
    for i in range(count):
        registry = folder / "registry"
        shutil.rmtree(registry, ignore_errors=True)
        shutil.copytree(whole, registry)
        what = _damage_row(registry / "index.sqlite", rng)
        act = acts[i % len(acts)]
        yield Case("rows", f"{act}: {what}", *command("registry", *act, "--registry", registry))


def _damage_row(index: Path, rng: random.Random) -> str:
    connection = sqlite3.connect(index, isolation_level=None)
    try:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("PRAGMA ignore_check_constraints = ON")
        for (trigger,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {trigger}")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_schema SET sql = replace(sql, ') STRICT', ')') WHERE type = 'table'")
        connection.execute("UPDATE sqlite_schema SET sql = replace(sql, '), WITHOUT ROWID', ') WITHOUT ROWID')")
        connection.execute("UPDATE sqlite_schema SET sql = replace(sql, ' NOT NULL', '') WHERE type = 'table'")
        version = connection.execute("PRAGMA schema_version").fetchone()[0]
        connection.execute(f"PRAGMA schema_version = {version + 1}")
        connection.execute("PRAGMA writable_schema = OFF")
    finally:
        connection.close()
    connection = sqlite3.connect(index, isolation_level=None)
    try:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        table = rng.choice(tables)
        column = rng.choice([row[1] for row in connection.execute(f"PRAGMA table_info({table})")])
        value = rng.choice(ROWS)
        read = "CAST(? AS TEXT)" if isinstance(value, bytes) and rng.random() < 0.5 else "?"
        with suppress(sqlite3.Error, OverflowError):
            connection.execute(f"UPDATE {table} SET {column} = {read}", (value,))
        return f"{table}.{column} = {value!r:.60}"
    finally:
        connection.close()


def watch_cases(count: int, rng: random.Random, folder: Path) -> Iterator[Case]:
    """Damaged logs of a watch, with digests that fit where somebody made them again, and damaged statements."""
    import hashlib

    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from fairkit_watch.log import frame, read
    from fairkit_watch.settings import canonical

    whole, state = folder / "whole-watch", folder / "watch"
    prepare("watch", "init", "--state", whole, "--sensitive", "sex", "--max",
            "demographic_parity_difference:sex=0.2")  # fmt: skip
    for day in range(1, 5):
        file = folder / f"decisions-2024-01-0{day}.parquet"
        draws = np.random.default_rng(day).integers(0, 2, (2, 300))
        pq.write_table(pa.table({"sex": np.where(draws[0], "f", "m"), "decision": draws[1]}), file)
        if day < 4:
            prepare("watch", "add", whole, "--data", file)
    log = read((whole / "totals.log").read_bytes(), "")[0]
    acts = (
        ("show", state), ("show", state, "--format", "html"), ("add", state, "--data", file),
        ("show", state, "--format", "json"),
    )  # fmt: skip
    for i in range(count):
        shutil.rmtree(state, ignore_errors=True)
        shutil.copytree(whole, state)
        target = state / "totals.log"
        if i % 5 == 0 or i % 4 == 0:
            content, what = scrambled(target.read_bytes(), rng)
        else:
            records, what = damaged(list(log), rng, VALUES)
            records = json.loads(json.dumps(records, default=str))
            if i % 2:
                for one in records if isinstance(records, list) else ():
                    if isinstance(one, dict) and "counts" in one and "days" in one:
                        with suppress(ValueError, TypeError):
                            one["counts"] = hashlib.sha256(canonical(one["days"])).hexdigest()
            try:
                content = b"".join(frame(one) for one in records)
            except (ValueError, TypeError, AttributeError):  # the log has no such record
                content, what = scrambled(target.read_bytes(), rng)
        target.write_bytes(content)
        act = acts[i % len(acts)]
        yield Case("watch", f"{act[0]} {act[2:]}: {what}", *command("watch", *act))


def certificate_cases(count: int, rng: random.Random, folder: Path) -> Iterator[Case]:
    """Damaged certificates: envelopes, and statements that a trusted key has signed all the same."""
    from fairkit_registry.evidence import signed as dsse
    from fairkit_registry.evidence.signers import load_secret

    model, data = sample(folder)
    key, public, path = folder / "k", folder / "k.pub", folder / "damaged.json"
    prepare("key", "new", key, "--no-passphrase")
    prepare("certify", model, "--data", data, "--label", "decision", "--favorable", "approved", "--sensitive", "sex",
            "--max", "accuracy_difference:sex=0.9", "--key", key, "--output", folder / "c.json")  # fmt: skip
    envelope = json.loads((folder / "c.json").read_bytes())
    statement = json.loads(base64.b64decode(envelope["payload"]))
    signer = load_secret(key)
    registry = folder / "registry"
    acts = (
        ("verify", path, "--key", public), ("verify", path, "--key", public, "--format", "json"),
        ("report", path, "--key", public), ("verify", path, "--key", public, "--model", model, "--data", data),
        ("registry", "add", "credit", model, "--certificate", path, "--registry", registry),
        ("verify", path, "--key", public, "--recompute", "--model", model, "--data", data),
    )  # fmt: skip
    for i in range(count):
        if i % 4 == 0:
            record, what = damaged(envelope, rng, VALUES)
            content = json.dumps(record, default=str).encode()
        elif i % 4 == 1:
            content, what = scrambled((folder / "c.json").read_bytes(), rng)
        else:
            record, what = damaged(statement, rng, VALUES)
            payload = json.dumps(record, default=str).encode()
            if i % 8 == 3:
                payload, more = scrambled(payload, rng)
                what += f", {more}"
            content = dsse.sign(payload, envelope["payloadType"], [signer]).to_bytes()
        path.write_bytes(content)
        act = acts[i % len(acts)]
        yield Case("certificates", f"{act[0]}: {what}", *command(*act))


FIRST = [f"{first}{second}" for first in "BDFGLM" for second in ("ad", "el", "in", "ov", "un", "yr", "or")]


def plan_cases(count: int, rng: random.Random, folder: Path) -> Iterator[Case]:
    """Damaged plans of questions to a language model, and damaged reports of a pilot."""
    model, data = sample(folder)
    texts = folder / "texts"
    texts.mkdir()
    for t in range(4):
        (texts / f"text{t}.txt").write_text(f"Applicant: {{name}}. Drove a tram for {t + 2} years.\n")
    rows = [f"{group},{first}a {group.title()}" for group in ("grey", "stone") for first in FIRST]
    names = "group,name\n" + "\n".join(rows) + "\n"
    whole = {
        "documents": {"path": "texts", "allow": ["April"]},
        "names": {"file": "names.csv", "column": "group", "per_group": 30, "groups": ["grey", "stone"]},
        "contexts": {"use": ["company", "top-ten"], "own": "We hire a {role}. {document} {question}"},
        "details": {"company": "the works", "role": "technician"},
        "question": {"text": "Invite?", "options": ["Yes", "No"], "favorable": ["Yes"]},
        "asking": {"names_per_document": 2, "draws": 1, "looks": 2, "limit": 0.05, "max_tokens": 5,
                   "temperature": 1, "names": "sampled", "system": "Be careful.", "extra": {"top_p": 1.0}},
        "price": {"prompt": 0.15, "completion": 0.6},
    }  # fmt: skip
    (folder / "names.csv").write_text(names)
    plan, pilot = folder / "plan.toml", folder / "pilot.json"
    rule = ("--max", "accuracy_difference:sex=0.1")
    prepare("audit", model, "--data", data, "--label", "decision", "--favorable", "approved", "--sensitive", "sex",
            "--output", pilot, "--format", "json")  # fmt: skip
    report = json.loads(pilot.read_bytes())
    for i in range(count):
        (folder / "names.csv").write_text(names)
        if i % 3 == 0:
            record, what = damaged(report, rng, VALUES)
            pilot.write_bytes(json.dumps(record, default=str).encode())
            yield Case("plans", f"report: {what}", *command("plan", "--report", pilot, *rule))
            continue
        if i % 3 == 1:
            record, what = damaged(whole, rng, VALUES)
            content = tables(record).encode("utf-8", "surrogatepass")
        else:
            content, what = scrambled(tables(whole).encode(), rng)
            if i % 2:
                changed, what = scrambled(names.encode(), rng)
                (folder / "names.csv").write_bytes(changed)
                content = tables(whole).encode()
        plan.write_bytes(content)
        yield Case("plans", f"plan: {what}", *command("ask", plan, "--dry-run"))


def prepare(*arguments: object) -> None:
    """Run a command that must not fail."""
    code, said = command(*arguments)
    if code not in LISTED - {2}:
        raise SystemExit(f"{arguments} ended with {code}: {said}")


KINDS: dict[str, Callable[[int, random.Random, Path], Iterator[Case]]] = {
    "settings": settings_cases,
    "metadata": metadata_cases,
    "rows": rows_cases,
    "state": state_cases,
    "watch": watch_cases,
    "certificates": certificate_cases,
    "plans": plan_cases,
}


def run(kind: str, count: int, seed: int = 0) -> list[Case]:
    """The cases that ended as none may."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        os.environ["XDG_STATE_HOME"] = str(Path(folder) / "state")  # reports of bugs, and heads of registries
        return [
            case for case in KINDS[kind](count, random.Random(f"{kind}{seed}"), Path(folder)) if case.code not in LISTED
        ]


def main() -> None:
    """Print the number of cases and of bugs for each kind."""
    wanted = [sys.argv[1]] if len(sys.argv) > 1 else list(KINDS)
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    for kind in wanted:
        count = int(sys.argv[2]) if len(sys.argv) > 2 else COUNTS[kind]
        bugs = run(kind, count, seed)
        for case in bugs:
            print(f"  {case.what}: {case.code}: {case.said.strip()[-200:]}")
        print(f"{kind}: {count} cases, {len(bugs)} bugs")


if __name__ == "__main__":
    main()
