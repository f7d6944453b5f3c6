"""The conformance suite for verifiers of certificates: its cases, and putting them to a program."""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairkit_registry.errors import RegistryError

VERSION = 1
"""Of the suite: cases of a version are never changed, a later one may have more."""
_COMPARED = ("answer", "because", "verdict", "signers", "sequence", "size", "root", "proven_at")
_SECONDS = 60.0
_MOST_RESTARTS_IN_A_ROW = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case."""

    name: str  # its group and its own name: `envelope/payload-flipped`
    protects: str  # what it protects from, in a sentence
    kind: str  # what is to be checked, and what a verifier must answer. Of `expected` a runner may leave `because` out
    given: Mapping[str, Any]
    expected: Mapping[str, Any]

    def question(self) -> dict[str, Any]:
        """Return a runner's input: the case without its answer."""
        return {"name": self.name, "kind": self.kind, "input": dict(self.given)}

    def mistake(self, answer: Mapping[str, Any]) -> str | None:
        """Return how an answer differs from what is expected; None where it does not."""
        for key in _COMPARED:
            wanted, told = self.expected.get(key), answer.get(key)
            if wanted is not None and told != wanted and not (key == "because" and told is None):
                return f"{key} is {told!r}, and {wanted!r} is right"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a runner said to one case: `mistake` is None where it is right, `supported` False where it does not try."""

    case: Case
    answer: Mapping[str, Any]
    mistake: str | None
    supported: bool
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "case": self.case.name,
            "protects": self.case.protects,
            "passed": self.supported and self.mistake is None,
            "supported": self.supported,
            "mistake": self.mistake,
            "answer": dict(self.answer),
        }


def folder() -> Path:
    """Return where the cases lie: beside the package in the source tree, and inside it where it is installed."""
    here = Path(__file__).parent
    return next((one for one in (here / "conformance", here.parent / "conformance") if one.is_dir()), here)


def cases(names: Sequence[str] = ()) -> list[Case]:
    """Return the cases, by name; with `names` those whose names begin so."""
    matches = []
    for path in sorted(folder().glob("*/*.json")):
        name = f"{path.parent.name}/{path.stem}"
        if not names or name.startswith(tuple(names)):
            try:
                record = json.loads(path.read_text("utf-8"))
                matches.append(
                    Case(
                        name=name,
                        protects=record["protects"],
                        kind=record["kind"],
                        given=record["input"],
                        expected=record["expected"],
                    )
                )
            except (ValueError, KeyError, TypeError) as error:
                raise RegistryError(f"the case {path} is damaged ({error!r})") from None
    if not matches:
        raise RegistryError(f"the suite has no case whose name begins with {' or '.join(names) or 'anything'}")
    return matches


def run(runner: str, chosen: Sequence[Case]) -> Iterator[Outcome]:
    """Put cases to a program, one JSON line each, and yield what its answers are worth.

    A program may answer all cases of one start, or end after each: it is started again then.
    """
    try:
        command = shlex.split(runner)
    except ValueError as error:
        raise RegistryError(f"the runner {runner!r} cannot be read: {error}") from None
    if not command:
        raise RegistryError("name the program that answers cases: fairkit conformance 'fairkit-verify --cases'")
    process: subprocess.Popen[str] | None = None
    try:
        for case in chosen:
            begun = time.perf_counter()
            line = ""
            for _ in range(_MOST_RESTARTS_IN_A_ROW + 1):
                if process is None:
                    process = _started(command)
                line = _asked(process, case)
                if line:
                    break
                _end(process)
                process = None
            yield _outcome(case, line, time.perf_counter() - begun)
    finally:
        if process is not None:
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):  # what was written to a program that has ended
            if pipe is not None:
                pipe.close()


def _started(command: Sequence[str]) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8", bufsize=1
        )
    except OSError as error:
        raise RegistryError(f"cannot start {command[0]!r}: {error.strerror or error}") from None


def _asked(process: subprocess.Popen[str], case: Case) -> str:
    """Write a case and return the line that comes back; empty where the program has ended."""
    import threading

    assert process.stdin is not None  # noqa: S101 -- both are pipes
    assert process.stdout is not None  # noqa: S101
    watch = threading.Timer(_SECONDS, process.kill)
    watch.start()
    begun = time.monotonic()
    try:
        process.stdin.write(json.dumps(case.question()) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
    except (BrokenPipeError, ValueError, OSError):
        line = ""
    finally:
        watch.cancel()
    if not line and time.monotonic() - begun >= _SECONDS:
        raise RegistryError(f"the runner took longer than {_SECONDS:g} seconds for the case {case.name}")
    return line


def _outcome(case: Case, line: str, seconds: float) -> Outcome:
    if not line:
        raise RegistryError(f"the runner ended without an answer to the case {case.name}")
    try:
        answer = json.loads(line)
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or not isinstance(answer.get("answer"), str):
        raise RegistryError(f"the runner's answer to {case.name} is no JSON object with an `answer`: {line[:80]!r}")
    supported = answer["answer"] != "unsupported"
    mistake = case.mistake(answer) if supported else None
    return Outcome(case=case, answer=answer, mistake=mistake, supported=supported, seconds=seconds)
