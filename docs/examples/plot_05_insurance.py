"""
Insurance: one distribution of premiums
=======================================

A regression predicts yearly claims, and the prediction is the premium. The European Court of Justice ruled in 2011 that sex
must not change premiums. ``barycenter`` moves the predictions of each group to their common distribution, at the least
cost in squared error.
"""

import altair as alt
import numpy as np
import pandas as pd

import fairkit

rng = np.random.default_rng(3)
rows = 3000
sex = rng.choice(["female", "male"], rows)
age = rng.integers(18, 80, rows)
power = rng.gamma(4, 25, rows) + 20 * (sex == "male")
claims = 200 + 2.5 * power + 6 * np.maximum(30 - age, 0) + rng.gamma(2, 60, rows)
table = pd.DataFrame({"sex": sex, "age": age, "power": power, "claims": claims})

# %%
# The method reads the sex when it predicts, to take its effect away; the file has an input for it.

data = fairkit.load_data(table, label="claims", sensitive="sex")
result = fairkit.mitigate("barycenter", data)
for report in (result.before, result.after):
    print(report.find("mean_prediction_difference", "sex"), "|", report.find("mean_absolute_error"))

# %%
# The difference of the distributions (0: equal), before and after, and what it costs.

chart = result.plot()

# %%
# The premiums themselves:

shown = []
for name, report in (("before", result.before), ("after", result.after)):
    finding = report.find("statistical_parity_ks", "sex")
    edges, groups = finding.evidence["histogram"]["edges"], finding.evidence["histogram"]["groups"]
    for group, bins in groups.items():
        counts = [sum(pair) for pair in bins]
        shown += [
            {"model": name, "group": group, "premium": edge, "share": count / sum(counts)}
            for edge, count in zip(edges, counts, strict=False)
        ]
chart = (
    alt.Chart(alt.Data(values=shown))
    .mark_line(interpolate="step-after", strokeWidth=2)
    .encode(
        x=alt.X("premium:Q", title="premium"),
        y=alt.Y("share:Q", title="share of the group", axis=alt.Axis(format="%")),
        color=alt.Color("group:N", scale=alt.Scale(range=["#4b7fe0", "#d5692a"])),
        strokeDash="group:N",
        facet=alt.Facet("model:N", title=None, sort=["before", "after"], columns=2),
    )
    .properties(width=260, height=200)
)
