"""Writing the site: into a new folder that takes the old one's place when all of it is there."""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit.errors import FairkitError
from fairkit.support.files import explain, write_atomic
from fairkit_cli.registry.site.feed import feed
from fairkit_cli.registry.site.gather import gather
from fairkit_cli.registry.site.pages import LISTED, SHOWN, index_page, list_page, model_page, version_page
from fairkit_cli.registry.site.side import compare_page
from fairkit_cli.render.document import FEED, VERIFIER
from fairkit_cli.verifier.bundle import page as verifier_page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairkit_cli.registry.site.gather import Seen, SeenModel
    from fairkit_registry.store.registry import Registry

MARK = ".fairkit-site"
"""A file that says that a folder is a site and may be replaced."""
_MOST_ANCESTORS = 100


def build(registry: Registry, output: Path, *, title: str, url: str = "", checkpoint: bytes | None = None) -> int:
    """Write the site of a registry, and return the number of its files."""
    check(output)
    output = output.resolve()  # a link stays one: the folder behind it is replaced
    remembered = _remembered(registry.path)
    seen = gather(registry, remembered)
    scratch = output.with_name(f".{output.name}.{secrets.token_hex(6)}")
    try:
        count = _write(registry, scratch, seen, title=title, url=url, checkpoint=checkpoint)
        _take_place(scratch, output)
    except OSError as error:
        raise FairkitError(explain(error, "cannot write the site to", output)) from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    _remember(registry.path, remembered)
    return count


def check(output: Path) -> None:
    """Refuse a folder that is neither a site nor empty."""
    if not output.exists():
        if not output.parent.is_dir():
            raise FairkitError(f"there is no folder {output.parent}; make it first")
        return
    if not output.is_dir() or (any(output.iterdir()) and not (output / MARK).is_file()):
        raise FairkitError(
            f"{output} holds other things than a site of fairkit; name a new or empty folder, it is replaced whole"
        )


def _write(registry: Registry, folder: Path, seen: Seen, *, title: str, url: str, checkpoint: bytes | None) -> int:
    count = 0
    made: set[Path] = set()
    for name, content in _files(registry, seen, title=title, url=url, checkpoint=checkpoint):
        path = folder / name
        if path.parent not in made:
            path.parent.mkdir(parents=True, exist_ok=True)
            made.add(path.parent)
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        count += 1
    return count


def _files(
    registry: Registry, seen: Seen, *, title: str, url: str, checkpoint: bytes | None
) -> Iterator[tuple[str, str | bytes]]:
    shared = files("fairkit_cli.render")
    yield MARK, "This folder was written by `fairkit registry site`, which replaces it whole.\n"
    yield VERIFIER, verifier_page()
    yield "site.css", shared.joinpath("page.css").read_text("utf-8")
    own = files("fairkit_cli.registry.site").joinpath("site.js").read_text("utf-8")
    yield "site.js", shared.joinpath("page.js").read_text("utf-8") + own
    yield "index.html", index_page(seen, title, checkpoint=checkpoint is not None)
    yield FEED, feed(seen.events, title, url)
    if checkpoint is not None:
        yield "checkpoint", checkpoint
    parents = {one.version.reference: one.version.parent for model in seen.models for one in model.versions}
    for model in seen.models:
        yield from _model_files(model, parents)
    for digest in seen.certificates:  # read again: all of them at once may be large
        yield f"certificates/{digest}.json", registry.certificate(digest)


def _model_files(model: SeenModel, parents: dict[str, str | None]) -> Iterator[tuple[str, str]]:
    folder = f"m/{model.name}"
    yield f"{folder}/index.html", model_page(model)
    yield f"{folder}/compare.html", compare_page(model)
    if len(model.versions) > SHOWN:
        for start in range(0, len(model.versions), LISTED):
            yield f"{folder}/versions-{start // LISTED}.html", list_page(model, start)
    for seen in model.versions:
        chain: list[str] = []
        before = seen.version.parent
        while before is not None and before not in chain and len(chain) < _MOST_ANCESTORS:
            chain.append(before)
            before = parents.get(before)
        yield f"{folder}/{seen.version.version}.html", version_page(model.name, seen, chain)


def _take_place(scratch: Path, output: Path) -> None:
    """Move the new folder to its name; the old one is moved away first and removed last."""
    old = scratch.with_name(scratch.name + ".old")
    if output.exists():
        output.rename(old)
    try:
        scratch.rename(output)
    except OSError:
        if old.exists():
            old.rename(output)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _memory(registry: Path) -> Path:
    import platformdirs

    name = hashlib.sha256(str(registry.resolve()).encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return Path(platformdirs.user_cache_path("fairkit")) / "sites" / f"{name}.json"


def _remembered(registry: Path) -> dict[str, list[Any]]:
    """Return the cached summaries of certificates from the last build by this version of the program."""
    from importlib.metadata import version

    try:
        record = json.loads(_memory(registry).read_bytes())
        found = record["found"] if record["fairkit"] == version("fairkit") else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def _remember(registry: Path, remembered: dict[str, list[Any]]) -> None:
    """Keep it for the next build, which is slower without."""
    from importlib.metadata import version

    path = _memory(registry)
    with suppress(OSError, FairkitError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomic(path, json.dumps({"fairkit": version("fairkit"), "found": remembered}).encode(), mode=0o600)
