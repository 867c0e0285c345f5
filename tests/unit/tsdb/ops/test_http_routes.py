"""Routes of several parts: the first part that has one is chosen, and the route of a fixed path is remembered."""

from __future__ import annotations

from typing import Any, cast

from tsdb.ops.http.bodies import BodyRoute, JoinedRoutes


class Named:
    """A route of which only the name is asked."""

    def __init__(self, name: str) -> None:
        self.name = name


class Part:
    """Routes that count how often they are asked. names: the name of the route of each path."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names
        self.asked: list[str] = []

    def route(self, method: str, path: str) -> BodyRoute | None:
        self.asked.append(path)
        return cast(Any, Named(self.names[path])) if path in self.names else None


def test_the_first_part_with_a_route_is_chosen_and_a_fixed_path_is_asked_for_once() -> None:
    writes, reads = Part({"/write": "/write"}), Part({"/write": "other", "/query": "/query"})
    routes = JoinedRoutes((writes, reads))
    for _ in range(3):
        for path in ("/write", "/query"):
            found = routes.route("GET", path)
            assert found is not None
            assert found.name == path
    assert (writes.asked, reads.asked) == (["/write", "/query"], ["/query"])


def test_paths_that_callers_choose_are_not_remembered() -> None:
    part = Part({"/label/a/values": "/label/:name/values"})
    routes = JoinedRoutes((part,))
    for _ in range(2):
        assert routes.route("GET", "/label/a/values") is not None
        assert routes.route("GET", "/nothing") is None
    assert part.asked == ["/label/a/values", "/nothing"] * 2
