"""Whether an MLflow alias may stay: a certificate by a trusted key, about the very file, whose policy passes."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from fairkit_registry.evidence.keys import PublicKey

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

    name: str  # which; `version` is None where it is not known
    alias: str  # which; `version` is None where it is not known
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
        found = self._version(name, alias)
        if found is None:
            return AliasOutcome(name=name, alias=alias, state="gone", reason="there is no such alias now")
        at, reason = str(found.version), self.missing(found)
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
                    kept = self.check(model.name, alias)
                except Exception as error:  # one that cannot be read keeps no other from being looked at
                    kept = AliasOutcome(name=model.name, alias=alias, state="NOT LOOKED AT", reason=str(error))
                outcomes += [] if kept is None else [kept]
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
        from fairkit.errors import FairkitError

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

        from fairkit.errors import ModelError
        from fairkit_onnx.model import OnnxModel
        from fairkit_registry.blobs import hash_file

        uri = f"models:/{version.name}/{version.version}"
        root = Path(download_artifacts(artifact_uri=uri, dst_path=str(_made(folder / "model"))))
        places = [self.folder] if self.folder is not None else []
        for number, run in enumerate(self._runs(version)):
            if any(one.path == "fairkit" for one in self.client.list_artifacts(run)):
                target = str(_made(folder / f"run-{number}"))
                places.append(Path(self.client.download_artifacts(run, "fairkit", target)))
        models = sorted(root.rglob("*.onnx"))
        if len(models) != 1:
            raise ModelError(f"the version has {len(models)} ONNX files, and a certificate is about one")
        if OnnxModel.load(models[0]).external:
            raise ModelError("the model keeps weights in other files, which no digest of it covers")
        files = [path for place in (*places, root) for path in sorted(place.rglob("*.json"))]
        return hash_file(models[0]), [path for path in files if not path.is_symlink()][:MOST_FILES]

    def _runs(self, version: Any) -> list[str]:
        """Return the runs that may have certificates: the version's own, and the newest evaluation's of its model."""
        found = [version.run_id] if version.run_id else []
        model = _LOGGED.fullmatch(version.source or "")
        if model is not None:
            found.append(dict(self.client.get_logged_model(model[1]).tags or {}).get("fairkit.run"))
        return list(dict.fromkeys(run for run in found if run))

    def _refused(self, path: Path, digest: str) -> str | None:
        from fairkit_registry.errors import CertificateError
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
