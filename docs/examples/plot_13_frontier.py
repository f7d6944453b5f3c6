"""
What fairness costs: a frontier
===============================

Every point is one training, measured on rows that it did not see, with intervals on both axes. The ring marks the most accurate
model that will surely keep the limit on the test rows.
"""

import fairkit

loans = fairkit.datasets.loans(6000, seed=3, sensitive=["sex"])
frontier = fairkit.frontier(
    [
        fairkit.Sweep(plugin="reweigh", vary={"strength": [0.25, 0.5, 1.0]}),
        fairkit.Sweep(plugin="rto", vary={"tolerance": [0.02, 0.1]}),
    ],
    loans,
    disparity="demographic_parity_difference:sex",
    choice=fairkit.Choice(limit=0.12),
    learner="logistic",
    jobs=1,
    threads=1,
)
print(frontier)

# %%
chart = frontier.plot()

# %%
# Each point is a line of a data frame:

print(frontier.to_frame()[["plugin", "parameters", "disparity", "performance", "chosen"]].to_string(index=False))
