"""Streams, graphs and memory: pack and unpack take part in what torch does on a GPU."""

import torch

import gpu
import tuckfold
import tuckfold.torch as tft

pytestmark = gpu.marks
each = gpu.each
FIXED = [spec for spec in gpu.LOSSY + ["raw"] if gpu.runs(spec)]
SHAPE = (16, 3, 128, 128)
SLEEP = 100_000_000  # cycles: longer than all calls of a test take to queue


def needs_gpu() -> None:
    if not gpu.ON_GPU:
        gpu.skip("the CPU has no streams")


def values(spec: str, turn: int) -> torch.Tensor:
    return gpu.make(spec, "f32", SHAPE).cuda().roll(turn * 7, -1) * (1 + turn)


def through(spec: str, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    packed = tft.pack(x, spec)
    return packed, tft.unpack(packed, spec, x.shape, x.dtype)


@each(*[(spec,) for spec in FIXED])
def test_a_graph_packs_what_its_input_holds(spec: str) -> None:
    needs_gpu()
    x = values(spec, 0)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        through(spec, x)  # kernels load when first launched
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        packed, back = through(spec, x)
    for turn in range(3):
        new = values(spec, turn)
        x.copy_(new)
        graph.replay()
        wanted = tft.pack(new.cpu(), spec)
        assert gpu.same(packed, wanted)
        assert gpu.same(back, tft.unpack(wanted, spec, SHAPE, torch.float32))


@each(("block_quant(bits=2, round=stochastic)",), ("dct_chop | block_quant(round=stochastic)",))
def test_a_graph_serves_every_seed(spec: str) -> None:
    needs_gpu()
    x = torch.rand(SHAPE, device="cuda")
    seed = torch.zeros((), dtype=torch.int64, device="cuda")
    tft.pack(x, spec, seed=seed)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        packed = tft.pack(x, spec, seed=seed)
    for turn in (3, 4):
        seed.fill_(turn)
        graph.replay()
        assert gpu.same(packed, tft.pack(x.cpu(), spec, seed=turn))


def test_a_graph_packs_many_tensors() -> None:
    """Their places are kept by the graph, not by the call that recorded it."""
    needs_gpu()
    spec = "dct_chop(keep=3)"
    xs = [torch.rand(3, 8 * (1 + i % 5), 40, device="cuda") for i in range(300)]
    tft.unpack_many(tft.pack_many(xs, spec), spec, out=[torch.empty_like(x) for x in xs])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        packed = tft.pack_many(xs, spec)
        back = tft.unpack_many(packed, spec, out=[torch.empty_like(x) for x in xs])
    for turn in range(2):
        for x in xs:
            x.add_(turn)
        graph.replay()
        for i, x in enumerate(xs):
            assert gpu.same(packed[i], tft.pack(x.cpu(), spec))
            assert gpu.same(back[i], tft.unpack(packed[i].cpu(), spec, x.shape, x.dtype))


def test_kernels_that_start_early_see_what_came_before() -> None:
    """Each call reads what the one in front of it has just written, a thousand times over."""
    needs_gpu()
    spec = "dct_chop(keep=8)"
    for shape in [(2, 64, 64), (8, 128, 128), (64, 3, 256, 256)]:
        x = torch.rand(shape, device="cuda")
        wanted = x.cpu()
        for _ in range(20):
            wanted = tft.unpack(tft.pack(wanted, spec), spec, shape)
        for _ in range(50 if x.numel() < 1 << 20 else 5):
            y = x
            for _ in range(20):
                y = tft.unpack(tft.pack(y, spec), spec, shape)
            assert gpu.same(y, wanted)


def test_a_graph_takes_exact_codecs_without_waiting() -> None:
    needs_gpu()
    for spec, dtype in gpu.cases(["mask", "bits(width=8)"], ("i64",)):
        x = gpu.make(spec, dtype, (64, 256)).cuda()
        through_dtype = lambda: tft.unpack(tft.pack(x, spec), spec, x.shape, x.dtype)  # noqa: B023, E731
        through_dtype()
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            back = through_dtype()
        graph.replay()
        assert torch.equal(back, x)


@each(*[(spec,) for spec in FIXED])
def test_a_side_stream_is_followed(spec: str) -> None:
    """What is queued before the call is done before it, without a wait of ours."""
    needs_gpu()
    x = values(spec, 0)
    wanted = through(spec, x * 3)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        through(spec, x * 3)  # memory of this stream is at hand afterwards
        stream.synchronize()
        torch.cuda._sleep(SLEEP)
        tripled = x * 3
        packed, back = through(spec, tripled)
        busy = not stream.query()
    stream.synchronize()
    assert busy, "pack or unpack waited for the stream"
    assert torch.equal(packed, wanted[0])
    assert gpu.same(back, wanted[1])


def test_streams_at_the_same_time() -> None:
    needs_gpu()
    spec = FIXED[-2] if len(FIXED) > 1 else FIXED[0]
    inputs = [values(spec, turn) for turn in range(4)]
    streams = [torch.cuda.Stream() for _ in inputs]
    torch.cuda.synchronize()
    results = [[] for _ in inputs]
    for _ in range(20):
        for x, stream, result in zip(inputs, streams, results, strict=True):
            with torch.cuda.stream(stream):
                result.append(through(spec, x))
    torch.cuda.synchronize()
    for x, result in zip(inputs, results, strict=True):
        wanted = tft.pack(x.cpu(), spec)
        assert all(gpu.same(packed, wanted) for packed, _ in result)


@each(*[(spec,) for spec in FIXED])
def test_memory_is_torchs_alone(spec: str) -> None:
    """The device has as much free memory after many calls as after one; torch counts what is used."""
    needs_gpu()
    x = torch.rand(64, 3, 256, 256, device="cuda")
    out = torch.empty_like(x)

    def calls(count: int) -> int:
        for _ in range(count):
            tft.unpack(tft.pack(x, spec), spec, out=out)
        torch.cuda.synchronize()
        return torch.cuda.mem_get_info()[0]

    first = calls(2)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    assert calls(20) == first
    fit = tft.layout(spec, x.dtype, x.shape)
    peak = torch.cuda.max_memory_allocated() - before
    assert peak <= fit.max_bytes + 2 * fit.workspace_bytes + (4 << 20), (peak, fit)


def test_a_fixed_size_waits_for_nothing() -> None:
    needs_gpu()
    x = torch.rand(64, 64, device="cuda")
    for spec in FIXED:
        through(spec, x)
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")  # torch's own waits; ours would keep query() true
        try:
            torch.cuda._sleep(SLEEP)
            through(spec, x)
            assert not torch.cuda.current_stream().query(), spec
        finally:
            torch.cuda.set_sync_debug_mode("default")
            torch.cuda.synchronize()


def test_each_device_has_its_own_stream() -> None:
    needs_gpu()
    if torch.cuda.device_count() < 2:
        gpu.skip("one GPU alone")
    for spec in FIXED:
        x = values(spec, 1)
        there = x.to("cuda:1")
        assert torch.cuda.current_device() == 0
        packed, back = through(spec, there)
        assert packed.device == back.device == torch.device("cuda:1")
        assert torch.cuda.current_device() == 0
        assert gpu.same(packed, tft.pack(x, spec))
        with gpu.raises(ValueError, "one device"):
            tft.unpack(packed, spec, out=x)


def test_the_library_sees_the_devices_of_torch() -> None:
    needs_gpu()
    assert tuckfold.cuda_devices() == torch.cuda.device_count()
