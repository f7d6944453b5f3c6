"""
Admissions: the same numbers inside departments
===============================================

The admissions to Berkeley in 1973: over all departments women were admitted less often. Inside the departments they were
not. Which number is right depends on the question; fairkit gives both, with intervals.
"""

import altair as alt

import fairkit

data = fairkit.datasets.admissions(within="department", reference="sex=male", predictions={"decision": "admitted"})
report = fairkit.audit(None, data)
print(report.find("selection_rate_difference", "sex", reference="male"))
print(report.find("selection_rate_difference", "sex", reference="male", within="department"))

# %%
# Pooled over departments the difference is small and has the other sign. Each department by itself:

pooled = report.find("demographic_parity_difference", "sex", within="department")
lines = [
    {"department": one.stratum, "difference": one.value, "low": one.interval[0], "high": one.interval[1]}
    for one in pooled.strata
    if one.interval is not None
]
base = alt.Chart(alt.Data(values=lines)).encode(y=alt.Y("department:N", title="department"))
title = "admission rate of women minus that of men"
chart = alt.layer(
    alt.Chart().mark_rule(color="#868e96", strokeDash=[4, 3]).encode(x=alt.datum(0)),
    base.mark_rule(strokeWidth=3, color="#4b7fe0").encode(x=alt.X("low:Q", title=title), x2="high:Q"),
    base.mark_point(filled=True, size=80, color="#4b7fe0", opacity=1).encode(x=alt.X("difference:Q", title=title)),
    data=alt.Data(values=lines),
).properties(width=420, height=alt.Step(28))
