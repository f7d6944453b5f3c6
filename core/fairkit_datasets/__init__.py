"""Public data sets of the fairness literature, and synthetic ones whose bias is known.

    data = fairkit.datasets.load("adult")
    data = fairkit.datasets.adult(sensitive=["sex+race"])
    data = fairkit.datasets.loans(rows=20_000, seed=1)

A public data set is read from the folder that the environment variable FAIRKIT_DATA names (a Parquet file for
each: ``adult.parquet`` and so on; a file with another content than the published one is noted in reports). Without that
folder it is downloaded once from its publisher, which needs the extra ``datasets``, checked against a checksum, and
kept in the user's cache folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairkit.data.loading import load_data
from fairkit.errors import DataError, MissingExtraError, did_you_mean
from fairkit_datasets.catalog import RECIPES, Recipe, content_digest, locate
from fairkit_datasets.loans import HIRING_ROLES, LoansTruth, admissions_table, hiring_table, loans_table, loans_truth

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from fairkit.data.dataset import Dataset

__all__ = [
    "LoansTruth",
    "acs_income",
    "admissions",
    "adult",
    "communities_crime",
    "compas",
    "credit_default",
    "frame",
    "german",
    "hiring",
    "law_school",
    "load",
    "loans",
    "loans_truth",
    "names",
    "table",
]

LOANS_ROLES: dict[str, Any] = {
    "label": "decision",
    "favorable": "approved",
    "sensitive": ["sex", "ethnicity"],
    "drop": ["would_repay"],
}


def names() -> list[str]:
    """List the data sets that `load` knows."""
    return [*RECIPES, "admissions", "hiring", "loans"]


def load(name: str, **roles: Any) -> Dataset:
    """Load a data set with its usual roles.

    Parameters
    ----------
    name
        One of `names`.
    roles
        Arguments of `fairkit.load_data` that take the place of the usual ones: ``label``, ``favorable``,
        ``sensitive``, ``features``, ``drop``, ``weights``, ``missing``.

    Returns
    -------
    Dataset
        It streams from the file.

    Raises
    ------
    DataError
        There is no such data set, or it is neither in FAIRKIT_DATA nor can it be downloaded.
    """
    made = {"admissions": admissions, "hiring": hiring, "loans": loans}
    if name in made:
        return made[name](**roles)
    recipe = _recipe(name)
    data = load_data(locate(recipe), **{**recipe.roles, **roles})
    data.published = recipe.content
    return data


def _recipe(name: str) -> Recipe:
    if name not in RECIPES:
        raise DataError(f"there is no data set {name!r}. {did_you_mean(name, names(), what='data sets')}")
    return RECIPES[name]


def table(name: str) -> pa.Table:
    """Return a data set as a pyarrow Table, all columns.

    Raises
    ------
    DataError
        As `load`.
    """
    made = {"admissions": admissions_table, "hiring": hiring_table, "loans": loans_table}
    if name in made:
        return made[name]()
    import warnings

    import pyarrow.parquet as pq

    recipe = _recipe(name)
    path = locate(recipe)
    result = pq.read_table(path)
    if content_digest(result) != recipe.content:
        warnings.warn(f"{path} is not the published table {name!r}: its content is another", stacklevel=2)
    return result


def frame(name: str) -> pd.DataFrame:
    """Return a data set as a pandas data frame, all columns.

    Raises
    ------
    DataError
        As `load`.
    """
    try:
        import pandas as _  # noqa: F401 -- pyarrow would say only that there is no module of that name
    except ImportError as error:
        raise MissingExtraError("pandas", "pandas") from error
    return table(name).to_pandas()


def adult(**roles: Any) -> Dataset:
    """Census income, 48,842 rows: does a person earn more than 50,000 dollars? Split by sex and race."""
    return load("adult", **roles)


def compas(**roles: Any) -> Dataset:
    """ProPublica's COMPAS, 7,214 rows: no new offence in two years is favorable. Split by race and sex."""
    return load("compas", **roles)


def german(**roles: Any) -> Dataset:
    """German credit, 1,000 rows: good credit is favorable. Split by age and foreign workers."""
    return load("german", **roles)


def law_school(**roles: Any) -> Dataset:
    """Law school, 20,798 rows: passing the bar exam at first is favorable. Split by race and sex."""
    return load("law_school", **roles)


def communities_crime(**roles: Any) -> Dataset:
    """Communities and crime, 1,994 rows: a regression of violent crime. Split by the share of Black people."""
    return load("communities_crime", **roles)


def credit_default(**roles: Any) -> Dataset:
    """Taiwan's credit card clients, 30,000 rows: no default is favorable. Split by sex and education."""
    return load("credit_default", **roles)


def acs_income(**roles: Any) -> Dataset:
    """ACSIncome 2018, 665,800 rows: an income above 50,000 dollars is favorable. Split by sex and race."""
    return load("acs_income", **roles)


def admissions(**roles: Any) -> Dataset:
    """Berkeley's graduate admissions of 1973, 4,526 rows of decisions without an outcome. Split by sex."""
    usual: dict[str, Any] = {"name": "admissions", "sensitive": ["sex"], "within": ["department"]}
    return load_data(admissions_table(), **{**usual, **roles})


def loans(rows: int = 10_000, seed: int = 0, **roles: Any) -> Dataset:
    """Make the synthetic loan data set (see `fairkit_datasets.loans.loans_table`).

    Parameters
    ----------
    rows
        How many applicants.
    seed
        Equal seeds give equal tables; the first rows of a larger table are not those of a smaller one.
    roles
        As in `load`; by default the label is ``decision`` and ``would_repay`` is no feature.
    """
    usual: dict[str, Any] = {"name": "loans", **LOANS_ROLES}
    return load_data(loans_table(rows, seed), **{**usual, **roles})


def hiring(openings: int = 500, seed: int = 0, **roles: Any) -> Dataset:
    """Make the synthetic rankings of applicants for jobs (see `fairkit_datasets.loans.hiring_table`).

    Parameters
    ----------
    openings
        How many queries.
    seed
        Equal seeds give equal tables.
    roles
        As in `load`; by default ``relevance`` is the label and ``opening`` the query.
    """
    return load_data(hiring_table(openings, seed), **{"name": "hiring", **HIRING_ROLES, **roles})
