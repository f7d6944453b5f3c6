"""
Groups that nobody named
========================

Rates by sex and by region look fine, and young people of one region are refused all the same. The auditor ``subgroups`` searches
every group of up to three conditions, and its bound holds for all of them at once.
"""

import altair as alt
import numpy as np
import pandas as pd

import fairkit

rng = np.random.default_rng(9)
rows = 8000
table = pd.DataFrame(
    {
        "sex": rng.choice(["female", "male"], rows),
        "age": rng.choice(["18-30", "31-50", "51+"], rows),
        "region": rng.choice(["north", "south", "west"], rows),
    }
)
hidden = (table["age"] == "18-30") & (table["region"] == "west")
table["decision"] = np.where(rng.random(rows) < np.where(hidden, 0.3, 0.52), "yes", "no")

data = fairkit.load_data(
    table, sensitive=["sex", "age", "region"], predictions={"decision": "decision", "favorable": "yes"}
)
report = fairkit.audit(None, data, auditors=["group", "subgroups"])
for sensitive in ("sex", "age", "region"):
    print(report.find("demographic_parity_difference", sensitive))

# %%
# The groups that are treated worse for sure, and the bound for all others:

found = [one for one in report.findings if one.metric == "subgroup_gap"]
lines = []
for one in found:
    name = " and ".join(f"{each['column']} {each['value']}" for each in one.evidence["conditions"])
    low, high = one.interval
    lines.append({"group": name, "difference": one.value, "low": low, "high": high})
    print(f"{name}: {one}")
print(report.find("worst_subgroup_gap", auditor="subgroups"))

# %%
# Each interval holds after a search over all groups.

title = "selection rate inside the group minus outside"
base = alt.Chart(alt.Data(values=lines)).encode(
    y=alt.Y("group:N", title=None, sort=None, axis=alt.Axis(labelLimit=300))
)
chart = alt.layer(
    base.mark_rule(strokeWidth=3, color="#4b7fe0").encode(
        x=alt.X("low:Q", title=title, scale=alt.Scale(domainMax=0.02)), x2="high:Q"
    ),
    base.mark_point(filled=True, size=80, color="#4b7fe0", opacity=1).encode(x=alt.X("difference:Q", title=title)),
).properties(width=420, height=alt.Step(30))
