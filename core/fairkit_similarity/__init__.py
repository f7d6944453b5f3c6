"""Individual fairness: the fair metric, and exact restricted transport under it.

`fairkit_similarity.metric` holds the metric, `fairkit_similarity.learn` its learners, `fairkit_similarity.transport`
the solver and `fairkit_similarity.learn` the plan that it finds. Nothing is imported here, so that numba
and scikit-learn are loaded by those who solve or learn, and by nobody else.
"""
