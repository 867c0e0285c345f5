"""Without the extra `ui` each page, graph and file names it, and the API works on."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.split(".")[0] in ("bokeh", "jinja2") else self.finder.find_spec(name, path, target)

sys.meta_path[:] = map(Without, sys.meta_path)
from support.api.ui_server import ui_server

with ui_server() as server:
    for path in ("/", "/ui/figure", "/ui/files/bokeh.js"):
        got = server.get(path)
        print(path, got.status, "pip install" in got.body.decode())
    print(server.get("/api/v1/query?query=1").status)
"""


def test_without_its_libraries_a_page_names_the_extra() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, cwd="tests")
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["/ 503 True", "/ui/figure 503 True", "/ui/files/bokeh.js 503 True", "200"]
