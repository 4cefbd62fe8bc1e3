"""All parts find one directory for pdla's own files, or say that they cannot; where it is of no use, programs run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.command_line import Launching, Pdla
from tests.support.compilers import GCC, compiled
from tests.support.leased_files import Leased
from tests.support.mpi import REPOSITORY, unavailable

VARIABLES = ("PDLA_HOME", "XDG_DATA_HOME", "HOME", "PDLA_MAP")
ASK = """
import ctypes, json, sys
from pdla.config import home
from pdla.errors import PdlaError

library, (place, *_) = ctypes.CDLL(sys.argv[1]), sys.argv[2:]
ask, why = getattr(library, place), ctypes.c_char_p()
ask.restype = ctypes.c_char_p
in_c = ask(ctypes.byref(why))
try:
    in_python = str(home())
except PdlaError as error:
    in_python = f"{type(error).__name__}: {error}"
print(json.dumps([(in_c or b"refused: " + why.value).decode(), in_python]))
"""


@pytest.fixture(scope="session")
def in_c(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("home") / "home.so"
    rooms = [REPOSITORY / "pdla/interpose", REPOSITORY / "replicator/stub"]
    sources = [rooms[0] / "home.c", rooms[1] / "published_map.c"]
    flags = ["-std=gnu11", "-shared", "-fPIC", "-Wall", "-Wextra", *(f"-I{room}" for room in rooms)]
    flags += ["-Wl,--defsym,map_current=0"]  # no map is loaded
    compiled([*GCC, *flags, *sources, "-o", made, "-lpthread"])
    return made


def found(in_c: Path, variables: Mapping[str, str], place: str = "home_directory") -> tuple[str, str]:
    """What C and Python find."""
    environment = {name: text for name, text in os.environ.items() if name not in VARIABLES}
    command = [sys.executable, "-c", ASK, str(in_c), place]
    done = subprocess.run(command, env=environment | variables, capture_output=True, text=True, check=True)
    of_c, of_python = json.loads(done.stdout)
    return of_c, of_python


SHARE = ".local/share/pdla"
ABSOLUTE = [
    ({"PDLA_HOME": "/a/b"}, "/a/b"),
    ({"PDLA_HOME": "//a/./b//c/"}, "/a/b/c"),
    ({"PDLA_HOME": "/a/../b"}, "/a/../b"),
    ({"PDLA_HOME": "/"}, "/"),
    ({"PDLA_HOME": "~", "HOME": "/h"}, "/h"),
    ({"PDLA_HOME": "~/x/", "HOME": "/h/"}, "/h/x"),
    ({"PDLA_HOME": "~root/x", "HOME": "/h"}, "/root/x"),
    ({"PDLA_HOME": "/a/~/b", "HOME": "/h"}, "/a/~/b"),
    ({"PDLA_HOME": "", "XDG_DATA_HOME": "/d/"}, "/d/pdla"),
    ({"XDG_DATA_HOME": "~/d", "HOME": "/h"}, "/h/d/pdla"),
    ({"PDLA_HOME": "", "XDG_DATA_HOME": "", "HOME": "/h"}, f"/h/{SHARE}"),
    ({"PDLA_HOME": "/a", "XDG_DATA_HOME": "d", "HOME": "h"}, "/a"),
]
REFUSED = [
    ({"PDLA_HOME": "a/b"}, "PDLA_HOME=a/b is not an absolute path (give one that begins with / or ~)"),
    ({"PDLA_HOME": "./a", "XDG_DATA_HOME": "/d"}, "PDLA_HOME=./a is not an absolute path"),
    ({"PDLA_HOME": "~/a", "HOME": "h"}, "PDLA_HOME=~/a is not an absolute path"),
    ({"PDLA_HOME": "~nobody-has-this-name/a"}, "PDLA_HOME=~nobody-has-this-name/a names the home of an unknown"),
    ({"XDG_DATA_HOME": "d", "HOME": "/h"}, "XDG_DATA_HOME=d is not an absolute path"),
    ({"HOME": "h"}, "HOME=h is not an absolute path"),
    ({"HOME": "~"}, "HOME=~ is not an absolute path"),
]


@pytest.mark.parametrize(("variables", "wanted"), ABSOLUTE, ids=[" ".join(one.values()) for one, _ in ABSOLUTE])
def test_h65_c_and_python_find_the_same_home(in_c: Path, variables: dict[str, str], wanted: str) -> None:
    assert found(in_c, variables) == (wanted, wanted)


@pytest.mark.parametrize("variables", [{}, {"HOME": ""}, {"PDLA_HOME": "~/x"}, {"PDLA_HOME": "~/x", "HOME": ""}])
def test_h65_without_home_the_user_database_counts(in_c: Path, variables: dict[str, str]) -> None:
    of_c, of_python = found(in_c, variables)
    assert of_c == of_python and of_c.startswith("/") and of_c.endswith("/x" if "PDLA_HOME" in variables else SHARE)


@pytest.mark.parametrize(("variables", "why"), REFUSED, ids=[text.partition(" ")[0] for _, text in REFUSED])
def test_h65_c_and_python_refuse_the_same_homes(in_c: Path, variables: dict[str, str], why: str) -> None:
    of_c, of_python = found(in_c, variables)
    assert of_c.startswith(f"refused: {why}")
    assert of_python == of_c.replace("refused", "ConfigError")


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({"PDLA_HOME": "~/x", "HOME": "/h"}, "/h/x/replicas.map"),
        ({"HOME": "/h"}, f"/h/{SHARE}/replicas.map"),
        ({"PDLA_HOME": "relative", "PDLA_MAP": "~//x.map", "HOME": "/h"}, "/h/x.map"),
        ({"PDLA_MAP": "x.map", "HOME": "/h"}, "refused: PDLA_MAP=x.map is not an absolute path"),
        ({"PDLA_MAP": "", "PDLA_HOME": "x", "HOME": "/h"}, "refused: PDLA_HOME=x is not an absolute path"),
    ],
)
def test_h65_the_map_is_found_in_the_same_way(in_c: Path, variables: dict[str, str], wanted: str) -> None:
    assert found(in_c, variables, "published_map_path")[0].partition(" (")[0] == wanted


SPOILED: dict[str, Callable[[Path], object]] = {
    "another's": lambda home: os.chown(home, 20002, -1),
    "the group's": lambda home: home.chmod(0o770),
    "everybody's": lambda home: home.chmod(0o1777),
}


@pytest.mark.parametrize("how", SPOILED)
def test_h64_a_home_that_others_can_change_is_not_used(in_c: Path, pdla: Launching, how: str) -> None:
    if os.geteuid() != 0:
        unavailable("giving a directory away needs root")
    pdla.home.mkdir()
    SPOILED[how](pdla.home)
    why = f"{pdla.home} belongs to another user, or others can write to it (chmod go-w)"
    assert found(in_c, {"PDLA_HOME": str(pdla.home)}) == (f"refused: {why}", f"HomeError: {why}")
    assert found(in_c, {"PDLA_MAP": str(pdla.home / "replicas.map")}, "published_map_path")[0] == f"refused: {why}"
    assert pdla.run("status", code=1).stderr == f"pdla: {why}\n"
    for learn in ([], ["--learn"]):
        done = pdla.run("run", *learn, "--", "sh", "-c", "echo done; exit 7", code=7)
        assert (done.stdout, done.stderr) == ("done\n", f"pdla: the program runs without pdla: {why}\n")


# ---- programs --------------------------------------------------------------------------------------------------------


def test_h65_a_traced_program_finds_what_waits_in_a_home_that_no_shell_has_expanded(file: Leased) -> None:
    file.write("native")
    native = file.open("native", "r", "read")
    file.write()
    home = ["PDLA_HOME=~/home", f"HOME={file.place.directory}"]
    assert file.open("trace", "r", "read", extra=["env", *home]) == native


def test_h65_a_preloaded_program_says_once_that_it_finds_nothing(file: Leased) -> None:
    """It redirects nothing, and runs."""
    file.write("native")
    native = file.open("native", "r", "read")
    out = file.place.directory / "rank"
    words = [*file.environment("preloaded"), "env", "PDLA_HOME=home", str(file.opener), str(file.original), str(out)]
    command = file.place.mpi.command(2, *words, "r", "read")
    environment = {**os.environ, **file.place.mpi.env}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    line = (
        "nothing is redirected, and bytes that wait for their write-back are not found, because PDLA_HOME=home is not"
    )
    assert done.stderr.count("pdla: ") == 1 and line in done.stderr
    assert "".join(out.with_name(f"rank.{rank}").read_text() for rank in range(2)) == native


@pytest.mark.parametrize("verb", [["run"], ["run", "--learn"], ["trace", "-o", "x.h5"], ["status"]])
def test_h65_verbs_refuse_a_relative_home(pdla: Launching, verb: list[str]) -> None:
    pdla.environment["PDLA_HOME"] = "home"
    program = [] if verb == ["status"] else ["--", "touch", "started"]
    said = Pdla.run(pdla, *verb, *program, code=1).stderr
    assert said == "pdla: PDLA_HOME=home is not an absolute path (give one that begins with / or ~)\n"
    assert list(pdla.directory.iterdir()) == []


@pytest.mark.parametrize("verb", [["run"], ["trace", "-o", "x.h5"]])
def test_h65_the_program_is_told_the_whole_path(pdla: Launching, verb: list[str]) -> None:
    pdla.environment |= {"PDLA_HOME": "~/there/", "HOME": str(pdla.directory)}
    pdla.run(*verb, "--", "sh", "-c", 'cd / && echo "$PDLA_HOME" > "$HOME/told"; exit 3', code=3)
    assert (pdla.directory / "told").read_text() == f"{pdla.directory}/there\n"


# ---- a home that is full, or cannot be written -----------------------------------------------------------------------


@pytest.fixture(params=["full", "no more files", "read-only", "no directory"])
def useless(request: pytest.FixtureRequest, pdla: Launching) -> Iterator[Launching]:
    """PDLA_HOME is there, or can be made, but not written."""
    disk = pdla.directory / "disk"
    disk.mkdir()
    pdla.home = disk / "home"
    pdla.environment["PDLA_HOME"] = str(pdla.home)
    if request.param == "no directory":
        pdla.home.write_text("")
        yield pdla
        return
    options = "size=100k" if request.param == "full" else "size=1m,nr_inodes=3"
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", disk], check=False, capture_output=True)
    if mounted.returncode:
        unavailable("a small file system needs root")
    try:
        (pdla.home / "learning").mkdir(parents=True) if request.param != "no more files" else pdla.home.mkdir()
        if request.param == "read-only":
            subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        elif request.param == "full":
            with (disk / "fill").open("wb", buffering=0) as fill, pytest.raises(OSError, match="No space"):
                while True:
                    fill.write(bytes(4096))
        else:
            (disk / "last").touch()
        yield pdla
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("options", [[], ["--learn"], ["--json"]])
def test_a_program_runs_without_pdla_where_its_home_cannot_be_written(useless: Launching, options: list[str]) -> None:
    """One line says why; the exit code is the program's."""
    done = useless.run("run", *options, "--", "sh", "-c", 'echo "ran with $LD_PRELOAD"; exit 7', code=7)
    assert done.stdout == "ran with \n"
    assert done.stderr.startswith("pdla: the program runs without pdla: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("options", [[], ["--learn"]])
@pytest.mark.parametrize(
    "harm", ['rm -rf "$PDLA_HOME"', 'rm -rf "$PDLA_HOME"; touch "$PDLA_HOME"', 'chmod 777 "$PDLA_HOME"']
)
def test_what_becomes_of_the_home_does_not_change_the_exit_code(pdla: Launching, options: list[str], harm: str) -> None:
    assert pdla.run("run", *options, "--", "sh", "-c", f"{harm}; exit 7", code=7).stderr


def test_a_home_that_is_full_at_the_end_does_not_change_the_exit_code(pdla: Launching) -> None:
    disk = pdla.directory / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "none", disk], check=False).returncode:
        unavailable("a small file system needs root")
    pdla.environment["PDLA_HOME"] = str(disk / "home")
    try:
        done = pdla.run("run", "--", "sh", "-c", f"cat /dev/zero > {disk}/fill 2> /dev/null; exit 7", code=7)
    finally:
        subprocess.run(["umount", disk], check=True)
    assert "the report of this run was not kept" in done.stderr


def test_a_trace_needs_no_home(useless: Launching) -> None:
    """The user asked for a file elsewhere."""
    said = useless.run("trace", "-o", useless.directory / "x.h5", "--", "sh", "-c", "exit 7", code=7).stderr
    assert said == "pdla: nothing was recorded: sh ended with exit code 7\n"


def test_without_the_directories_of_ssd_servers_a_program_runs_without_its_policy(pdla: Launching) -> None:
    (pdla.directory / "file").touch()
    device = "read_seconds_per_byte = 1e-8\nwrite_seconds_per_byte = 1e-8\nstartup = [[0, 0.001]]\n"
    (pdla.directory / "cluster.toml").write_text(
        "[home]\npool = 'disks'\nservers = 1\nstrip = '64K'\n"
        "[clients]\nprocesses_per_node = 8\nconnect_seconds = 0.0\nnetwork_seconds_per_byte = 0.0\n"
        f"[pools.disks]\nkind = 'hdd'\nwhere = ['disk']\n{device}"
        f"[pools.ssds]\nkind = 'ssd'\ncapacity = '1G'\nwhere = ['file/ssd']\n{device}"
    )
    command = ["run", "--policy", "s4d", "--cluster", "cluster.toml", "--", "sh", "-c", "exit 7"]
    assert "pdla: without --policy: no directory of an SSD server" in pdla.run(*command, code=7).stderr
