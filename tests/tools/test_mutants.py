"""Each mutant that ``make mutants`` may choose breaks a line that is there, and names tests that are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.functions import functions
from tools.mutants import REPOSITORY, Mutant, UnusableError, read_list, read_sources

C = """static int other(void);

/* A comment (with brackets) */
static const int table[] = {
    1,
};

int
first(int a,
      int b)
{
    if (a) {
        return 1;
    }
}

struct { int a; } one;
static int second(void)
{
}
"""
PYTHON = """def outer():
    def inner():
        pass

class Kind:
    @property
    def value(self):
        return 1
"""


def test_each_mutant_matches_one_place_and_changes_it() -> None:
    texts, wrong = read_sources(REPOSITORY), []
    for mutant in read_list():
        try:
            path, broken = mutant.applied(texts)
        except UnusableError as error:
            wrong.append(str(error))
            continue
        if broken == texts[path]:
            wrong.append(f"{mutant}: changes nothing")
    assert wrong == []


def test_the_tests_of_all_mutants_are_found_in_their_folders() -> None:
    for mutant in read_list():
        for test in mutant.tests_in(REPOSITORY):
            module, _, name = test.partition("::")
            assert f"\ndef {name.partition('[')[0]}(" in (REPOSITORY / module).read_text(), f"{mutant}: {test}"


@pytest.mark.parametrize("folders", [(), ("one", "other/below")], ids=["missing", "ambiguous"])
def test_a_module_that_is_not_there_once_is_named(tmp_path: Path, folders: tuple[str, ...]) -> None:
    for folder in folders:
        (tmp_path / "tests" / folder).mkdir(parents=True)
        (tmp_path / "tests" / folder / "test_some.py").touch()
    with pytest.raises(UnusableError) as refused:
        Mutant("first", "x", "y", "harm", ("test_some::test_one",)).tests_in(tmp_path)
    assert str(refused.value) == f"first: harm: test_some.py is {len(folders)} times below tests"


def test_functions_are_found_by_name() -> None:
    found = {name: C[start:end] for name, start, end in functions(REPOSITORY / "one.c", C)}
    assert list(found) == ["first", "second"]
    assert found["first"].startswith("int\nfirst(") and found["first"].endswith("    }\n}\n")
    assert found["second"] == "static int second(void)\n{\n}\n"
    found = {name: PYTHON[start:end] for name, start, end in functions(REPOSITORY / "one.py", PYTHON)}
    assert list(found) == ["outer", "outer.inner", "Kind", "Kind.value"]
    assert found["Kind.value"].startswith("    @property\n")
