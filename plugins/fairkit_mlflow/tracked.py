"""Models that an MLflow server keeps: the ONNX file of a version, whole, with a note of where it comes from."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit, urlunsplit

from fairkit.errors import FairkitError, MissingExtraError, ModelError
from fairkit.support.escaping import visible
from fairkit.support.lazy_dataclass import dataclass
from fairkit_registry import jsonio
from fairkit_registry.errors import CertificateError, RegistryError
from fairkit_registry.exchange.describe import take_in
from fairkit_registry.exchange.layout import Arrival

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairkit_registry.evidence.signers import PublicKey
    from fairkit_registry.exchange.describe import Imported
    from fairkit_registry.store.registry import Registry


SCHEME = "models:/"
_VERSION = re.compile(r"[1-9][0-9]{0,8}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracked:
    """A version that MLflow keeps."""

    name: str  # what MLflow calls it
    version: int
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
    name_here = check_name(tracked, name)
    with registry.staging() as staging:
        arrival = Arrival(
            name=name_here,
            version=tracked.version,
            filename=f"{name_here}-{tracked.version}.onnx",
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
        return jsonio.check_name(name or tracked.name)
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
    uri_is_set = bool(mlflow.is_tracking_uri_set())
    if server is None and not uri_is_set:  # MLflow itself would begin an empty database in the working folder
        server = os.environ.get("MLFLOW_REGISTRY_URI") or None
    if server is None and not uri_is_set:
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
    data = flavor.get("data")
    path = (folder / str(data)).resolve()
    if not isinstance(data, str) or not path.is_relative_to(folder.resolve()) or not path.is_file():
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


# Whether an MLflow alias may stay: a certificate by a trusted key, about the very file, whose policy passes.


MOST_FILES = 256
"""So many files are looked at as certificates: first those of the folder, then of the run, then of the model."""
GONE = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")
"""What MLflow says where there is no such alias."""

_LOGGED = re.compile(r"models:/(m-[0-9a-f]+)")
"""The source of a version that was registered from a logged model."""

State = Literal["stays", "TAKEN BACK", "gone", "NOT LOOKED AT"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasOutcome:
    """What became of an alias."""

    name: str  # the model's
    alias: str  # the alias's
    state: State
    reason: str  # why, in a sentence
    version: str | None = None  # which; `version` is None where it is not known

    def __str__(self) -> str:
        """Return one line for a log."""
        return f"{self.name}@{self.alias} (version {self.version or '-'}): {self.state}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Takes aliases back where no certificate holds."""

    client: Any  # an `mlflow.MlflowClient`
    keys: Sequence[PublicKey]  # the keys that are trusted
    aliases: frozenset[str] = frozenset()  # the aliases that are watched over; empty: all
    folder: Path | None = None  # a folder with further certificates; None: only those that the run and the model have

    def check(self, name: str, alias: str) -> AliasOutcome | None:
        """Look at where an alias points now, and take it back where no certificate holds; None: it is not watched."""
        if self.aliases and alias not in self.aliases:
            return None
        version = self._version(name, alias)
        if version is None:
            return AliasOutcome(name=name, alias=alias, state="gone", reason="there is no such alias now")
        at, reason = str(version.version), self.missing(version)
        if reason is None:
            return AliasOutcome(name=name, alias=alias, version=at, state="stays", reason="a certificate holds")
        now = self._version(name, alias)
        if now is not None and str(now.version) == at:  # else somebody has moved it
            self.client.delete_registered_model_alias(name, alias)
        return AliasOutcome(name=name, alias=alias, version=at, state="TAKEN BACK", reason=reason)

    def check_all(self) -> list[AliasOutcome]:
        """Look at every alias of every model."""
        outcomes = []
        for model in self._pages():
            for alias in sorted(dict(model.aliases or {})):
                try:
                    outcome = self.check(model.name, alias)
                except Exception as error:  # one that cannot be read keeps no other from being looked at
                    outcome = AliasOutcome(name=model.name, alias=alias, state="NOT LOOKED AT", reason=str(error))
                outcomes += [] if outcome is None else [outcome]
        return outcomes

    def _version(self, name: str, alias: str) -> Any:
        from mlflow.exceptions import MlflowException

        try:
            return self.client.get_model_version_by_alias(name, alias)
        except MlflowException as error:
            if error.error_code in GONE:
                return None
            raise

    def _pages(self) -> list[Any]:
        models, token = [], None
        while True:
            page = self.client.search_registered_models(page_token=token)
            models += page
            token = page.token
            if not token:
                return models

    def missing(self, version: Any) -> str | None:
        """Return why no certificate holds for a model version; None where one does."""
        with tempfile.TemporaryDirectory(prefix="fairkit-hook-") as name:
            try:
                digest, candidates = self._gathered(version, Path(name))
            except FairkitError as error:
                return str(error)
            if not candidates:
                return "there is no certificate beside the model, in its run or in the folder"
            reasons = [self._refused(path, digest) for path in candidates]
            return None if None in reasons else str(reasons[0])

    def _gathered(self, version: Any, folder: Path) -> tuple[str, list[Path]]:
        """Return the digest of the version's ONNX file, and the files that may be its certificates."""
        from mlflow.artifacts import download_artifacts

        from fairkit_onnx.file import OnnxModel
        from fairkit_registry.blobs import hash_file

        uri = f"models:/{version.name}/{version.version}"
        root = Path(download_artifacts(artifact_uri=uri, dst_path=str(_made(folder / "model"))))
        places = [self.folder] if self.folder is not None else []
        for number, run in enumerate(self._runs(version)):
            if any(artifact.path == "fairkit" for artifact in self.client.list_artifacts(run)):
                target = str(_made(folder / f"run-{number}"))
                places.append(Path(self.client.download_artifacts(run, "fairkit", target)))
        models = sorted(root.rglob("*.onnx"))
        if len(models) != 1:
            raise ModelError(f"the version has {len(models)} ONNX files, and a certificate is about one")
        if OnnxModel.load(models[0]).external:
            raise ModelError("the model keeps weights in other files, which no digest of it covers")
        files = [path for folder in (*places, root) for path in sorted(folder.rglob("*.json"))]
        return hash_file(models[0]), [path for path in files if not path.is_symlink()][:MOST_FILES]

    def _runs(self, version: Any) -> list[str]:
        """Return the runs that may have certificates: the version's own, and the newest evaluation's of its model."""
        runs = [version.run_id] if version.run_id else []
        model = _LOGGED.fullmatch(version.source or "")
        if model is not None:
            runs.append(dict(self.client.get_logged_model(model[1]).tags or {}).get("fairkit.run"))
        return list(dict.fromkeys(run for run in runs if run))

    def _refused(self, path: Path, digest: str) -> str | None:
        from fairkit_registry.evidence.certificate import read_file, verify

        try:
            certificate = verify(read_file(path), self.keys, model_sha256=digest)
        except CertificateError as error:
            return f"{path.name}: {error}"
        verdict = certificate.report.verdict
        return None if verdict == "pass" else f"{path.name}: its verdict is {verdict or 'none: it has no policy'}"


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
