"""Checks on promotion checks: they give remarks, the same each time, and leave the model's file alone."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from fairkit.promotions import Promotion, PromotionCheck, Remark
from fairkit_testing.require import require
from fairkit_testing.samples import sample_model


def check_promotion_remarks(cls: type[PromotionCheck]) -> None:
    """`check` gives remarks with a text, also where there is no report and no holder."""
    for promotion in _promotions():
        for remark in cls().check(promotion):
            require(isinstance(remark, Remark), f"check gives {remark!r}; yield fairkit.Remark(text=...)")
            require(len(remark.text) > 5, "a remark has no text: say what is wrong and how to fix it")


def check_promotion_deterministic(cls: type[PromotionCheck]) -> None:
    """The same promotion gets the same remarks."""
    for promotion in _promotions():
        require(
            list(cls().check(promotion)) == list(cls().check(promotion)),
            "the same promotion gets other remarks the second time",
        )


def check_promotion_leaves_the_file(cls: type[PromotionCheck]) -> None:
    """The model's file is only read."""
    for promotion in _promotions():
        before = promotion.model_path.read_bytes()
        list(cls().check(promotion))
        require(promotion.model_path.read_bytes() == before, "the model's file was changed")


def _promotions() -> Iterator[Promotion]:
    """Return a promotion without evidence, one with a report, and one that replaces a holder."""
    import fairkit
    from fairkit_onnx.read.safety import digest
    from fairkit_testing.samples import sample_data

    content = sample_model("binary")
    report = fairkit.audit(content, sample_data("binary", rows=200))
    with tempfile.TemporaryDirectory(prefix="fairkit-check-") as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(content)
        for alias, evidence in (("staging", None), ("production", report)):
            yield Promotion(
                name="credit",
                version=2,
                alias=alias,
                model_path=path,
                model_sha256=digest(content),
                report=evidence,
                keyids=("a", "b") if evidence else (),
                holder=1 if evidence else None,
                holder_report=evidence,
            )


CHECKS = (check_promotion_remarks, check_promotion_deterministic, check_promotion_leaves_the_file)
