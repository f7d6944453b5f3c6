"""Models that an MLflow server keeps: the ONNX file of a version, whole, with a note of where it comes from."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from fairkit.errors import MissingExtraError
from fairkit.support.escaping import visible
from fairkit_registry import names
from fairkit_registry.errors import RegistryError
from fairkit_registry.exchange.importing import take_in
from fairkit_registry.exchange.layout import Arrival

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairkit_registry.exchange.importing import Imported
    from fairkit_registry.store.registry import Registry

SCHEME = "models:/"
_VERSION = re.compile(r"[1-9][0-9]{0,8}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracked:
    """A version that MLflow keeps."""

    name: str  # what MLflow calls it
    version: int  # what MLflow calls it
    content: bytes  # the ONNX file, in one piece
    merged: bool  # whether tensors lay in other files there: the file here has another digest then
    run: str  # the run that logged it, where there was one
    server: str  # the server's address, without a password in it

    @property
    def notes(self) -> str:
        """Where it comes from, in words."""
        run = f", run {self.run}" if self.run else ""
        merged = "; its tensors lay in other files and were merged into this one" if self.merged else ""
        return f"from {SCHEME}{self.name}/{self.version} of {self.server}{run}{merged}"

    def check_name(self, name: str | None) -> str:
        """Return the name that it gets in a registry; see `check_name`."""
        return check_name(self, name)

    def add_to(self, registry: Registry, name: str | None = None) -> Imported:
        """Add it to a registry; see `import_tracked`."""
        return import_tracked(registry, self, name=name)


def parse(uri: str) -> tuple[str, str | None, int | None]:
    """Return name, alias and version of ``models:/NAME@ALIAS`` or ``models:/NAME/VERSION``."""
    rest = uri.removeprefix(SCHEME)
    name, at, alias = rest.rpartition("@")
    if at and name and alias and "/" not in alias:
        return name, alias, None
    name, slash, version = rest.rpartition("/")
    if slash and name and _VERSION.fullmatch(version):
        return name, None, int(version)
    raise RegistryError(f"{visible(uri)} is no version of a model: write models:/NAME@ALIAS or models:/NAME/VERSION")


def import_tracked(registry: Registry, tracked: Tracked, *, name: str | None = None) -> Imported:
    """Add a version that MLflow keeps as the next version of a model here, once."""
    own = check_name(tracked, name)
    with registry.staging() as staging:
        arrival = Arrival(
            name=own,
            version=tracked.version,
            filename=f"{own}-{tracked.version}.onnx",
            parent=None,
            tags=(),
            notes=tracked.notes,
            model=staging.take(staging.blobs.stage([tracked.content])),
            certificates=(),
            keys=(),
            source=f"{SCHEME}{tracked.name}/{tracked.version}",
        )
        (imported,) = take_in(registry, [arrival], name=None, trusted=())
    return imported


def check_name(tracked: Tracked, name: str | None) -> str:
    """Return the name that a model has here."""
    try:
        return names.check_name(name or tracked.name)
    except RegistryError as error:
        raise RegistryError(f"{error}; --name gives the model another one here") from None


def fetched(uri: str, folder: Path, *, server: str | None = None) -> Tracked:
    """Bring a model's file from MLflow."""
    name, alias, number = parse(uri)
    try:
        import mlflow
        from mlflow.exceptions import MlflowException
    except ImportError:
        raise MissingExtraError("mlflow-skinny", "mlflow") from None
    told = bool(mlflow.is_tracking_uri_set())
    if server is None and not told:  # MLflow itself would begin an empty database in the working folder
        server = os.environ.get("MLFLOW_REGISTRY_URI") or None
    if server is None and not told:
        raise RegistryError(
            f"which MLflow server keeps {visible(uri)}? Name it in the environment variable MLFLOW_TRACKING_URI"
        )
    where = server or mlflow.get_registry_uri()
    try:
        client = mlflow.MlflowClient(tracking_uri=server, registry_uri=server)
        model_version = (
            client.get_model_version_by_alias(name, str(alias))
            if number is None
            else client.get_model_version(name, str(number))
        )
        path = mlflow.artifacts.download_artifacts(
            artifact_uri=f"{SCHEME}{name}/{model_version.version}",
            dst_path=str(folder),
            tracking_uri=server,
            registry_uri=server,
        )
        content, merged = _content(Path(path), uri)
    except (MlflowException, OSError) as error:
        why = visible(" ".join(str(error).split()))[:300]
        raise RegistryError(f"MLflow at {_shown(where)} does not give {visible(uri)}: {why}") from None
    return Tracked(
        name=name,
        version=int(model_version.version),
        content=content,
        merged=merged,
        run=str(model_version.run_id or ""),
        server=_shown(where),
    )


def _content(folder: Path, uri: str) -> tuple[bytes, bool]:
    """Return the ONNX file of a logged model in one piece, and whether it was in several."""
    import onnx
    from google.protobuf.message import DecodeError, EncodeError
    from mlflow.models import Model
    from onnx.external_data_helper import uses_external_data

    flavor: dict[str, Any] = Model.load(str(folder)).flavors.get("onnx") or {}
    told = flavor.get("data")
    path = (folder / str(told)).resolve()
    if not isinstance(told, str) or not path.is_relative_to(folder.resolve()) or not path.is_file():
        raise RegistryError(f"{visible(uri)} was not logged as an ONNX model: mlflow.onnx.log_model does that")
    raw = path.read_bytes()
    try:
        model = onnx.load_from_string(raw)
        tensors = [tensor for graph in _graphs(model.graph) for tensor in graph.initializer]
        if not any(uses_external_data(tensor) for tensor in tensors):
            return raw, False
        # onnx refuses paths that lead out of the folder, and links
        return onnx.load(str(path)).SerializeToString(deterministic=True), True
    except (DecodeError, EncodeError, ValueError, onnx.checker.ValidationError) as error:
        why = visible(" ".join(str(error).split()))[:200]
        raise RegistryError(f"the ONNX file of {visible(uri)} cannot be read in one piece: {why}") from None


def _graphs(graph: Any) -> Iterator[Any]:
    """Yield a graph and those within its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                yield from _graphs(inner)


def _shown(address: str) -> str:
    """Return an address without a name and password in it."""
    parts = urlsplit(str(address))
    if "@" not in parts.netloc:
        return visible(str(address))
    return visible(urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])))
