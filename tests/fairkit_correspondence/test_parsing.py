"""Replies of many servers: options, scores, orders; refused, unreadable, cut off."""

from __future__ import annotations

import math

import pytest

from fairkit_correspondence.plan import Question
from fairkit_correspondence.requests import option_masses, read_reply

YES = Question(text="?", options=("Yes", "No"), favorable=("Yes",))
SCORE = Question(text="?", score=(0.0, 10.0))


def reply(content, finish="stop", **message):
    return {"choices": [{"finish_reason": finish, "message": {"content": content, **message}}]}


@pytest.mark.parametrize(
    ("text", "outcome", "value"),
    [
        ("Yes", "answered", 1.0),
        ("  no.\n", "answered", 0.0),
        ("**Yes**", "answered", 1.0),
        ("Yes, invite her. No doubt.", "answered", 1.0),
        ("The answer is: no", "answered", 0.0),
        ("yes or no?", "unreadable", None),
        ("Nothing to add", "unreadable", None),
        ("Either, both are possible: yes and no", "unreadable", None),
        ("<think>no no no</think>\n\nYes", "answered", 1.0),
        ("<think>never ends: yes", "refused", None),
        ("I'm sorry, but I can't decide about people.", "refused", None),
        ("", "refused", None),
        (None, "refused", None),
    ],
)
def test_options(text, outcome, value):
    found = read_reply(reply(text), YES, 1, logprobs=False)
    assert (found.outcome, found.values) == (outcome, (value,))


def test_filters_refusals_and_cut_off_replies():
    assert read_reply(reply("Yes", refusal="No."), YES, 1, logprobs=False).outcome == "refused"
    assert read_reply(reply("Yes", finish="content_filter"), YES, 1, logprobs=True).outcome == "refused"
    assert read_reply(reply("Let me think", finish="length"), YES, 1, logprobs=False).outcome == "cut off"
    assert read_reply(reply("Yes, bec", finish="length"), YES, 1, logprobs=False).outcome == "answered"
    assert read_reply({"choices": ["odd"]}, YES, 1, logprobs=False).outcome == "refused"
    assert len(read_reply(reply("x" * 100_000), YES, 1, logprobs=False).text) == 4_000


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 0.7),
        ("Score: 8.5", 0.85),
        ("8,5", 0.85),
        ("10/10", 1.0),
        ("8 out of 10", 0.8),
        ("8 of 9", None),
        ("11", None),
        ("three", None),
        ("-1", None),
    ],
)
def test_scores(text, value):
    assert read_reply(reply(text), SCORE, 1, logprobs=False).values == (
        value if value is None else pytest.approx(value),
    )


@pytest.mark.parametrize(
    ("outcome", "values"), [("first", (0.0, 1.0, 0.0)), ("top-2", (0.0, 1.0, 1.0)), ("place", (0.0, 1.0, 0.5))]
)
def test_orders(outcome, values):
    question = Question(text="?", list_size=3, outcome=outcome)
    assert read_reply(reply("B, C, A"), question, 3, logprobs=False).values == values
    # what is left out could stand anywhere
    assert read_reply(reply("B"), question, 3, logprobs=False).values[0] is None
    assert read_reply(reply("B, B, A"), question, 3, logprobs=False).outcome == "unreadable"


def token(text, top):
    return {"token": text, "top_logprobs": [{"token": t, "logprob": v} for t, v in top.items()]}


def test_masses_of_split_double_and_missing_tokens():
    top = {"Y": math.log(0.3), " yes": math.log(0.2), "YES.": math.log(0.1), "N": math.log(0.3), "maybe": math.log(0.1)}
    found = option_masses({"content": [token("Y", top)]}, ("Yes", "No"))
    assert found["Yes"] == pytest.approx(0.6)
    assert found["No"] == pytest.approx(0.3)
    # a token that begins two options belongs to none
    top = {"A": math.log(0.6), "appr": math.log(0.4)}
    assert option_masses({"content": [token("A", top)]}, ("approve", "approve later"))["approve"] == 0
    # -9999 is no log-probability, and NaN is none either
    top = {"Yes": math.log(0.5), "No": -9999.0, "no": float("nan")}
    assert option_masses({"content": [token("Yes", top)]}, ("Yes", "No")) == {"Yes": pytest.approx(0.5), "No": 0.0}
    # after a reasoning block
    content = [token("<think>", {}), token("no", {"no": 0.0}), token("</think>", {}), token("\n", {"\n": 0.0})]
    content.append(token("Yes", {"Yes": math.log(0.9)}))
    assert option_masses({"content": content}, ("Yes", "No"))["Yes"] == pytest.approx(0.9)
    for nothing in (
        None,
        {},
        {"content": None},
        {"content": []},
        {"content": ["x"]},
        {"content": [token("?", {"?": -9999})]},
    ):
        assert option_masses(nothing, ("Yes", "No")) is None


def test_the_rest_of_the_mass_is_unresolved():
    top = {"Yes": math.log(0.5), "No": math.log(0.3), "Well": math.log(0.2)}
    record = reply("Yes")
    record["choices"][0]["logprobs"] = {"content": [token("Yes", top)]}
    found = read_reply(record, YES, 1, logprobs=True)
    assert found.values == (pytest.approx(0.5),)
    assert found.unresolved == pytest.approx(0.2)
