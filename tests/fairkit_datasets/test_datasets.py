"""Public data sets from a folder or a publisher (a local server here), and the loans whose bias is known."""

from __future__ import annotations

import datetime
import hashlib
import http.server
import ipaddress
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fairkit
import fairkit_datasets as datasets
from fairkit_datasets import catalog as convert
from fairkit_datasets.catalog import RECIPES, Download, Recipe, content_digest, locate
from fairkit_datasets.loans import bivariate_normal, loans_table, loans_truth

# small files in the publishers' formats, made up

ADULT_TRAIN = b"""39, State-gov, 77516, 11th, 13, Never-married, Sales, Wife, White, Male, 2174, 0, 40, Cuba, <=50K
50, ?, 83311, HS-grad, 9, Divorced, ?, Husband, Black, Female, 0, 7, 13, ?, >50K

"""
ADULT_TEST = b"""|1x3 Cross validator
25, Private, 226802, 11th, 7, Never-married, Machine-op-inspct, Own-child, Black, Male, 0, 0, 40, Peru, <=50K.
38, Private, 89814, HS-grad, 9, Married, Sales, Husband, White, Male, 0, 0, 50, Peru, >50K.

"""
GERMAN = b"""
A11 6 A34 A43 1169 A65 A75 4 A93 A101 4 A121 67 A143 A152 2 A173 1 A192 A201 1
A12 48 A32 A43 5951 A61 A73 2 A92 A101 2 A121 22 A143 A152 1 A173 1 A191 A201 2
"""
COMPAS_HEADER = (
    "id,name,first,last,compas_screening_date,sex,dob,age,age_cat,race,juv_fel_count,decile_score,juv_misd_count,"
    "juv_other_count,priors_count,days_b_screening_arrest,c_jail_in,c_jail_out,c_case_number,c_offense_date,"
    "c_arrest_date,c_days_from_compas,c_charge_degree,c_charge_desc,is_recid,r_case_number,r_charge_degree,"
    "r_days_from_arrest,r_offense_date,r_charge_desc,r_jail_in,r_jail_out,violent_recid,is_violent_recid,"
    "vr_case_number,vr_charge_degree,vr_offense_date,vr_charge_desc,type_of_assessment,decile_score,score_text,"
    "screening_date,v_type_of_assessment,v_decile_score,v_score_text,v_screening_date,in_custody,out_custody,"
    "priors_count,start,end,event,two_year_recid"
)
COMPAS_ROW = (
    "1,ann b,ann,b,2013-08-14,Female,1947-04-18,69,Greater than 45,Other,0,{score},0,0,2,-1,,,130A,2013-08-13,,1,F,"
    '"Assault, Aggravated",0,,,,,,,,,0,,,,,Risk of Recidivism,1,Low,2013-08-14,Risk of Violence,1,Low,'
    "2013-08-14,2014-07-07,2014-07-14,2,0,327,0,0\n"
)


def test_adult_loses_blanks_question_marks_comment_and_dots() -> None:
    table = convert.adult([ADULT_TRAIN, ADULT_TEST])
    assert table.num_rows == 4
    assert table["income"].to_pylist() == ["<=50K", ">50K", "<=50K", ">50K"]
    assert table["split"].to_pylist() == ["train", "train", "test", "test"]
    assert table["workclass"].to_pylist() == ["State-gov", None, "Private", "Private"]
    assert table["native-country"].null_count == 1
    assert table["age"].type == pa.int64()


def test_german_reads_a_blank_first_line() -> None:
    table = convert.german([GERMAN])
    assert table.num_rows == 2
    assert table["class"].to_pylist() == [1, 2]
    assert table["personal_status"].to_pylist() == ["A93", "A92"]


def test_compas_leaves_out_who_people_are() -> None:
    table = convert.compas([f"{COMPAS_HEADER}\n{COMPAS_ROW.format(score=1)}".encode()])
    assert table.num_columns == 44
    assert not {"name", "first", "last", "dob", "c_case_number"} & set(table.column_names)
    assert table["c_charge_desc"].to_pylist() == ["Assault, Aggravated"]
    assert table["violent_recid"].to_pylist() == [None]
    assert table["priors_count"].to_pylist() == [2]


def test_compas_refuses_copies_that_differ() -> None:
    with pytest.raises(ValueError, match="decile_score differ"):
        convert.compas([f"{COMPAS_HEADER}\n{COMPAS_ROW.format(score=7)}".encode()])


def _as_text(value: object) -> str:
    return "" if value is None else str(value)


def _lines(table: pa.Table, separator: str, null: str = "") -> bytes:
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return "".join(separator.join(_as_text(v) or null for v in row) + "\n" for row in rows).encode()


def _publisher_files(name: str, table: pa.Table) -> list[bytes]:
    """The publisher's files, written back from the table."""
    if name == "adult":
        parts = []
        for split, head, dot in (("train", "", ""), ("test", "|1x3 Cross validator\n", ".")):
            rows = table.filter(pa.compute.equal(table["split"], split)).drop_columns(["split"])
            body = _lines(rows, ", ", "?").decode().replace("\n", f"{dot}\n")
            parts.append(f"{head}{body}\n".encode())
        return parts
    if name == "german":
        return [b"\n" + _lines(table, " ")]
    if name == "law_school":
        return [",".join(table.column_names).encode() + b"\n" + _lines(table, ",")]
    if name == "communities_crime":
        names = "".join(f"@attribute {column} numeric\n" for column in table.column_names)
        return [_lines(table, ",", "?"), f"% about\n{names}\n@data\n".encode()]
    if name == "credit_default":
        header = ",".join(["ID", *(f"X{i}" for i in range(1, 24)), "Y"])
        return [header.encode() + b"\n" + _lines(table, ",")]
    assert name == "acs_income"
    parts = []
    for split in ("test", "validation"):
        rows = table.filter(pa.compute.equal(table["split"], split)).drop_columns(["split"])
        race = rows.column_names.index("RAC1P")
        rows = rows.set_column(race, "RAC1P", pa.compute.subtract(rows["RAC1P"], 1))
        sink = pa.BufferOutputStream()
        pq.write_table(rows.rename_columns([*rows.column_names[:-1], "__index_level_0__"]), sink)
        parts.append(sink.getvalue().to_pybytes())
    return parts


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(set(RECIPES) - {"compas"}))
def test_the_publishers_format_gives_the_known_table(name: str, public_data: Path) -> None:
    table = pq.read_table(public_data / f"{name}.parquet")
    recipe = RECIPES[name]
    assert content_digest(table) == recipe.content
    contents = _publisher_files(name, table)
    assert content_digest(recipe.convert(contents)) == recipe.content
    if name == "adult":  # here the very bytes can be written back
        digests = [hashlib.sha256(content).hexdigest() for content in contents]
        assert digests == [download.sha256 for download in recipe.downloads]


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(RECIPES))
def test_the_usual_roles_fit(name: str, public_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRKIT_DATA", str(public_data))
    data = getattr(datasets, name)()
    assert data.learn().rows > 900
    assert all(len(groups) > 1 for groups in data.profile.groups.values())
    assert data.roles.label not in data.features


def test_roles_can_be_replaced(public_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRKIT_DATA", str(public_data))
    data = datasets.adult(sensitive=["sex+race"], favorable="<=50K")
    assert list(data.learn().groups) == ["sex+race"]
    assert data.roles.favorable == "<=50K"
    assert datasets.frame("adult").shape == (48_842, 16)


class _Server(http.server.BaseHTTPRequestHandler):
    files: Mapping[str, bytes]

    def do_GET(self) -> None:
        name = self.path.lstrip("/")
        if name.startswith("to-"):
            self.send_response(302)
            self.send_header("Location", {"to-train": "/train", "to-http": "http://127.0.0.1:9/train"}[name])
            self.end_headers()
            return
        content = self.files.get(name)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        if name == "endless":  # no length, and no end
            self.end_headers()
            with suppress(OSError):
                while True:
                    self.wfile.write(b"x" * 100_000)
            return
        cut = self.path.startswith("/cut")
        self.send_header("Content-Length", str(len(content) * (2 if cut else 1)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for this machine, which nobody has signed, with its key in the same file."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.fixture
def publisher(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A publisher on this machine; gives the address of its files."""
    files = {
        "train": ADULT_TRAIN,
        "test": ADULT_TEST,
        "cut-train": ADULT_TRAIN,
        "other": b"<html>moved</html>",
        "endless": b"",
    }
    handler = type("Handler", (_Server,), {"files": files})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    for proxy in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(proxy, raising=False)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def _adult_at(address: str, train: str = "train", *, sha256: str | None = None) -> Recipe:
    known = hashlib.sha256(ADULT_TRAIN).hexdigest() if sha256 is None else sha256
    return replace(
        RECIPES["adult"],
        downloads=(
            Download(url=f"{address}/{train}", sha256=known),
            Download(url=f"{address}/test", sha256=hashlib.sha256(ADULT_TEST).hexdigest()),
        ),
        content=content_digest(convert.adult([ADULT_TRAIN, ADULT_TEST])),
    )


@pytest.fixture
def no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAIRKIT_DATA", raising=False)


@pytest.mark.usefixtures("no_folder")
def test_a_download_is_checked_converted_and_kept(publisher: str, tmp_path: Path) -> None:
    recipe = _adult_at(publisher)
    path = locate(recipe, tmp_path / "cache")
    assert pq.read_table(path)["income"].to_pylist() == ["<=50K", ">50K", "<=50K", ">50K"]
    assert [p.name for p in path.parent.iterdir()] == ["adult.parquet"]
    offline = replace(recipe, downloads=(Download(url="https://127.0.0.1:9/gone"),))
    assert locate(offline, tmp_path / "cache") == path


def _refused(recipe: Recipe, cache: Path) -> str:
    with pytest.raises(fairkit.DataError) as caught:
        locate(recipe, cache)
    assert not list(cache.glob("*"))
    assert "set FAIRKIT_DATA to a folder that holds adult.parquet" in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.usefixtures("no_folder")
def test_what_cannot_be_downloaded_says_how_to_go_on(publisher: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    wrong = _refused(_adult_at(publisher, sha256="0" * 64), cache)
    assert "wrong checksum" in wrong
    assert hashlib.sha256(ADULT_TRAIN).hexdigest() in wrong
    assert f"broke off after {len(ADULT_TRAIN)} bytes" in _refused(_adult_at(publisher, "cut-train"), cache)
    assert "Not Found" in _refused(_adult_at(publisher, "absent"), cache)
    offline = replace(RECIPES["adult"], downloads=(Download(url="https://127.0.0.1:9/adult.data"),))
    assert "could not be downloaded" in _refused(offline, cache)
    assert "in the known format" in _refused(
        _adult_at(publisher, "other", sha256=hashlib.sha256(b"<html>moved</html>").hexdigest()), cache
    )
    assert "another table" in _refused(replace(_adult_at(publisher), content="0" * 64), cache)


@pytest.mark.usefixtures("no_folder")
def test_only_https_counts_also_after_a_redirection(publisher: str, tmp_path: Path) -> None:
    assert locate(_adult_at(publisher, "to-train"), tmp_path / "cache").is_file()
    assert "no https address" in _refused(_adult_at(publisher, "to-http"), tmp_path / "other")
    plain = replace(RECIPES["adult"], downloads=(Download(url="http://127.0.0.1:9/x"),))
    with pytest.raises(fairkit.DataError, match="no https address"):
        locate(plain, tmp_path / "other")


@pytest.mark.usefixtures("no_folder")
def test_a_certificate_that_nobody_signed_is_refused(
    publisher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REQUESTS_CA_BUNDLE")
    assert "could not be downloaded" in _refused(_adult_at(publisher), tmp_path / "cache")


@pytest.mark.usefixtures("no_folder")
def test_an_endless_file_is_given_up(publisher: str, tmp_path: Path) -> None:
    endless = Download(url=f"{publisher}/endless", size_limit=1_000_000)
    recipe = replace(RECIPES["adult"], downloads=(endless,))
    assert "larger than the 1,000,000 bytes" in _refused(recipe, tmp_path / "cache")


def test_another_table_in_the_folder_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(convert.adult([ADULT_TRAIN, ADULT_TEST]), tmp_path / "adult.parquet")
    monkeypatch.setenv("FAIRKIT_DATA", str(tmp_path))
    (note,) = [note for note in datasets.adult(sensitive=["sex"]).info().notes if "published" in note]
    assert "adult.parquet is not the published table" in note
    with pytest.warns(UserWarning, match="is not the published table 'adult'"):
        datasets.frame("adult")


def test_the_published_table_has_no_note(public_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRKIT_DATA", str(public_data))
    assert not [note for note in datasets.german().info().notes if "published" in note]


def test_a_folder_without_the_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRKIT_DATA", str(tmp_path))
    with pytest.raises(fairkit.DataError, match=r"which holds no adult\.parquet"):
        datasets.load("adult")


def test_an_unknown_data_set_suggests_near_names() -> None:
    with pytest.raises(fairkit.DataError, match="Did you mean 'adult'"):
        datasets.load("adlut")


def test_loans_repeat_and_differ_by_seed() -> None:
    assert loans_table(500, 3).equals(loans_table(500, 3))
    assert not loans_table(500, 3).equals(loans_table(500, 4))
    with pytest.raises(fairkit.ParameterError, match="rows=0"):
        loans_table(0)
    assert datasets.load("loans", rows=50, seed=1).learn().rows == 50


@pytest.mark.parametrize("correlation", [-0.9, -0.2, 0.0, 0.4, 0.8])
def test_bivariate_normal_equals_scipy(correlation: float) -> None:
    from scipy import stats

    points = np.array([[-1.5, 0.3], [0.0, 0.0], [2.0, -0.7], [1.1, 1.2]])
    found = bivariate_normal(points[:, 0], points[:, 1], correlation)
    exact = stats.multivariate_normal([0, 0], [[1, correlation], [correlation, 1]], abseps=1e-12, releps=1e-12)
    np.testing.assert_allclose(found, exact.cdf(points), atol=1e-9)
    assert bivariate_normal(np.zeros(1), np.zeros(1), correlation) == pytest.approx(
        0.25 + np.arcsin(correlation) / (2 * np.pi), abs=1e-14
    )


def test_the_loans_true_bias_is_what_a_large_sample_shows() -> None:
    truth = loans_truth()
    data = datasets.loans(400_000, seed=5, label="would_repay", favorable="yes", drop=[])
    report = fairkit.audit(fairkit.PredictedColumns(decision="decision", favorable="approved"), data)
    for split in ("sex", "ethnicity"):
        for metric in (
            "demographic_parity_difference",
            "demographic_parity_ratio",
            "equal_opportunity_difference",
            "equalized_odds_difference",
        ):
            found = report.find(metric, split)
            true = getattr(truth, metric)(split)
            assert found.interval is not None
            assert found.interval[0] <= true <= found.interval[1]
            assert found.interval[1] - found.interval[0] < 0.03
        rates = report.find("true_positive_rate_difference", split).groups
        for group in rates:
            assert group.value == pytest.approx(truth.approved_given_repay[split][group.group], abs=0.01)


def test_decisions_of_another_spelling_are_refused() -> None:
    data = datasets.loans(500, label="would_repay", favorable="yes", drop=[])
    with pytest.raises(fairkit.ModelError, match=r"'(approved|denied)', which is not one of the label's values"):
        fairkit.audit(fairkit.PredictedColumns(decision="decision"), data)
