"""Select cache: refs of the most recently used selectors, valid until a series comes or goes."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from tsdb.model.selector import Matcher, chars_of

SELECTORS_MAX = 256
REFS_MAX = 1 << 21  # 8 MiB; a larger answer is not cached. A text counts as the refs that take its memory.
REF_BYTES = 4

Matchers = tuple[Matcher, ...]


class SelectCache:
    """Holds answers of one generation of the index. Used under the index's lock."""

    def __init__(self) -> None:
        self._generation = -1
        self._answers: OrderedDict[Matchers, NDArray[np.uint32]] = OrderedDict()
        self._refs = 0

    @property
    def nbytes(self) -> int:
        return REF_BYTES * self._refs

    def get(self, matchers: Matchers, generation: int) -> NDArray[np.uint32] | None:
        """The cached answer of this generation, or None."""
        if generation != self._generation:
            return None
        answer = self._answers.get(matchers)
        if answer is not None:
            self._answers.move_to_end(matchers)
        return answer

    def put(self, matchers: Matchers, generation: int, refs: NDArray[np.uint32]) -> None:
        """Cache an answer. Answers of older generations are dropped, then the least recently used."""
        if generation > self._generation:
            self._answers.clear()
            self._generation, self._refs = generation, 0
        size = _size(matchers, refs)
        if generation < self._generation or size > REFS_MAX or matchers in self._answers:
            return
        self._answers[matchers] = refs
        self._refs += size
        while len(self._answers) > SELECTORS_MAX or self._refs > REFS_MAX:
            self._refs -= _size(*self._answers.popitem(last=False))


def _size(matchers: Matchers, refs: NDArray[np.uint32]) -> int:
    return len(refs) + chars_of(matchers) // REF_BYTES
