"""The public data sets: where each is published, how its files become a table, its usual roles."""

from __future__ import annotations

from fairkit_datasets import convert
from fairkit_datasets.fetch import Download, Recipe

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
    convert=convert.adult,
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
    convert=convert.compas,
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
    convert=convert.german,
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
    convert=convert.law_school,
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
    convert=convert.communities_crime,
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
    convert=convert.credit_default,
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
    convert=convert.acs_income,
    content="a60d1d5fe517a2565f361dfff6cb4bd664bfecf907af2565356e606e56e13ff1",
    roles={"label": "PINCP", "favorable": 1, "sensitive": ["SEX", "RAC1P"], "drop": ["row_index", "split"]},
)

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (_ADULT, _COMPAS, _GERMAN, _LAW_SCHOOL, _COMMUNITIES_CRIME, _CREDIT_DEFAULT, _ACS_INCOME)
}
"""The data sets by name."""
