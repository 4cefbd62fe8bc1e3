"""pdla calibrate: fits find the parameters that timings were made of; the verb measures, writes, and leaves nothing."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdla.errors import PdlaError
from pdla.layouts.config import load_cluster
from pdla.layouts.fit import Timing, fit
from pdla.layouts.storage_probe import BLOCK, Probe, Trial, offsets, stall_to_stall
from pdla.units import KiB, MiB
from tests.support.command_line import PDLA, Pdla, fails_with_one_line
from tests.support.handmade_traces import CSV
from tests.support.mpi import SHM, unavailable
from tests.support.ready_pdla import REAL
from tests.support.waiting import PATIENCE

QUICK = ("--seconds", "1", "--size", "16M")


def timings(seconds, spread, *, each=9):
    """Timings of the requests that calibrate measures, with noise and one in nine ten times as slow."""
    rng = np.random.default_rng(7)
    kinds = [(4096, distance) for distance in (4 * KiB, 64 * KiB, MiB, 16 * MiB)]
    kinds += [(size, MiB) for size in (64 * KiB, 256 * KiB, 2 * MiB, 4 * MiB)] + [(64 * KiB, 0)]
    return [
        Timing(size, distance, seconds(size, distance) * rng.normal(1, spread) * (10 if n == 4 else 1))
        for size, distance in kinds
        for n in range(each)
    ]


def test_a_disk_is_recovered_from_noisy_timings():
    startup = {0: 0.0, 4 * KiB: 0.001, 64 * KiB: 0.002, MiB: 0.005, 16 * MiB: 0.009}
    found = fit(timings(lambda size, distance: startup[distance] + size * 8e-9, 0.03))
    assert [distance for distance, _ in found.startup] == [0, 4096, 65536, 1048576, 16777216]
    assert [estimate.value for _, estimate in found.startup[1:]] == pytest.approx(
        [0.001, 0.002, 0.005, 0.009], rel=0.05
    )
    assert found.startup[0][1].value < 0.0001
    assert found.seconds_per_byte.value == pytest.approx(8e-9, rel=0.05)
    assert found.seconds_per_byte.low <= 8e-9 <= found.seconds_per_byte.high
    assert found.deviation < 0.05
    assert not found.overlap


def test_a_limit_on_requests_with_one_on_bytes_is_recovered_and_reported_to_overlap():
    found = fit(timings(lambda size, distance: max(1 / 2000, size / 150e6) if distance else size / 150e6, 0.01))
    assert [1 / estimate.value for _, estimate in found.startup[1:]] == pytest.approx([2000] * 4, rel=0.1)
    assert 1 / found.seconds_per_byte.value == pytest.approx(150e6, rel=0.05)
    assert found.overlap
    assert found.startup[0][1].value < 0.00005
    assert found.worst.ratio == pytest.approx(1, abs=0.05)


def test_a_size_that_the_model_misses_is_named():
    found = fit([Timing(s, MiB, 0.004 + s * 1e-8 + 0.003 * (s == 64 * KiB)) for s in (4096, 65536, MiB, 2 * MiB)])
    assert (found.worst.size, found.worst.distance) == (65536, 1048576)
    assert found.worst.ratio == pytest.approx(0.00465536 / 0.00765536)
    assert found.deviation == pytest.approx(0, abs=1e-9)


def test_noise_larger_than_the_transfer_still_gives_a_positive_rate():
    found = fit([Timing(4096, 0, 0.1), Timing(MiB, 0, 0.3), Timing(2 * MiB, 0, 0.2)])
    assert found.seconds_per_byte.value == pytest.approx(0.2 / 2097152)
    assert found.seconds_per_byte.low > 0


@pytest.mark.parametrize("shift", range(13))
def test_requests_let_through_in_slices_are_timed_by_whole_slices(shift):
    """12 every 100 ms, as with 120 requests/s, after some saved-up credit."""
    released = [0.0] * shift + [0.1 * (1 + n // 12) for n in range(70)]
    assert stall_to_stall([0.0, *released]) == pytest.approx(1 / 120)


def test_requests_that_are_alike_are_timed_by_their_mean():
    assert stall_to_stall([0.5 * n for n in range(20)]) == pytest.approx(0.5)


@given(st.integers(0, 3), st.integers(0, 5), st.integers(512, 2048), st.integers(0, 99))
def test_every_request_begins_at_its_distance_inside_the_file(size, distance, room, seed):
    trial, room = Trial("read", BLOCK << size, BLOCK * ((1 << distance) - 1)), BLOCK * room
    first = list(itertools.islice(offsets(trial, room, random.Random(seed)), 100))
    assert all(0 <= offset <= room - trial.size and offset % 4096 == 0 for offset in first)
    steps = {after - before for before, after in itertools.pairwise(first) if after > before}
    assert steps <= {trial.size + trial.distance}


def test_the_file_is_one_that_plans_are_made_for(pdla: Pdla) -> None:
    (pdla.directory / "disk").mkdir()
    (pdla.directory / "ssd").mkdir()
    printed = pdla.json("calibrate", "--pool", "slow:hdd=disk", "--pool", "ssd=ssd", *QUICK, "--json")
    cluster = load_cluster(pdla.directory / "cluster.toml")
    assert [(pool.name, pool.kind, pool.servers) for pool in cluster.pools] == [("slow", "hdd", 1), ("ssd", "ssd", 1)]
    assert [pool.where for pool in cluster.pools] == [(str(pdla.directory / name),) for name in ("disk", "ssd")]
    assert (cluster.home_pool, cluster.home_servers) == ("slow", 1)
    for pool, one in zip(cluster.pools, printed["pools"], strict=True):
        distances = [point["distance"] for point in one["read"]["startup"]]
        assert distances == [distance for distance, _ in pool.startup] == [0, 4096, 65536, 1048576]
        assert pool.read_seconds_per_byte == pytest.approx(one["read"]["seconds_per_byte"]["value"], rel=1e-3)
        assert pool.write_seconds_per_byte > 0
        assert pool.grain == pdla.directory.stat().st_blksize
        assert one["scratch_bytes"] == 16777216
    node = printed["node"]
    assert (cluster.cores, cluster.client_read_ahead) == (node["cores"], node["client_read_ahead"])
    assert cluster.call_seconds == pytest.approx(node["call_seconds"]["value"], rel=1e-3)
    assert cluster.copy_seconds_per_byte == pytest.approx(node["copy_seconds_per_byte"]["value"], rel=1e-3)
    assert (node["exchange_seconds_per_byte"], cluster.exchange_seconds_per_byte) == (None, 0.0)
    assert list((pdla.directory / "disk").iterdir()) == []
    text = (pdla.directory / "cluster.toml").read_text()
    assert "# Assumed, not measured: the original files are on a device like the one of pool slow." in text
    (pdla.directory / "a.csv").write_text(CSV)
    (pdla.directory / "data.bin").write_bytes(bytes(1 << 20))
    pdla.run("import", "csv", "a.csv")
    plan = pdla.json("plan", "run.h5", "--cluster", "cluster.toml", "--json")
    assert {candidate["space"] for candidate in plan["patterns"][0]["candidates"]} >= {"original", "slow", "ssd"}


def test_how_it_was_measured_is_in_the_file(pdla: Pdla) -> None:
    pdla.run("calibrate", "--pool", "x=.", *QUICK)
    text = " ".join((pdla.directory / "cluster.toml").read_text().replace("\n# ", " ").split())
    assert f"# Measured by pdla calibrate, {time.strftime('%Y-')}" in text
    for claim in (
        f"on {os.uname().nodename}",
        "(95 % confidence)",
        "the measured ones for the worst",
        "Not measured, because",
    ):
        assert claim in text


def test_a_file_system_in_memory_is_reported_as_one(pdla: Pdla) -> None:
    if not os.access(SHM, os.W_OK):
        unavailable("no /dev/shm")
    with tempfile.TemporaryDirectory(dir=SHM) as folder:
        printed = pdla.json("calibrate", "--pool", f"memory:node={folder}", *QUICK, "--json")
        assert list(Path(folder).iterdir()) == []
    assert printed["pools"][0]["cached"] == "tmpfs is memory"
    text = (pdla.directory / "cluster.toml").read_text()
    assert "# The page cache may be measured, not the storage: tmpfs is memory." in text


def test_a_file_is_replaced_only_by_force(pdla: Pdla) -> None:
    output = pdla.directory / "cluster.toml"
    output.write_text("mine")
    fails_with_one_line(pdla, "calibrate", ".", *QUICK, says="cluster.toml already exists; give --force")
    assert output.read_text() == "mine"
    pdla.run("calibrate", ".", *QUICK, "--force")
    assert load_cluster(output).pools[0].servers == 1
    assert sorted(path.name for path in pdla.directory.iterdir()) == ["cluster.toml"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["missing"], "cannot measure missing: no such directory"),
        ([".", "../{name}"], "../{name} is named twice"),
        ([".", "--size", "1M"], "measuring needs at least 16 MiB in each directory (got --size 1048576)"),
        ([".", "--size", "4000T"], "measuring . needs 4,000 TiB, but only "),
    ],
)
def test_what_cannot_be_measured_is_reported_in_one_line(pdla: Pdla, words: list[str], says: str) -> None:
    name = pdla.directory.name
    fails_with_one_line(pdla, "calibrate", *(word.format(name=name) for word in words), says=says.format(name=name))
    assert list(pdla.directory.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        [],
        [".", "--pool", "a=."],
        ["--pool", "a"],
        ["--pool", "a=x,,y"],
        ["--pool", "a:tape=."],
        ["--pool", "original=."],
        ["--pool", "a+b=."],
        ["--pool", "a=.", "--pool", "a=x"],
        [".", "--seconds", "0"],
        [".", "--size", "big"],
    ],
)
def test_a_wrong_command_line(pdla: Pdla, words: list[str]) -> None:
    pdla.run("calibrate", *words, code=2)
    assert list(pdla.directory.iterdir()) == []


def test_where_no_file_can_be_made() -> None:
    with pytest.raises(
        PdlaError, match=r"^cannot measure the storage of /proc: .*; give a directory on it that has free"
    ):
        Probe(Path("/proc"))


def test_a_full_disk_is_reported_in_one_line(pdla: Pdla) -> None:
    """A limit on the size of files, as a disk with room for 8 MiB."""
    command = f"ulimit -f 8192; exec {PDLA} calibrate . --size 16M --seconds 1"
    done = subprocess.run(
        ["bash", "-c", command], cwd=pdla.directory, env=pdla.environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("pdla: cannot measure the storage of .: File too large; ")
    assert list(pdla.directory.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_it_nothing_is_left(pdla: Pdla, number: signal.Signals) -> None:
    # A suite that runs in the background of a shell hands on that SIGINT is ignored.
    command = ["env", "--default-signal=INT", REAL, "calibrate", ".", "--seconds", "60", "--size", "64M"]
    with subprocess.Popen(command, cwd=pdla.directory, env=pdla.environment, stderr=subprocess.DEVNULL) as process:
        while not any(str(pdla.directory) in link for link in links(process.pid)):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        code = process.wait(timeout=PATIENCE)
    assert code == (-number if number == signal.SIGKILL else 128 + number)
    assert list(pdla.directory.iterdir()) == []


def links(process: int) -> list[str]:
    """What a process has open."""
    found = []
    for descriptor in Path(f"/proc/{process}/fd").iterdir():
        try:
            found.append(str(descriptor.readlink()))
        except FileNotFoundError:
            continue
    return found


def test_under_mpiexec_on_several_nodes_the_network_is_measured(pdla: Pdla) -> None:
    """MPICH can treat this machine as two nodes."""
    mpiexec = Path(sys.executable).parent / "mpiexec"
    if not mpiexec.exists():
        unavailable("no MPICH")
    command = [mpiexec, "-n", "4", PDLA, "calibrate", ".", *QUICK, "--json"]
    environment = {**pdla.environment, "MPIR_CVAR_NUM_CLIQUES": "2"}
    done = subprocess.run(
        command, cwd=pdla.directory, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    measured, node = json.loads(line)["network"], json.loads(line)["node"]
    assert measured["nodes"] == 2
    cluster = load_cluster(pdla.directory / "cluster.toml")
    assert cluster.exchange_seconds_per_byte == pytest.approx(node["exchange_seconds_per_byte"]["value"], rel=1e-3)
    assert cluster.network_seconds_per_byte == pytest.approx(measured["seconds_per_byte"]["value"], rel=1e-3)
    assert cluster.connect_seconds == pytest.approx(measured["connect_seconds"]["value"], rel=1e-3)
    assert "Ping-pong between 2 of 2 nodes" in (pdla.directory / "cluster.toml").read_text()
