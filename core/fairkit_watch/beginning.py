"""How a watch begins: its folder is there whole, or not at all."""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path

from fairkit import plugins
from fairkit.errors import FairkitError, ParameterError
from fairkit.support.files import FileError, explain, sync_folder, write_atomic
from fairkit_watch import snapshot as looking
from fairkit_watch.judging import Judge
from fairkit_watch.log import Log, StateError
from fairkit_watch.questions import questions
from fairkit_watch.records import LOG, SETTINGS, clock
from fairkit_watch.settings import WatchSettings, canonical


def begin(folder: Path, settings: WatchSettings) -> None:
    """Make the folder of a watch."""
    settings = WatchSettings.from_dict(settings.to_dict())  # as it will be read
    _check(settings)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise StateError(f"{str(folder)!r} exists already; a watch begins in a new folder")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = folder.parent / f".fairkit-watch-{secrets.token_hex(8)}"
        temporary.mkdir()
    except OSError as error:
        raise FileError(explain(error, "cannot make", folder)) from error
    try:
        write_atomic(temporary / SETTINGS, canonical(settings.to_dict()) + b"\n")
        log = Log(temporary / LOG)
        log.append({"kind": "begin", "policy": settings.digest, "writer": secrets.token_hex(8), "at": clock()})
        log.close()
        temporary.replace(folder)
        sync_folder(folder.parent)
    except OSError as error:
        if isinstance(error, FairkitError):
            raise
        raise FileError(explain(error, "cannot make", folder)) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def judge_of(settings: WatchSettings) -> Judge:
    """Return the judge of a watch with these settings."""
    return Judge(settings, questions(settings, plugins.installed_metrics()[0]))


def _check(settings: WatchSettings) -> None:
    """Refuse rules that cannot be watched, and outcomes that could not be matched."""
    wanted = looking.labels_wanted(judge_of(settings))
    if wanted and settings.columns.label == settings.columns.decision:
        raise ParameterError(
            f"decision and outcome are both in the column {settings.columns.decision!r}: name the `label`, "
            "what really came"
        )
    if wanted and settings.horizon > 0 and settings.columns.id is None:
        raise ParameterError(
            "outcomes that come later are matched by an id: name the `id` column, or set the `horizon` to 0 "
            "where outcomes come with the decisions"
        )
