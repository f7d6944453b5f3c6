"""Totals by SQL: a database counts equal rows, and an audit is made of the counts (extra ``sql``).

A metric is a function of totals that add up, so it is enough to know how often each distinct row occurs, in the columns
that the audit reads. One ``GROUP BY`` finds that where the rows lie. Each distinct row is then measured once by the
same auditors, and what it adds up to is doubled and added as its count says, bit by bit: nothing but ``+`` is used, so
that metrics of plugins are counted like all others.
"""

from __future__ import annotations
