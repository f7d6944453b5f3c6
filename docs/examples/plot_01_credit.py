"""
Credit: does a model keep its policy?
=====================================

A bank's model decides on loans. Is it equally good for women and men, and how sure can we be? The loans are synthetic;
their history is biased against women.
"""

from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import fairkit

loans = fairkit.datasets.frame("loans")
y = loans.pop("decision") == "approved"
people = loans[["sex", "ethnicity"]]
X = loans.drop(columns="would_repay")

encoder = make_column_transformer(
    (StandardScaler(), make_column_selector(dtype_include="number")),
    (OneHotEncoder(), make_column_selector(dtype_exclude="number")),
)
model = make_pipeline(encoder, LogisticRegression(max_iter=1000)).fit(X[:6000], y[:6000])

# %%
# A policy is a list of limits. Each verdict comes from an interval, not from a number: *fail* means that the whole
# interval is beyond the limit, *inconclusive* that these rows cannot tell.

policy = [
    fairkit.Rule("equal_opportunity_difference:sex", max=0.05),
    fairkit.Rule("demographic_parity_difference:sex", max=0.3),
    fairkit.Rule("accuracy", min=0.75),
]
report = fairkit.audit(model, X[6000:], y[6000:], sensitive_features=people[6000:], policy=policy)
for rule in report.policy:
    print(f"{rule.verdict:13}{rule.reason}")

# %%
# The largest disparities with their intervals. The grey ticks are the limits.

chart = report.plot()

# %%
# In a notebook ``report`` as the last line of a cell shows the whole page; ``report.save("report.html")`` writes it.
# The groups one by one:

chart = report.plot("scores", "ethnicity")
