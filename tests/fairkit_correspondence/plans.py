"""Plans on disk for the fake server: surnames are the groups, so that the server knows them."""

from __future__ import annotations

from pathlib import Path

WORKS = ("Sorted parcels by hand", "Kept the books of a bakery", "Drove a tram", "Taught evening classes")


def first(number: int) -> str:
    """Return one of many made-up first names."""
    return "".join(("Ba", "De", "Fi", "Go", "Lu", "Ma", "Ne", "Ro", "Su", "Ti")[int(d)] for d in f"{number:03}").title()


def write_plan(
    folder: Path, *, documents=40, names=40, each=2, looks=1, asking="", question=None, price="", more=""
) -> Path:
    """Write documents, names and a plan, and return the plan's path."""
    texts = folder / "texts"
    texts.mkdir(parents=True, exist_ok=True)
    for t in range(documents):
        text = f"Applicant: {{name}}\nReference {t}\n{WORKS[t % 4]} for {t + 2} years. {{first}} writes carefully.\n"
        (texts / f"text{t:03}.txt").write_text(text)
    rows = ["group,name"] + [f"{g},{first(j)} {g.title()}" for g in ("grey", "stone") for j in range(names)]
    (folder / "names.csv").write_text("\n".join(rows) + "\n")
    question = question or 'text = "Should we invite this applicant?"\noptions = ["Yes", "No"]\nfavorable = ["Yes"]'
    plan = folder / "plan.toml"
    plan.write_text(
        f"""[documents]
path = "texts"

[names]
file = "names.csv"

[contexts]
use = ["company", "top-ten"]

[question]
{question}

[asking]
names_per_document = {each}
looks = {looks}
{asking}

[price]
prompt = 1.0
completion = 2.0
{price}
{more}
"""
    )
    return plan
