"""Each mutant that ``make mutants`` may choose breaks a line that is there."""

from __future__ import annotations

import pytest

from tools.mutants import REPOSITORY, Mutant, read_list


@pytest.mark.parametrize("mutant", read_list(), ids=str)
def test_a_mutant_matches_one_place_and_changes_it(mutant: Mutant) -> None:
    assert mutant.applied(REPOSITORY) != (REPOSITORY / mutant.file).read_text()
