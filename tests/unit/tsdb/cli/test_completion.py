"""The script of `tsdb completion` completes what the commands take, as bash itself sees it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.cli import Shell

ASK = 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tsdb; printf "%s\\n" "${COMPREPLY[@]}"'


@pytest.fixture
def script(shell: Shell, tmp_path: Path) -> Path:
    path = tmp_path / "tsdb.bash"
    path.write_text(shell.ok("completion", "bash").text)
    return path


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        (("q",), ["querier", "query", "queries"]),
        (("topics", ""), ["create", "check", "--help"]),
        (("topics", "create", "--part"), ["--partitions"]),
        (("query", "up", "--allow"), ["--allow-stale", "--allow-holes"]),
        (("query", "up", "--output", ""), ["table", "json", "csv", "parquet"]),
        (("query", "up", "--agg", "m"), ["min", "max"]),
        (("query", "up", "--allow-stale", "--enc"), ["--encoding"]),
        (("query", "up", "--ra"), ["--raw"]),
        (("query", "up", "--raw", "--l"), ["--last", "--last-n", "--lookback"]),
        (("config", "show", "st"), ["store", "standalone"]),
        (("query", "up", "--out", ""), []),
        (("nonsense", "--o"), []),
    ],
)
def test_bash_completes(script: Path, typed: tuple[str, ...], found: list[str]) -> None:
    command = ["bash", "-c", ASK, str(script), "tsdb", *typed]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert sorted(done.stdout.split()) == sorted(found)


def test_zsh_loads_the_same_by_its_own_means(shell: Shell, script: Path) -> None:
    first, _, rest = shell.ok("completion", "zsh").text.partition("\n")
    assert first == "autoload -U +X bashcompinit && bashcompinit"
    assert rest == script.read_text()


def test_fish_has_a_line_a_word(shell: Shell) -> None:
    lines = shell.ok("completion", "fish").text.splitlines()
    assert "complete -c tsdb -n '__tsdb_at \"tsdb query\"' -l output -x -a 'table json csv parquet'" in lines
    assert "complete -c tsdb -n '__tsdb_at \"tsdb\"' -f -a topics -d 'The topics of a log.'" in lines


def test_another_shell_is_a_misuse(shell: Shell) -> None:
    done = shell.run("completion", "tcsh")
    assert (done.code, done.out) == (2, b"")
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in done.err
