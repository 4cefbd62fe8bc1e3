"""Which patterns deserve to be signatures: those that are much shorter than the list of their accesses (ADR 36).

The lengths are counted in numbers. A pattern takes its first byte, the length of a request, stride and count of each
loop, what the loops grow by, and its ranks: none if they are all ranks of the stream in order, else the first rank,
step and count of each run of them. The list takes a number for each access. This is the minimum description length of
Rissanen (Automatica 14, 1978) with all numbers of one size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pdla.analyzers.global_patterns import GlobalPattern
from pdla.analyzers.local_patterns import LocalPatterns
from pdla.analyzers.shapes import BoolArray
from pdla.analyzers.templates import match
from pdla.model import Int64Array

TIMES = 3
"""A pattern with so many times as many accesses as numbers is a signature, whatever is around it."""

SPARE = 10
"""If the other patterns of a stream have most of what is left of it, they may take so many numbers more than that."""


class _Lengths(NamedTuple):
    """Of each pattern the number of its stream, the accesses and bytes that it stands for, and the numbers it takes."""

    stream: Int64Array
    accesses: Int64Array
    bytes: Int64Array
    numbers: Int64Array


def deserving(local: LocalPatterns, of_many: Sequence[GlobalPattern], rows: Int64Array) -> tuple[BoolArray, BoolArray]:
    """Which of these patterns of many ranks, and which of the other rows, deserve to be signatures.

    Some of many random accesses are in equal steps by chance. Such patterns have hardly more accesses than numbers,
    and leave most accesses of their stream. So a pattern needs many more, or it is one of those that describe a
    stream, with three quarters of the accesses or bytes that are left of it: what the program does there is not random,
    however little it is. One or two accesses of a rank are a pattern only if they are half of what the rank does to
    the stream, because any two accesses could be one.
    """
    total, ranks = _streams(local)
    good_rows = _possible(local)[rows]
    lengths = _of_many(of_many, local, ranks), _of_one(rows[good_rows], local, ranks)
    every = _Lengths(*(np.concatenate(column) for column in zip(*lengths, strict=True)))
    good, good_rows[good_rows] = np.split(_deserve(every, total), [len(of_many)])
    return good, good_rows


def numbers_of(
    local: LocalPatterns, of_many: Sequence[GlobalPattern], rows: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """How many numbers each of these patterns of many ranks, and each of these other rows, takes."""
    _, ranks = _streams(local)
    return _of_many(of_many, local, ranks).numbers, _of_one(rows, local, ranks).numbers


def accesses(local: LocalPatterns) -> Int64Array:
    """The accesses of each stream."""
    of_stream: Int64Array = _streams(local)[0][0]
    return of_stream


def _deserve(patterns: _Lengths, total: Int64Array) -> BoolArray:
    """Which patterns deserve to be signatures; ``total``: the accesses and bytes of each stream, shape (2, streams).

    >>> stream, accesses, numbers = np.array([[0, 0, 1], [900, 3, 3], [4, 4, 4]])
    >>> _deserve(_Lengths(stream, accesses, 8 * accesses, numbers), np.array([[1000, 3], [8000, 24]]))
    array([ True, False,  True])
    """
    sure = patterns.accesses >= TIMES * patterns.numbers
    left, told, spent = total.copy(), np.zeros_like(total), np.zeros_like(total[0])
    for amount, of_pattern in enumerate((patterns.accesses, patterns.bytes)):
        np.subtract.at(left[amount], patterns.stream[sure], of_pattern[sure])
        np.add.at(told[amount], patterns.stream[~sure], of_pattern[~sure])
    np.add.at(spent, patterns.stream[~sure], patterns.numbers[~sure])
    described = (told >= left - left // 4).any(axis=0) & (spent <= told[0] + SPARE)
    deserve: BoolArray = sure | described[patterns.stream]
    return deserve


def _possible(local: LocalPatterns) -> BoolArray:
    """Which patterns of a single rank may be signatures: three accesses or more, or half of what the rank does."""
    half = local.table["part"].to_numpy(np.float64) >= 1 / 2
    return ~local.fragments & (half | (local.shapes.size[local.column("shape")] > 2))


def _streams(local: LocalPatterns) -> tuple[Int64Array, Int64Array]:
    """(accesses and bytes of each stream, shape (2, streams); how many ranks each has)."""
    table, strays, shape = local.table, local.strays, local.column("shape")
    stream, rank = (np.concatenate((table[name], strays[name])).astype(np.int64) for name in ("stream", "rank"))
    streams = stream.max(initial=-1) + 1
    total, ranks = np.zeros((2, streams), np.int64), np.zeros(streams, np.int64)
    amounts = ((local.shapes.size[shape], strays["requests"]), (local.shapes.bytes[shape], strays["bytes"]))
    for of_stream, amount in zip(total, amounts, strict=True):
        np.add.at(of_stream, stream, np.concatenate(amount).astype(np.int64))
    several = rank.max(initial=0) + 1
    np.add.at(ranks, np.unique(stream * several + rank) // several, 1)
    return total, ranks


def _of_one(rows: Int64Array, local: LocalPatterns, ranks: Int64Array) -> _Lengths:
    """The lengths of these local patterns; ``ranks``: how many each stream has."""
    stream, shape = (local.column(name)[rows] for name in ("stream", "shape"))
    numbers = local.shapes.numbers[shape] + (ranks[stream] > 1)
    return _Lengths(stream, local.shapes.size[shape], local.shapes.bytes[shape], numbers)


def _of_many(found: Sequence[GlobalPattern], local: LocalPatterns, ranks: Int64Array) -> _Lengths:
    """The lengths of global patterns, which consist of these local ones; ``ranks``: how many each stream has."""
    members = np.concatenate([np.empty(0, np.int64), *(one.members for one in found)])
    size = np.array([len(one.members) for one in found], np.int64)
    heads = np.cumsum(size) - size
    stream, shape, rank = (local.column(name)[members] for name in ("stream", "shape", "rank"))
    over = [sum(2 + np.count_nonzero(np.array(grows)) for _, grows in one.ranks.levels) for one in found]
    numbers = local.shapes.numbers[shape[heads]] + np.array(over, np.int64)

    of = np.repeat(np.arange(len(found)), size)
    some = size < ranks[stream[heads]]
    some[of[1:][(np.diff(rank) < 0) & (np.diff(of) == 0)]] = True
    runs = match(rank, np.ones_like(rank), of)
    of_run = of[runs.first]
    np.add.at(numbers, of_run, np.where(some[of_run], runs.shapes.numbers[runs.shape] - 1, 0))
    accesses, nbytes = np.zeros_like(size), np.zeros_like(size)
    np.add.at(accesses, of, local.shapes.size[shape])
    np.add.at(nbytes, of, local.shapes.bytes[shape])
    return _Lengths(stream[heads], accesses, nbytes, numbers)
