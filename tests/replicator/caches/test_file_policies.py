"""Files of one program that have different policies."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from pdla.errors import ConfigError
from pdla.file_policies import FilePolicies
from tests.support.cached_writes import IMMEDIATE, ON_CLOSE, Case
from tests.support.clusters import NODES
from tests.support.command_line import PRINT, Launching
from tests.support.critical_requests import ALL, costs, left_on_servers
from tests.support.mpi import launching_pdla

TWO = "e10 1.data\ns4d"
SSDS = """
[pools.ssds]
kind = "ssd"
startup = [[0, 0.0]]
read_seconds_per_byte = 1e-10
write_seconds_per_byte = 1e-10
capacity = "1G"
where = ["ssd"]
"""


@pytest.fixture
def case(any_case: Case) -> Case:
    """Under each MPI."""
    return any_case


@pytest.fixture
def launching(pdla: Launching, case: Case) -> Launching:
    """What starts the program of ``case`` under each MPI."""
    mpi = launching_pdla(case.mpi)
    pdla.environment |= mpi.env
    case.mpi = mpi
    return pdla


def files(case: Case) -> dict[str, bytes]:
    """The bytes of the program's files, by name."""
    return {path.name: path.read_bytes() for path in case.directory.glob("*data")}


def both(case: Case, policies: str) -> dict[str, str]:
    """The variables of a run with the settings of E10 and of S4D-Cache."""
    return {**case.variables(ON_CLOSE), **costs(case, ALL, PDLA_POLICY=policies)}


# ---- which policy a file has -----------------------------------------------------------------------------------------


def test_words_and_text_say_the_same() -> None:
    policies = FilePolicies.of_words(["s4d", "check *=e10", "/a=b/*=none"])
    assert policies.rules == (("check *", "e10"), ("/a=b/*", "none"))
    assert str(policies) == "e10 check *\nnone /a=b/*\ns4d"
    assert FilePolicies.from_text(str(policies)) == policies == FilePolicies.of_words(policies.words)
    assert policies.names == ["e10", "s4d"]
    assert [policies.of(path) for path in ("/x/check 1", "/a=b/check 1", "/a=b/1", "/a=b/c/1")] == [
        *("e10", "e10", "none", "s4d")
    ]
    assert FilePolicies.from_text("e10") == FilePolicies(default="e10")
    assert FilePolicies.from_text("") == FilePolicies.from_text("none") == FilePolicies()
    assert (FilePolicies().names, FilePolicies().words) == ([], ["none"])


@pytest.mark.parametrize("words", [["=e10"], ["a\nb=e10"], ["e10", "s4d"]])
def test_a_wrong_pattern_is_an_error(words: list[str]) -> None:
    with pytest.raises(ConfigError):
        FilePolicies.of_words(words)


@pytest.mark.parametrize("seed", range(4))
def test_the_library_means_the_same_files(case: Case, seed: int) -> None:
    """Also with names of policies that there are not, and with patterns longer than any path."""
    choose = random.Random(seed)
    parts = ["*", "?", "[1-3]", "[!2]", "\\4", "5", ".data", "data", "/", "/*", f"{case.directory}/", " ", "["]
    lines = []
    for _ in range(6):
        pattern = "".join(choose.choices(parts, k=choose.randint(1, 3))) + choose.choice(["", ".data"])
        lines.append(f"{choose.choice(['e10', 's4d', 'none', 'lru'])} {pattern}")
    lines.insert(choose.randrange(6), f"e10 {'*' * 5000}")
    text = "\n".join([*lines, *choose.choice([[], ["e10"], ["none"]])])
    steps = [step for number in range(6) for step in (f"file:{number}", "write:0")]
    ran = case.run(both(case, text), *steps)
    policies = FilePolicies(tuple(rule for rule in FilePolicies.from_text(text).rules if len(rule[0]) < 4096))
    policies = FilePolicies(policies.rules, FilePolicies.from_text(text).default)
    known = {"e10", "s4d"}
    expected = {str(case.directory / name): policies.of(str(case.directory / name)) for name in files(case)}
    expected = {path: name for path, name in expected.items() if name in known}
    assert {cache["path"]: cache["policy"] for cache in ran.caches} == expected


# ---- programs with several policies ----------------------------------------------------------------------------------


@pytest.mark.parametrize("flush", [IMMEDIATE, ON_CLOSE])
def test_two_files_are_served_by_two_policies(case: Case, flush: str) -> None:
    steps = ["write:0", "one:0", "file:1", "write:0", "again:0", "apart:1", "sync", "file:2", "write:1"]
    steps += ["file:0", "again:0", "write:1", "read:0", "file:1", "read:0", "all:0", "write:1"]
    case.natively(*steps)
    native = files(case)
    for name in native:
        (case.directory / name).unlink()
    ran = case.same(flush, *steps, **costs(case, ALL, PDLA_POLICY=f"none 2.data\n{TWO}"))
    assert files(case) == native
    assert left_on_servers(case) == [[], []]
    found = {Path(cache["path"]).name: cache for cache in ran.caches}
    assert {name: cache["policy"] for name, cache in found.items()} == {"1.data": "e10", "data": "s4d"}
    assert all(cache["written"]["bytes"] > 0 for cache in found.values())


def test_a_file_is_written_with_one_policy_while_one_with_another_is_open(case: Case) -> None:
    steps = ["write:0", "both:1", "again:0", "both:1", "write:1", "all:0"]
    case.natively(*steps)
    native = files(case)
    case.same(IMMEDIATE, *steps, **costs(case, ALL, PDLA_POLICY=TWO))
    assert files(case) == native


@pytest.mark.parametrize("follower", ["s4d data\ne10", "e10 data\ns4d", "none data\ns4d", "s4d 1.data", ""])
@pytest.mark.parametrize("policies", ["e10 data\ns4d", "s4d data\ne10"])
@pytest.mark.thorough(5)
def test_what_a_killed_program_wrote_is_home_whatever_the_policy_of_the_next_run(
    case: Case, policies: str, follower: str
) -> None:
    steps = ["write:0", "again:0", "write:1", "other:1"]
    native = case.natively(*steps).bytes
    case.original.unlink()
    case.run(both(case, policies), *steps, "kill", fails=True)
    assert len(case.journals) == 3
    variables = both(case, follower)
    if not follower:
        del variables["PDLA_POLICY"]
    assert case.run(variables, "size").bytes == native
    assert case.journals == [] and list(case.cache.iterdir()) == [] and left_on_servers(case) == [[], []]


# ---- pdla run --policy -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--policy", "check*=e11"), "unknown policy 'e11': pdla run has e10, s4d, ibridge, liu, none"),
        (("--policy", "check*=auto"), "unknown policy 'auto'"),
        (("--policy", "=e10"), "'=e10' is not PATTERN=NAME"),
        (("--policy", "a\nb=e10"), "is not PATTERN=NAME"),
        (("--policy", "e10", "--policy", "s4d"), "e10 and s4d are both for all files: name files by PATTERN=NAME"),
        (
            ("--policy", "auto", "--policy", "check*=e10"),
            "--policy auto needs --learn, and takes neither --coherence nor --hint nor another policy",
        ),
        (("--policy", "check*=s4d"), "--policy s4d needs --cluster"),
        (
            ("--policy", "check*=s4d", "--policy", "e10", "--hint", "cache_bytes=1M"),
            "--hint cache_bytes would be for e10 and for s4d",
        ),
        (("--policy", "check*=none", "--hint", "cache_bytes=1M"), "need --policy"),
    ],
)
def test_wrong_policies_of_files_are_refused_in_one_line(pdla: Launching, words: tuple[str, ...], why: str) -> None:
    done = pdla.run("run", *words, "--", "touch", "started", code=2)
    assert why in done.stderr.splitlines()[-1]
    assert not (pdla.directory / "started").exists()


def test_a_run_with_two_policies_gets_the_settings_of_both(pdla: Launching) -> None:
    cluster = pdla.directory / "cluster.toml"
    cluster.write_text(NODES + 'where = ["/local/ssd"]\ncapacity = "32G"\n' + SSDS)
    words = ("--policy", "s4d", "--policy", "check.*=e10", "--cluster", cluster)
    said = pdla.run("run", *words, "--hint", "e10_cache_flush_flag=flush_onclose", "--", *PRINT).stdout
    assert "\nPDLA_POLICY=e10 check.*\n" in said  # the next line of its value has no name, and is not printed
    found = dict(line.split("=", 1) for line in said.splitlines())
    assert (found["PDLA_E10_CACHE_PATH"], found["PDLA_CACHE_BYTES"]) == ("/local/ssd", str(32 << 30))
    assert (found["PDLA_SSD_PATH"], found["PDLA_SSD_BYTES"]) == (str(pdla.directory / "ssd"), str(256 << 20))
    assert found["PDLA_E10_CACHE_FLUSH_FLAG"] == "flush_onclose"
    assert {"PDLA_SSD_COSTS", "PDLA_EXCHANGE_COSTS", "PDLA_CRITICAL_LOG", "PDLA_E10_CACHE"} <= found.keys()
    alone = dict(
        line.split("=", 1)
        for name in ("e10", "s4d")
        for line in pdla.run("run", "--policy", name, "--cluster", cluster, "--", *PRINT).stdout.splitlines()
    )
    assert {*alone, "PDLA_E10_CACHE_FLUSH_FLAG"} == found.keys()


def test_each_file_has_its_policy_in_a_run(launching: Launching, case: Case) -> None:
    (launching.directory / "node").mkdir()
    cluster = launching.directory / "cluster.toml"
    cluster.write_text(
        NODES.replace("[[0, 0.0]]", "[[0, 0.01]]", 1) + f'where = ["{launching.directory / "node"}"]\n' + SSDS
    )
    job = case.command({}, "write:0", "file:1", "write:0", "file:2", "write:0", ranks=3)
    words = ("--policy", "1.data=e10", "--policy", "2.data=none", "--policy", "s4d", "--cluster", cluster)
    done = launching.run("run", *words, "--json", "--", *job)
    report = json.loads(done.stdout.splitlines()[-1])
    found = {Path(one["path"]).name: (one["policy"], one["written_bytes"] > 0) for one in report["caches"]}
    assert found == {"data": ("s4d", True), "1.data": ("e10", True)}
    assert report["cache"]["policy"] == "e10, s4d"
    assert "cached by e10, s4d" in launching.run("run", "--learn", "--wait", *words, "--", *job).stderr
    (run,) = json.loads(launching.run("history", "1", "--json").stdout.splitlines()[-1])["runs"]
    assert run["policy"] == "e10 1.data\nnone 2.data\ns4d"
    assert "  e10, s4d  " in launching.run("history", "1").stdout
    assert len(set(files(case).values())) == 1


def test_only_what_s4d_serves_is_copied_before_the_program(launching: Launching, case: Case) -> None:
    """Of two traced files one has another policy."""
    cluster = launching.directory / "cluster.toml"
    cluster.write_text(NODES.replace("[[0, 0.0]]", "[[0, 0.01]]", 1) + 'where = ["node"]\n' + SSDS)
    case.natively("write:0", "file:1", "write:0")
    job = case.command({"READ_ONLY": "1"}, "each:0", "file:1", "each:0", ranks=3)
    launching.run("trace", "-o", launching.directory / "run.h5", "--", *job)
    launching.run("analyze", launching.directory / "run.h5")
    words = ("--policy", "1.data=ibridge", "--policy", "s4d", "--cluster", cluster)
    done = launching.run("run", *words, "--json", "--", "true")
    assert json.loads(done.stdout.splitlines()[-1])["critical"] == []
    replicas = json.loads(launching.run("status", "--json").stdout.splitlines()[-1])["replicas"]
    assert [Path(one["original"]).name for one in replicas] == ["data"]
