"""The documentation is complete: its links lead somewhere, its examples are right, and it names everything."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import h5py
import pytest
from jsonschema import Draft202012Validator

from pdla.catalog.tables import TABLES
from pdla.cli import cli
from pdla.cli.options import Output
from pdla.errors import ConfigError
from pdla.layouts.config import load_cluster
from tests.support import documentation_pages as pages
from tests.support.documentation_pages import DOCS, PAGES, REPOSITORY, name

SHELL = ("sh", "bash", "console", "")
CLI = (DOCS / "cli.md").read_text()
REQUIRED = {
    "home": '[home]\npool = "POOL"\nservers = 4\nstrip = "64K"',
    "clients": "[clients]\nprocesses_per_node = 16\nconnect_seconds = 1e-4\nnetwork_seconds_per_byte = 8e-10",
    "pool": 'kind = "hdd"\nstartup = [[0, 0]]\nread_seconds_per_byte = 1\nwrite_seconds_per_byte = 1\nwhere = ["x"]',
}


def verbs(group: click.Group = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """All verbs and those below them, such as "patterns show"."""
    context = click.Context(group)
    for word in group.list_commands(context):
        command = group.get_command(context, word)
        assert command is not None
        yield " ".join((*path, word)), command
        if isinstance(command, click.Group):
            yield from verbs(command, (*path, word))


VERBS = dict(verbs())


def section(verb: str) -> str:
    """The section of cli.md on a verb."""
    return CLI.split(f"\n## pdla {verb.split()[0]}\n")[1].split("\n## ")[0]


# ---- links ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for link in pages.links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name(page)}: {link}: there is no {target}"
        if anchor:
            assert anchor in pages.anchors(target), f"{name(page)}: {link}: no such heading"


def test_a_heading_has_the_anchor_that_github_gives_it() -> None:
    assert {"home-where-the-original-files-are", "poolsname-servers-of-one-kind-that-may-hold-replicas"} <= (
        pages.anchors(DOCS / "cluster.md")
    )


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r"^([\w/-]+)$", (DOCS / "index.md").read_text(), re.MULTILINE))
    there = {str(page.relative_to(DOCS).with_suffix("")) for page in DOCS.rglob("*.md")}
    assert there - listed - {"index"} == {f"adr/{page.stem}" for page in DOCS.glob("adr/0*.md")}
    assert listed <= there


# ---- words ----------------------------------------------------------------------------------------------------------

MOST_COLUMNS = 100
# Terms that are also words of everyday language, or of every page.
EVERYDAY = {
    "MPI-IO", "application", "cache", "dirty", "group", "hit", "layout", "library", "map", "phase", "plan", "rank",
    "request", "run", "section", "server", "source", "space", "strip", "target", "to redirect", "trace", "wish",
}  # fmt: skip


def test_every_how_to_guide_is_followed_by_a_test() -> None:
    """Slurm's job scripts are run by tests/docs/test_slurm.py; no output of OrangeFS was at hand."""
    listed = (DOCS / "index.md").read_text().partition(":caption: How-to guides\n:hidden:\n\n")[2].partition("\n```")[0]
    guides = {f"{name}.md" for name in listed.split()} - {"howto/slurm.md", "orangefs.md"}
    assert len(guides) > 15
    tests = [path.read_text() for path in REPOSITORY.glob("tests/**/test_*.py") if path != Path(__file__)]
    following = "".join(text for text in tests if "followed(" in text)
    for guide in guides:
        assert any(block.language == "console" for block in pages.blocks(DOCS / guide)), guide
        assert f'{Path(guide).name}"' in following, guide


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_lines_of_prose_are_short(page: Path) -> None:
    long = [
        f"{name(page)}:{number}: {len(line)} columns"
        for number, line in pages.prose(page)
        if len(line) > MOST_COLUMNS and not re.fullmatch(r"\s*(- )?(`[^`]*`|\S+)\S*", line)
    ]
    assert long == []


def test_lines_of_c_are_as_short_as_those_of_python() -> None:
    most = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["ruff"]["line-length"]
    command = ["git", "ls-files", "*.[ch]", "*.def"]
    sources = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.split()
    assert "replicator/stub/read.c" in sources
    assert [
        f"{source}:{number}: {len(line)} columns"
        for source in sources
        for number, line in enumerate((REPOSITORY / source).read_text().splitlines(), 1)
        if len(line) > most
    ] == []


def test_the_readme_is_short() -> None:
    assert len((REPOSITORY / "README.md").read_text().splitlines()) <= 120


def test_the_glossary_has_each_term_once() -> None:
    titles = re.findall(r"^### (.+)$", pages.GLOSSARY.read_text(), re.MULTILINE)
    terms = [term for title in titles for term in title.split(", ")]
    assert sorted(terms) == sorted(pages.glossary())
    assert set(terms) >= EVERYDAY


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.parent.name != "adr" and page.stem not in ("CHANGELOG", "glossary")],
    ids=name,
)
def test_a_term_of_the_glossary_is_linked_where_a_page_uses_it_first(page: Path) -> None:
    terms = {term: link for term, link in pages.glossary().items() if term not in EVERYDAY}
    assert pages.unlinked(page, terms) == []


def test_the_layout_of_the_code_names_each_room() -> None:
    rooms = re.findall(r"^\| `([\w/]+)` \| (?:C|Python)", (DOCS / "code.md").read_text(), re.MULTILINE)
    packages = {
        str(path.parent.relative_to(REPOSITORY / "pdla")) for path in (REPOSITORY / "pdla").glob("*/__init__.py")
    }
    assert {room.removeprefix("pdla/") for room in rooms} >= packages
    assert [room for room in rooms if not (REPOSITORY / room).is_dir()] == []


# ---- examples -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_shell_examples_name_verbs_and_options_that_exist(page: Path) -> None:
    lines = [line for block in pages.blocks(page) if block.language in SHELL for line in block.text.splitlines()]
    for line in [*(line.removeprefix("$ ") for line in lines if "# " not in line[:2]), *pages.codes(page)]:
        for written in re.findall(r"(?:^|(?<= )|(?<=\())pdla ((?:patterns )?[a-z]+(?: .*)?)$", line):
            words = written.split("#")[0].replace("[", " ").replace("]", " ").split()
            verb = " ".join(words[:2]) if " ".join(words[:2]) in VERBS else words[0]
            if verb not in VERBS and page.parent == DOCS / "adr":
                continue
            command = VERBS.get(verb)
            assert command is not None, f"{name(page)}: pdla {written}: there is no verb {words[0]}"
            known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
            own = words[: words.index("--")] if "--" in words else words
            for word in own[1:]:
                if word.startswith("-"):
                    option = word.split("=")[0].rstrip(".,;)")
                    assert option in {*known, "--help"}, f"{name(page)}: pdla {written}: there is no {option}"


def templates() -> list[tuple[Path, str]]:
    return [(page, block.text) for page in PAGES for block in pages.blocks(page) if block.language in ("sh", "bash")]


def test_shell_templates_are_bash() -> None:
    for page, text in templates():
        done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{name(page)}: {done.stderr}\n{text}"


def test_the_command_lines_of_the_slurm_jobs_are_taken_by_the_verbs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Output, "convert", lambda self, value, param, ctx: Path(value))  # /scratch is not here
    taken = []
    for block in pages.blocks(DOCS / "howto" / "slurm.md"):
        for line in block.text.splitlines():
            words = shlex.split(line.removesuffix("&"), comments=True)
            if "pdla" in words:
                verb, *arguments = words[words.index("pdla") + 1 :]
                VERBS[verb].make_context(verb, arguments)
                taken.append(verb)
    assert taken == ["trace", "pack", "analyze", "plan", "replicate", "run", "status"]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_json_and_toml_examples_parse(page: Path) -> None:
    for block in pages.blocks(page):
        if block.language == "json":
            json.loads(block.text)
        elif block.language == "toml":
            tomllib.loads(block.text)


def test_the_candidate_in_json_md_is_one_of_a_plan() -> None:
    schema = json.loads((REPOSITORY / "pdla" / "policies" / "plan.schema.json").read_text())
    (text,) = (block.text for block in pages.blocks(DOCS / "json.md") if block.language == "json")
    Draft202012Validator({"$ref": "#/$defs/candidate", "$defs": schema["$defs"]}).validate(json.loads(text))


def test_the_cluster_descriptions_in_the_pages_are_right(tmp_path: Path) -> None:
    described = []
    for page in PAGES:
        for text in (block.text for block in pages.blocks(page) if block.language == "toml"):
            path = tmp_path / "cluster.toml"
            path.write_text(completed(text))
            described.append((name(page), load_cluster(path).pools[0].backend))
    assert described == [
        ("docs/beegfs.md", "beegfs"),
        ("docs/cephfs.md", "cephfs"),
        ("docs/cluster.md", "directories"),
        ("docs/howto/network-storage.md", "directories"),
        ("docs/howto/policy.md", "directories"),
        ("docs/lustre.md", "lustre"),
        ("docs/orangefs.md", "orangefs"),
        ("docs/simulator.md", "directories"),
        ("docs/ssd-cache.md", "directories"),
    ]


def completed(text: str) -> str:
    """An extract of a cluster.toml, with the tables that it leaves out."""
    given = tomllib.loads(text)
    pool = list(given["pools"])[-1]
    tables = [REQUIRED[key] for key in ("home", "clients") if key not in given]
    keys = [line for line in REQUIRED["pool"].splitlines() if line.split(" = ")[0] not in given["pools"][pool]]
    return "\n".join([*tables, text, *keys]).replace("POOL", pool)


# ---- reference ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_of_a_verb_is_documented_with_it(verb: str) -> None:
    for parameter in VERBS[verb].params:
        if isinstance(parameter, click.Option) and parameter.name != "as_json":
            option = next((word for word in parameter.opts if word.startswith("--")), parameter.opts[0])
            assert re.search(rf"(?<![\w-]){option}(?![\w-])", section(verb)), f"cli.md: pdla {verb} has {option}"


def test_every_verb_with_json_is_in_json_md() -> None:
    text = (DOCS / "json.md").read_text()
    for verb, command in VERBS.items():
        if any("--json" in parameter.opts for parameter in command.params):
            assert f"`pdla {verb}" in text, f"json.md does not say what pdla {verb} --json prints"


def known_keys(folder: Path, table: str, backend: str) -> set[str]:
    """What a table of cluster.toml may hold, as the refusal of an unknown key says."""
    path = folder / "cluster.toml"
    servers = "" if backend == "directories" else 'servers = ["tcp://io0:3334"]'
    pool = f'[pools.NAME]\nbackend = "{backend}"\n{servers}\n{REQUIRED["pool"]}'
    text = "\n".join([REQUIRED["home"].replace("POOL", "NAME"), REQUIRED["clients"], "[plan]\n[autopilot]", pool])
    path.write_text(text.replace(f"[{table}]", f"[{table}]\nno_such_key = 1"))
    with pytest.raises(ConfigError) as refused:
        load_cluster(path)
    known = re.search(r"unknown key 'no_such_key' \(known: ([^)]*)\)", str(refused.value))
    assert known is not None, str(refused.value)
    return set(known[1].split(", "))


@pytest.mark.parametrize("table", ["home", "clients", "plan", "autopilot", "pools.NAME"])
def test_every_key_of_cluster_toml_is_documented(table: str, tmp_path: Path) -> None:
    text = (DOCS / "cluster.md").read_text()
    part = text.split(f"\n## [{table}]")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", part, re.MULTILINE)
    documented = {key for cell in cells for key in re.findall(r"`(\w+)`", cell)}
    assert documented == known_keys(tmp_path, table, "directories") | known_keys(tmp_path, table, "orangefs")


def test_every_environment_variable_is_documented() -> None:
    folders = ("pdla", "collectors", "analyzers", "layouts", "policies", "replicator", "tests", "tools", ".ci")
    sources = [path for folder in folders for path in (REPOSITORY / folder).rglob("*") if path.is_file()]
    read = {
        variable
        for path in sources
        if path.suffix in (".py", ".c", ".service") or path.name == "run"
        for variable in re.findall(r"\b(PDLA_[A-Z_]+)(?:\"|=|')", path.read_text())
    }
    documented = set(re.findall(r"^\| `(PDLA_[A-Z_]+)` \|", CLI, re.MULTILINE))
    assert documented == read - {"PDLA_COMPLETE", "_PDLA_COMPLETE"}


def test_every_attribute_and_dataset_of_a_trace_is_documented(tmp_path: Path) -> None:
    text = (DOCS / "formats.md").read_text().split("\n## The trace file\n")[1].split("\n## CSV")[0]
    (tmp_path / "a.csv").write_text("rank,file,op,offset,length,t_start,t_end\n0,/a,read,0,8,0,1\n")
    cli.main(["import", "csv", str(tmp_path / "a.csv"), "-o", str(tmp_path / "run.h5")], standalone_mode=False)
    names: set[str] = set()
    with h5py.File(tmp_path / "run.h5") as file:
        file.visit(lambda path: names.add(path.split("/")[-1]))
        names |= set(file.attrs)
    assert {"records", "views", "words", "requested", "environment"} <= names
    missing = {word for word in names if not re.search(rf"[`/[]{word}\b", text)}
    assert missing == set()


def test_every_table_and_column_of_the_catalog_is_documented() -> None:
    text = (DOCS / "formats.md").read_text().split("\n## The catalog\n")[1]
    rows = {line.split("`")[1]: line for line in text.splitlines() if line.startswith("| `")}
    assert set(rows) == set(TABLES.tables)
    for table in TABLES.tables.values():
        for column in table.columns:
            if column.name != "id" and table.name not in ("meta", "phases"):
                assert f"`{column.name}`" in rows[table.name], f"formats.md: {table.name} has a column {column.name}"


# ---- completion -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shell", "says"), [("bash", "complete -o"), ("zsh", "#compdef pdla"), ("fish", "complete --")]
)
def test_completion_is_there_for_the_shells_that_cli_md_names(shell: str, says: str) -> None:
    assert f"_PDLA_COMPLETE={shell}_source pdla" in CLI
    done = subprocess.run(
        [Path(sys.executable).with_name("pdla")],
        env={"_PDLA_COMPLETE": f"{shell}_source"},
        capture_output=True,
        text=True,
        check=False,
    )
    # The version of bash is asked for by its own script.
    assert says in done.stdout, done.stderr


def test_each_guarantee_names_tests_that_exist() -> None:
    table = (REPOSITORY / "docs/hazards.md").read_text()
    rows = re.findall(r"^\| H(\d+) \|.* \| (.*) \|$", table, re.MULTILINE)
    numbers = [int(number) for number, _ in rows]
    assert numbers == sorted(set(numbers)) and set(numbers) >= set(range(1, 45))
    behaviours = re.findall(r"^\| H(\d+) \|", (REPOSITORY / "docs/guarantees.md").read_text(), re.MULTILINE)
    assert sorted(map(int, behaviours)) == numbers
    known = set()
    for path in (REPOSITORY / "tests").rglob("test_*.py"):
        known |= {(path.stem, name) for name in re.findall(r"^def (test_h\d\d_\w+)", path.read_text(), re.MULTILINE)}
    listed = {
        (module, f"test_h{int(number):02}_{name}")
        for number, tests in rows
        for module, name in re.findall(r"`(test_\w+)::(\w+)`", tests)
    }
    assert listed <= known
