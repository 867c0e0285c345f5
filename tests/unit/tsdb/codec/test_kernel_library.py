"""The library of kernels: a build of it fails or names what is wrong, and an edited kernel runs at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_build.levels import LEVELS, level_named
from kernel_build.link import link, slots_of
from tsdb.codec.kernel_library import MODULE, load
from tsdb.codec.kernel_sources import CHECKOUT

V3 = next(level for level in LEVELS if level.name == "x86-64-v3")
KERNEL = """
from tsdb.codec.jit import kernel

@kernel
def answer(question: int) -> int:
    return question + 1
"""
HELPER = """
from tsdb.codec.jit import helper

@helper
def helped(value: int) -> int:
    return value

@kernel"""
PROGRAM = "import edited_kernels; print(edited_kernels.answer(41))"


def answer_of(folder: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), str(CHECKOUT)])}
    return subprocess.run(
        [sys.executable, "-B", "-c", PROGRAM], capture_output=True, text=True, check=False, env=environment
    )


@pytest.mark.slow
def test_an_edited_kernel_runs_at_the_next_import(tmp_path: Path) -> None:
    source = tmp_path / "edited_kernels.py"
    source.write_text(KERNEL)
    first = answer_of(tmp_path)
    assert first.stdout.split() == ["42"], first.stderr
    source.write_text(KERNEL.replace("question + 1", "question + helped(question)").replace("@kernel", HELPER, 1))
    second = answer_of(tmp_path)
    assert second.stdout.split() == ["82"], second.stderr
    again = answer_of(tmp_path)
    assert (again.stdout.split(), again.stderr) == (["82"], ""), "nothing is built when nothing changed"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signature", "text"),
    [
        ("question: int) -> str", "edited_kernels.answer: the annotation of 'return' names no type of a kernel"),
        ("question) -> int", "edited_kernels.answer: the annotation of 'question' names no type of a kernel"),
    ],
)
def test_a_kernel_that_does_not_compile_fails_the_import_with_the_reason(
    tmp_path: Path, signature: str, text: str
) -> None:
    (tmp_path / "edited_kernels.py").write_text(KERNEL.replace("question: int) -> int", signature))
    done = answer_of(tmp_path)
    assert done.returncode == 1
    assert "ImportError: the kernels do not compile (`make kernels` does the same)" in done.stderr
    assert text in done.stderr


@pytest.mark.parametrize(
    ("arguments", "slots"), [("", 0), ("lLufb", 5), ("1q", 2), ("3?b", 5), ("(1q2d)lf", 7), ("((1B)u)L", 4)]
)
def test_a_call_has_a_slot_for_each_scalar_address_and_length(arguments: str, slots: int) -> None:
    assert slots_of(arguments) == slots


def test_a_processor_without_a_feature_is_refused_by_level_feature_and_setting(tmp_path: Path) -> None:
    library = tmp_path / "library.abi3.so"
    link([], V3, library, "-DHAS(feature)=0")
    with pytest.raises(ImportError) as refused:
        load(library)
    assert str(library) in str(refused.value)
    assert "built for processors of level x86-64-v3, and this one lacks sse4.2" in str(refused.value)
    assert "KAFKA_TSDB_KERNEL_LEVEL=native" in str(refused.value)


def test_a_library_for_this_processor_loads(tmp_path: Path) -> None:
    link([], level_named("native"), tmp_path / "library.abi3.so")
    library = load(tmp_path / "library.abi3.so")
    assert library.arrays_alive() == 0
    with pytest.raises(KeyError, match="no kernel"):
        library.kernel("no kernel")


def test_a_symbol_that_nothing_defines_fails_the_build(tmp_path: Path) -> None:
    source = tmp_path / "user.c"
    source.write_text("int no_such_function(void); int (*const used)(void) = no_such_function;\n")
    with pytest.raises(SystemExit, match=r"cannot be loaded: .*undefined symbol: no_such_function"):
        link([], V3, tmp_path / "library.abi3.so", str(source))
    assert not (tmp_path / "library.abi3.so").exists()


def test_a_missing_compiler_is_named_with_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(SystemExit, match=r"no C compiler \(no-such-compiler\): run scripts/ensure-system\.sh compiler"):
        link([], V3, tmp_path / "library.abi3.so")


def test_a_file_that_is_no_library_is_refused(tmp_path: Path) -> None:
    (tmp_path / "library.abi3.so").write_bytes(b"nothing")
    with pytest.raises(ImportError, match=r"library.abi3.so does not fit this machine"):
        load(tmp_path / "library.abi3.so")


def test_an_unknown_level_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SystemExit, match="unknown level of processors 'x86-64-v9'; known are x86-64-v2, x86-64-v3"):
        level_named("x86-64-v9")


def test_the_library_exports_its_module_alone(tmp_path: Path) -> None:
    link([], V3, tmp_path / "library.abi3.so")
    names = subprocess.run(
        ["nm", "-D", "--defined-only", str(tmp_path / "library.abi3.so")], capture_output=True, text=True, check=True
    )
    assert [line.split()[-1] for line in names.stdout.splitlines()] == [f"PyInit_{MODULE}"]
