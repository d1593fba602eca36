"""The benchmark of CUDA kernels: its arithmetic, and all its calls on tensors of the CPU."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
LIBRARIES = Path(os.environ["TUCKFOLD_LIBRARIES"])
torch = pytest.importorskip("torch")
if not (LIBRARIES / "libtuckfold_c.so").exists():
    pytest.skip(f"no library in {LIBRARIES}; run ./dev build", allow_module_level=True)

from bench.gpu import clock as gpu_clock  # noqa: E402
from bench.gpu import codec as gpu_codec  # noqa: E402
from bench.gpu.bench import (  # noqa: E402
    LARGE,
    MIDDLE,
    SMALL,
    Bench,
    below_table,
    picked,
    size_class,
)
from bench.gpu.data import Data  # noqa: E402
from bench.record import Record  # noqa: E402


def bench(dry: bool = True) -> Bench:
    clock = gpu_clock.Clock(dry=True)
    clock.measure_roofline()
    record = Record("gpu", True, ROOT, "")
    data = Data(clock.device, True, None)
    made = Bench(clock, record, quick=True, peers=False, deadline=math.inf, data=data)
    clock.dry = dry
    return made


def test_small_arrays_rotate_over_half_a_gigabyte() -> None:
    assert gpu_clock.buffers_for(4_915_200, 5_000_000) == 100
    assert gpu_clock.buffers_for(149_000_000, 600_000_000) == 2
    assert gpu_clock.buffers_for(150_000_000, 160_000_000) == 1


def test_size_classes_are_those_of_the_floors() -> None:
    classes = [size_class(n) for n in (4_294_000_000, 314_572_800, 78_643_200, 4_915_200)]
    assert classes == [LARGE, MIDDLE, MIDDLE, SMALL]


def test_a_sample_is_whole_groups_of_blocks() -> None:
    for shape in ((5000, 3, 64, 64), (8192, 3, 104, 104), (53248, 3, 40, 40), (1 << 28,)):
        rows = gpu_codec.sample_rows(shape, gpu_codec.SAMPLE_BYTES)
        assert 0 < rows < shape[0]
        assert rows * math.prod(shape[1:]) % 16384 == 0
        assert (shape[0] - rows) * math.prod(shape[1:]) % 16384 == 0
    assert gpu_codec.sample_rows((5, 7, 9), gpu_codec.SAMPLE_BYTES) == 5


def test_picked_takes_a_tuple_for_any_of_its_entries() -> None:
    rows = [{"keep": 2, "way": "pack"}, {"keep": 3, "way": "pack"}, {"way": "unpack"}]
    assert picked(rows, way="pack", keep=(2, 4)) == rows[:1]


def test_a_figure_is_its_least_cell_and_a_failed_cell_is_below_any_floor() -> None:
    made = bench(dry=False)
    cells = [{"of_copy": 0.9, "codec": "a"}, {"of_copy": 0.8, "codec": "b"}]
    made.figure("k", "pack", cells, 0.7)
    made.figure("k", "pack", [*cells, {"codec": "c", "error": "no kernel"}], 0.7)
    made.figure("k", "pack", [], 0.7)
    first, second, third = made.record.figures
    assert (first.value, first.more["least_codec"], first.verdict) == (0.8, "b", "PASS")
    assert math.isnan(second.value) and second.verdict == third.verdict == "BELOW"


def test_wrong_bytes_and_values_are_found() -> None:
    made = bench()
    x = torch.randn(16, 64, 64)
    codec = gpu_codec.Codec(made.clock, "block_quant(bits=8)", tuple(x.shape))
    assert gpu_codec.check(codec, x)["packed_bytes"] == codec.layout.max_bytes
    pack = codec.packer

    def scribbles(x: torch.Tensor, out: torch.Tensor):  # as a kernel that skips its last byte
        def call() -> int:
            last = out[codec.layout.max_bytes - 1].clone()
            size = pack(x, out)()
            out[codec.layout.max_bytes - 1] = last
            return size

        return call

    codec.packer = scribbles
    with pytest.raises(gpu_codec.WrongError, match="unwritten"):
        gpu_codec.check(codec, x)
    codec.packer = pack
    with pytest.raises(gpu_codec.WrongError, match="not those of the CPU"):
        gpu_codec.compare_with_cpu(codec, x, x)


def test_a_case_that_fails_leaves_a_row_and_a_failure() -> None:
    made = bench()
    rows = made.both_ways("k", "dct_chop(keep=4)", (5,), torch.randn(5))
    assert "error" in rows["pack"] and "error" in rows["unpack"]
    assert len(made.failures) == 1


def test_the_clock_of_a_device_counts_events_and_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            log.append("record")

        def elapsed_time(self, other: object) -> float:
            return 2.0  # milliseconds

    class Graph:
        def replay(self) -> None:
            log.append("replay")

    class Capture:
        def __init__(self, graph: Graph) -> None: ...

        def __enter__(self) -> None:
            log.append("capture")

        def __exit__(self, *error: object) -> None: ...

    fakes = {"Event": Event, "CUDAGraph": Graph, "graph": Capture, "synchronize": lambda: None}
    fakes["current_stream"] = lambda: SimpleNamespace(cuda_stream=0)
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(gpu_clock, "GRAPH_WARM_UP_SECONDS", 0.001)
    clock = bench(dry=False).clock
    assert clock.single(lambda: log.append("call")) == pytest.approx(2e-3)
    assert log.count("call") == gpu_clock.ROUNDS + gpu_clock.WARM_UPS
    log.clear()
    calls = [lambda: log.append("call")] * 4
    assert clock.measure(calls) == pytest.approx(2e-3 / gpu_clock.GRAPH_CALLS)
    assert log.count("call") == gpu_clock.WARM_UPS + gpu_clock.GRAPH_CALLS
    assert log.index("capture") < log.index("replay")
    assert log.count("replay") > gpu_clock.ROUNDS  # those that warm up, too
    assert clock.copy(1000, 2) == pytest.approx(1024 / 2e-3 * gpu_clock.GRAPH_CALLS)


def test_a_dry_run_makes_every_kind_of_call(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    command = [sys.executable, "-m", "bench.gpu", "--dry-run", "--quick", "--out", out]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads(out.read_text())
    assert record["dry_run"] and record["failures"] == []
    kernels = {row["kernel"] for row in record["rows"]}
    assert kernels >= {"dct_chop", "dct_chop bf16", "fused", "small", "dct_quant", "bounded"}
    assert all("floor" not in figure for figure in record["figures"])  # times of a CPU say nothing


def test_what_is_below_its_floor_names_its_least_cell() -> None:
    made = bench(dry=False)
    cells = [{"of_copy": 0.5, "codec": "raw", "shape": "2x2"}, {"codec": "zstd", "error": "no"}]
    made.figure("k", "pack_of_copy", cells[:1], 0.97, size=LARGE)
    made.figure("k", "pack_of_copy", cells, 0.97, size=MIDDLE)
    lines = below_table(made.record.figures).splitlines()
    assert lines[1].split() == ["k", ">=1", "GB", "pack_of_copy", "0.50", "0.97", "raw", "2x2"]
    assert lines[2].endswith("raw 2x2, 1 of 2 cells failed")
