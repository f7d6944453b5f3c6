"""
Hiring: who is seen first?
==========================

A model ranks the applicants for each opening. People read from the top, so what an applicant gets is not a decision but
exposure. The openings are synthetic; a recommendation in the data is lower for women of the same merit.
"""

import altair as alt

import fairkit

ranked = fairkit.datasets.hiring(300, seed=2, predictions={"prediction": "score"})
report = fairkit.audit(None, ranked)

for name in ("exposure_difference", "top_k_rate_difference", "pairwise_accuracy_difference"):
    print(report.find(name, "sex"))

# %%
# Queries (openings) are the independent units: every interval comes from the variance over them. The exposure of a group is
# the mean of 1 / log2(1 + position).

chart = report.plot()

# %%
# The method ``exposure`` adds one number for each group to the scores until the disparity keeps a tolerance. Here the same is
# done by hand, to see what is traded: the quality of the ranking (NDCG) against the difference in exposure.

table = fairkit.datasets.frame("hiring")
points = []
for shift in (0.0, 0.1, 0.2, 0.3, 0.4):
    moved = table.assign(score=table["score"] + shift * (table["sex"] == "female"))
    data = fairkit.load_data(
        moved, label="relevance", sensitive="sex", query="opening", predictions={"prediction": "score"}
    )
    found = fairkit.audit(None, data)
    gap, ndcg = found.find("exposure_difference", "sex"), found.find("ndcg")
    points.append({"shift": shift, "exposure difference": gap.value, "NDCG": ndcg.value})

chart = (
    alt.Chart(alt.Data(values=points))
    .mark_line(point=True, color="#4b7fe0")
    .encode(
        x="exposure difference:Q", y=alt.Y("NDCG:Q", scale=alt.Scale(zero=False)), order="shift:Q", tooltip=["shift:Q"]
    )
    .properties(width=420, height=260)
)
