"""The tests, and the programs that test for hours (make kills, make random)."""

import pytest

pytest.register_assert_rewrite("tests.support")  # what fails there shows its values, too
