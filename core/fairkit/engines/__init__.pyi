from fairkit.engines.local import LocalEngine as LocalEngine
from fairkit_dask import DaskEngine as DaskEngine
from fairkit_dask import connected as connected
