"""Writing files so that a reader sees the old content or the new, never half of it, also after a power failure."""

from __future__ import annotations

import errno
import operator
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from functools import partial, reduce
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


Mistake = tuple[tuple[str | int, ...], str]
"""Where a value is not as its schema says, and what is wrong there."""

_TYPES: Mapping[str, type] = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
_WRONG: Mapping[str, tuple[str, Callable[[Any, Any], Any], str]] = {
    "minimum": ("number", operator.lt, "{!r} is less than the minimum of {!r}"),
    "maximum": ("number", operator.gt, "{!r} is greater than the maximum of {!r}"),
    "exclusiveMinimum": ("number", operator.le, "{!r} is less than or equal to the minimum of {!r}"),
    "exclusiveMaximum": ("number", operator.ge, "{!r} is greater than or equal to the maximum of {!r}"),
    "minItems": ("array", lambda value, least: len(value) < least, "{!r} is too short"),
    "maxItems": ("array", lambda value, most: len(value) > most, "{!r} is too long"),
    "minProperties": ("object", lambda value, least: len(value) < least, "{!r} does not have enough properties"),
    "pattern": ("string", lambda value, pattern: re.search(pattern, value) is None, "{!r} does not match {!r}"),
    "required": ("object", lambda value, key: key not in value, "{1!r} is a required property"),
}
"""Of keywords about one type: the type, whether a value breaks them, and in which words."""


def mistakes(value: Any, schema: Any, *others: Any, home: Any = None) -> Iterator[Mistake]:  # noqa: PLR0912
    """Yield every mistake, in the order of the schema, a part of `home`, which may refer to parts of `others`."""
    home = home or schema
    check = partial(mistakes, home=home)
    for name, argument in schema.items():
        texts: list[str] = []
        inner: list[tuple[Any, Any]] = []  # a key or place in the value, with the schema of what is there
        also: list[tuple[Any, Any]] = []  # other schemas of the value, with the document where they stand
        if name in _WRONG and _is(value, _WRONG[name][0]):
            _, wrong, text = _WRONG[name]
            text = "{!r} should be non-empty" if (name, argument) == ("minItems", 1) else text
            each = argument if isinstance(argument, list) else [argument]
            texts = [text.format(value, part) for part in each if wrong(value, part)]
        elif name == "properties" and isinstance(value, dict):
            inner = [(key, part) for key, part in argument.items() if key in value]
        elif name == "additionalProperties" and isinstance(value, dict):
            inner = [(key, argument) for key in value if key not in schema.get("properties", ())]
            if inner and argument is False:
                names = f"{', '.join(sorted(repr(key) for key, _ in inner))} {'was' if len(inner) == 1 else 'were'}"
                texts, inner = [f"Additional properties are not allowed ({names} unexpected)"], []
        elif name in ("prefixItems", "items") and isinstance(value, list):
            first = len(schema.get("prefixItems", ()))
            inner = [(i, argument) for i in range(first, len(value))] if name == "items" else [*enumerate(argument)]
            inner = inner[: len(value)]
        elif name == "type":
            kinds = [argument] if isinstance(argument, str) else argument
            if not any(_is(value, kind) for kind in kinds):
                texts = [f"{value!r} is not of type {', '.join(map(repr, kinds))}"]
        elif name == "const":
            texts = [] if _equal(value, argument) else [f"{argument!r} was expected"]
        elif name == "enum":
            texts = [] if any(_equal(value, each) for each in argument) else [f"{value!r} is not one of {argument!r}"]
        elif name in ("anyOf", "oneOf", "not", "if"):
            parts = [argument] if isinstance(argument, dict) else argument
            parts = [part for part in parts if not any(check(value, part, *others))]
            if name == "if":
                also = [(schema.get("then" if parts else "else", {}), home)]
            elif name == "not":
                texts = [f"{value!r} should not be valid under {argument!r}"] * len(parts)
            elif not parts:
                texts = [f"{value!r} is not valid under any of the given schemas"]
            elif len(parts) > 1 and name == "oneOf":
                texts = [f"{value!r} is valid under each of {', '.join(map(repr, [*parts[1:], parts[0]]))}"]
        elif name == "allOf":
            also = [(part, home) for part in argument]
        elif name == "$ref":
            address, _, pointer = argument.partition("#")
            document = next(one for one in others if one["$id"] == address) if address else home
            also = [(reduce(operator.getitem, pointer.split("/")[1:], document), document)]
        yield from (((), text) for text in texts)
        for part, document in also:
            yield from mistakes(value, part, *others, home=document)
        for key, part in inner:
            yield from (((key, *path), text) for path, text in check(value[key], part, *others))


def _is(value: Any, kind: str) -> bool:
    if kind in _TYPES:
        return isinstance(value, _TYPES[kind])
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and (kind == "number" or isinstance(value, int) or value.is_integer())


def _equal(one: Any, two: Any) -> bool:
    return isinstance(one, bool) == isinstance(two, bool) and bool(one == two)
