"""Asking a plan's questions: probe, sentinels, budget, retries and looks."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ModelError, ParameterError
from fairkit.progress import Progress, no_progress
from fairkit_correspondence.client import LONGEST_PAUSE, BudgetError, Client, Reply, Store, refuse
from fairkit_correspondence.findings import shift_of
from fairkit_correspondence.requests import (
    Reading,
    Request,
    answers_table,
    option_masses,
    parameters_of,
    read_reply,
    requests_of,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from fairkit.results.report import Report
    from fairkit_correspondence.plan import Plan

    Messages = list[dict[str, str]]

TRIES, MOST_ERRORS, SENTINELS, PROBES = 8, 20, 20, 4
_SENTINEL_SHIFT = 0.02
_BUSY = (429, 503)
_OURS = "fp_ollama"
"""A fingerprint that is the same for every model (Ollama)."""


class DriftError(ModelError):
    """The served model changed while it was asked."""


def bill(plan: Plan, requests: Sequence[Request]) -> dict[str, Any]:
    """Return calls, tokens (four characters each) and price of a whole plan, with probes and sentinels."""
    characters = sum(len(m["content"]) for request in requests for m in request.messages(plan))
    calls = len(requests) + PROBES + 2 * min(SENTINELS, len(requests))
    prompt, completion = round(characters / 4 * calls / len(requests)), calls * plan.asking.max_tokens
    price = None if plan.price is None else plan.cost(prompt, completion)
    return {"calls": calls, "prompt_tokens": prompt, "completion_tokens": completion, "price": price}


@dataclass
class Outcome:
    """How a run ended."""

    table: pa.Table  # the answers so far
    report: Report | None
    spent: float  # the money, with lost tries
    pending: int  # requests without an answer
    stopped: str | None = None  # why it ended before everything was asked; None where it did not


@dataclass
class Asker:
    """Asks the requests of a plan."""

    plan: Plan
    client: Client
    store: Store
    budget: float | None = None
    concurrency: int = 4
    rate: float | None = None
    progress: Progress = no_progress
    sleep: Callable[[float], Any] | None = None
    today: Callable[[], str] = lambda: f"{datetime.now(UTC):%Y-%m-%d}"
    _stop: threading.Event = field(default_factory=threading.Event)
    _gate: threading.Lock = field(default_factory=threading.Lock)
    _next: float = 0.0
    _errors: int = 0
    _last: str = ""
    _drifted: str | None = None
    _stated: Any = None
    _fingerprints: set[str] = field(default_factory=set)
    _parameters: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def requests(self) -> list[Request]:
        """All requests of the plan."""
        return requests_of(self.plan)

    @cached_property
    def _keys(self) -> list[str]:
        """What every request is known by: which model it asks, what it says, and which one it is."""
        model = self.client.server.model
        identities = ([model, r.digest(self.plan), r.unit, r.number] for r in self.requests)
        return [hashlib.sha256(json.dumps(identity).encode()).hexdigest() for identity in identities]

    def run(self) -> Outcome:
        """Ask what has no answer yet, look by look; stop where a look decides."""
        price, stopped = self.plan.price, None
        if self.budget is None and (price is None or price.prompt or price.completion):
            raise ParameterError("say how much may be spent with --budget (and [price] in the plan says what it costs)")
        if self.budget is not None and price is None:
            raise ParameterError(
                "the plan names no [price], so no budget can be kept: write prompt and completion, the prices of a "
                "million tokens"
            )
        try:
            self.probe()
            self._watch()
            stopped = self._looks(self.plan.asking.looks)
            self._watch()
        except DriftError as error:
            stopped = str(error)
        except BudgetError as error:
            spent = f"{self.store.spent:.4g} of {self.budget:g}"
            stopped = f"{error} ({spent}); run the same command again with a larger one"
        return Outcome(self.table(), self.judged(), self.store.spent, self._missing(self.requests), stopped)

    def _looks(self, looks: int) -> str | None:
        """Ask look by look, and return why it ended early."""
        for stage in range(1, looks + 1):
            due = [request for request in self.requests if request.look == stage]
            self._all(due)
            if missing := self._missing(due):
                return f"{missing:,} requests got no answer ({self._last}); run this command again"
            if len(self._fingerprints) > 1:
                self._fingerprints.clear()
                self._watch()
            report = self.judged() if stage < looks else None
            if report is not None and report.verdict in ("pass", "fail"):
                return f"decided at look {stage} of {looks}"
        return None

    def table(self) -> pa.Table:
        """Return the answers so far."""
        parameters = json.dumps(self._sent, sort_keys=True)
        served = {"model": self.client.server.model, "parameters": parameters}
        records = {number: {**record, "cost": cost} for number, record, cost in self.store.records()}
        return answers_table(self.plan, self.requests, records, served)

    def judged(self) -> Report | None:
        """Audit the answers so far against the plan's limit; None for a pilot or where no document is complete."""
        from fairkit.auditing.run import audit
        from fairkit.data.loading import load_data
        from fairkit.results.rules import Rule
        from fairkit_correspondence.answers import NothingCompleteError

        column = self.plan.column
        data = load_data(self.table(), sensitive=[column], predictions={"answer": "answer"}, name="answers")
        rule = Rule("correspondence_difference", column, max=self.plan.asking.limit)
        try:
            return audit(
                None, data, auditors=["correspondence"], parameters={"correspondence": audit_parameters(self.plan)},
                policy=[] if self.plan.asking.pilot else [rule],
            )  # fmt: skip
        except NothingCompleteError:
            return None

    @property
    def _sent(self) -> dict[str, Any]:
        """The parameters of every request, as the probe settled them."""
        return self._parameters or parameters_of(self.plan.asking)

    def probe(self) -> None:
        """Find out once at every address what the server can do; at most four calls besides those that it puts off."""
        facts = json.loads(self.store.fact("probe") or "{}")
        if facts.get("address") == self.client.address:
            self._parameters, self._stated = facts["parameters"], facts["stated_model"]
            return
        self._parameters, self._stated = self._probed()
        fact = {"stated_model": self._stated, "parameters": self._parameters, "address": self.client.address}
        changed = next((key for key, value in fact.items() if facts and facts[key] != value), "address")
        if changed != "address":
            raise DriftError(
                f"another model is served: at {facts['address']} its {changed.replace('_', ' ')} was "
                f"{facts[changed]!r}, and at {self.client.address} it is {fact[changed]!r}"
            )
        self.store.remember("probe", json.dumps(fact, sort_keys=True))

    def _probed(self) -> tuple[dict[str, Any], Any]:
        """Return the parameters that the server takes, and the model's name as it states it."""
        parameters, outcome = parameters_of(self.plan.asking), None
        for turn in range(PROBES):
            request = self.requests[turn * len(self.requests) // PROBES]
            for attempt in range(TRIES):  # a busy server says nothing about what it can do
                reply = self.paid(request.messages(self.plan), parameters)
                if reply.status not in _BUSY or attempt == TRIES - 1:
                    break
                self._pause(reply.pause, attempt)
            if reply.record:
                bare = read_reply(reply.record, self.plan.question, len(request.entries), logprobs=False)
                outcome = bare.outcome
                if outcome == "answered":
                    break
            elif reply.again and reply.status not in _BUSY and turn < PROBES - 1:
                self._pause(reply.pause, turn)
            elif not self._adapted(parameters, reply):
                raise refuse(self.client, reply)
        if outcome is None:
            raise refuse(self.client, reply)
        if self.plan.asking.logprobs and outcome == "answered":
            said = reply.record["choices"][0].get("logprobs")
            if option_masses(said, self.plan.question.options) is None:
                raise ModelError(self._no_logprobs())
        return parameters, reply.record.get("model")

    def _adapted(self, parameters: dict[str, Any], reply: Reply) -> bool:
        """Change a parameter that a server refused for another one with the same meaning; return whether it helps."""
        reason = reply.reason.casefold()
        if reply.status not in (400, 422):
            return False
        if "max_completion_tokens" in reason and "max_tokens" in parameters:
            parameters["max_completion_tokens"] = parameters.pop("max_tokens")
            return True
        if "top_logprobs" in reason and parameters.get("top_logprobs", 0) > 5:
            parameters["top_logprobs"] = 5
            return True
        if "logprobs" in reason and self.plan.asking.logprobs:
            raise ModelError(self._no_logprobs())
        return False

    def _no_logprobs(self) -> str:
        return (
            f"{self.client.name} gives no log-probabilities for {self.client.server.model!r}; write logprobs = false "
            "in [asking] (and plan more draws or names)"
        )

    def paid(self, messages: Messages, parameters: Mapping[str, Any] | None = None) -> Reply:
        """Put one request that is no answer of the plan; it is paid for, too."""
        most = self._most(messages)
        reservation = self.store.reserve(most, self.budget)
        self._wait()
        reply = self.client.ask(messages, self._sent if parameters is None else parameters)
        if reply.record:
            cost = self._cost(reply.record, most)
            self.store.settle(reservation, f"extra {time.time_ns()}", -1, {}, cost)
        else:
            self.store.release(reservation, paid=reply.paid)
        return reply

    def _watch(self) -> None:
        """Ask the sentinels again, and compare with the first time."""
        turn = max(self.store.sentinels(), default=-1) + 1
        properties = self.client.properties()
        for request in self.requests[:: max(1, len(self.requests) // SENTINELS)][:SENTINELS]:
            reply = self.paid(request.messages(self.plan))
            if reply.record:
                value = self.read(reply.record, request).values[0]
                record = {"value": value, "model": reply.record.get("model"), "properties": properties}
                self.store.add_sentinel(turn, request.number, record)
            elif reply.status in (401, 403, 404):
                raise refuse(self.client, reply)
        rounds = self.store.sentinels()
        first, last = rounds.get(min(rounds, default=0), {}), rounds.get(turn, {})
        both = [(first[number], last[number]) for number in last if number in first]
        for before, after in both:
            for what in ("model", "properties"):
                if before[what] and after[what] and before[what] != after[what]:
                    raise DriftError(f"the served model changed: {what} was {before[what]!r} and is {after[what]!r}")
        gaps = np.array([b["value"] - a["value"] for a, b in both if None not in (a["value"], b["value"])])
        if len(gaps) >= 5:
            shift, half = shift_of(gaps, 0.999)
            if abs(shift) > max(_SENTINEL_SHIFT, half):
                raise DriftError(
                    f"the served model changed: the same {len(gaps)} questions are answered {shift:+.3f} on average"
                )

    def _all(self, due: Sequence[Request]) -> None:
        """Ask the requests that have no answer, several at a time, in the plan's order."""
        done = self.store.keys()
        left = iter(sorted((r for r in due if self._keys[r.number] not in done), key=lambda r: r.order))
        count = sum(1 for key in done if not key.startswith("extra"))
        running: set[Future[None]] = set()
        with ThreadPoolExecutor(self.concurrency) as pool:
            try:
                while True:
                    for request in left:
                        running.add(pool.submit(self._one, request))
                        if len(running) >= self.concurrency:
                            break
                    if not running:
                        return
                    finished, running = wait(running, return_when=FIRST_COMPLETED)
                    count += len(finished)
                    self.progress("asking", min(count, len(self.requests)), len(self.requests), spent=self.store.spent)
                    for task in finished:
                        task.result()
                    if self._drifted is not None:
                        raise DriftError(self._drifted)
                    if self._errors >= MOST_ERRORS:
                        raise ModelError(f"{self.client.name} failed {self._errors} times in a row: {self._last}")
            except BaseException:
                self._stop.set()
                raise

    def _one(self, request: Request) -> None:
        """Ask one request until it has an answer, in at most `TRIES` tries."""
        messages, key = request.messages(self.plan), self._keys[request.number]
        most = self._most(messages)
        for attempt in range(TRIES):
            if self._stop.is_set():
                return
            reservation = self.store.reserve(most, self.budget)
            self._wait()
            reply = self.client.ask(messages, self._sent)
            if reply.record:
                record = self._record(self.read(reply.record, request), reply.record)
                self.store.settle(reservation, key, request.number, record, self._cost(reply.record, most))
                self._errors = 0
                self._follow(reply.record)
                return
            if reply.status in (200, 400, 413, 422):
                # the server answered, and it is no answer: too long, or refused as a request
                reading = Reading("unreadable", (None,) * len(request.entries), text=reply.reason)
                cost = most if reply.status == 200 else 0.0
                self.store.settle(reservation, key, request.number, self._record(reading, {}), cost)
                self._errors, self._last = self._errors + 1, reply.reason
                return
            self.store.release(reservation, paid=reply.paid and reply.status not in (401, 403))
            if reply.status in (401, 403):
                raise refuse(self.client, reply)
            self._last = reply.reason
            if not reply.again:
                break
            if attempt < TRIES - 1:
                self._pause(reply.pause, attempt)
        self._errors += 1

    def _follow(self, record: Mapping[str, Any]) -> None:
        """Notice another model name."""
        stated, mark = record.get("model"), record.get("system_fingerprint")
        self._stated = self._stated or stated
        if stated and stated != self._stated:  # a filter's reply names none
            self._drifted = f"the served model changed: it called itself {self._stated!r} and now {stated!r}"
        if mark and mark != _OURS:
            self._fingerprints.add(str(mark))

    def read(self, record: Mapping[str, Any], request: Request) -> Reading:
        """Read a reply to a request."""
        return read_reply(record, self.plan.question, len(request.entries), logprobs=self.plan.asking.logprobs)

    def _record(self, reading: Reading, reply: Mapping[str, Any]) -> dict[str, Any]:
        choices, mark = reply.get("choices") or [{}], reply.get("system_fingerprint")
        prompt, completion = _usage(reply)
        return {
            "outcome": reading.outcome,
            "values": list(reading.values),
            "unresolved": reading.unresolved,
            "text": reading.text,
            "finish_reason": choices[0].get("finish_reason") if isinstance(choices[0], dict) else None,
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "stated_model": str(reply["model"]) if reply.get("model") else None,
            "fingerprint": None if mark in (None, _OURS) else str(mark),
            "asked_on": self.today(),
            "address": self.client.address,
        }

    def _most(self, messages: Messages) -> float:
        """Return the most that a request can cost: no token is shorter than a byte."""
        size = sum(len(m["content"].encode()) + 16 for m in messages) + 16
        return self.plan.cost(size, self.plan.asking.max_tokens)

    def _cost(self, record: Mapping[str, Any], most: float) -> float:
        """Return what a reply cost by its usage; the most where it does not say."""
        prompt, completion = _usage(record)
        return most if prompt is None or completion is None else self.plan.cost(prompt, completion)

    def _missing(self, due: Sequence[Request]) -> int:
        done = self.store.keys()
        return sum(self._keys[request.number] not in done for request in due)

    def _wait(self) -> None:
        """Keep to the rate."""
        if self.rate is not None:
            with self._gate:
                now = time.monotonic()
                pause, self._next = max(self._next - now, 0.0), max(now, self._next) + 1 / self.rate
            self._rest(pause)

    def _pause(self, wanted: float | None, attempt: int) -> None:
        """Wait as the server asks, or longer each time."""
        if wanted is not None and wanted > LONGEST_PAUSE:
            raise ModelError(
                f"{self.client.name} asks to be left alone for {wanted:.0f} s; run the same command again then"
            )
        self._rest(max(wanted or 0.0, 0.25 * 2**attempt))

    def _rest(self, seconds: float) -> None:
        """Sleep, unless the run is ended meanwhile."""
        (self.sleep or self._stop.wait)(seconds)


def ask_again(asker: Asker, count: int, seed: int = 0) -> tuple[int, int]:
    """Put a sample of answered requests again; return how many were asked and how many answers differ.

    An answer differs where the favorable decision (at least 1/2) or the outcome is another one.
    """
    asker.probe()
    recorded = [(number, record) for number, record, _ in asker.store.records()]
    repeated = differ = 0
    for index in np.random.default_rng(seed).permutation(len(recorded))[:count].tolist():
        number, record = recorded[index]
        request = asker.requests[number]
        reply = asker.paid(request.messages(asker.plan))
        if reply.record:
            reading = asker.read(reply.record, request)
            said = (record["outcome"], record["values"]), (reading.outcome, reading.values)
            before, after = ((outcome, [v is not None and v >= 0.5 for v in values]) for outcome, values in said)
            repeated, differ = repeated + 1, differ + (before != after)
    return repeated, differ


def audit_parameters(plan: Plan) -> dict[str, Any]:
    """Return the auditor's parameters that go with a plan."""
    return ({"names": "fixed"} if plan.asking.names == "fixed" else {}) | (
        {"placebo": plan.placebo} if plan.placebo else {}
    )


def _usage(record: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return the tokens of prompt and completion that a reply states."""
    usage = record.get("usage")
    values = [usage.get(f"{key}_tokens") if isinstance(usage, dict) else None for key in ("prompt", "completion")]
    prompt, completion = (v if isinstance(v, int) and not isinstance(v, bool) and v >= 0 else None for v in values)
    return prompt, completion
