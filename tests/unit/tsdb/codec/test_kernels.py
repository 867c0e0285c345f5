"""Calls of kernels: arguments are checked, results are those of the Python twins, and the GIL is kept or released."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from support import kernels as typed
from tsdb.codec.kernel_library import library_of

kernels: Any = typed  # Calls are checked when they are made; here some do not fit.
ROWS = np.arange(6, dtype=np.int64).reshape(2, 3)
WORD = (1 << 64) - 1


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: kernels.total_of_pair(np.zeros(3)), TypeError, r"argument 0 is of type ndarray; it takes a tuple"),
        (lambda: kernels.total_of_pair((ROWS[0],)), TypeError, "it takes a longer tuple"),
        (lambda: kernels.total_of_pair((ROWS[0],) * 3), TypeError, "it takes a shorter tuple"),
        (lambda: kernels.total([1]), TypeError, r"kernels\.total: argument 0 is of type list; it takes an array"),
        (lambda: kernels.total(ROWS * 1.0), TypeError, r"float64 with 2 dimension\(s\); it takes int64"),
        (lambda: kernels.total(ROWS.view(">i8")), TypeError, "an array of >i8 with 2"),
        (lambda: kernels.total(ROWS[0]), TypeError, r"int64 with 1 dimension\(s\); it takes int64 with 2, contiguous"),
        (lambda: kernels.total(ROWS[:, :2]), TypeError, r"2 dimension\(s\), not contiguous; it takes int64 with 2"),
        (lambda: kernels.total(ROWS.T), TypeError, "not contiguous"),
        (lambda: kernels.total(), TypeError, "called with 0 arguments; it takes 1"),
        (lambda: kernels.total(ROWS, ROWS), TypeError, "called with 2 arguments; it takes 1"),
        (lambda: kernels.echo(1.0, 1, 1, 1.0, True), TypeError, "argument 0 is of type float; it takes an integer"),
        (lambda: kernels.echo(1, 1, 1, "1", True), TypeError, "real number"),
        (lambda: kernels.echo(1 << 63, 1, 1, 1.0, True), OverflowError, "too big|too large"),
        (lambda: kernels.echo(1, -1, 1, 1.0, True), OverflowError, "negative"),
        (lambda: kernels.echo(1, 1 << 64, 1, 1.0, True), OverflowError, "too big|too large"),
        (lambda: kernels.echo(1, 1, 1 << 32, 1.0, True), OverflowError, "argument 2 is 4294967296; it takes a uint32"),
        (lambda: kernels.allocate(1 << 52), MemoryError, r"kernels\.allocate: no memory for its work"),
    ],
)  # fmt: skip
def test_a_call_that_does_not_fit_is_refused_with_the_reason(
    call: Callable[[], object], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        call()


def test_scalars_of_every_type_come_back_at_both_ends_of_their_range() -> None:
    assert kernels.echo(-(1 << 63), 0, 0, -0.0, False) == (-(1 << 63), 0, 0, 0.0, False)
    assert kernels.echo((1 << 63) - 1, WORD, (1 << 32) - 1, 1e308, True) == (
        *((1 << 63) - 1, WORD, (1 << 32) - 1, 1e308),
        True,
    )
    numpys = kernels.echo(np.int8(-3), np.uint64(WORD), np.uint32(7), np.float32(0.5), np.bool_(True))
    assert [(type(value), value) for value in numpys] == [(int, -3), (int, WORD), (int, 7), (float, 0.5), (bool, True)]


def test_arrays_that_are_read_only_empty_or_of_a_subclass_are_taken() -> None:
    frozen = ROWS.copy()
    frozen.flags.writeable = False
    assert kernels.total(frozen) == 15
    assert kernels.total(np.empty((0, 3), np.int64)) == 0
    assert kernels.total(ROWS.view(np.memmap)) == 15
    assert kernels.total(ROWS.astype(np.longlong)) == 15
    assert kernels.total_of_pair((ROWS[0], ROWS[1])) == 15


def test_a_call_frees_the_arrays_that_it_allocates() -> None:
    library = library_of(kernels.__name__)
    before = library.arrays_alive()
    for size in (0, 1, 1000):
        array = np.arange(size, dtype=np.int64)
        assert kernels.reversed_total(array) == int((array * array[::-1]).sum())
    assert library.arrays_alive() == before
    with pytest.raises(MemoryError):
        kernels.allocate(1 << 52)
    assert library.arrays_alive() == before


def seen_in_part(fill: Callable[[NDArray[np.uint64], int], None], elements: int = 400_000, times: int = 100) -> bool:
    """Whether this thread runs while another one is in the kernel."""
    out = np.zeros(elements, np.uint64)
    thread = threading.Thread(target=fill, args=(out, times))
    thread.start()
    seen = False
    while thread.is_alive():
        # The order matters: a kernel with the GIL cannot run between two of these reads.
        ends = int(out[0]), int(out[-1])
        seen |= ends[0] != 0 and ends[1] == 0
    thread.join()
    return seen


def test_a_kernel_releases_the_gil() -> None:
    assert not kernels.fill.__self__.keeps_gil
    while not seen_in_part(kernels.fill):  # On a busy machine this thread may sleep through a whole call.
        pass


def test_a_request_kernel_keeps_the_gil_for_small_arrays_alone() -> None:
    assert not any(seen_in_part(kernels.fill_of_request, elements=30_000, times=1300) for _ in range(3))
    while not seen_in_part(kernels.fill_of_request):
        pass


def test_a_short_kernel_keeps_the_gil() -> None:
    assert kernels.fill_with_gil.__self__.keeps_gil
    assert not any(seen_in_part(kernels.fill_with_gil) for _ in range(3))


INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


@given(INT64, st.integers(0, WORD), st.integers(0, 63))
def test_bit_intrinsics_equal_their_twins(value: int, word: int, bits: int) -> None:
    results = []
    for apply in (kernels.apply_bits, kernels.apply_bits_kernel):
        words, integers = np.zeros(2, np.uint64), np.zeros(6, np.int64)
        apply(value, np.uint64(word), bits, words, integers)
        results.append((words.tolist(), integers.tolist()))
    assert results[0] == results[1]


@given(st.binary(min_size=40, max_size=40), st.integers(0, 12))
def test_memory_intrinsics_equal_their_twins(data: bytes, place: int) -> None:
    results = []
    for move in (kernels.move_bytes, kernels.move_bytes_kernel):
        out, integers = np.zeros(40, np.uint8), np.zeros(6, np.int64)
        move(np.frombuffer(data, np.uint8), place, out, integers)
        results.append((out.tolist(), integers.tolist()))
    assert results[0] == results[1]


def test_arrays_at_addresses_equal_their_twins() -> None:
    arrays: list[NDArray[Any]] = [
        *(np.array([1, 2, 255], np.uint8), np.array([3, 4, (1 << 32) - 1], np.uint32)),
        *(np.array([-5, 6, 7], np.int32), np.array([-8, 9, 10], np.int64), np.array([0.5, 11.0, -0.25])),
    ]
    addresses = np.array([array.ctypes.data for array in arrays], np.int64)
    results = []
    for read in (kernels.read_addresses, kernels.read_addresses_kernel):
        out = np.zeros(11)
        read(addresses, out)
        results.append(out.tolist())
    assert results[0] == results[1]
    assert results[0][:3] == [1.0, 255.0, 3.0]
