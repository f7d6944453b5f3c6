"""
Decisions without a model
=========================

An authority keeps a table of decisions. Nobody has the model, and the sensitive attribute is in another table. The audit is
the same; a certificate of it names the table instead of a model.
"""

import numpy as np
import pandas as pd

import fairkit

rng = np.random.default_rng(5)
rows = 3000
number = np.arange(rows)
origin = rng.choice(["abroad", "here"], rows, p=[0.3, 0.7])
complete = rng.random(rows) < np.where(origin == "abroad", 0.7, 0.85)
granted = rng.random(rows) < np.where(complete, 0.8, 0.2)
decisions = pd.DataFrame({"case": number, "complete": complete, "decision": np.where(granted, "granted", "refused")})
register = pd.DataFrame({"case": number, "origin": origin})

data = fairkit.load_data(
    decisions,
    predictions={"decision": "decision", "favorable": "granted"},
    sensitive="origin",
    join=register,
    on="case",
    within="complete",
)
report = fairkit.audit(None, data)
print(report)

# %%
# Applicants from abroad are granted less often. Inside *complete* and *incomplete* files they are not: what differs is how often
# a file is complete.

print(report.find("selection_rate_difference", "origin"))
print(report.find("selection_rate_difference", "origin", within="complete"))
chart = report.plot()

# %%
# How many rows would decide a rule that these rows leave open?

plan = fairkit.plan([fairkit.Rule("demographic_parity_difference:origin", max=0.05)], report=report)
print(plan)
