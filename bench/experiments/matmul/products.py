"""Products of matrices by their names: kernels of our own, and the vendor's through torch.

Dense ones write to memory that the caller gives: fresh pages would take longer than the work where the result is large.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from ctypes import c_double, c_int, c_int64, c_void_p

import torch
from torch import Tensor

from bench.record import ROOT

BUILD = ROOT / "build/release"


def _library(device: str) -> ctypes.CDLL:
    """Builds it where it is older than its source; a bundle for a GPU has it."""
    name = "study_matmul" if device == "cpu" else "study_matmul_cuda"
    if (BUILD / "CMakeCache.txt").exists():
        subprocess.run(
            ["cmake", "--build", str(BUILD), "--target", name],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    return ctypes.CDLL(str(BUILD / f"studies/lib{name.removeprefix('study_')}.so"))


class Products:
    """Each gives c = a b for a of m x n and b of n x k."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._library = _library(device)
        self._cuda = device != "cpu"

    def _call(self, name: str, *arguments: Tensor | int) -> None:
        words = [c_void_p(x.data_ptr()) if isinstance(x, Tensor) else c_int64(x) for x in arguments]
        if not self._cuda:
            getattr(self._library, f"study_{name}")(*words)
            return
        function = getattr(self._library, f"study_cuda_{name}")
        function.restype = c_int
        if error := function(*words, c_void_p(torch.cuda.current_stream().cuda_stream)):
            raise RuntimeError(f"[matmul] {name}: CUDA error {error}")

    def dense(self) -> dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]]:
        def own(name: str) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
            def run(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
                self._call(name, a, b, c, a.shape[0], a.shape[1], b.shape[1])
                return c

            return run

        def vendor(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
            return torch.mm(a, b, out=c)

        blocked = "shared" if self._cuda else "blocked"
        return {"naive": own("naive"), blocked: own(blocked), "vendor": vendor}

    def sparse(self) -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
        """Of a in the form that sparse_form gives."""

        def csr(a: Tensor, b: Tensor) -> Tensor:
            c = b.new_empty(a.shape[0], b.shape[1])
            parts = (a.crow_indices(), a.col_indices(), a.values())
            self._call("csr", *parts, b, c, a.shape[0], b.shape[1])
            return c

        def coo(a: Tensor, b: Tensor) -> Tensor:
            c = b.new_empty(a.shape[0], b.shape[1])
            rows, columns = a.indices()
            parts = (rows.contiguous(), columns.contiguous(), a.values(), a.values().numel())
            self._call("coo", *parts, b, c, a.shape[0], b.shape[1])
            return c

        return {
            "csr": csr,
            "coo": coo,
            "vendor_csr": torch.sparse.mm,
            "vendor_coo": torch.sparse.mm,
        }

    def peak(self) -> tuple[c_double, object]:
        """Operations of a loop in registers, and the loop; of the CPU."""
        sink = torch.full((256,), 0.5)
        function = self._library.study_peak
        function.restype = c_double
        return function, sink


def sparse_form(name: str, dense: Tensor) -> Tensor:
    return dense.to_sparse_csr() if "csr" in name else dense.to_sparse_coo().coalesce()
