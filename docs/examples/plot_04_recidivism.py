"""
Recidivism: calibrated, and yet more often wrong about one group
================================================================

Scores of risk can mean the same in every group and still mark more harmless people of one group. Both were said about
the same program, and both were true. Synthetic people show why: the groups differ in how often they are arrested again.
"""

import numpy as np
import pandas as pd

import fairkit

rng = np.random.default_rng(1)
rows = 4000
group = rng.choice(["a", "b"], rows)
risk = rng.beta(np.where(group == "a", 2.0, 3.0), 3.0)  # the score is the true risk: perfectly calibrated
again = rng.random(rows) < risk
table = pd.DataFrame({"group": group, "risk": 1 - risk, "again": np.where(again, "yes", "no")})
table["released"] = np.where(risk < 0.5, "yes", "no")

data = fairkit.load_data(
    table,
    label="again",
    favorable="no",
    sensitive="group",
    predictions={"score": "risk", "decision": "released", "favorable": "yes"},
)
report = fairkit.audit(None, data)

# %%
# In both groups a score means what it says: of the people with a score of .7, about 70 % are not arrested again.

chart = report.plot("calibration", "group")

# %%
# And yet harmless people of one group are held far more often. The true positive rate is the share of harmless people who are
# released.

print(report.find("equal_opportunity_difference", "group"))
chart = report.plot()

# %%
# A rule with thresholds of their own for each group makes the error rates equal; then the score no longer means the same for both.


class Score:
    """A model that answers with its only column."""

    classes_ = np.array([0, 1])

    def predict_proba(self, X):
        score = np.asarray(X)[:, 0]
        return np.stack([1 - score, score], axis=1)

    def predict(self, X):
        return (np.asarray(X)[:, 0] >= 0.5).astype(int)


X, y = table[["risk"]].to_numpy(), (table["again"] == "no").astype(int)
rule = fairkit.mitigator("threshold-optimizer")(model=Score(), constraint="equalized_odds")
rule.fit(X, y, sensitive_features=group)
decided = rule.predict(X, sensitive_features=group)
for name in ("a", "b"):
    harmless = (group == name) & (y == 1)
    print(f"group {name}: {decided[harmless].mean():.3f} of the harmless people are released")
