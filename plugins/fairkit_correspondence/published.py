"""Published lists of names: those that fairkit brings, and others by digest."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from fairkit.errors import DataError

_AT = (
    "https://raw.githubusercontent.com/BloombergGraphics/2024-openai-gpt-hiring-racial-discrimination/"
    "65ae91134f1ef0cd112e1b92d1993d48a1880398/data/input/"
)
SHIPPED = Path(__file__).with_name("lists")
"""Where the lists lie that fairkit brings."""
BLOOMBERG, CENSUS, SSA = "bloomberg-2024", "census-2010", "ssa-2024"
_GOVERNMENT = "a work of the US government (17 USC 105)"
LISTS: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    BLOOMBERG: (
        "800 names: 100 for each of Asian, Black, Hispanic and white men and women, from voter records and the Census",
        "Apache-2.0",
        {
            "top_mens_names.json": "fb4ca360c41c86d26123908dd8e248d062a0f470d09eef06c9625bf67cf27ad4",
            "top_womens_names.json": "0e9a591a04de33d54f91ef70d906a44bf96dc7505c58d157be525c8bf5d0c7b0",
        },
    ),
    CENSUS: (
        "surnames of the US Census of 2010, by the group of at least 70 of 100 bearers",
        _GOVERNMENT,
        {"census-2010.csv.xz": "41a8b6518c57e6eea4f71214d4363e160e1587bbfd04ba9b602e8ee70c0e70b6"},
    ),
    SSA: (
        "first names by sex and year of birth (1930 to 2019), US Social Security Administration",
        _GOVERNMENT,
        {"ssa-2024.csv.xz": "18d548676f8eb01df0344d0f4471194aad38d558e4f2ba7f82cd7428cb9e7985"},
    ),
}
"""Published lists: what they are, their licence, and the SHA-256 of their files; fairkit brings those of the US
government, and fetches the others from their publisher."""


def fetch(name: str, cache: Path | None = None) -> list[bytes]:
    """Return the files of a published list, shipped or downloaded once, and checked against their digests."""
    import platformdirs

    from fairkit.support.files import write_atomic

    folder, files = cache or Path(platformdirs.user_cache_path("fairkit")) / "names", []
    for file, digest in LISTS[name][2].items():
        shipped = (SHIPPED / file).exists()
        path = SHIPPED / file if shipped else folder / digest
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            write_atomic(path, _download(_AT + file, name))
        files.append(path.read_bytes())
        if hashlib.sha256(files[-1]).hexdigest() != digest:
            if shipped:
                raise DataError(f"{path} is not the file that fairkit was made with; install fairkit anew")
            path.unlink()
            raise DataError(f"{_AT + file} is not the file whose digest fairkit knows; the publisher changed it")
    return files


def _download(url: str, name: str) -> bytes:
    from fairkit_correspondence.client import httpx_module

    httpx = httpx_module()
    try:
        return bytes(httpx.get(url, timeout=60).raise_for_status().content)
    except httpx.HTTPError as error:
        raise DataError(
            f"the list {name!r} cannot be fetched ({error}); save {url} and name it in [names] with its sha256"
        ) from None
