"""The interface of promotion checks: a plugin's say when an alias of a registry is to point to a version."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from fairkit.support.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from fairkit.results.report import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """What is to be promoted.

    Attributes
    ----------
    name, version, alias
        ``name@version`` shall be what ``name@alias`` means.
    model_path
        The ONNX file, hashed again. Read it; never change it.
    model_sha256
        Its digest.
    report
        What the certificate says that decides about the promotion; its signature was checked. None where
        there is none (the alias is open, or the promotion is refused already).
    mitigation
        Plugin, parameters and base model, as certified.
    keyids
        The trusted keys that signed.
    holder
        The version that the alias points to now; None where it points to nothing.
    holder_report
        The holder's certified report; None without one.
    tags
        The version's tags.
    """

    name: str
    version: int
    alias: str
    model_path: Path
    model_sha256: str
    report: Report | None = None
    mitigation: Mapping[str, Any] | None = None
    keyids: tuple[str, ...] = ()
    holder: int | None = None
    holder_report: Report | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """What a check says: a veto with its reason, or a note that stands beside the result."""

    text: str
    veto: bool = True


class PromotionCheck(ABC):
    """Looks at a promotion and may refuse it.

    Every check of every installed plugin is asked at each promotion, and all vetoes are told at once. A check
    that raises counts as a veto. An alias can insist that a check is there: ``--check NAME``. A complete
    example::

        import fairkit

        class FourEyes(fairkit.PromotionCheck):
            \"\"\"Production needs two signatures.\"\"\"

            name = "four-eyes"

            def check(self, promotion):
                if promotion.alias == "production" and len(promotion.keyids) < 2:
                    yield fairkit.Remark(text="production needs certificates signed by two people")

        @fairkit.hookimpl
        def fairkit_promotion_checks():
            return [FourEyes]

    Attributes
    ----------
    name
        What stands before its remarks, and what the user types after ``--check``.
    summary
        One sentence for ``fairkit plugins show``.
    """

    name: ClassVar[str]
    summary: ClassVar[str] = ""

    @abstractmethod
    def check(self, promotion: Promotion) -> Iterable[Remark]:
        """Return vetoes and notes; nothing where there is nothing to say."""
