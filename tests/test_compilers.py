"""What is missing to compile products of packed weights."""

import importlib
import importlib.util
import shutil
import subprocess
import sys

import pytest

from poolhouse_node.compilers import cpu_fault, cuda_fault


def cpu_fault_when(monkeypatch, found, error=None):
    """What is said when numba is there or not, and refuses to be imported."""

    def load(name):
        assert name == "numba"
        if error is not None:
            raise error

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if found else None)
    monkeypatch.setattr(importlib, "import_module", load)
    return cpu_fault.__wrapped__()


class TestForTheCpu:
    def test_without_numba_it_is_named(self, monkeypatch):
        assert "not installed (pip" in cpu_fault_when(monkeypatch, found=False)

    @pytest.mark.parametrize(
        "error",
        [ImportError("Numba needs NumPy 2.4 or less."), OSError("no libllvmlite.so\nmore of it")],
    )
    def test_a_numba_that_refuses_is_none(self, monkeypatch, error):
        fault = cpu_fault_when(monkeypatch, True, error)
        first_line = str(error).partition("\n")[0].removesuffix(".")
        assert f"{type(error).__name__}: {first_line} (pip" in fault

    def test_one_that_works_is_no_fault(self, monkeypatch):
        assert cpu_fault_when(monkeypatch, True) is None
        monkeypatch.undo()
        assert cpu_fault() is None, "the node needs it"


class TestForCuda:
    @pytest.fixture
    def fault_with(self, monkeypatch):
        def ask(triton, programs, cc=None):
            monkeypatch.delenv("CC", raising=False)
            if cc is not None:
                monkeypatch.setenv("CC", cc)
            found = object() if triton else None
            monkeypatch.setattr(importlib.util, "find_spec", {"triton": found}.get)
            monkeypatch.setattr(shutil, "which", {each: each for each in programs}.get)
            return cuda_fault()

        return ask

    @pytest.mark.parametrize(
        ("programs", "cc"), [({"gcc"}, None), ({"clang"}, None), ({"/opt/cc"}, "/opt/cc")]
    )
    def test_triton_and_a_c_compiler_are_enough(self, fault_with, programs, cc):
        assert fault_with(True, programs, cc) is None

    @pytest.mark.parametrize(
        ("triton", "programs", "cc", "said"),
        [
            (False, {"gcc"}, None, "Triton is not installed"),
            (True, set(), None, "apt install gcc"),
            (True, {"gcc"}, "icc", "'icc', is not there"),
        ],
    )
    def test_what_is_missing_is_said(self, fault_with, triton, programs, cc, said):
        assert said in fault_with(triton, programs, cc)


def test_the_questions_cost_no_torch():
    code = (
        "import sys\n"
        "from poolhouse_node.compilers import cpu_fault, cuda_fault\n"
        "cpu_fault(), cuda_fault()\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
