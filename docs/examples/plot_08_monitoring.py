"""
Monitoring: an alarm that may be looked at every day
====================================================

A model is in production. On day 120 something changes for one group. ``fairkit.Watch`` adds each day's decisions and makes
statements that hold at every look: of models that keep the rule, at most 5 % are ever called broken, however often one
looks.
"""

import datetime
import tempfile

import altair as alt
import numpy as np

import fairkit

rng = np.random.default_rng(7)
start = datetime.date(2026, 1, 1)
folder = tempfile.mkdtemp()
rules = [fairkit.Rule("demographic_parity_difference:sex", max=0.1)]
lines, alarm = [], None
with fairkit.Watch.create(
    folder, rules, decision="decision", favorable="approved", sensitive=["sex"], day="day"
) as watch:
    for week in range(26):
        days = [start + datetime.timedelta(7 * week + place) for place in range(7)]
        sex = rng.choice(["female", "male"], 700)
        day = np.repeat([one.isoformat() for one in days], 100)
        late = np.repeat([one >= start + datetime.timedelta(120) for one in days], 100)
        rate = np.where(sex == "male", 0.55, np.where(late, 0.32, 0.52))
        decision = np.where(rng.random(700) < rate, "approved", "denied")
        added = watch.add({"day": day, "sex": sex, "decision": decision}, today=days[-1])
        look = watch.look(days[-1])
        (rule,) = look.rules
        low, high = rule.interval
        lines.append({"day": days[-1].isoformat(), "value": rule.value, "low": low, "high": high})
        alarm = alarm or next(iter(added.alarms), None)

print(look.verdict, "over all decisions so far")
print(alarm.day, alarm.text)

# %%
# The band holds the disparity of all decisions so far, at every week at once. The dashed line is the limit.

base = alt.Chart(alt.Data(values=lines)).encode(x=alt.X("day:T", title=None))
limit = alt.Chart().mark_rule(strokeDash=[4, 3], color="#e0604f").encode(y=alt.datum(0.1))
band = base.mark_area(opacity=0.25, color="#4b7fe0").encode(
    y=alt.Y("low:Q", title="demographic parity difference so far"), y2="high:Q"
)
line = base.mark_line(color="#4b7fe0").encode(y="value:Q")
changed = alt.Chart(alt.Data(values=[{"day": "2026-05-01"}])).mark_rule(color="#868e96").encode(x="day:T")
chart = alt.layer(changed, limit, band, line, data=alt.Data(values=lines)).properties(width=520, height=260)
