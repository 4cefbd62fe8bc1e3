"""The tests, and the programs that test for hours (make kills, make random)."""
