"""Lists of names: those that fairkit brings, published ones by digest, and files of one's own."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fairkit.errors import DataError, FairkitError
from fairkit_correspondence import lists as published
from fairkit_correspondence.lists import NameList, balance, matched, read_names, whole
from fairkit_correspondence.plan import read_plan

from .plans import first, write_plan


def names_of(folder, count=None, by=(), **settings):
    wanted = NameList(**settings)
    return whole(matched(read_names(wanted, folder), count, by, 1), wanted, folder)


def grouped(names):
    return {group: [n for n in names if n.group == group] for group in sorted({n.group for n in names})}


def test_the_shipped_lists_have_their_digests_and_are_small():
    folder = published.SHIPPED
    files = {file: digest for _, _, named in published.LISTS.values() for file, digest in named.items()}
    here = [path for path in folder.iterdir() if path.suffix == ".xz"]
    assert {path.name for path in here} == {"ssa-2024.csv.xz", "census-2010.csv.xz"}
    for path in here:
        assert hashlib.sha256(path.read_bytes()).hexdigest() == files[path.name]
    assert sum(path.stat().st_size for path in folder.iterdir()) < 500_000
    assert "17 USC 105" in (folder / "README.md").read_text()


def test_a_wheel_holds_the_lists_and_where_they_are_from():
    from hatchling.builders.wheel import WheelBuilder

    files = {file.distribution_path for file in WheelBuilder(str(Path(__file__).parents[2])).recurse_included_files()}
    lists = {f"fairkit_correspondence/lists/{path.name}" for path in published.SHIPPED.iterdir()}
    assert {"fairkit_correspondence/lists/README.md", "fairkit_correspondence/lists/ssa-2024.csv.xz"} <= lists <= files


def test_first_names_are_of_their_years_and_of_one_sex(tmp_path):
    groups = grouped(names_of(tmp_path, file="ssa-2024", born=(1985, 1994)))
    assert {g: len(members) for g, members in groups.items()} == {"men": 500, "women": 500}
    assert {"Michael", "Christopher", "Matthew"} <= {n.text for n in groups["men"]}
    assert {"Jessica", "Ashley", "Emily"} <= {n.text for n in groups["women"]}
    assert not {n.text for n in groups["men"]} & {n.text for n in groups["women"]}
    # of both sexes: 21 of 100 people named Taylor and born then are men
    assert "Taylor" not in {n.text for members in groups.values() for n in members}
    assert all(1985 <= n.numbers["born"] <= 1994 and n.numbers["share"] >= 0.9 for n in groups["women"])
    most = max(groups["women"], key=lambda n: n.numbers["births"])
    assert most.text == "Jessica"
    assert most.slots["possessive"] == "her"
    old = grouped(names_of(tmp_path, file="ssa-2024", born=(1930, 1934)))["women"]
    assert max(old, key=lambda n: n.numbers["births"]).text == "Mary"


def test_the_balance_follows_what_is_matched(tmp_path):
    plain, close = (
        balance(names_of(tmp_path, 40, by, file="ssa-2024", surnames="census-2010")) for by in ((), ("born", "letters"))
    )
    assert abs(plain["men"]["born"] - plain["women"]["born"]) > 3
    assert abs(close["men"]["born"] - close["women"]["born"]) < 1
    assert abs(close["men"]["letters"] - close["women"]["letters"]) < 0.3
    assert close["men"]["words"] == 2


@pytest.mark.parametrize("by", [(), ("births",)])
def test_drawn_names_have_the_same_surnames(by, tmp_path):
    groups = grouped(names_of(tmp_path, 40, by, file="ssa-2024", surnames="census-2010"))
    surnames = [[n.text.split()[1] for n in members] for members in groups.values()]
    assert surnames[0] == surnames[1]
    assert surnames[0][:3] == ["Smith", "Johnson", "Williams"]


def test_surnames_are_of_the_group_that_most_bearers_name(tmp_path):
    names = names_of(tmp_path, file="census-2010", first_names="ssa-2024", per_group=40)
    groups = grouped(names)
    assert set(groups) == {"american indian", "asian", "black", "hispanic", "white"}
    firsts = {tuple(n.slots["first"] for n in members) for members in groups.values()}
    assert len(firsts) == 1  # the same first names, men and women in turn
    assert [n.slots["pronoun"] for n in groups["asian"]][:4] == ["he", "she", "he", "she"]
    everybody = read_names(NameList(file="census-2010", first_names="ssa-2024"), tmp_path)
    found = {n.text: n for n in everybody}
    assert len(found) == len(everybody)
    # as the Census Bureau has them: 87.5 of 100 people named Washington are Black; 58 of 100 Johnsons are white
    assert found["Washington"].group == "black"
    assert found["Washington"].numbers["share"] == pytest.approx(0.8753)
    assert found["Nguyen"].group == "asian"
    assert found["Garcia"].group == "hispanic"
    assert "Johnson" not in found
    assert min(n.numbers["share"] for n in everybody) >= 0.7
    sizes = {group: len(members) for group, members in grouped(everybody).items()}
    assert sizes["black"] >= 1_000
    assert sizes["american indian"] == 437


def test_a_plan_names_them_and_says_their_licence(tmp_path):
    path = write_plan(tmp_path, documents=4)
    listed = 'file = "census-2010"\nfirst_names = "ssa-2024"\nborn = [1970, 1999]\n'
    listed += 'groups = ["black", "white"]\nper_group = 40'
    path.write_text(path.read_text().replace('file = "names.csv"', listed))
    plan = read_plan(path)
    assert plan.groups == ["black", "white"]
    assert len(plan.names) == 80
    assert sum("17 USC 105" in note for note in plan.notes) == 2


REFUSED = {
    "surnames alone": ({"file": "census-2010"}, "has surnames alone"),
    "both": ({"file": "ssa-2024", "surnames": "census-2010", "first_names": "ssa-2024"}, "leave one out"),
    "years of nothing": ({"file": "bloomberg-2024", "born": (1970, 1999)}, "born is for first names of the SSA"),
    "a year": ({"file": "ssa-2024", "born": (1970,)}, "is not the first and the last year"),
    "no such years": ({"file": "ssa-2024", "born": (1700, 1710)}, "no names of men born in these years"),
    "a digest": ({"file": "ssa-2024", "sha256": "00"}, "leave `sha256` out"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_settings_that_mean_nothing_are_refused(case, tmp_path):
    settings, message = REFUSED[case]
    with pytest.raises(FairkitError) as raised:
        read_names(NameList(**settings), tmp_path)
    assert message in str(raised.value)


def test_a_file_of_the_ssa_and_surnames_of_ones_own(tmp_path):
    with zipfile.ZipFile(tmp_path / "names.zip", "w") as archive:
        for year, births in ((1980, 300), (1990, 100)):
            rows = [f"{first(j)}{s.lower()},{s},{births + j}" for s in "FM" for j in range(600)]
            rows += [f"Robin,{s},9000" for s in "FM"]
            archive.writestr(f"yob{year}.txt", "\r\n".join(rows))
        archive.writestr("readme.pdf", "none")
    (tmp_path / "surnames.csv").write_text("name\nAble\nBaker\n")
    names = names_of(tmp_path, file="names.zip", column="sex", surnames="surnames.csv")
    groups = grouped(names)
    assert [len(members) for members in groups.values()] == [500, 500]
    listed = read_names(NameList(file="names.zip"), tmp_path)
    assert listed[0].slots["pronoun"] == "he"
    assert listed[0].numbers["births"] == 300 + 100 + 2 * 599  # the most frequent first, without Robin
    assert 1980 < listed[0].numbers["born"] < 1985
    assert [n.text.split()[1] for n in groups["men"]] == [n.text.split()[1] for n in groups["women"]]
    assert [n.text.split()[1] for n in groups["women"]][:3] == ["Able", "Baker", "Able"]
    late = read_names(NameList(file="names.zip", born=(1985, 1999)), tmp_path)
    assert np.unique([n.numbers["born"] for n in late]).tolist() == [1990]
    assert late[0].numbers["births"] == 100 + 599


def test_published_lists_are_checked_against_their_digest(tmp_path, monkeypatch):
    files = {
        "top_mens_names.json": b'{"A": ["WEI CHEN"], "B": [], "H": [], "W": ["TOM SMITH"]}',
        "top_womens_names.json": b'{"A": ["MEI LIN"], "B": [], "H": [], "W": ["ANN JONES"]}',
    }
    monkeypatch.setattr(published, "_download", lambda url, name: files[url.rpartition("/")[2]])
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: tmp_path)
    with pytest.raises(FairkitError, match="not the file whose digest fairkit knows"):
        read_names(NameList(file="bloomberg-2024"), tmp_path)
    assert not list((tmp_path / "names").iterdir())
    digests = {name: hashlib.sha256(raw).hexdigest() for name, raw in files.items()}
    monkeypatch.setitem(published.LISTS, "bloomberg-2024", ("800 names", "Apache-2.0", digests))
    names = read_names(NameList(file="bloomberg-2024"), tmp_path)
    assert [(n.group, n.text, n.slots["possessive"]) for n in names][:3] == [
        ("asian men", "Wei Chen", "his"),
        ("white men", "Tom Smith", "his"),
        ("asian women", "Mei Lin", "her"),
    ]


def test_a_shipped_list_that_was_changed_is_refused(tmp_path, monkeypatch):
    (tmp_path / "ssa-2024.csv.xz").write_bytes(b"other")
    monkeypatch.setattr(published, "SHIPPED", tmp_path)
    with pytest.raises(DataError, match="install fairkit anew"):
        read_names(NameList(file="ssa-2024"), tmp_path)
    assert (tmp_path / "ssa-2024.csv.xz").exists()
