"""The public data sets: where each is published, how its files become a table, its usual roles."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, BinaryIO

from fairkit.errors import DataError, FairkitError, MissingExtraError
from fairkit.support.files import replacing
from fairkit.support.lazy_dataclass import dataclass

if TYPE_CHECKING:
    import pyarrow as pa


# Finding a data set: in a folder, in the cache, or at its publisher's address.


FOLDER_VARIABLE = "FAIRKIT_DATA"
"""The environment variable that names a folder with the data sets as Parquet files."""

_TIMEOUT_SECONDS = 60
_PIECE = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """A file at its publisher's."""

    url: str  # its address, https
    sha256: str | None = None  # of its bytes; None where only the content is pinned
    size_limit: int = 64 << 20  # bytes after which the download is given up


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How to get a data set, and what its columns are for."""

    name: str  # the Parquet file is `NAME.parquet`
    downloads: tuple[Download, ...]  # the publisher's files
    convert: Callable[[Sequence[bytes]], pa.Table]  # turns their bytes, in the same order, into the table
    content: str  # the digest of the converted table's content (`fairkit.data.digest.TableDigest`)
    roles: Mapping[str, Any]  # arguments of `fairkit.load_data`

    @property
    def filename(self) -> str:
        """The name of its file in FAIRKIT_DATA and in the cache."""
        return f"{self.name}.parquet"


def locate(recipe: Recipe, cache: Path | None = None) -> Path:
    """Return the data set's Parquet file, downloading it where that must be."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder:
        path = Path(folder).expanduser() / recipe.filename
        if not path.is_file():
            raise DataError(
                f"{FOLDER_VARIABLE} is {folder!r}, which holds no {recipe.filename}; put the file there, "
                f"or unset {FOLDER_VARIABLE} to download the data set"
            )
        return path
    path = (cache or default_cache()) / recipe.filename
    if not path.is_file():
        _store(_download_table(recipe), path)
    return path


def default_cache() -> Path:
    """The folder in which downloaded data sets are kept."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("fairkit", appauthor=False)) / "datasets"


def _download_table(recipe: Recipe) -> pa.Table:
    contents = [_get(recipe, download) for download in recipe.downloads]
    try:
        table = recipe.convert(contents)
    except (ValueError, KeyError, IndexError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise _unusable(recipe, recipe.downloads[0], f"is not in the known format ({reason})") from error
    digest = content_digest(table)
    if digest != recipe.content:
        raise _unusable(recipe, recipe.downloads[0], f"holds another table than the known one (content {digest})")
    return table


class _TooLargeError(Exception):
    """More bytes than a publisher's file has."""


class _Limited:
    """A file that takes a number of bytes and no more."""

    def __init__(self, file: BinaryIO, most: int) -> None:
        self.file, self.most, self.count = file, most, 0

    def write(self, piece: bytes) -> int:
        self.count += len(piece)
        if self.count > self.most:
            raise _TooLargeError
        return self.file.write(piece)

    def flush(self) -> None:
        self.file.flush()


def _get(recipe: Recipe, download: Download) -> bytes:
    """Download a file over HTTPS, also after redirections, up to its size limit, and check its digest."""
    try:
        import pooch
        import requests
    except ImportError as error:
        raise MissingExtraError("pooch", "datasets") from error
    _need_https(download.url)
    responses: list[Any] = []

    def seen(response: Any, **_: Any) -> None:
        responses.append(response)
        _check_redirection(response)

    fetch = pooch.HTTPDownloader(
        chunk_size=_PIECE, timeout=_TIMEOUT_SECONDS, headers={"Accept-Encoding": "identity"}, hooks={"response": seen}
    )
    received = 0

    def save(url: str, target: str, _: object) -> None:
        nonlocal received
        with Path(target).open("wb") as file:
            limited = _Limited(file, download.size_limit)
            try:
                fetch(url, limited, None)
            finally:
                received = limited.count
                for response in responses:
                    response.close()

    expected = None if download.sha256 is None else f"sha256:{download.sha256}"
    pooch.get_logger().setLevel("ERROR")  # it would name the file and its digest on standard error
    try:
        with TemporaryDirectory(prefix="fairkit-") as folder:
            return Path(pooch.retrieve(download.url, expected, "file", folder, downloader=save)).read_bytes()
    except _TooLargeError:
        limit = f"{download.size_limit:,}"
        raise _unusable(recipe, download, f"is larger than the {limit} bytes it may have") from None
    except ValueError as error:
        if isinstance(error, FairkitError | requests.RequestException):
            raise _unusable(recipe, download, f"could not be downloaded ({error})") from error
        digests = re.findall(r"[0-9a-f]{64}", str(error))
        reason = f"{received} bytes with SHA-256 {digests[-1]}, not {download.sha256}" if digests else str(error)
        raise _unusable(recipe, download, f"has the wrong checksum: {reason}") from error
    except requests.RequestException as error:
        partial = re.search(r"IncompleteRead\((\d+) bytes", str(error))
        if partial:
            raise _unusable(recipe, download, f"broke off after {partial[1]} bytes") from error
        raise _unusable(recipe, download, f"could not be downloaded ({_reason(error)})") from error
    except OSError as error:
        raise _unusable(recipe, download, f"could not be kept ({error.strerror or error})") from error


def _reason(error: Exception) -> str:
    """Return the first line of what a library says, without the addresses of its objects."""
    return re.sub(r"<[^>]* at 0x[0-9a-f]+>:? ?", "", str(error)).splitlines()[0]


def _need_https(url: str) -> None:
    if not url.startswith("https://"):
        raise DataError(f"{url} is no https address: what comes without encryption may be anybody's")


def _check_redirection(response: Any) -> None:
    if response.is_redirect:
        from urllib.parse import urljoin

        _need_https(urljoin(response.url, response.headers["location"]))


def _unusable(recipe: Recipe, download: Download, what: str) -> DataError:
    return DataError(
        f"the data set {recipe.name!r}: {download.url} {what}; try again later, or set {FOLDER_VARIABLE} to a "
        f"folder that holds {recipe.filename}"
    )


def content_digest(table: pa.Table) -> str:
    """Return the digest of a table's content, as a report shows it."""
    from fairkit.data.arrow_types import plain
    from fairkit.data.dataset import BATCH_ROWS
    from fairkit.data.digest import TableDigest

    digest = TableDigest(table.column_names)
    for batch in table.to_batches(max_chunksize=BATCH_ROWS):
        digest.update(plain(batch, "table"))
    return digest.hexdigest()


def _store(table: pa.Table, path: Path) -> None:
    """Write the table whole or not at all."""
    import pyarrow.parquet as pq

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            pq.write_table(table, file, compression="zstd")
    except OSError as error:
        raise DataError(
            f"the data set {path.stem!r} cannot be kept in {str(path.parent)!r} ({error.strerror or error}); "
            f"make that folder writable, or set {FOLDER_VARIABLE} to a folder that holds {path.name}"
        ) from error


# From the publishers' files to tables: headers added, missing values made null, types settled.


_ADULT_COLUMNS = """
    age workclass fnlwgt education education-num marital-status occupation relationship race sex capital-gain
    capital-loss hours-per-week native-country income
""".split()  # noqa: SIM905 -- a list of names reads as one
_ADULT_NUMBERS = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")

_GERMAN_COLUMNS = """
    checking_status duration credit_history purpose credit_amount savings_status employment installment_commitment
    personal_status other_parties residence_since property_magnitude age other_payment_plans housing existing_credits
    job num_dependents own_telephone foreign_worker class
""".split()  # noqa: SIM905 -- a list of names reads as one
_GERMAN_NUMBERS = """
    duration credit_amount installment_commitment residence_since age existing_credits num_dependents class
""".split()  # noqa: SIM905 -- a list of names reads as one

_COMPAS_NUMBERS = """
    id age juv_fel_count decile_score juv_misd_count juv_other_count priors_count days_b_screening_arrest
    c_days_from_compas is_recid r_days_from_arrest violent_recid is_violent_recid v_decile_score start end event
    two_year_recid
""".split()  # noqa: SIM905 -- a list of names reads as one
_COMPAS_PERSONAL = ("name", "first", "last", "dob", "c_case_number", "r_case_number", "vr_case_number")

_LAW_WHOLE = ("decile1b", "decile3", "fulltime", "fam_inc", "male", "tier", "pass_bar")

_CREDIT = [
    "ID",
    "LIMIT_BAL",
    "SEX",
    "EDUCATION",
    "MARRIAGE",
    "AGE",
    "PAY_0",
    *(f"PAY_{month}" for month in range(2, 7)),
    *(f"BILL_AMT{month}" for month in range(1, 7)),
    *(f"PAY_AMT{month}" for month in range(1, 7)),
    "default_payment_next_month",
]

_ACS = ["AGEP", "COW", "SCHL", "MAR", "OCCP", "POBP", "RELP", "WKHP", "SEX", "RAC1P", "PINCP"]


def adult(contents: Sequence[bytes]) -> pa.Table:
    """Join UCI's two parts; the test part has a comment line and a dot after its labels."""
    import pyarrow as pa

    parts = []
    for split, content in zip(("train", "test"), contents, strict=True):
        lines = content.replace(b", ", b",").replace(b"K.\n", b"K\n")
        if lines.startswith(b"|"):
            lines = lines.split(b"\n", 1)[1]
        part = _read(lines, _ADULT_COLUMNS, numbers=_ADULT_NUMBERS, nulls=("?",))
        parts.append(part.append_column("split", pa.array([split] * part.num_rows)))
    return pa.concat_tables(parts).combine_chunks()


def compas(contents: Sequence[bytes]) -> pa.Table:
    """Leave out what identifies people, and the second copies of two columns."""
    header, body = contents[0].split(b"\n", 1)
    names: list[str] = []
    for name in header.decode().strip().split(","):
        names.append(f"{name} again" if name in names else name)
    table = _read(body, names, numbers=_COMPAS_NUMBERS, nulls=("",))
    copies = [name for name in names if name.endswith(" again")]
    for copy in copies:
        if table[copy].cast("int64", safe=False) != table[copy.removesuffix(" again")]:
            raise ValueError(f"the two columns {copy.removesuffix(' again')} differ")
    return table.drop_columns([*_COMPAS_PERSONAL, *copies])


def german(contents: Sequence[bytes]) -> pa.Table:
    """Add the header; columns are separated by blanks."""
    lines = b"\n".join(line.strip() for line in contents[0].splitlines())
    return _read(lines.strip() + b"\n", _GERMAN_COLUMNS, numbers=_GERMAN_NUMBERS, nulls=("",), delimiter=" ")


def law_school(contents: Sequence[bytes]) -> pa.Table:
    """Read whole numbers as such: the source writes 10.0."""
    header, body = contents[0].split(b"\n", 1)
    names = header.decode().strip().split(",")
    reals = [name for name in names if name != "race"]
    table = _read(body, names, reals=reals, nulls=("",))
    return table.cast(_whole_numbers(table, _LAW_WHOLE))


def communities_crime(contents: Sequence[bytes]) -> pa.Table:
    """Take the header from the description of the attributes."""
    names = re.findall(r"^@attribute\s+(\S+)", contents[1].decode("latin-1"), flags=re.MULTILINE)
    whole = ("state", "county", "community", "fold")
    reals = [name for name in names if name not in (*whole, "communityname")]
    return _read(contents[0], names, numbers=whole, reals=reals, nulls=("?",))


def credit_default(contents: Sequence[bytes]) -> pa.Table:
    """Replace the publisher's X1 to X23 and Y by the names of its description."""
    _, body = contents[0].split(b"\n", 1)
    table = _read(body, _CREDIT, reals=_CREDIT, nulls=("",))
    return table.cast(_whole_numbers(table, _CREDIT))


def acs_income(contents: Sequence[bytes]) -> pa.Table:
    """Join the test and validation parts; race counts from 0 there and from 1 in the survey."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    parts = []
    for split, content in zip(("test", "validation"), contents, strict=True):
        part = pq.read_table(io.BytesIO(content))
        index = next(name for name in part.column_names if name not in _ACS)
        columns = {name: _whole(part[name]) for name in _ACS}
        columns["RAC1P"] = pc.add(columns["RAC1P"], 1)
        columns["row_index"] = _whole(part[index])
        columns["split"] = pa.array([split] * part.num_rows)
        parts.append(pa.table(columns))
    return pa.concat_tables(parts).combine_chunks()


def _whole(column: pa.ChunkedArray) -> pa.ChunkedArray:
    import pyarrow as pa

    plain = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
    return plain.cast("int64")


def _read(
    content: bytes,
    names: Sequence[str],
    *,
    numbers: Sequence[str] = (),
    reals: Sequence[str] = (),
    nulls: Sequence[str] = (),
    delimiter: str = ",",
) -> pa.Table:
    """Read rows without a header: whole numbers, real numbers, the rest text."""
    import pyarrow.csv as pacsv

    kinds: dict[str, Any] = dict.fromkeys(names, "string")
    kinds |= dict.fromkeys(numbers, "int64") | dict.fromkeys(reals, "float64")
    return pacsv.read_csv(
        io.BytesIO(content),
        read_options=pacsv.ReadOptions(column_names=list(names)),
        parse_options=pacsv.ParseOptions(delimiter=delimiter),
        convert_options=pacsv.ConvertOptions(column_types=kinds, null_values=list(nulls), strings_can_be_null=True),
    )


def _whole_numbers(table: pa.Table, names: Sequence[str]) -> pa.Schema:
    """Return the table's schema with whole numbers in these columns."""
    import pyarrow as pa

    return pa.schema([(f.name, pa.int64() if f.name in names else f.type) for f in table.schema])


_UCI = "https://archive.ics.uci.edu"
_GITHUB = "https://raw.githubusercontent.com"
_AEQUITAS = f"{_GITHUB}/dssg/aequitas/4dc71c69cdf15f3dfa53638665d722f5f1763bad/datasets/FolkTables"

_ADULT = Recipe(
    name="adult",
    downloads=(
        Download(
            url=f"{_UCI}/ml/machine-learning-databases/adult/adult.data",
            sha256="5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
        ),
        Download(
            url=f"{_UCI}/ml/machine-learning-databases/adult/adult.test",
            sha256="a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
        ),
    ),
    convert=adult,
    content="ef567814428142cd37652ef8d69f0bb0f5081945dfe3697da78a1a5d8fa87be4",
    roles={"label": "income", "favorable": ">50K", "sensitive": ["sex", "race"], "drop": ["fnlwgt", "split"]},
)

_COMPAS = Recipe(
    name="compas",
    downloads=(
        Download(
            url=f"{_GITHUB}/propublica/compas-analysis/bafff5da3f2e45eca6c2d5055faad269defd135a/"
            "compas-scores-two-years.csv",
            sha256="c451db85908b2f7fef1d83203bedf6b71ecda0d5af468d82ae62178f91d0cc7d",
        ),
    ),
    convert=compas,
    content="fa734b24b4ebfb2f2674cb13220982b75066d7ba4a6d9bbd13bba41e8498e05b",
    roles={
        "label": "two_year_recid",
        "favorable": 0,
        "sensitive": ["race", "sex"],
        "features": [
            "sex",
            "age",
            "race",
            "juv_fel_count",
            "juv_misd_count",
            "juv_other_count",
            "priors_count",
            "c_charge_degree",
        ],
    },
)

_GERMAN = Recipe(
    name="german",
    downloads=(Download(url=f"{_UCI}/ml/machine-learning-databases/statlog/german/german.data"),),
    convert=german,
    content="4ff40306ee99ae5e5ffda4542aacf9c0db479ab5590285df383cabe0be23fa82",
    roles={"label": "class", "favorable": 1, "sensitive": ["age:25", "foreign_worker"]},
)

_LAW_SCHOOL = Recipe(
    name="law_school",
    downloads=(
        Download(
            url=f"{_GITHUB}/tailequy/fairness_dataset/abb5a18b822ba56a221c5311082e192e85000b95/"
            "experiments/data/law_school_clean.csv",
            sha256="23c1b173f3480beb7afc4957b107a9917dfc4a8dc9d87ea6034ec35222152452",
        ),
    ),
    convert=law_school,
    content="b03ee045fea660d9a5d5fd477ce12c82937e0932052c15f5c331ddeebdc99582",
    roles={"label": "pass_bar", "favorable": 1, "sensitive": ["race", "male"]},
)

_COMMUNITIES_CRIME = Recipe(
    name="communities_crime",
    downloads=(
        Download(
            url=f"{_UCI}/ml/machine-learning-databases/communities/communities.data",
            sha256="09e0b5c07eae24c1efab19b2edee05e160e7f5743b6f31e31eec3d73624da2ea",
        ),
        Download(url=f"{_UCI}/ml/machine-learning-databases/communities/communities.names"),
    ),
    convert=communities_crime,
    content="bf7797752e6928b969d44202689549ba109941c4abef2183f05f8a0660d6c0f1",
    roles={
        "label": "ViolentCrimesPerPop",
        "sensitive": ["racepctblack"],
        "drop": ["state", "county", "community", "communityname", "fold"],
    },
)

_CREDIT_DEFAULT = Recipe(
    name="credit_default",
    downloads=(
        Download(
            url=f"{_UCI}/static/public/350/data.csv",
            sha256="45bcf4df62ff2e237a74eb155cabfb4bbbc171219a0637daef44fdad07503dd0",
        ),
    ),
    convert=credit_default,
    content="3ceaca079276b8789a76b45d93f23c1aab3ca40d9c181bdca5a7ed4bdbae42ff",
    roles={"label": "default_payment_next_month", "favorable": 0, "sensitive": ["SEX", "EDUCATION"], "drop": ["ID"]},
)

# The Census Bureau publishes the survey by state; the table of the literature is this selection of it.
_ACS_INCOME = Recipe(
    name="acs_income",
    downloads=(
        Download(
            url=f"{_AEQUITAS}/ACSIncome.test.parquet",
            sha256="050a84d27232b70c14992ce996c9cd04fa1c6eccc8e1394760b6de3e01de9fc5",
        ),
        Download(
            url=f"{_AEQUITAS}/ACSIncome.validation.parquet",
            sha256="cbe16ab9be0996473f132d3a7fafe456e7db6cb3b63c4d1fcc74e3e92b0bcef2",
        ),
    ),
    convert=acs_income,
    content="a60d1d5fe517a2565f361dfff6cb4bd664bfecf907af2565356e606e56e13ff1",
    roles={"label": "PINCP", "favorable": 1, "sensitive": ["SEX", "RAC1P"], "drop": ["row_index", "split"]},
)

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (_ADULT, _COMPAS, _GERMAN, _LAW_SCHOOL, _COMMUNITIES_CRIME, _CREDIT_DEFAULT, _ACS_INCOME)
}
"""The data sets by name."""
