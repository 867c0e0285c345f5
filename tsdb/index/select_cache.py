"""Select cache: refs of the most recently used selectors, valid until a series comes or goes."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from tsdb.model.selector import Matcher

SELECTORS_MAX = 256
REFS_MAX = 1 << 21  # 8 MiB; a larger answer is not cached.

Matchers = tuple[Matcher, ...]


class SelectCache:
    """Holds answers of one generation of the index. Used under the index's lock."""

    def __init__(self) -> None:
        self._generation = -1
        self._answers: OrderedDict[Matchers, NDArray[np.uint32]] = OrderedDict()
        self._refs = 0

    @property
    def nbytes(self) -> int:
        return 4 * self._refs

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
        if generation < self._generation or len(refs) > REFS_MAX or matchers in self._answers:
            return
        self._answers[matchers] = refs
        self._refs += len(refs)
        while len(self._answers) > SELECTORS_MAX or self._refs > REFS_MAX:
            _, oldest = self._answers.popitem(last=False)
            self._refs -= len(oldest)
