"""The NEON kernels, run by an emulator, against plain C++ on this processor."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

Array = npt.NDArray[Any]
Emulated = Callable[[str, int], str]  # instruction set, threads → lines

ROOT = Path(__file__).parents[2]
COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64-static"
PROCESSORS = {"neon": "cortex-a57", "neon_dot": "neoverse-n1", "portable": "cortex-a57"}
MISSING = [p for p in ("cmake", "ninja", COMPILER, EMULATOR) if shutil.which(p) is None]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
]


def built(folder: str, *options: str) -> str:
    """Build `kernels/tools/logits_driver.cpp` below build/."""
    where = str(ROOT / "build" / folder)
    if not Path(where, "build.ninja").exists():  # else another may be building from it
        configure = ["cmake", "-G", "Ninja", "-S", str(ROOT / "kernels"), "-B", where]
        subprocess.run([*configure, "-DFLOORLINE_MODULE=OFF", *options], check=True)
    subprocess.run(["cmake", "--build", where, "--target", "logits_driver"], check=True)
    return f"{where}/logits_driver"


@pytest.fixture(scope="module")
def driver() -> str:
    return built(
        "kernels-aarch64",
        "-DCMAKE_SYSTEM_NAME=Linux",
        "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
        f"-DCMAKE_CXX_COMPILER={COMPILER}",
        "-DCMAKE_EXE_LINKER_FLAGS=-static",
    )


def output(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


@pytest.fixture(scope="module")
def emulated(driver: str) -> Emulated:
    """Run the driver on the least processor that has the instruction set, each case once."""

    @functools.cache
    def run(isa: str, threads: int) -> str:
        return output(EMULATOR, "-cpu", PROCESSORS[isa], driver, isa, str(threads))

    return run


def by_case(lines: str) -> dict[str, Array]:
    """Give the numbers of each case [rows, 1 + V]: the greatest logit's id, then the logits."""
    rows: dict[str, list[list[float]]] = {}
    for line in lines.splitlines():
        *case, numbers = line.split(" ", 4)
        rows.setdefault(" ".join(case), []).append([float(n) for n in numbers.split()])
    return {case: np.array(numbers) for case, numbers in rows.items()}


@pytest.fixture(scope="module")
def expected() -> dict[str, Array]:
    return by_case(output(built("release"), "portable", "1"))


@pytest.mark.parametrize("isa", ["neon", "neon_dot"])
def test_a_processor_is_given_the_best_that_it_runs(driver: str, isa: str) -> None:
    assert output(EMULATOR, "-cpu", PROCESSORS[isa], driver).strip() == isa


def test_byte_products_are_refused_where_the_processor_has_none(driver: str) -> None:
    command = [EMULATOR, "-cpu", "cortex-a57", driver, "neon_dot", "1"]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "no instruction set 'neon_dot' here" in refused.stderr


def check_rows(case: str, logits: Array, plain: Array) -> None:
    lost = np.linalg.norm(logits - plain, axis=1)
    sizes = np.linalg.norm(plain, axis=1)
    if case.endswith("fp32 fp32"):  # activations and KV
        assert (lost / sizes).max() < 1e-5, case
    else:  # a value halfway between two steps may fall to either side; most rows have none
        assert np.median(lost / sizes) < 1e-4, case
        assert np.linalg.norm(lost) / np.linalg.norm(sizes) < 5e-3, case


@pytest.mark.parametrize("isa", PROCESSORS)
def test_a_step_computes_what_plain_code_computes_on_another_processor(
    isa: str, emulated: Emulated, expected: dict[str, Array]
) -> None:
    found = by_case(emulated(isa, 1))
    assert list(found) == list(expected)
    for case, there in expected.items():
        logits, plain = found[case][:, 1:], there[:, 1:]
        finite = np.isfinite(plain).all(axis=1)
        assert finite.any()
        assert finite.all() != case.startswith("spoilt")
        np.testing.assert_array_equal(np.isnan(logits), np.isnan(plain))
        named = np.where(finite, logits.argmax(axis=1), -1)
        np.testing.assert_array_equal(found[case][:, 0], named)
        check_rows(case, logits[finite], plain[finite])


@pytest.mark.parametrize("isa", ["neon", "neon_dot"])
def test_threads_change_no_bit_of_an_emulated_step(isa: str, emulated: Emulated) -> None:
    assert emulated(isa, 2) == emulated(isa, 1)


def test_byte_products_change_no_bit(emulated: Emulated) -> None:
    assert emulated("neon_dot", 1) == emulated("neon", 1)
