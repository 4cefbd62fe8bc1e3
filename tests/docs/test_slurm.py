"""The job scripts of docs/howto/slurm.md, each run by Slurm on two nodes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import documentation_pages as pages
from tests.support.command_line import PDLA
from tests.support.mpi import available_mpis
from tests.support.recorded_programs import PROGRAMS
from tests.support.slurm_cluster import SlurmCluster

MPICH = available_mpis()[0]
SIDE = 512

# Its input names what it reads and writes, as that of most programs does.
APP = """#!/bin/sh
exec ./columns $(cat "$1")
"""


class Site:
    """A user's directory as the page describes it: pdla's environment, the program, a place for traces."""

    def __init__(self, slurm: SlurmCluster, folder: Path) -> None:
        self.slurm, self.folder = slurm, folder
        self.result = folder / "result.dat"
        (folder / "pdla-venv").symlink_to(Path(sys.executable).parents[1])
        (folder / "matrix.dat").write_bytes(np.random.default_rng(3).bytes(SIDE * SIDE))
        (folder / "input.nml").write_text(f"matrix.dat result.dat {SIDE}\n")
        (folder / "app").write_text(APP)
        (folder / "app").chmod(0o755)
        MPICH.values[0].compile(PROGRAMS / "columns.c", folder / "columns")

    def submit(self, name: str, text: str, *options: str) -> str:
        """What a script of the page prints, with the directory of this site in place of the page's."""
        script = self.folder / name
        script.write_text(text.replace("/shared/$USER", str(self.folder)))
        variables = {"SCRATCH": str(self.folder), "PATH": f"{Path(PDLA).parent}:{os.environ['PATH']}"}
        return self.slurm.run(script, f"--chdir={self.folder}", *options, variables=variables)

    def pdla(self, *words: str) -> dict[str, Any]:
        """What a verb prints with ``--json`` in the user's PDLA_HOME."""
        variables = {**os.environ, "PDLA_HOME": str(self.folder / "pdla")}
        done = subprocess.run([PDLA, *words, "--json"], env=variables, capture_output=True, text=True, check=True)
        answer = json.loads(done.stdout)
        assert isinstance(answer, dict)
        return answer


def sums(output: str) -> list[str]:
    return sorted(line for line in output.splitlines() if line.startswith("rank "))


def script(name: str) -> str:
    (text,) = (block.text for block in pages.blocks(pages.DOCS / "howto/slurm.md") if block.file == name)
    return text


@pytest.fixture(scope="module")
def site(slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(slurm, tmp_path_factory.mktemp("site"))


def test_the_scripts_trace_replicate_and_run_a_program_on_two_nodes(site: Site) -> None:
    native = sums(site.submit("native.sbatch", "#!/bin/bash\nsrun ./app input.nml\n"))
    assert len(native) == 4
    left = site.result.read_bytes()
    traced = site.submit("trace.sbatch", script("trace.sbatch"))
    assert sums(traced) == native
    assert "4 ranks, " in traced
    (trace,) = site.folder.glob("run-*.h5")
    trace.rename(site.folder / "run.h5")
    for device in ("hdd0", "hdd1", "hdd2", "hdd3", "ssd0", "ssd1"):
        (site.folder / device).mkdir()
    shutil.copy(pages.REPOSITORY / "layouts/default_cluster.toml", site.folder / "cluster.toml")
    # So small a matrix gains nothing from replicas.
    replicating = script("replicate.sbatch").replace("pdla plan", "pdla plan --policy ns-pdla --simulate 0")
    assert "built and verified" in site.submit("replicate.sbatch", replicating)
    site.result.unlink()
    redirected = site.submit("run.sbatch", script("run.sbatch"), "--dependency=")
    assert sums(redirected) == native
    assert site.result.read_bytes() == left
    assert "512 KiB from replicas" in redirected


def test_a_library_that_srun_itself_preloads_records_the_ranks_of_both_nodes(site: Site) -> None:
    (by_hand,) = (block.text for block in pages.blocks(pages.DOCS / "howto/slurm.md") if "PDLA_TRACE=" in block.text)
    text = by_hand.replace("./app", "./app input.nml").replace("run.h5", "by-hand.h5")
    printed = site.submit("by-hand.sbatch", f"#!/bin/bash\n{text}")
    assert len(sums(printed)) == 4
    assert "by-hand.h5: 4 ranks, " in printed


def test_a_task_prolog_lets_every_step_be_learned_from_and_the_epilog_learns(site: Site) -> None:
    """The job script has no word of pdla."""
    for name in ("task-prolog", "epilog"):
        text = script(f"pdla-{name}").replace("/opt/pdla", str(site.folder / "pdla-venv"))
        for user in ("/shared/$USER", "/shared/$SLURM_JOB_USER"):
            text = text.replace(user, str(site.folder))
        site.slurm.set_script(name, text)
    shutil.rmtree(site.folder / "pdla", ignore_errors=True)
    printed = site.submit("plain.sbatch", "#!/bin/bash\nsrun ./app input.nml\n")
    assert len(sums(printed)) == 4
    for _ in range(300):
        if (site.folder / "pdla" / "catalog.db").exists() and site.pdla("applications")["applications"]:
            break
        time.sleep(0.2)
    (application,) = site.pdla("applications")["applications"]
    assert (application["ranks"], application["runs"]) == ([4], 1)
    assert application["name"].startswith("columns FILE FILE")
