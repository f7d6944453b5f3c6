"""
Repair: from a policy to a model that passes it
===============================================

Give the policy; ``fairkit.repair`` tries the methods that can meet it, predicts each one's chance of passing, and looks at the
test rows once.
"""

import fairkit

train, test = fairkit.datasets.loans(6000, seed=1), fairkit.datasets.loans(6000, seed=2)
policy = [fairkit.Rule("equal_opportunity_difference:sex", max=0.06)]
result = fairkit.repair(train, policy, test=test, learner="logistic", methods=["threshold-optimizer", "rto"], threads=1)
print(repr(result))
for change in result.changes:
    if change.metric in ("accuracy", "equal_opportunity_difference") and change.group is None:
        print(change)

# %%
# What changed, on rows that nothing had seen, with paired intervals:

chart = result.plot()

# %%
# The result is one ONNX file. The disparities before and after:

before = result.before.plot().properties(title="before")
after = result.after.plot().properties(title="after")
chart = before & after
