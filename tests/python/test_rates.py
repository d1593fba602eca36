"""The curves of quality over size, and how their names find room."""

import io
import math

import pytest

np = pytest.importorskip("numpy", reason="numpy is missing; ./dev demo installs it")
pytest.importorskip("PIL", reason="pillow is missing; ./dev demo installs it")
from PIL import Image  # noqa: E402

from bench.images import ImageSet  # noqa: E402
from demo import rates  # noqa: E402
from demo.report import html, plots  # noqa: E402
from demo.report.plots import Series  # noqa: E402


def wave(*shape: int) -> np.ndarray:
    places = np.indices(shape)
    return (127 + 60 * np.sin(places[-1] / 5) + 60 * np.cos(places[-2] / 7)).astype(np.uint8)


def test_stacks_repeat_edges_up_to_whole_blocks() -> None:
    images = wave(3, 28, 30)
    (stack,) = rates.stacks(images)
    assert stack.shape == (3 * 32, 32)
    assert np.array_equal(stack[32:60, :30], images[1])
    assert np.array_equal(stack[60:64, :30], np.repeat(images[1, -1:], 4, axis=0))


def test_stacks_stay_below_what_jpeg_takes() -> None:
    heights = [stack.shape[0] for stack in rates.stacks(np.zeros((5000, 28, 28), np.uint8))]
    assert len(heights) == 3
    assert max(heights) <= rates.JPEG_SIDE
    assert sum(heights) == 5000 * 32


@pytest.mark.parametrize("shape", [(3, 28, 28), (2, 16, 24, 3)])
def test_jpeg_point_is_what_the_file_says(shape: tuple[int, ...]) -> None:
    images = wave(*shape[:3])
    images = np.stack([images, images // 2, 255 - images], axis=3) if len(shape) == 4 else images
    bits, psnr = rates.jpeg_point(images, 80)
    (stack,) = rates.stacks(images)
    file = io.BytesIO()
    Image.fromarray(stack).save(file, "JPEG", quality=80, subsampling=0, optimize=True)
    assert bits == 8 * len(file.getvalue()) / images.size
    decoded = np.asarray(Image.open(file)).reshape(shape[0], -1, *stack.shape[1:])
    error = decoded[:, : shape[1], : shape[2]].astype(float) - images
    peak = int(images.max()) - int(images.min())
    assert math.isclose(psnr, 10 * math.log10(peak**2 / np.mean(error**2)))
    assert psnr > 30


def test_better_jpeg_takes_more_bits() -> None:
    (curve,) = rates.jpeg_curves(wave(4, 64, 64))
    assert [x for x, _, _ in curve.points] == sorted(x for x, _, _ in curve.points)
    assert curve.points[-1][1] > curve.points[0][1] + 10


def test_colour_has_a_curve_of_its_planes_too() -> None:
    labels = [one.label for one in rates.jpeg_curves(wave(2, 3, 16, 16))]
    assert labels == ["JPEG, colour", "JPEG, planes"]


def test_curves_are_of_few_images() -> None:
    images = ImageSet("a", "A", "a.", np.zeros((1000, 64, 64), np.uint8), (0,))
    assert rates.some_of(images).images.size <= rates.MOST_VALUES
    assert len(rates.some_of(images).images) == 334


def test_what_is_exact_is_not_on_the_curve() -> None:
    rows = [
        {"codec": "b", "packed_bytes": 200, "psnr_db": 50.0},
        {"codec": "a", "packed_bytes": 100, "psnr_db": 40.0},
        {"codec": "c", "packed_bytes": 300, "psnr_db": None},
    ]
    points = rates.series_of("x", "square", "circle", rows, 400).points
    assert [(x, y) for x, y, _ in points] == [(2.0, 40.0), (4.0, 50.0)]


def test_names_make_room_for_each_other() -> None:
    ends = [("bounded | zstd", [(20.0, 90.0), (100.0, 50.0 + step)]) for step in (0, 2, -1, 12)]
    placed = plots.place_names(ends)
    assert [name.words for name in placed] == [words for words, _ in ends]
    for index, name in enumerate(placed):
        assert not any(name.meets(other) for other in placed[:index])


def test_a_name_leaves_the_curves_free() -> None:
    flat = ("long", [(0.0, 54.0), (300.0, 54.0)])
    (name, _) = plots.place_names([("short", [(0.0, 80.0), (100.0, 50.0)]), flat])
    assert not any(name.covers(dot) for dot in plots.dots(flat[1]))


def test_plot_names_every_curve_that_it_shows() -> None:
    seen = Series("seen", "square", "circle", [(1, 30, "a"), (2, 40, "b"), (20, 60, "far")])
    out = Series("outside", "peer", "circle", [(20, 60, "far")])
    plot = plots.rate_plot([seen, out], 8)
    assert ">seen</text>" in plot
    assert "outside" not in plot
    assert plot.count("<circle") == 2


def test_caption_speaks_of_the_curves_that_are_there() -> None:
    few = [Series(name, "square", "circle", []) for name in ("dct_quant", "JPEG")]
    assert "SZ3" not in html.rates_caption(few)
    assert "zfp" not in html.rates_caption(few)
    more = [*few, *(Series(name, "", "", []) for name in ("zfp", "SZ3", "bounded | zstd"))]
    assert "JPEG, SZ3 and zstd give frequent" in html.rates_caption(more)
    assert "SZ3 promises the error" in html.rates_caption(more)
