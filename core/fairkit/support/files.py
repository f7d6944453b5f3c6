"""Writing files so that a reader sees the old content or the new, never half of it, also after a power failure."""

from __future__ import annotations

import errno
import operator
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from functools import reduce
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeVar

from fairkit.errors import FairkitError
from fairkit.support.timings import phase

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS)


class FileError(FairkitError, OSError):
    """A file that cannot be written where it was asked for."""


MOST_TEXT = 16 * 2**20
"""The most bytes of a file of settings, a plan or a report: a device in its place has no end."""


def read_small(path: Path) -> str:
    """Return the text of a file of settings, a plan or a report, in UTF-8, without a byte-order mark."""
    with path.open("rb") as file:
        content = file.read(MOST_TEXT + 1)
    if len(content) > MOST_TEXT:
        raise ValueError(f"it has more than {MOST_TEXT // 2**20} MiB")
    return content.decode("utf-8-sig")


def explain(error: OSError, doing: str, path: Path) -> str:
    """Return one message for an error of the operating system, with what to do about it."""
    if error.errno in _FULL:
        hint = "The disk or quota is full: free some space and run the command again; nothing was changed."
    elif error.errno in _CLOSED:
        hint = "The folder cannot be written: check its permissions, or name another folder."
    else:
        hint = "Nothing was changed."
    return f"{doing} {path}: {error.strerror or error}. {hint}"


def check_writable(path: Path) -> None:
    """Find out before long work whether a file can be written later."""
    folder = path.parent
    try:
        if path.is_dir():
            raise FileError(f"{str(path)!r} is a folder; give a file name in it")
        if not folder.is_dir():
            raise FileError(f"the folder {str(folder)!r} does not exist; create it first: mkdir -p {folder}")
        if _special(path):
            return
        import tempfile  # takes 5 ms

        handle, name = tempfile.mkstemp(dir=folder, prefix=".fairkit-")
    except (OSError, ValueError) as error:
        if isinstance(error, FileError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise FileError(f"nothing can be written to {str(folder)!r}: {reason}") from error
    os.close(handle)
    Path(name).unlink()


@phase("write")
def write_atomic(path: Path, content: bytes | str, *, mode: int | None = None, replace: bool = True) -> None:
    """Write a whole file: under another name, flushed to the disk, then renamed."""
    try:
        data = content.encode() if isinstance(content, str) else content
    except UnicodeEncodeError as error:
        raise FileError(f"{path}: a name in it is no valid Unicode text and cannot be written") from error
    with replacing(path, mode=mode, replace=replace) as file:
        file.write(data)


@contextmanager
def replacing(path: Path, *, mode: int | None = None, replace: bool = True) -> Iterator[IO[bytes]]:
    """Open a file to write that takes its name at the end of the block, whole and flushed.

    Whatever ends the block early, an error or a signal, leaves the old file as it was and no new one. Where the
    system can (Linux), the new file has no name until then, so that even a killed process leaves nothing.
    A device or a pipe is written to as it is.
    """
    if "\0" in str(path):
        raise FileError(f"cannot write {str(path)!r}: a path holds no NUL character")
    if not replace and os.path.lexists(path):
        raise _taken(path)
    try:
        if _special(path):
            with path.open("wb", buffering=0) as device:
                yield device
            return
        file, name = _open_beside(path, 0o666 if mode is None else mode)
        try:
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
                name = name or _named(file, path)
            if replace:
                Path(name).replace(path)
            else:
                os.link(name, path)
        finally:
            if name is not None:
                Path(name).unlink(missing_ok=True)
        sync_folder(path.parent)
    except FileExistsError as error:
        raise _taken(path) from error
    except FairkitError:
        raise
    except OSError as error:
        raise FileError(explain(error, "cannot write", path)) from error


def _taken(path: Path) -> FileError:
    return FileError(f"{path} exists already; choose another name, or remove it first")


def _open_beside(path: Path, mode: int) -> tuple[BinaryIO, str | None]:
    """Open a new file in the folder of another: without a name, or with one where the system needs it."""
    unnamed = getattr(os, "O_TMPFILE", 0)
    if unnamed and Path("/proc/self/fd").is_dir():
        with suppress(OSError):  # some file systems cannot
            descriptor = os.open(path.parent, unnamed | os.O_WRONLY, mode)
            return os.fdopen(descriptor, "wb"), None
    name = _beside(path)
    # Windows writes other line ends into what is not opened as binary
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode)
    return os.fdopen(descriptor, "wb"), name


def _named(file: IO[bytes], path: Path) -> str:
    """Link a file without a name into the folder of `path`."""
    name = _beside(path)
    # with a folder named, Python asks the system to follow the link in /proc, which it else does not
    os.link(f"/proc/self/fd/{file.fileno()}", name, src_dir_fd=file.fileno(), follow_symlinks=True)
    return name


def _beside(path: Path) -> str:
    return str(path.with_name(f".{path.name[:60]}.{os.urandom(6).hex()}.tmp"))


def _special(path: Path) -> bool:
    """Say whether the path is a device, a pipe or a socket: to rename a file over it would destroy it."""
    return path.exists() and not path.is_file()


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to the disk, so that a rename in it survives a power failure."""
    if os.name == "nt":  # Windows cannot open folders; its renames are journalled
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Frozen dataclasses as JSON and back: each field under its name, in the class's order.


T = TypeVar("T")


def record_of(value: Any, without: Collection[str] = ()) -> dict[str, Any]:
    """Return a dataclass's fields by name, `without` some; tuples are lists, and parts have their own JSON form."""
    return {field.name: plain(getattr(value, field.name)) for field in fields(value) if field.name not in without}


def plain(value: Any) -> Any:
    """Return a value as JSON has it: by its `to_dict` where it has one."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return record_of(value) if is_dataclass(value) else value


def read_record(cls: type[T], record: Mapping[str, Any]) -> T:
    """Return a dataclass of what `record_of` wrote: lists are tuples, names that it does not have are passed over."""
    names = {field.name for field in fields(cls)}  # type: ignore[arg-type]
    return cls(**{key: tuple(v) if isinstance(v, list) else v for key, v in record.items() if key in names})


# JSON from outside against a schema: the part of JSON Schema (2020-12) that ours use, in the words of the library
# `jsonschema`, which takes longer to load than all else of checking a certificate; tests compare both.


Mistakes = Iterator[tuple[tuple[str | int, ...], str]]
_TYPES: Mapping[str, type] = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
_WRONG: Mapping[str, tuple[str, Callable[[Any, Any], str | bool]]] = {
    "minimum": ("number", lambda v, a: v < a and f"{v!r} is less than the minimum of {a!r}"),
    "maximum": ("number", lambda v, a: v > a and f"{v!r} is greater than the maximum of {a!r}"),
    "exclusiveMinimum": ("number", lambda v, a: v <= a and f"{v!r} is less than or equal to the minimum of {a!r}"),
    "exclusiveMaximum": ("number", lambda v, a: v >= a and f"{v!r} is greater than or equal to the maximum of {a!r}"),
    "minItems": ("array", lambda v, a: len(v) < a and f"{v!r} {'is too short' if a > 1 else 'should be non-empty'}"),
    "maxItems": ("array", lambda v, a: len(v) > a and f"{v!r} is too long"),
    "minProperties": ("object", lambda v, a: len(v) < a and f"{v!r} does not have enough properties"),
    "pattern": ("string", lambda v, a: not re.search(a, v) and f"{v!r} does not match {a!r}"),
    "const": ("", lambda v, a: not _among(v, [a]) and f"{a!r} was expected"),
    "enum": ("", lambda v, a: not _among(v, a) and f"{v!r} is not one of {a!r}"),
    "type": ("", lambda v, a: not _is(v, *_listed(a)) and f"{v!r} is not of type {str(_listed(a))[1:-1]}"),
}
"""Of keywords about one type, or any: what is wrong with a value of the type, under the keyword's argument."""
_INNER = {
    "required",
    "properties",
    "additionalProperties",
    "prefixItems",
    "items",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "allOf",
}
_READ = _INNER | {"$ref", "then", "else", "$id", "$schema", "$defs", "title", "description"} | _WRONG.keys()


def mistakes(value: Any, schema: Any, *others: Any, home: Any = None) -> Mistakes:  # noqa: PLR0912
    """Yield places and what is wrong there, in the order of a schema, a part of `home`; it may refer to `others`."""
    home = home or schema
    for name, argument in schema.items():
        texts: list[str] = []
        parts: list[tuple[Any, ...]] = []  # what else is looked at: where, the value, its schema, whose part that is
        if name in _WRONG:
            kind, wrong = _WRONG[name]
            texts = [str(text)] if (not kind or _is(value, kind)) and (text := wrong(value, argument)) else []
        elif name == "required" and isinstance(value, dict):
            texts = [f"{key!r} is a required property" for key in argument if key not in value]
        elif name == "properties" and isinstance(value, dict):
            parts = [((key,), value[key], part, home) for key, part in argument.items() if key in value]
        elif name == "additionalProperties" and isinstance(value, dict):
            more = [key for key in value if key not in schema.get("properties", ())]
            if more and argument is False:
                names = f"{str(sorted(more))[1:-1]} {'was' if len(more) == 1 else 'were'}"
                texts = [f"Additional properties are not allowed ({names} unexpected)"]
            else:
                parts = [((key,), value[key], argument, home) for key in more]
        elif name == "prefixItems" and isinstance(value, list):
            parts = [((i,), item, part, home) for i, (item, part) in enumerate(zip(value, argument, strict=False))]
        elif name == "items" and isinstance(value, list):
            parts = [((i,), item, argument, home) for i, item in enumerate(value)]
        elif name in ("anyOf", "oneOf", "not", "if"):
            fitting = [part for part in _listed(argument) if not any(mistakes(value, part, *others, home=home))]
            if name == "if":
                parts = [((), value, schema.get("then" if fitting else "else", {}), home)]
            elif name == "not":
                texts = [f"{value!r} should not be valid under {part!r}" for part in fitting]
            elif not fitting:
                texts = [f"{value!r} is not valid under any of the given schemas"]
            elif len(fitting) > 1 and name == "oneOf":
                texts = [f"{value!r} is valid under each of {str([*fitting[1:], fitting[0]])[1:-1]}"]
        elif name == "allOf":
            parts = [((), value, part, home) for part in argument]
        elif name == "$ref":
            address, _, pointer = argument.partition("#")
            document = next(one for one in others if one["$id"] == address) if address else home
            parts = [((), value, reduce(operator.getitem, pointer.split("/")[1:], document), document)]
        elif name not in _READ:
            raise NotImplementedError(f"the keyword {name!r} of a schema is not read")
        for text in texts:
            yield (), text
        for place, item, part, document in parts:
            for path, text in mistakes(item, part, *others, home=document):
                yield (*place, *path), text


def _is(value: Any, *kinds: str) -> bool:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number" in kinds or ("integer" in kinds and (isinstance(value, int) or value.is_integer()))
    return any(isinstance(value, _TYPES.get(kind, ())) for kind in kinds)


def _among(value: Any, choices: Sequence[Any]) -> bool:
    return any(isinstance(value, bool) == isinstance(one, bool) and value == one for one in choices)


def _listed(argument: Any) -> list[Any]:
    return argument if isinstance(argument, list) else [argument]
