"""What a notebook shows of each result: a page in a frame of its own, light and dark, and one line as text."""

from __future__ import annotations

import html
import subprocess
import sys
from pathlib import Path

import pytest

import fairkit
import fairkit_registry
from fairkit_registry import CertificateError, KeyFileError, VerificationError

ROLES = {"label": "decision", "favorable": "approved", "sensitive": "sex"}


@pytest.fixture(scope="module")
def signed(loans_model, tmp_path_factory):
    """A certificate made from Python, its key and its data."""
    folder = tmp_path_factory.mktemp("signed")
    public = fairkit_registry.new_key_pair(folder / "auditor", passphrase="open sesame")
    data = fairkit.load_data(loans_model.data, **ROLES)
    certificate = fairkit_registry.certify(
        loans_model.path,
        data,
        key=folder / "auditor",
        passphrase="open sesame",
        output=folder / "loans.cert.json",
        policy=[fairkit.Rule("demographic_parity_difference:sex", max=0.9)],
        about={"owner": "J. Doe"},
    )
    assert certificate.keyids == (public.keyid,)
    return certificate, folder, data


@pytest.fixture(scope="module")
def results(signed, loans_model):
    certificate, _, data = signed
    report = certificate.report
    compared = fairkit.compare([loans_model.path] * 2, data)
    mitigated = fairkit.mitigate("reweigh", data, learner="logistic")
    return {
        "Report": report,
        "Finding": report.find("demographic_parity_difference", "sex"),
        "Comparison": compared,
        "MitigationResult": mitigated,
        "Certificate": certificate,
    }


KINDS = ["Report", "Finding", "Comparison", "MitigationResult", "Certificate"]


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_each_result_is_a_page_in_a_frame_and_a_line(results, kind):
    result = results[kind]
    shown = result._repr_html_()
    assert shown.startswith('<iframe sandbox="allow-scripts"')
    page = html.unescape(shown.partition('srcdoc="')[2].removesuffix('"></iframe>'))
    assert page.startswith("<!doctype html>")
    assert "prefers-color-scheme:dark" in page
    assert "default-src 'none'" in html.unescape(page)
    assert kind != "Certificate" or "Signed by" in page
    line = repr(result)
    assert line.startswith(f"<{kind} ")
    assert "\n" not in line
    assert len(line) < 200


@pytest.mark.long
def test_a_finding_shows_its_number_its_meaning_and_its_groups(results):
    finding = results["Finding"]
    page = finding.to_html()
    assert f"{finding.value:.3f}" in page
    assert "difference in favorable decisions" in page
    for group in finding.groups:
        assert f"<bdi>{group.group}</bdi>" in page
        assert f"{group.interval[0]:.3f}" in page


def test_a_finding_needs_no_renderer(results, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    assert results["Finding"]._repr_html_().startswith("<iframe")
    assert results["Report"]._repr_html_().startswith("<pre>")


@pytest.mark.long
def test_a_certificate_says_whether_its_signature_was_checked(signed):
    from fairkit_registry.evidence.certificate import read

    certificate, folder, _ = signed
    raw = (folder / "loans.cert.json").read_bytes()
    assert "signature verified" in repr(certificate)
    unchecked = read(raw)
    assert "The signature was not checked" in unchecked.to_html()
    assert "signature not checked" in repr(unchecked)


def test_a_certificate_from_python_holds_for_the_command(signed, loans_model):
    certificate, folder, data = signed
    file, key = folder / "loans.cert.json", folder / "auditor.pub"
    assert fairkit_registry.verify(file, key=key, model=loans_model.path, data=data) == certificate
    assert certificate.report.about == {"owner": "J. Doe"}
    command = [Path(sys.executable).parent / "fairkit", "verify", file, "--key", key, "--model", loans_model.path]
    result = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_what_cannot_be_signed_or_does_not_hold_is_said(signed, results, loans_model, tmp_path):
    _, folder, data = signed
    told = {"key": folder / "auditor", "output": tmp_path / "c.json"}
    with pytest.raises(KeyFileError, match="no passphrase was given"):
        fairkit_registry.certify(loans_model.path, data, **told)
    with pytest.raises(CertificateError, match=r"has no digest .* fairkit.to_onnx"):
        fairkit_registry.certify(object(), data, passphrase="open sesame", **told)
    other = fairkit_registry.new_key_pair(tmp_path / "other")
    assert other.keyid
    with pytest.raises(VerificationError):
        fairkit_registry.verify(folder / "loans.cert.json", key=tmp_path / "other.pub")
    results["MitigationResult"].save(tmp_path / "changed.onnx")
    with pytest.raises(VerificationError, match="another model"):
        fairkit_registry.verify(folder / "loans.cert.json", key=folder / "auditor.pub", model=tmp_path / "changed.onnx")
    assert not (tmp_path / "c.json").exists()
