"""The page of the demo: its address, and a wait for a reader who wants to open it."""

from __future__ import annotations

import os
import signal
import threading
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlencode

from rich.console import Console

from demo.standalone import Agent, Standalone

OPEN = "DEMO_OPEN"


def show_page(console: Console, server: Standalone, scratch: Path, expressions: tuple[str, ...]) -> bool:
    """Ask for the page and print its address; True when it was answered. With DEMO_OPEN=1 the server and an agent stay
    up until Ctrl-C."""
    console.rule("a page at /")
    url = page_url(server.http, expressions)
    with urllib.request.urlopen(url, timeout=30) as answer:
        answered = answer.status == 200 and b"<textarea" in answer.read()
    console.print(f"{url}", soft_wrap=True)
    if not stays_open(os.environ):
        console.print(f"It ends with the demo. To look at it: make demo {OPEN}=1")
        return answered
    console.print("It is up until Ctrl-C, with metrics of this machine every second.")
    ended = threading.Event()
    before = signal.signal(signal.SIGINT, lambda _number, _frame: ended.set())
    try:
        with Agent(server.grpc, scratch):
            ended.wait()
    finally:
        signal.signal(signal.SIGINT, before)
    return answered


def page_url(http: str, expressions: tuple[str, ...]) -> str:
    """The link of an explorer with one panel for each expression, refreshed every 2 s."""
    panels = {f"p{index}.q": expression for index, expression in enumerate(expressions)}
    return f"http://{http}/?{urlencode({'v': '1', 'range': '5m', 'refresh': '2', **panels})}"


def stays_open(environment: Mapping[str, str]) -> bool:
    """Whether the demo waits for a reader."""
    return environment.get(OPEN, "") not in ("", "0")
