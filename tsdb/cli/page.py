"""`tsdb open`: the explorer in a browser, with expressions and a range. The demo opens the same page."""

from __future__ import annotations

import os
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from typing import Annotated
from urllib.parse import urlencode

import typer

from tsdb.cli.options.arguments import End, Last, Start, duration_text, recent_range
from tsdb.cli.terminal.errors import shown
from tsdb.cli.terminal.output import note
from tsdb.client import InvalidRequest
from tsdb.client.channel import check_address
from tsdb.model.errors import Unavailable

DEFAULT_PAGE = "127.0.0.1:7411"  # The default of the servers' setting `http`.
PANELS_MAX = 12  # Panels of one link.
PROBED = "/ui/partitions"  # Every role answers at `/`, with its probes where it has no pages.
WITHIN_S = 5.0
_SCHEME = re.compile(r"https?://")


def page_address(text: str) -> str:
    """http://HOST:PORT, from HOST:PORT or a URL of http or https."""
    scheme = _SCHEME.match(text)
    if scheme and len(text) > len(scheme[0]):
        return text.rstrip("/")
    try:
        return f"http://{check_address(text)}"
    except InvalidRequest:
        raise typer.BadParameter(f"{shown(text)} is neither HOST:PORT nor a URL of http or https") from None


Page = Annotated[
    str,
    typer.Option(
        "--page",
        parser=page_address,
        metavar="HOST:PORT|URL",
        envvar="TSDB_PAGE",
        help="The --http address of a querier or of standalone.",
    ),
]


def open_page(
    expressions: Annotated[
        list[str] | None, typer.Argument(metavar="[EXPR]...", help="PromQL; each gets its own panel.")
    ] = None,
    page: Page = DEFAULT_PAGE,
    start: Start = None,
    end: End = None,
    last: Last = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser, or print the link.")] = True,
) -> None:
    """Open the explorer in a browser and print its link, which others can open too.

    The range is the last hour by default. With --last the page moves on with the clock; with --start and --end it does
    not. Without a browser on this machine the link is printed alone.
    """
    wanted = expressions or []
    if len(wanted) > PANELS_MAX:
        raise typer.BadParameter(f"{len(wanted)} expressions; a page has at most {PANELS_MAX} panels")
    if last is not None or (start is None and end is None):
        recent_range(start, end, last)  # Refuses --last beside --start or --end.
        span = {"range": duration_text(last.ms) if last else "1h"}
    else:
        found = recent_range(start, end, None)
        span = {"start": str(found.start_ms), "end": str(found.end_ms)}
    need_page(page)
    link = page_link(page, wanted, span)
    print(link, flush=True)
    if browser and not show(link):
        note("no browser was found on this machine: open the link")


def page_link(page: str, expressions: Sequence[str], span: Mapping[str, str]) -> str:
    """The link of an explorer with one panel for each expression. span: the parameters of range and refresh."""
    panels = {f"p{index}.q": expression for index, expression in enumerate(expressions)}
    return f"{page}/?{urlencode({'v': '1', **span, **panels})}"


def need_page(page: str) -> None:
    """Raises Unavailable when no page is at this address, with what to do."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        opener.open(page + PROBED, timeout=WITHIN_S).close()
    except urllib.error.HTTPError as error:
        with error:
            if error.code != 404:
                return  # A page that asks for a token is a page.
        raise Unavailable(
            f"{page}/ has no page: give the --http address of a querier or of standalone, installed with the extra ui",
            reason="no_page",
        ) from None
    except HTTPException:
        raise Unavailable(
            f"{page} does not speak HTTP: give the server's --http address, not its --grpc address",
            reason="wrong_port",
        ) from None
    except OSError as error:
        why = getattr(error, "reason", error)
        if isinstance(why, ConnectionRefusedError):
            raise Unavailable(
                f"nothing listens at {page}: start `tsdb standalone`, or give the server's --http address as --page",
                reason="unreachable",
            ) from None
        raise Unavailable(f"{page}/ does not answer: {why}", reason="unreachable") from None


def show(link: str) -> bool:
    """Open the link in a graphical browser. False without one: a browser in a terminal runs no scripts."""
    graphical = sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
    if not graphical:
        return False
    import webbrowser  # Imported here: it looks for programs.

    return webbrowser.open(link)
