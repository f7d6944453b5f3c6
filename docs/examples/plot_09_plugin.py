"""
A metric of one's own, as a plugin
==================================

A metric is a small class. Every audit then measures it: over all rows, in every group and between groups, each with an
interval, on one machine or many. ``fairkit plugins new`` writes a project with tests around it.
"""

import os
import pathlib
import tempfile

import numpy as np

import fairkit

file = pathlib.Path(tempfile.mkdtemp()) / "narrow_escape.py"
file.write_text('''
"""How many decisions hang by a thread."""

import numpy as np

import fairkit


class NarrowEscape(fairkit.Mean):
    """The share of people whose score is within .05 of the threshold."""

    name = "narrow_escape"
    needs = frozenset({"score"})
    range = (0.0, 1.0)

    def per_row(self, rows):
        return (np.abs(rows.score - 0.5) < 0.05).astype(float)


@fairkit.hookimpl
def fairkit_metrics():
    return [NarrowEscape]
''')

# %%
# An installed package is found by its entry point; a single file is named in an environment variable. fairkit runs the files that
# are named there, and no others.

os.environ["FAIRKIT_PLUGINS"] = str(file)
loans = fairkit.datasets.frame("loans").sample(4000, random_state=0)
y = loans["decision"] == "approved"
MIDDLE, SPREAD = loans["income"].median(), loans["income"].std()


class ByIncome:
    """A model of somebody's own: anything with ``predict_proba`` will do."""

    classes_ = (False, True)

    def predict_proba(self, X):
        score = 1 / (1 + np.exp(-(X["income"] - MIDDLE) / SPREAD))
        return np.column_stack([1 - score, score])

    def predict(self, X):
        return X["income"] >= MIDDLE


report = fairkit.audit(ByIncome(), loans[["income"]], y, sensitive_features=loans[["sex", "ethnicity"]])
print(report.find("narrow_escape"))
print(report.find("narrow_escape_difference", "ethnicity"))

# %%
# The plugin's metric is in every chart, page and certificate, like all others.

chart = report.plot()
del os.environ["FAIRKIT_PLUGINS"]
