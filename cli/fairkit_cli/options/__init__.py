"""The options that commands share, and how they and the configuration file become settings."""

from fairkit_cli.options.audit import (
    Adjust,
    Assignments,
    AuditedModel,
    AuditOptions,
    Confidence,
    ConfigFile,
    Copies,
    Functions,
    InsecureKey,
    MaxRules,
    MinRules,
    Output,
    OutputOptions,
    PageFormat,
    ReportFormat,
    ScoringOptions,
    Seed,
    SigningKeys,
    TableFormat,
    TaskName,
    VersionFormat,
    audit_settings,
    named_auditors,
    rules_of,
)
from fairkit_cli.options.data import (
    About,
    AskingOptions,
    ConditionOptions,
    DataOptions,
    EndpointOptions,
    EngineOptions,
    Favorable,
    Label,
    Labelled,
    PredictionColumns,
    SandboxOptions,
    SensitiveColumns,
    first_known,
    listed,
    load_dataset,
    split_names,
    stated_facts,
)
from fairkit_cli.options.declare import DATA, ENGINE, MODEL, OUTPUT, POLICY, Rare, formats, option
from fairkit_cli.options.expand import expanded, expanded_but
from fairkit_cli.options.search import Objective, SearchOptions, Value
from fairkit_cli.options.watching import AlarmOptions, WatchedColumns
