from fairkit.engines.local import LocalEngine as LocalEngine
from fairkit_dask.cluster import connected as connected
from fairkit_dask.engine import DaskEngine as DaskEngine
