"""The options that commands share, and how they and the configuration file become settings."""

from fairkit_cli.options.about import About, stated_facts
from fairkit_cli.options.audit import (
    Adjust,
    AuditOptions,
    MaxRules,
    MinRules,
    OutputOptions,
    ScoringOptions,
    TaskName,
    audit_settings,
    rules_of,
)
from fairkit_cli.options.data import (
    ConditionOptions,
    DataOptions,
    PredictionColumns,
    load_dataset,
    split_names,
)
from fairkit_cli.options.declare import DATA, ENGINE, MODEL, OUTPUT, POLICY, SANDBOX, formats, option
from fairkit_cli.options.endpoints import AskingOptions, EndpointOptions
from fairkit_cli.options.expand import expanded
from fairkit_cli.options.revoking import (
    MaxAge,
    RevocationLists,
    Revokers,
    Timestamp,
    TimestampRoots,
    read_age,
)
from fairkit_cli.options.running import EngineOptions, SandboxOptions
from fairkit_cli.options.search import SearchOptions
from fairkit_cli.options.shared import (
    Assignments,
    Confidence,
    ConfigFile,
    Copies,
    Functions,
    InsecureKey,
    Output,
    PageFormat,
    ReportFormat,
    Seed,
    SigningKeys,
    TableFormat,
    VersionFormat,
)
from fairkit_cli.options.watching import AlarmOptions, WatchedColumns

__all__ = [
    "DATA",
    "ENGINE",
    "MODEL",
    "OUTPUT",
    "POLICY",
    "SANDBOX",
    "About",
    "Adjust",
    "AlarmOptions",
    "AskingOptions",
    "Assignments",
    "AuditOptions",
    "ConditionOptions",
    "Confidence",
    "ConfigFile",
    "Copies",
    "DataOptions",
    "EndpointOptions",
    "EngineOptions",
    "Functions",
    "InsecureKey",
    "MaxAge",
    "MaxRules",
    "MinRules",
    "Output",
    "OutputOptions",
    "PageFormat",
    "PredictionColumns",
    "ReportFormat",
    "RevocationLists",
    "Revokers",
    "SandboxOptions",
    "ScoringOptions",
    "SearchOptions",
    "Seed",
    "SigningKeys",
    "TableFormat",
    "TaskName",
    "Timestamp",
    "TimestampRoots",
    "VersionFormat",
    "WatchedColumns",
    "audit_settings",
    "expanded",
    "formats",
    "load_dataset",
    "option",
    "read_age",
    "rules_of",
    "split_names",
    "stated_facts",
]
