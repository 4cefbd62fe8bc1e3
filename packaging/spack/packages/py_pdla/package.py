"""The Spack package of pdla. docs/install.md says how to add this repository to Spack."""

import pathlib

from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class PyPdla(PythonPackage):
    """Trace MPI-IO programs, understand their access patterns, and serve later runs from replicas in pattern order."""

    git = pathlib.Path(__file__).parents[4].as_uri()  # the checkout that this repository of packages is in

    license("MIT")

    version("main", branch="main")

    variant("plan", default=True, description="All verbs; without it only what compute nodes need")
    variant("report", default=True, when="+plan", description="Reports and pictures")
    variant("notebooks", default=False, when="+report", description="Notebooks with pictures to zoom into")

    depends_on("c", type="build")
    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-scikit-build-core@1:", type="build")
    depends_on("cmake@3.18:", type="build")
    depends_on("ninja", type="build")

    depends_on("py-click@8.1:", type="run")
    depends_on("py-google-crc32c@1.3:", type="run")  # the newest in Spack; it has all that pdla calls
    depends_on("py-numpy@1.25:", type="run")

    with when("+plan"):
        depends_on("py-alembic@1.13:", type="run")
        depends_on("py-h5py@3.9:", type="run")
        depends_on("py-highspy@1.7:", type="run")
        depends_on("py-pandas@2.1:", type="run")
        depends_on("py-prometheus-client@0.20:", type="run")
        depends_on("py-psutil@5.9:", type="run")
        depends_on("py-sqlalchemy@2:", type="run")
        depends_on("py-tqdm@4.66:", type="run")
    with when("+report"):
        depends_on("py-jinja2@3.1:", type="run")
        depends_on("py-matplotlib@3.7:", type="run")
    with when("+notebooks"):
        depends_on("py-jupyterlab@4:", type="run")
        depends_on("py-plotly@6:", type="run")
