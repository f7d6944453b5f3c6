"""`fairkit watch ...`: a model's decisions over time, with statements that hold at every look."""

from __future__ import annotations

from fairkit_cli.lazy import group_of

_COMMANDS = {
    "init": "fairkit_cli.watch.begin:init",
    "add": "fairkit_cli.watch.adding:add",
    "label": "fairkit_cli.watch.adding:label",
    "show": "fairkit_cli.watch.adding:show",
}

app = group_of(_COMMANDS, "Watch a model's decisions over time; every statement holds at every look.")
