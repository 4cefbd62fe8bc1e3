"""The package installs with and without a C compiler, and contains what it needs at run time."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import pdla
from pdla.extras import EXTRAS
from tests.support.compilers import REPOSITORY

BIN = Path(sys.executable).parent
QUICKER = ["-C", "cmake.define.CMAKE_INTERPROCEDURAL_OPTIMIZATION=OFF"]

# The command line of the package in the directory named first, not of the editable one that runs these tests.
INSTALLED_IN = """
import sys
import tomllib
sys.meta_path[:] = [finder for finder in sys.meta_path if "_editable" not in type(finder).__module__]
sys.path.insert(0, sys.argv.pop(1))
from pdla.cli import main
main()
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of what git would clone, without build results."""
    copy = tmp_path / "source"
    names = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    for name in names.splitlines():
        target = copy / name
        if (REPOSITORY / name).is_symlink() or (REPOSITORY / name).exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, target, follow_symlinks=False)
    return copy


def wheel(source: Path, out: Path, path: str) -> set[str]:
    """The files of the wheel that pip builds with this PATH."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", *QUICKER]
    command = [*pip, "-w", out, source]
    done = subprocess.run(command, env={"PATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(zipfile.ZipFile(next(out.glob("pdla-*.whl"))).namelist())


@pytest.mark.thorough
def test_a_wheel_built_with_gcc_has_the_library_and_all_data(source: Path, tmp_path: Path) -> None:
    files = wheel(source, tmp_path / "out", f"{BIN}:/usr/bin:/bin")
    assert {
        "pdla/libpdla.so",
        "pdla/libpdla-coherence.so",
        "pdla/libpdla-posix.so",
        "pdla/libpdla-decoder.so",
        "pdla/libpdla-simulator.so",
        "pdla/cli/pdla-daemon.service",
        "pdla/cli/probes/probe.c",
        "pdla/examples/tiles.c",
        "pdla/examples/slabs.py",
        "pdla/layouts/default_cluster.toml",
        "pdla/report/report.html.j2",
        "pdla/collectors/rawlog.py",
    } <= files
    assert not [name for name in files if name.endswith(".h")]


def test_without_a_compiler_it_installs_and_says_that_it_can_only_analyze(source: Path, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("cmake", "ninja"):
        (tools / tool).symlink_to(BIN / tool)
    out = tmp_path / "out"
    assert "pdla/libpdla.so" not in wheel(source, out, str(tools))

    site = tmp_path / "site"
    zipfile.ZipFile(next(out.glob("pdla-*.whl"))).extractall(site)
    doctor = subprocess.run(
        [sys.executable, "-c", INSTALLED_IN, site, "doctor"], capture_output=True, text=True, check=False
    )
    assert doctor.returncode == 1
    assert "analysis only" in doctor.stdout
    command = [sys.executable, "-c", INSTALLED_IN, site, "trace", "--", "true"]
    trace = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (trace.returncode, trace.stderr.count("\n")) == (1, 1)
    assert "C compiler" in trace.stderr


def test_the_extras_of_the_package_are_those_that_messages_name() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    for extra, modules in EXTRAS.items():
        names = [re.split("[<>=!]", package)[0] for package in project["optional-dependencies"][extra]]
        assert sorted(name.replace("-", "_") for name in names if "pdla[" not in name) == sorted(modules)


@pytest.mark.parametrize(
    ("words", "module", "extra"),
    [
        (["trace", "--", "touch", "started"], "h5py", "plan"),
        (["status"], "sqlalchemy", "plan"),
        (["analyze", "run.h5"], "pandas", "plan"),
        (["report", "run.h5"], "matplotlib", "report"),
        (["plan", "run.h5"], "pandas", "plan"),
    ],
)
def test_a_verb_whose_extra_is_missing_says_so_in_one_line(
    tmp_path: Path, words: list[str], module: str, extra: str
) -> None:
    pdla.save(pdla.workloads.ior(2, 65536, 4096), tmp_path / "run.h5")
    code = f"import sys; sys.modules[{module!r}] = None\nfrom pdla.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    wanted = f"pdla: pdla {words[0]} needs {module}, which is not installed: pip install 'pdla[{extra}]'\n"
    assert done.stderr == wanted
    assert not (tmp_path / "started").exists()


def test_a_public_function_whose_extra_is_missing_says_so() -> None:
    code = "import sys; sys.modules['pandas'] = None\nimport pdla; pdla.analyze"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pdla.analyze needs pandas, which is not installed: pip install 'pdla[plan]'" in done.stderr


def test_the_recipes_of_other_installers_have_the_package_s_requirements() -> None:
    """With their oldest versions, and the names that conda-forge and Spack give the packages. EasyBuild has one version
    of each, most in bundles that the recipe names."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    conda = (REPOSITORY / "packaging/conda/recipe.yaml").read_text()
    spack = (REPOSITORY / "packaging/spack/packages/py_pdla/package.py").read_text()
    (easybuild,) = (REPOSITORY / "packaging/easybuild").glob(f"pdla-{pdla.__version__}-*.eb")
    core, extras = project["dependencies"], project["optional-dependencies"]
    for package in [*core, *extras["plan"], *extras["report"]]:
        if match := re.match(r"([\w-]+)>=([\d.]+)", package):
            name, least = match.groups()
            names = {"matplotlib": "matplotlib-base", "prometheus-client": "prometheus_client"}
            assert f"- {names.get(name, name)} >={least}" in conda
            # Spack's newest google-crc32c is older.
            least = "1.3" if name == "google-crc32c" else least.removesuffix(".0")
            assert f'"py-{name}@{least}:"' in spack
            assert re.search(rf"\b{name}\b", easybuild.read_text(), re.IGNORECASE)
    assert f'version: "{pdla.__version__}"' in conda
    assert f"version = '{pdla.__version__}'" in easybuild.read_text()


@pytest.mark.skipif(not Path("/usr/share/modules/init/sh").exists(), reason="environment-modules is not installed")
def test_the_module_file_puts_only_pdla_on_the_path(tmp_path: Path) -> None:
    (tmp_path / "only-pdla").mkdir()
    (tmp_path / "only-pdla/pdla").symlink_to(BIN / "pdla")
    file = tmp_path / "modulefiles/pdla" / pdla.__version__
    file.parent.mkdir(parents=True)
    text = (REPOSITORY / "packaging" / file.relative_to(tmp_path)).read_text()
    file.write_text(text.replace(f"/opt/pdla/{pdla.__version__}", str(tmp_path)))
    script = f"""
        . /usr/share/modules/init/sh
        export MODULEPATH={tmp_path / "modulefiles"}
        command -v python3 > before; module load pdla/{pdla.__version__}
        command -v pdla; pdla --version; command -v python3 | cmp - before
        module unload pdla; command -v pdla || echo gone
    """
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == [f"{tmp_path}/only-pdla/pdla", f"pdla {pdla.__version__}", "gone"], done.stderr
