"""Individual fairness: the fair metric, and exact restricted transport under it.

`fairkit.individual.metric` holds the metric, `fairkit.individual.learn` its learners, `fairkit.individual.transport`
the solver and `fairkit.individual.plan` the plan that it finds. Nothing is imported here, so that numba
and scikit-learn are loaded by those who solve or learn, and by nobody else.
"""
