"""The types of the public names: what type checkers and editors read in place of the lazy face."""

from fairkit.auditing.run import audit as audit
from fairkit.auditors import AuditContext as AuditContext
from fairkit.auditors import Auditor as Auditor
from fairkit.data.dataset import Dataset as Dataset
from fairkit.data.labelled import Drawn as Drawn
from fairkit.data.loading import load_data as load_data
from fairkit.errors import ConfigError as ConfigError
from fairkit.errors import DataError as DataError
from fairkit.errors import FairkitError as FairkitError
from fairkit.errors import ModelError as ModelError
from fairkit.errors import ParameterError as ParameterError
from fairkit.errors import PluginError as PluginError
from fairkit.errors import PolicyError as PolicyError
from fairkit.hookspecs import hookimpl as hookimpl
from fairkit.metrics import Mean as Mean
from fairkit.metrics import Metric as Metric
from fairkit.metrics import Rate as Rate
from fairkit.mitigators import Mitigator as Mitigator
from fairkit.models.columns import PredictedColumns as PredictedColumns
from fairkit.parameters import parameter as parameter
from fairkit.planning.results import Plan as Plan
from fairkit.planning.run import plan as plan
from fairkit.promotions import Promotion as Promotion
from fairkit.promotions import PromotionCheck as PromotionCheck
from fairkit.promotions import Remark as Remark
from fairkit.results.findings import Finding as Finding
from fairkit.results.findings import GroupValue as GroupValue
from fairkit.results.report import Report as Report
from fairkit.results.rules import Rule as Rule
from fairkit.settings import AuditSettings as AuditSettings
from fairkit.settings import ModelOptions as ModelOptions
from fairkit.statistics import Rows as Rows
from fairkit_alternatives.laws import Law as Law
from fairkit_alternatives.record import Alternatives as Alternatives
from fairkit_alternatives.search import alternatives as alternatives
from fairkit_comparing.parity import Parity as Parity
from fairkit_comparing.parity import parity as parity
from fairkit_comparing.run import compare as compare
from fairkit_guide.advice import Advice as Advice
from fairkit_guide.advice import advise as advise
from fairkit_onnx.file import OnnxModel as OnnxModel
from fairkit_repair.frontiers.run import Choice as Choice
from fairkit_repair.frontiers.run import frontier as frontier
from fairkit_repair.frontiers.training import Sweep as Sweep
from fairkit_repair.mitigation.run import MitigationResult as MitigationResult
from fairkit_repair.mitigation.run import mitigate as mitigate
from fairkit_repair.repairing.run import repair as repair
from fairkit_repair.sklearn.base import scorer as scorer
from fairkit_repair.sklearn.estimators import mitigator as mitigator
from fairkit_repair.sklearn.pipelines import to_onnx as to_onnx
from fairkit_similarity.metric import FairMetric as FairMetric
from fairkit_watch.watch import Watch as Watch

__all__: list[str]
__version__: str
