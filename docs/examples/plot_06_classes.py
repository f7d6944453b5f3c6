"""
More than two classes: who is sent where
========================================

A hospital sorts patients into *home*, *ward* and *intensive care*. With three classes every class has its own rates.
``linear-post`` equalizes how often each group is put in each class, by a linear rule on the probabilities.
"""

import altair as alt
import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

import fairkit

rng = np.random.default_rng(4)
rows = 3000
insured = rng.choice(["private", "public"], rows, p=[0.4, 0.6])
pain = rng.normal(0.7 * (insured == "private"), 1, rows)
fever = rng.normal(0, 1, rows)
need = pain + fever + rng.normal(0, 0.7, rows)
place = np.array(["home", "ward", "intensive"])[np.digitize(need, [0.3, 1.6])]
X = pd.DataFrame({"pain": pain, "fever": fever})

model = LogisticRegression(max_iter=500).fit(X[:2000], place[:2000])
groups = {"insured": insured[2000:]}
report = fairkit.audit(model, X[2000:], place[2000:], sensitive_features=groups)
for label in ("home", "ward", "intensive"):
    print(report.find("selection_rate_difference", "insured", parameters={"class": label}), "|", label)

# %%
# The scores of each class, by group:

chart = report.plot("scores", "insured")

# %%
# The same patients after the repair. The group is read for learning only; no decision reads it (``read_group=False``).

Equal = fairkit.mitigator("linear-post")
fair = Equal(tolerance=0.08, read_group=False, n_jobs=1)
fair.fit(X[:2000], place[:2000], sensitive_features=insured[:2000])
compared = fairkit.compare([model, fair], X[2000:], place[2000:], sensitive_features=groups)
print(compared.find("accuracy"))

# %%
# A comparison is a table, too. How differently the groups are put in each class, before and after:

changes = compared.to_frame().dropna(subset="class").query("metric == 'demographic_parity_difference'")
print(changes[["class", "before", "after", "low", "high", "outcome"]].to_string(index=False))
base = alt.Chart(changes.melt(["class"], ["before", "after"], "model", "gap"))
chart = (
    base.mark_bar()
    .encode(
        x=alt.X("gap:Q", title="difference between the groups"),
        y=alt.Y("model:N", title=None, sort=["before", "after"]),
        color=alt.Color("model:N", legend=None, scale=alt.Scale(range=["#149a8a", "#7a8aa3"])),
        row=alt.Row("class:N", title=None, sort=["home", "ward", "intensive"]),
    )
    .properties(width=420, height=50)
)
