"""Profiles of Hypothesis. Every run takes a sixth of the examples; `make soak` takes all.

An example is slow on a busy machine or while a kernel compiles, so no profile has a deadline: pytest-timeout ends a
test that hangs.
"""

from __future__ import annotations

from hypothesis import settings

EVERY_RUN, FULL = "every-run", "full"
SHARE = 6
LEAST = 20  # With fewer, the simplest examples are most of them.


def load_profiles() -> None:
    """Register both and load that of every run. `--hypothesis-profile full` loads the other."""
    settings.register_profile(FULL, deadline=None, print_blob=True)
    full = settings.get_profile(FULL)
    settings.register_profile(EVERY_RUN, full, max_examples=_share(full.max_examples))
    settings.load_profile(EVERY_RUN)


def examples(full: int, *, least: int = LEAST) -> int:
    """The value of `max_examples` for this run. full: its value in `make soak`. least: a lower bound of its value in
    other runs; below the default where an example takes a second."""
    return full if settings.get_current_profile_name() == FULL else _share(full, least)


def _share(full: int, least: int = LEAST) -> int:
    return min(full, max(full // SHARE, least))
