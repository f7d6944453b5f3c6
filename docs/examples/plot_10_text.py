"""
Text: does a name change the answer?
====================================

A classifier reads short letters of application. The sensitive attribute is no column, but it is in the words: first names,
clubs, pronouns. The audit needs the groups beside the texts; the model sees texts only.
"""

import numpy as np
import pandas as pd
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import fairkit

rng = np.random.default_rng(6)
names = {"f": ["anna", "maria", "lena", "ida"], "m": ["jonas", "paul", "emil", "karl"]}
skills = ["python", "sales", "logistics", "accounting", "welding", "design"]
rows = 2500
sex = rng.choice(["f", "m"], rows)
skill = rng.choice(skills, (rows, 2))
good = (skill == "python").any(axis=1) | (skill == "accounting").any(axis=1)
hired = rng.random(rows) < np.where(good, 0.75, 0.3) - 0.2 * (sex == "f")  # the history was biased
letters = np.array(
    [
        f"my name is {rng.choice(names[who])} and i know {one} and {other}"
        for who, (one, other) in zip(sex, skill, strict=True)
    ]
)

model = make_pipeline(TfidfVectorizer(), TruncatedSVD(16, random_state=0), LogisticRegression())
model.fit(letters[:1500], hired[:1500])

# %%
# An audit takes a table. The texts are a column of it, and a small class hands them to the model.


class Reads:
    """Hands a column of texts to a model that takes texts."""

    classes_ = (False, True)

    def __init__(self, model, column):
        self.model, self.column = model, column

    def predict_proba(self, X):
        return self.model.predict_proba(X[self.column])

    def predict(self, X):
        return self.model.predict(X[self.column])


X = pd.DataFrame({"letter": letters, "without_name": [" ".join(one.split()[4:]) for one in letters]})
test, groups = X[1500:], {"sex": sex[1500:]}
report = fairkit.audit(Reads(model, "letter"), test, hired[1500:], sensitive_features=groups)
print(report.find("demographic_parity_difference", "sex"))
chart = report.plot("scores", "sex")

# %%
# The same letters without the name, when it learns and when it decides: the model cannot read what is not there.

blind = make_pipeline(TfidfVectorizer(), TruncatedSVD(8, random_state=0), LogisticRegression())
blind.fit(X["without_name"][:1500], hired[:1500])
models = [Reads(model, "letter"), Reads(blind, "without_name")]
compared = fairkit.compare(models, test, hired[1500:], sensitive_features=groups)
print(compared.find("demographic_parity_difference", "sex"))
chart = compared.plot()
