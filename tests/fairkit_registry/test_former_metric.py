"""Certificates from before a subspace's strength was named are recomputed with the metric of then."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import fairkit
from fairkit_onnx.file import OnnxModel
from fairkit_registry.errors import VerificationError
from fairkit_registry.evidence import certificate
from fairkit_registry.evidence import recompute as certifying
from fairkit_registry.evidence.recompute import recompute
from fairkit_registry.evidence.settings import SignedSettings
from fairkit_registry.evidence.signers import KeySigner, as_public


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    n = 300
    sex = rng.choice(np.array(["f", "m"], dtype=object), n)
    height = rng.normal(size=n) + (sex == "m")
    income = rng.normal(size=n)
    paid = np.where(height + income + rng.normal(size=n) > 0, "yes", "no").astype(object)
    return {"sex": sex, "height": height, "income": income, "paid": paid}


@pytest.fixture(scope="module")
def model(people):
    from skl2onnx import to_onnx
    from sklearn.linear_model import LogisticRegression

    features = np.stack([people["height"], people["income"]], axis=1).astype(np.float32)
    fitted = LogisticRegression().fit(features, people["paid"] == "yes")
    return to_onnx(fitted, features[:1], options={"zipmap": False}).SerializeToString()


def settings(**parameters):
    return SignedSettings(
        data={
            "label": "paid",
            "favorable": "yes",
            "sensitive": ["sex"],
            "features": ["height", "income"],
            "drop": [],
            "weights": None,
            "missing": "drop",
        },
        auditors=("restricted-dro",),
        parameters={"restricted-dro": parameters} if parameters else {},
    )


def signed(model, people, told, used):
    """Sign what an audit with the settings `used` found, as if it had been told `told`."""
    key = Ed25519PrivateKey.generate()
    secret = KeySigner(key, as_public(key.public_key(), "the key"))
    report = used.run(OnnxModel.load(model), fairkit.load_data(people, **used.data))
    raw = certifying.issue(report, [secret], settings=told.to_dict())
    return report, certificate.verify(raw, [secret.public])


def test_a_certificate_names_the_strength_and_comes_back(model, people):
    report, found = signed(model, people, settings(), settings())
    assert report.findings[0].parameters["strength"] == 0.1
    assert report.findings[0].parameters["penalty"] == "mean"
    again = recompute(found, model, fairkit.load_data(people, **settings().data))
    assert again.findings[0].value == report.findings[0].value


def test_one_that_names_none_is_recomputed_as_it_was_made(model, people):
    former = settings(penalty="summed")
    report, found = signed(model, people, settings(), former)
    assert not {"strength", "penalty"} & set(report.findings[0].parameters)
    today = settings().run(OnnxModel.load(model), fairkit.load_data(people, **former.data))
    assert today.findings[0].parameters["metric_sha256"] != report.findings[0].parameters["metric_sha256"]
    again = recompute(found, model, fairkit.load_data(people, **former.data))
    assert again.findings[0].parameters == report.findings[0].parameters


def test_as_many_people_are_asked_as_were(model, people):
    report, found = signed(model, people, settings(), settings(queries=40))
    assert report.findings[0].parameters["queries"] == 40
    again = recompute(found, model, fairkit.load_data(people, **settings().data))
    assert again.findings[0].value == report.findings[0].value


def test_a_strength_that_was_not_used_is_found(model, people):
    _, found = signed(model, people, settings(strength=0.2), settings())
    with pytest.raises(VerificationError, match="other numbers than were signed"):
        recompute(found, model, fairkit.load_data(people, **settings().data))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"strength": 0.2, "fair_metric": "euclidean", "columns": ["income"]}, "belong to fair_metric=subspace"),
        ({"strength": 0.2, "penalty": "summed"}, "always has the strength 0.1"),
        ({"strength": 0.0}, "above 0"),
        (
            {"directions": ["sex"], "fair_metric": "euclidean", "columns": ["income"]},
            "directions belongs to fair_metric=subspace",
        ),
        ({"directions": ["sex"], "penalty": "summed"}, "leave directions out"),
        ({"directions": ["height"]}, "'height' is not one of the sensitive columns"),
    ],
)
def test_a_strength_without_a_meaning_is_refused(model, people, parameters, message):
    with pytest.raises(fairkit.FairkitError, match=message):
        settings(**parameters).run(OnnxModel.load(model), fairkit.load_data(people, **settings().data))


def dif(**parameters):
    return dataclasses.replace(settings(), auditors=("dif",), parameters={"dif": {"epsilon": [0.1], **parameters}})


def test_a_dif_certificate_names_its_difference_and_comes_back(model, people):
    report, found = signed(model, people, dif(), dif())
    assert report.findings[0].parameters["difference"] == "mean"
    again = recompute(found, model, fairkit.load_data(people, **settings().data))
    assert again.findings[0].value == report.findings[0].value


def test_a_dif_certificate_that_names_none_is_of_the_log_odds_and_recomputed_so(model, people):
    report, found = signed(model, people, dif(), dif(difference="single"))
    assert "difference" not in report.findings[0].parameters
    today = dif().run(OnnxModel.load(model), fairkit.load_data(people, **settings().data))
    assert report.findings[0].value == pytest.approx(4 * today.findings[0].value)
    again = recompute(found, model, fairkit.load_data(people, **settings().data))
    assert again.findings[0].value == report.findings[0].value


def test_a_difference_of_probabilities_has_one_meaning(model, people):
    report, found = signed(model, people, dif(output="probability"), dif(output="probability"))
    assert "difference" not in report.findings[0].parameters
    again = recompute(found, model, fairkit.load_data(people, **settings().data))
    assert again.findings[0].value == report.findings[0].value


def test_a_certificate_names_its_directions_and_comes_back(model, people):
    asked = settings(directions=[])
    report, found = signed(model, people, asked, asked)
    assert report.findings[0].parameters["directions"] == []
    every = settings(directions=["sex"]).run(OnnxModel.load(model), fairkit.load_data(people, **asked.data))
    plain = settings().run(OnnxModel.load(model), fairkit.load_data(people, **asked.data))
    assert every.findings[0].parameters["metric_sha256"] == plain.findings[0].parameters["metric_sha256"]
    assert plain.findings[0].value > report.findings[0].value
    again = recompute(found, model, fairkit.load_data(people, **asked.data))
    assert again.findings[0].parameters == report.findings[0].parameters
