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
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ModelError, ParameterError
from fairkit.intervals import student, two_sided
from fairkit.progress import Progress, no_progress
from fairkit_correspondence.client import LONGEST_PAUSE, Client, Reply, refuse
from fairkit_correspondence.parsing import Reading, option_masses, read_reply
from fairkit_correspondence.requests import Request, parameters_of, requests_of
from fairkit_correspondence.store import BudgetError, Store
from fairkit_correspondence.table import answers_table

if TYPE_CHECKING:
    import pyarrow as pa

    from fairkit.results.report import Report
    from fairkit_correspondence.plan import Plan

TRIES, MOST_ERRORS, SENTINELS, PROBES = 8, 20, 20, 4
_SENTINEL_SHIFT = 0.02
_OURS = "fp_ollama"
"""A fingerprint that is the same for every model (Ollama)."""


class DriftError(ModelError):
    """The served model changed while it was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What a plan will cost at most and about."""

    calls: int
    prompt_tokens: int
    completion_tokens: int
    price: float | None


def bill(plan: Plan, requests: Sequence[Request]) -> Bill:
    """Return calls, tokens (four characters each) and price of a whole plan, with probes and sentinels."""
    characters = [sum(len(m["content"]) for m in request.messages(plan)) for request in requests]
    extra = PROBES + 2 * min(SENTINELS, len(requests))
    mean = sum(characters) / len(requests) / 4
    prompt = round(sum(characters) / 4 + extra * mean)
    completion = (len(requests) + extra) * plan.asking.max_tokens
    price = None if plan.price is None else (prompt * plan.price[0] + completion * plan.price[1]) / 1e6
    return Bill(calls=len(requests) + extra, prompt_tokens=prompt, completion_tokens=completion, price=price)


@dataclass
class Outcome:
    """How a run ended.

    Attributes
    ----------
    table
        The answers so far.
    report
        The audit of them, at the last complete look; None for a pilot, and where no look is complete.
    spent
        The money, with lost tries.
    pending
        Requests without an answer.
    stopped
        Why it ended before everything was asked; None where it did not.
    """

    table: pa.Table
    report: Report | None
    spent: float
    pending: int
    stopped: str | None = None


@dataclass
class Asker:
    """Asks the requests of a plan.

    Parameters
    ----------
    plan, client, store
        What, whom, and where answers are kept.
    budget
        The most money; None only where nothing costs.
    concurrency
        Requests in flight.
    rate
        Requests a second; None: no limit.
    """

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
    _keys: dict[int, str] = field(default_factory=dict)
    _fingerprints: set[str] = field(default_factory=set)
    _parameters: dict[str, Any] = field(default_factory=dict)

    def run(self) -> Outcome:
        """Ask what has no answer yet, look by look; stop where a look decides.

        Raises
        ------
        ModelError
            The server is none, refuses access, or fails too often.
        """
        if self.budget is None and (self.plan.price is None or any(self.plan.price)):
            raise ParameterError(
                "say how much may be spent with --budget (and [price] in the plan says what it costs)"
            )
        if self.budget is not None and self.plan.price is None:
            raise ParameterError(
                "the plan names no [price], so no budget can be kept: write prompt and completion, the prices of a "
                "million tokens"
            )
        requests = requests_of(self.plan)
        stopped = None
        report = None
        try:
            self._probe(requests)
            self._watch(requests)
            for look in range(1, self.plan.asking.looks + 1):
                due = [r for r in requests if r.look == look]
                self._all(due, len(requests))
                if self._missing(due):
                    stopped = f"{self._missing(due):,} requests got no answer ({self._last}); run this command again"
                    break
                if len(self._fingerprints) > 1:
                    self._fingerprints.clear()
                    self._watch(requests)
                if look == self.plan.asking.looks:
                    break
                report = self.judged(requests)
                if report is not None and report.verdict in ("pass", "fail"):
                    stopped = f"decided at look {look} of {self.plan.asking.looks}"
                    break
            self._watch(requests)
        except (BudgetError, DriftError) as error:
            stopped = str(error)
            if isinstance(error, BudgetError):
                stopped += f" ({self.store.spent:.4g} of {self.budget:g}); run the same command again with a larger one"
        table = self.table(requests)
        report = self.judged(requests)
        return Outcome(table, report, self.store.spent, self._missing(requests), stopped)

    def table(self, requests: Sequence[Request]) -> pa.Table:
        """Return the answers so far."""
        served = {
            "address": self.client.server.at("").partition("?")[0],
            "model": self.client.server.model,
            "parameters": json.dumps(self._sent, sort_keys=True),
        }
        records = {number: {**record, "cost": cost} for number, record, cost in self.store.records()}
        return answers_table(self.plan, requests, records, served)

    def judged(self, requests: Sequence[Request]) -> Report | None:
        """Audit the answers so far against the plan's limit; None for a pilot or where no document is complete."""
        from fairkit.auditing.run import audit
        from fairkit.data.loading import load_data
        from fairkit.errors import DataError
        from fairkit.results.rules import Rule

        data = load_data(
            self.table(requests),
            sensitive=[self.plan.column],
            predictions={"answer": "answer"},
            name="answers",
        )
        rule = Rule("correspondence_difference", self.plan.column, max=self.plan.asking.limit)
        try:
            return audit(
                None, data, auditors=["correspondence"], parameters={"correspondence": audit_parameters(self.plan)},
                policy=[] if self.plan.asking.pilot else [rule],
            )  # fmt: skip
        except DataError as error:
            if "no document has all" in str(error):
                return None
            raise

    @property
    def _sent(self) -> dict[str, Any]:
        """The parameters of every request, as the probe settled them."""
        return self._parameters or parameters_of(self.plan.asking)

    def _probe(self, requests: Sequence[Request]) -> None:
        """Find out once what the server can do; at most four calls.

        Raises
        ------
        ModelError
            It is no such server, or cannot do what the plan asks for.
        """
        known = self.store.fact("probe")
        if known is not None:
            self._parameters, self._stated = (
                json.loads(known)[key] for key in ("parameters", "stated_model")
            )
            return
        parameters = parameters_of(self.plan.asking)
        bare: Reading | None = None
        for turn in range(PROBES):
            request = requests[turn * len(requests) // PROBES]
            reply = self._paid(request.messages(self.plan), parameters)
            if reply.record:
                bare = read_reply(reply.record, self.plan.question, len(request.entries), logprobs=False)
                if bare.outcome == "answered" or turn == PROBES - 1:
                    break
            elif (reply.again or reply.oversized) and turn < PROBES - 1:
                self._pause(reply.pause, turn)
            elif not self._adapted(parameters, reply):
                raise refuse(self.client, reply)
        if bare is None:
            raise refuse(self.client, reply)
        if self.plan.asking.logprobs and bare.outcome == "answered":
            choices = reply.record.get("choices") or [{}]
            if option_masses(choices[0].get("logprobs"), self.plan.question.options) is None:
                raise ModelError(self._no_logprobs())
        self._parameters, self._stated = parameters, reply.record.get("model")
        self.store.remember(
            "probe", json.dumps({"parameters": parameters, "stated_model": self._stated}, sort_keys=True)
        )

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

    def _paid(self, messages: list[dict[str, str]], parameters: Mapping[str, Any]) -> Any:
        """Put one request that is no answer of the plan; it is paid for, too."""
        reservation = self.store.reserve(self._most(messages), self.budget)
        self._wait()
        reply = self.client.ask(messages, parameters)
        if reply.record:
            key = f"extra {time.time_ns()}"
            self.store.settle(reservation, key, -1, {}, self._cost(reply.record, self._most(messages)))
        else:
            self.store.release(reservation, paid=reply.paid)
        return reply

    def _watch(self, requests: Sequence[Request]) -> None:
        """Ask the sentinels again, and compare with the first time.

        Raises
        ------
        DriftError
            Model name or answers are other ones.
        """
        rounds = self.store.sentinels()
        turn = max(rounds, default=-1) + 1
        chosen = requests[:: max(1, len(requests) // SENTINELS)][:SENTINELS]
        properties = self.client.properties()
        for request in chosen:
            reply = self._paid(request.messages(self.plan), self._sent)
            if not reply.record:
                if reply.status in (401, 403, 404):
                    raise refuse(self.client, reply)
                continue
            reading = self._read(reply.record, request)
            value = reading.values[0]
            record = {"value": value, "model": reply.record.get("model"), "properties": properties}
            self.store.add_sentinel(turn, request.number, record)
        rounds = self.store.sentinels()
        first, last = rounds.get(min(rounds, default=0), {}), rounds.get(turn, {})
        both = [(first[n], last[n]) for n in last if n in first]
        for one, other in both:
            for what in ("model", "properties"):
                if one[what] and other[what] and one[what] != other[what]:
                    raise DriftError(
                        f"the served model changed: {what} was {one[what]!r} and is {other[what]!r}"
                    )
        gaps = np.array([b["value"] - a["value"] for a, b in both if None not in (a["value"], b["value"])])
        if len(gaps) >= 5:
            t = float(student(two_sided(0.999), np.array([float(len(gaps))]))[0])
            shift, error = float(gaps.mean()), float(gaps.std(ddof=1) / np.sqrt(len(gaps)))
            if abs(shift) > max(_SENTINEL_SHIFT, t * error):
                raise DriftError(
                    f"the served model changed: the same {len(gaps)} questions are answered {shift:+.3f} on average"
                )

    def _all(self, due: Sequence[Request], total: int) -> None:
        """Ask the requests that have no answer, several at a time, in the plan's order."""
        done = self.store.keys()
        left = iter(sorted((r for r in due if self._key(r) not in done), key=lambda request: request.order))
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
                        break
                    finished, running = wait(running, return_when=FIRST_COMPLETED)
                    count += len(finished)
                    self.progress("asking", min(count, total), total, spent=self.store.spent)
                    for one in finished:
                        one.result()
                    if self._drifted is not None:
                        raise DriftError(self._drifted)
                    if self._errors >= MOST_ERRORS:
                        raise ModelError(
                            f"{self.client.name} failed {self._errors} times in a row: {self._last}"
                        )
            except BaseException:
                self._stop.set()
                raise

    def _one(self, request: Request) -> None:
        """Ask one request until it has an answer, in at most `TRIES` tries."""
        messages, key = request.messages(self.plan), self._key(request)
        most = self._most(messages)
        for attempt in range(TRIES):
            if self._stop.is_set():
                return
            reservation = self.store.reserve(most, self.budget)
            self._wait()
            reply = self.client.ask(messages, self._sent)
            if reply.record:
                record = self._record(self._read(reply.record, request), reply.record)
                self.store.settle(reservation, key, request.number, record, self._cost(reply.record, most))
                self._errors = 0
                self._follow(reply.record)
                return
            if reply.status in (401, 403):
                self.store.release(reservation, paid=False)
                raise refuse(self.client, reply)
            if reply.status in (200, 400, 413, 422):
                # the server answered, and it is no answer: too long, or refused as a request
                reading = Reading("unreadable", (None,) * len(request.entries), text=reply.reason)
                cost = most if reply.status == 200 else 0.0
                self.store.settle(reservation, key, request.number, self._record(reading, {}), cost)
                self._errors, self._last = self._errors + 1, reply.reason
                return
            self.store.release(reservation, paid=reply.paid)
            self._last = reply.reason
            if not reply.again:
                break
            if attempt < TRIES - 1:
                self._pause(reply.pause, attempt)
        self._errors += 1

    def _follow(self, record: Mapping[str, Any]) -> None:
        """Notice another model name."""
        stated = record.get("model")
        self._stated = self._stated or stated
        if stated and stated != self._stated:  # a filter's reply names none
            self._drifted = f"the served model changed: it called itself {self._stated!r} and now {stated!r}"
        mark = record.get("system_fingerprint")
        if mark and mark != _OURS:
            self._fingerprints.add(str(mark))

    def _read(self, record: Mapping[str, Any], request: Request) -> Reading:
        return read_reply(
            record, self.plan.question, len(request.entries), logprobs=self.plan.asking.logprobs
        )

    def _record(self, reading: Reading, reply: Mapping[str, Any]) -> dict[str, Any]:
        usage = found if isinstance(found := reply.get("usage"), dict) else {}
        choices = reply.get("choices") or [{}]
        mark = reply.get("system_fingerprint")
        return {
            "outcome": reading.outcome,
            "values": list(reading.values),
            "unresolved": reading.unresolved,
            "text": reading.text,
            "finish_reason": choices[0].get("finish_reason") if isinstance(choices[0], dict) else None,
            "prompt_tokens": _whole(usage.get("prompt_tokens")),
            "completion_tokens": _whole(usage.get("completion_tokens")),
            "stated_model": str(reply["model"]) if reply.get("model") else None,
            "fingerprint": None if mark in (None, _OURS) else str(mark),
            "asked_on": self.today(),
        }

    def _most(self, messages: Sequence[Mapping[str, str]]) -> float:
        """Return the most that a request can cost: no token is shorter than a byte."""
        price = self.plan.price or (0.0, 0.0)
        size = sum(len(m["content"].encode()) + 16 for m in messages) + 16
        return (size * price[0] + self.plan.asking.max_tokens * price[1]) / 1e6

    def _cost(self, record: Mapping[str, Any], most: float) -> float:
        """Return what a reply cost by its usage; the most where it does not say."""
        usage = record.get("usage")
        if not isinstance(usage, dict):
            return most
        prompt, completion = _whole(usage.get("prompt_tokens")), _whole(usage.get("completion_tokens"))
        price = self.plan.price or (0.0, 0.0)
        return (
            most
            if prompt is None or completion is None
            else (prompt * price[0] + completion * price[1]) / 1e6
        )

    def _key(self, request: Request) -> str:
        if request.number in self._keys:
            return self._keys[request.number]
        server = self.client.server
        text = json.dumps(
            [server.at(""), server.model, request.digest(self.plan), request.unit, request.number]
        )
        return self._keys.setdefault(request.number, hashlib.sha256(text.encode()).hexdigest())

    def _missing(self, due: Sequence[Request]) -> int:
        done = self.store.keys()
        return sum(self._key(request) not in done for request in due)

    def _wait(self) -> None:
        """Keep to the rate."""
        if self.rate is None:
            return
        with self._gate:
            now = time.monotonic()
            pause, self._next = max(self._next - now, 0.0), max(now, self._next) + 1 / self.rate
        self._rest(pause)

    def _pause(self, told: float | None, attempt: int) -> None:
        """Wait as the server asks, or longer each time.

        Raises
        ------
        ModelError
            It asks for more than five minutes.
        """
        if told is not None and told > LONGEST_PAUSE:
            raise ModelError(
                f"{self.client.name} asks to be left alone for {told:.0f} s; run the same command again then"
            )
        self._rest(max(told or 0.0, 0.25 * 2**attempt))

    def _rest(self, seconds: float) -> None:
        """Sleep, unless the run is ended meanwhile."""
        (self.sleep or self._stop.wait)(seconds)


def ask_again(asker: Asker, count: int, seed: int = 0) -> tuple[int, int]:
    """Put a sample of answered requests again; return how many were asked and how many answers differ.

    An answer differs where the favorable decision (at least 1/2) or the outcome is another one.
    """
    requests = {request.number: request for request in requests_of(asker.plan)}
    asker._probe(list(requests.values()))
    known = [(number, record) for number, record, _ in asker.store.records()]
    chosen = np.random.default_rng(seed).permutation(len(known))[:count]
    asked = differ = 0
    for index in chosen.tolist():
        number, record = known[index]
        reply = asker._paid(requests[number].messages(asker.plan), asker._sent)
        if not reply.record:
            continue
        reading = asker._read(reply.record, requests[number])
        asked += 1
        differ += _decisions(reading.outcome, reading.values) != _decisions(
            record["outcome"], record["values"]
        )
    return asked, differ


def _decisions(outcome: str, values: Sequence[float | None]) -> tuple[Any, ...]:
    return (outcome, *(value is not None and value >= 0.5 for value in values))


def audit_parameters(plan: Plan) -> dict[str, Any]:
    """Return the auditor's parameters that go with a plan."""
    found: dict[str, Any] = {}
    if plan.asking.names == "fixed":
        found["names"] = "fixed"
    if plan.placebo:
        found["placebo"] = plan.placebo
    return found


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
