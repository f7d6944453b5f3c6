"""What is asked, in which order: names rotate over documents, options and places are balanced, the order is random."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from fairkit_correspondence.plan import Asking, Plan, Question
    from fairkit_correspondence.stimuli import Name

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class Entry:
    """One document under one name: what one row of the answers is about."""

    document: int
    name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One question."""

    number: int  # its position in the plan and in the random order of asking
    order: int  # its position in the plan and in the random order of asking
    unit: str  # the document, or the set of documents of a list, that it counts for
    context: str
    entries: tuple[Entry, ...]  # one document with its name, or those of a list in the order in which they are shown
    draw: int
    reversed: bool  # whether the options are shown in the other order
    look: int  # the planned look after which its unit counts, from 1

    def messages(self, plan: Plan) -> list[dict[str, str]]:
        """Return the chat messages."""
        texts = [_filled(plan.documents[entry.document].text, entry.name) for entry in self.entries]
        body = texts[0]
        if len(texts) > 1:
            body = "\n\n".join(f"{letter}.\n{text}" for letter, text in zip(LETTERS, texts, strict=False))
        question = f"{plan.question.text}\n{instruction(plan.question, len(texts), backward=self.reversed)}"
        prompt = plan.contexts[self.context].replace("{question}", question).replace("{document}", body)
        system = [{"role": "system", "content": plan.asking.system}] if plan.asking.system else []
        return [*system, {"role": "user", "content": prompt}]

    def digest(self, plan: Plan) -> str:
        """Return the SHA-256 of what is sent, without model and address, and of the draw."""
        record = [self.messages(plan), parameters_of(plan.asking), self.draw]
        return hashlib.sha256(json.dumps(record, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def instruction(question: Question, size: int, *, backward: bool) -> str:
    """Return the sentence that closes the answers."""
    if question.options:
        options = question.options[::-1] if backward else question.options
        return f"Reply with one of these and nothing else: {', '.join(options)}."
    if question.score:
        return f"Reply with a number from {question.score[0]:g} to {question.score[1]:g} and nothing else."
    letters = ", ".join(LETTERS[:size])
    return f"Reply with the letters {letters} from best to worst, separated by commas, and nothing else."


def parameters_of(asking: Asking) -> dict[str, Any]:
    """Return the parameters of every request; all are sent, since servers have defaults of their own."""
    sent = {"temperature": asking.temperature, "max_tokens": asking.max_tokens, **asking.extra}
    return sent | ({"logprobs": True, "top_logprobs": 20} if asking.logprobs else {})


def requests_of(plan: Plan) -> list[Request]:
    """Return all requests of a plan, by number."""
    rng = np.random.default_rng(int(plan.digest[:16], 16))
    groups: dict[str, list[Name]] = {group: [] for group in plan.groups}
    for name in plan.names:
        groups[name.group].append(name)
    turned = {group: [names[i] for i in rng.permutation(len(names))] for group, names in groups.items()}
    # documents come in random order: those of an early look meet all names already
    drafts = list(_of_lists(plan, turned, rng) if plan.question.list_size else _of_documents(plan, turned, rng))
    turn = {unit: index for index, unit in enumerate(dict.fromkeys(unit for unit, *_ in drafts))}
    looks = [turn[unit] * plan.asking.looks // len(turn) + 1 for unit, *_ in drafts]
    # random over all requests of a look: a model that changes meanwhile changes for every group alike
    position = np.lexsort((rng.random(len(drafts)), np.array(looks)))
    order = np.empty(len(drafts), dtype=np.int64)
    order[position] = np.arange(len(drafts))
    return [
        Request(
            number=number, order=int(order[number]), unit=unit, context=context, entries=entries, draw=draw,
            reversed=backward, look=looks[number],
        )
        for number, (unit, context, entries, draw, backward) in enumerate(drafts)
    ]  # fmt: skip


def _of_documents(plan: Plan, turned: Mapping[str, Sequence[Name]], rng: np.random.Generator) -> Any:
    each, draws = plan.asking.names_per_document, plan.asking.draws
    for turn, t in enumerate(rng.permutation(len(plan.documents)).tolist()):
        for c, context in enumerate(plan.contexts):
            for names in turned.values():
                for i in range(each):
                    name = names[(turn * each + i) % len(names)]
                    for draw in range(draws):
                        # the same orders of options for every group
                        backward = (turn + c + i + draw) % 2 == 1
                        yield plan.documents[t].id, context, (Entry(t, name),), draw, backward


def _of_lists(plan: Plan, turned: Mapping[str, Sequence[Name]], rng: np.random.Generator) -> Any:
    """Return lists: every set of documents is shown once for each group, so that groups meet all places alike."""
    size, groups = plan.question.list_size, list(turned)
    order = rng.permutation(len(plan.documents))
    used = dict.fromkeys(groups, 0)
    for start in range(0, len(order) - size + 1, size):
        members = order[start : start + size].tolist()
        unit = hashlib.sha256(" ".join(plan.documents[t].id for t in members).encode()).hexdigest()[:16]
        shift = int(rng.integers(size))
        lists = []
        for turn in range(len(groups)):
            entries = []
            for place in range(size):
                group = groups[(place + turn) % len(groups)]
                name = turned[group][used[group] % len(turned[group])]
                used[group] += 1
                entries.append(Entry(members[(place + turn * shift) % size], name))
            lists.append(tuple(entries))
        for context in plan.contexts:
            for shown in lists:
                for draw in range(plan.asking.draws):
                    yield unit, context, shown, draw, False


def _filled(text: str, name: Name) -> str:
    for slot, value in name.slots.items():
        text = text.replace(f"{{{slot}}}", value)
    return text
