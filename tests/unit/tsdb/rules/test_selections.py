"""Labels of selections stay parsed while their series stay, and no longer."""

from __future__ import annotations

from tsdb.model.labels import canonical_labels
from tsdb.rules.selections import Matchers, SelectionLabels
from tsdb.selector.selectors import parse_selector

X, Y, Z = (tuple(parse_selector(text)) for text in "xyz")


def series(matchers: Matchers, count: int) -> list[bytes]:
    return [canonical_labels({"__name__": matchers[0].value, "job": str(number)}) for number in range(count)]


def test_labels_stay_parsed_while_the_series_are_the_same() -> None:
    labels = SelectionLabels()
    first = labels.of(X, series(X, 3))
    sets = first.label_sets()
    assert labels.of(X, series(X, 3)).label_sets() is sets
    changed = labels.of(X, series(X, 4))
    assert list(changed) == series(X, 4)
    assert len(changed.label_sets()) == 4
    assert list(labels.of(X, series(X, 3)[::-1])) == series(X, 3)[::-1]


def test_kept_series_are_bounded_and_the_longest_unused_go_first() -> None:
    labels = SelectionLabels(series_max=10)
    x, y = labels.of(X, series(X, 4)), labels.of(Y, series(Y, 4))
    assert labels.of(X, series(X, 4)) is x
    labels.of(Z, series(Z, 5))
    assert labels.of(X, series(X, 4)) is x
    assert labels.of(Y, series(Y, 4)) is not y
    large = series(Z, 11)
    assert list(labels.of(Z, large)) == large
    assert labels.of(X, series(X, 4)) is not x
