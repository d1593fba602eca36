"""The verb `pack --dask`: files are packed on the workers of a Dask cluster.

tuckfold pack images.npy -o images.tuck --dask tcp://scheduler:8786 --codec "dct_quant(rate=4)"
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import tuckfold

_SHARD_BYTES = 256 << 20  # of samples, unpacked, unless --shards is given
_HDF5 = (".h5", ".hdf5", ".hdf", ".nc")
_HELP = """pack samples of files on the workers of a Dask cluster

Every task packs a shard; a task whose worker is killed is run again elsewhere. OUT.tuck, which lists the shards,
appears when all are complete. Workers need tuckfold installed, and must see inputs and output under the same paths.
Inputs are .npy files, HDF5 files, folders of Zarr and .tuck files; other inputs are packed without --dask."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(f"[pack] {message}; see 'tuckfold pack --dask ADDRESS --help'")


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = _Parser(
        "tuckfold pack",
        description=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("input", nargs="+", help="files to read")
    parser.add_argument("-o", "--out", required=True, metavar="OUT.tuck")
    parser.add_argument("--dask", required=True, metavar="SCHEDULER", help="its address, such as tcp://host:8786, or its file, scheduler.json")  # fmt: skip
    parser.add_argument("--codec", action="append", default=[], metavar="[NAME=]SPEC", help="for arrays whose samples have two axes or more, or for the one that is named")  # fmt: skip
    parser.add_argument("--max-error", type=float, metavar="X", help="a bound for every value; chunks that exceed it are stored raw")  # fmt: skip
    parser.add_argument("--fill", action="append", default=[], metavar="[NAME=]VALUE", help="a value that stands for missing ones and comes back exactly, beside those that files name")  # fmt: skip
    parser.add_argument("--select", action="append", metavar="NAME", help="an array to read; again for others; else all")  # fmt: skip
    parser.add_argument("--side-by-side", action="store_true", help="each input is an array, named as the file up to its first dot")  # fmt: skip
    parser.add_argument("--shards", type=int, metavar="N", help="files to write, each by a task; else one for each 256 MiB of values")  # fmt: skip
    parser.add_argument("--samples-per-chunk", type=int, default=0, metavar="N")
    parser.add_argument("--metadata", metavar="JSON", help="an object, or @FILE with one")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("-f", "--force", action="store_true", help="replace a dataset that exists")
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    options = parser.parse_args(words)
    if options.shards is not None and options.shards < 1:
        parser.error(f"--shards must be 1 or more, got {options.shards}")
    return options


# ---- inputs: what is in them, and some samples, which a worker reads


def _kind_of(path: Path) -> str:
    if not path.exists():
        raise FileNotFoundError(f"[pack] there is no '{path}'")
    if path.suffix == ".npy":
        return "npy"
    if path.suffix in _HDF5:
        return "hdf5"
    if path.is_dir() and any((path / name).exists() for name in ("zarr.json", ".zarray", ".zgroup")):  # fmt: skip
        return "zarr"
    if path.suffix == ".tuck":
        return "tuck"
    raise NotImplementedError(
        f"[pack] --dask reads .npy, HDF5, Zarr and .tuck, not '{path.name}'; pack it without --dask"
    )


def _open(kind: str, path: str) -> dict[str, Any]:
    """Arrays by name, of which slices are read."""
    if kind == "npy":
        import numpy as np

        return {"data": np.load(path, mmap_mode="r")}
    if kind == "tuck":
        return dict(tuckfold.open(path))
    if kind == "zarr":
        import zarr

        found = zarr.open(path, mode="r")
        return {"data": found} if isinstance(found, zarr.Array) else dict(found.arrays())
    import h5py

    arrays: dict[str, Any] = {}
    file = h5py.File(path, "r")
    file.visititems(lambda name, item: arrays.update({name: item}) if isinstance(item, h5py.Dataset) and item.ndim else None)  # fmt: skip
    return arrays


def read_block(kind: str, path: str, name: str, begin: int, end: int) -> Any:
    """Samples of an array, on a worker."""
    import numpy as np

    return np.asarray(_open(kind, path)[name][begin:end])


def _inputs(options: argparse.Namespace) -> dict[str, list[tuple[str, str, str, Any]]]:
    """For each array the files that have its samples, one after the other."""
    found: dict[str, list[tuple[str, str, str, Any]]] = {}
    for number, text in enumerate(options.input):
        path = Path(text).absolute()
        kind = _kind_of(path)
        arrays = _open(kind, str(path))
        if options.select:
            missing = [name for name in options.select if name not in arrays]
            if missing and not options.side_by_side:
                raise ValueError(f"[pack] '{path.name}' has no array '{missing[0]}', but {', '.join(arrays)}")  # fmt: skip
            arrays = {name: arrays[name] for name in options.select if name in arrays}
        if options.side_by_side:
            if len(arrays) != 1:
                raise ValueError(f"[pack] --side-by-side needs inputs of one array, and '{path.name}' has {len(arrays)}")  # fmt: skip
            ((inside, array),) = arrays.items()
            name = path.name.split(".")[0]
            if name in found:
                raise ValueError(f"[pack] two inputs are named '{name}'; rename one")
            found[name] = [(kind, str(path), inside, array)]
            continue
        if number > 0 and list(arrays) != list(found):
            raise ValueError(f"[pack] '{path.name}' has the arrays {', '.join(arrays)}, and those before it {', '.join(found)}; --side-by-side makes an array of each input")  # fmt: skip
        for name, array in arrays.items():
            found.setdefault(name, []).append((kind, str(path), name, array))
    if not found:
        raise ValueError("[pack] the inputs have no arrays")
    return found


def _dask_arrays(inputs: dict[str, list[tuple[str, str, str, Any]]], shards: int | None) -> dict[str, Any]:  # fmt: skip
    """Arrays in blocks of samples that workers read."""
    import dask
    import dask.array as da
    import numpy as np

    read = dask.delayed(read_block, pure=True)
    counts = {name: sum(part[3].shape[0] for part in parts) for name, parts in inputs.items()}
    if len(set(counts.values())) > 1:
        raise ValueError(f"[pack] arrays must have as many samples each, got {counts}; --select leaves some out")  # fmt: skip
    samples = next(iter(counts.values()))
    if samples == 0:
        raise ValueError("[pack] the inputs have no samples")
    total = sum(math.prod(part[3].shape) * np.dtype(part[3].dtype).itemsize for parts in inputs.values() for part in parts)  # fmt: skip
    if shards is None:
        shards = max(1, -(-total // _SHARD_BYTES))
    each = -(-samples // min(shards, samples))
    made = {}
    for name, parts in inputs.items():
        blocks = []
        for kind, path, inside, array in parts:
            for begin in range(0, array.shape[0], each):
                end = min(begin + each, array.shape[0])
                block = read(kind, path, inside, begin, end)
                blocks.append(da.from_delayed(block, (end - begin, *array.shape[1:]), np.dtype(array.dtype)))  # fmt: skip
        made[name] = da.concatenate(blocks).rechunk({0: each})
    return made


def _fill(options: argparse.Namespace, inputs: dict[str, list[tuple[str, str, str, Any]]]) -> dict[str, tuple[float, ...]]:  # fmt: skip
    """The fill values that files name, as `pack` without --dask takes them, and those of --fill."""
    found: dict[str, dict[str, float]] = {name: {} for name in inputs}
    for name, parts in inputs.items():
        for kind, _, _, array in parts:
            named = array.fill if kind == "tuck" else _named_as_missing(array)
            found[name] |= {repr(value): value for value in named}
    for text in options.fill:
        name, equal, value = text.rpartition("=")
        if equal and name not in inputs:
            raise ValueError(f"[pack] --fill names '{name}', and the arrays are {', '.join(inputs)}")  # fmt: skip
        try:
            number = float(value)
        except ValueError:
            raise ValueError(f"[pack] --fill must be a number, got '{value}'") from None
        takers = [n for n in ([name] if equal else inputs) if _in_dtype(number, inputs[n][0][3].dtype) is not None]  # fmt: skip
        if not takers:
            raise ValueError(f"[pack] --fill={text}: no array that may be packed with a loss can have {value}")  # fmt: skip
        for taker in takers:
            found[taker][repr(number)] = number
    return {name: tuple(values.values()) for name, values in found.items() if values}


def _in_dtype(value: float, dtype: Any) -> float | None:
    """As a value of the dtype; None where it has none, or where every codec keeps all values."""
    import numpy as np

    dtype = np.dtype(dtype)
    if dtype.kind != "f" and dtype not in (np.uint8, np.uint16):
        return None
    with np.errstate(all="ignore"):
        rounded = float(np.asarray(value).astype(dtype))
    if dtype.kind == "f":
        return rounded if math.isfinite(value) == math.isfinite(rounded) else None
    return rounded if rounded == value else None


def _named_as_missing(array: Any) -> list[float]:
    """_FillValue and missing_value, as netCDF has them, and NaN beside them."""
    import numpy as np

    values = []
    for attribute in ("_FillValue", "missing_value"):
        for value in np.atleast_1d(getattr(array, "attrs", {}).get(attribute, [])):
            number = _in_dtype(float(value), array.dtype) if value.dtype.kind in "iuf" else None
            values += [] if number is None else [number]
    return [*values, math.nan] if values and np.dtype(array.dtype).kind == "f" else values


def _warn_of_scale(inputs: dict[str, list[tuple[str, str, str, Any]]], max_error: float) -> None:
    """As `pack` without --dask: a bound is one of stored numbers, which readers of netCDF multiply."""
    import numpy as np

    for name, parts in inputs.items():
        kind, path, inside, array = parts[0]
        attributes = getattr(array, "attrs", {})
        if kind == "tuck":
            said = tuckfold.open(path).metadata.get("source", {})
            attributes = said.get("array_attributes", {}).get(inside, {})
        given = np.atleast_1d(attributes.get("scale_factor", 1))
        if len(given) != 1 or given.dtype.kind not in "iuf" or _in_dtype(0, array.dtype) is None:
            continue
        factor = abs(float(given[0]))
        if factor not in (0, 1) and math.isfinite(factor) and max_error > 0:
            warnings.warn(
                f"[pack] '{name}' has scale_factor {given[0]:.6g}: the bound {max_error:.6g} is one of stored "
                f"numbers, and {max_error * factor:.6g} of the values that netCDF readers make of them; "
                f"give {max_error / factor:.6g} for {max_error:.6g} of those",
                tuckfold.DataWarning,
                stacklevel=2,
            )


# ---- options


def _codecs(given: list[str], arrays: dict[str, Any]) -> dict[str, str]:
    """A codec for each array that gets one."""
    codecs: dict[str, str] = {}
    named: dict[str, str] = {}
    for text in given:
        name, equal, spec = text.partition("=")
        if equal and "(" not in name:
            if name not in arrays:
                raise ValueError(f"[pack] --codec names '{name}', and the arrays are {', '.join(arrays)}")  # fmt: skip
            named[name] = spec
        else:
            codecs |= {name: text for name, array in arrays.items() if array.ndim > 2}
            if not codecs:
                raise ValueError(f"[pack] no array has samples of two axes or more for {text}; name one: --codec NAME={text}")  # fmt: skip
    return codecs | named


def _metadata(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    made = json.loads(Path(text[1:]).read_text() if text.startswith("@") else text)
    if not isinstance(made, dict):
        raise ValueError("[pack] --metadata must be a JSON object")
    return made


def _client(scheduler: str) -> Any:
    import distributed

    if Path(scheduler).is_file():
        return distributed.Client(scheduler_file=scheduler)
    return distributed.Client(scheduler)


def _pack(options: argparse.Namespace) -> None:
    import tuckfold.dask

    inputs = _inputs(options)
    if options.max_error is not None and not options.quiet:
        _warn_of_scale(inputs, options.max_error)
    with _client(options.dask):
        arrays = _dask_arrays(inputs, options.shards)
        with tuckfold.dask.pack(
            options.out,
            arrays,
            codec=_codecs(options.codec, arrays) or None,
            max_error=options.max_error,
            fill=_fill(options, inputs) or None,
            metadata=_metadata(options.metadata),
            force=options.force,
            samples_per_chunk=options.samples_per_chunk,
            seed=options.seed,
        ) as made:
            shards = len(json.loads(Path(options.out).read_text())["shards"])
            if options.json:
                sizes = {name: {"codec": str(a.codec), "packed_bytes": a.packed_bytes, "ratio": a.ratio} for name, a in made.items()}  # fmt: skip
                print(json.dumps({"path": options.out, "samples": made.samples, "shards": shards, "bytes": made.nbytes, "arrays": sizes}))  # fmt: skip
            elif not options.quiet:
                print(made)
                print(f"in {shards} shards")


def main(words: Sequence[str] | None = None) -> int:
    """Returns the exit code of the command line tool for what went wrong."""
    try:
        options = _arguments(words)
        with warnings.catch_warnings():
            warnings.simplefilter("always", tuckfold.DataWarning)
            warnings.showwarning = _say  # type: ignore[assignment]
            _pack(options)
    except ModuleNotFoundError as error:
        return _fail(4, f"[pack] --dask needs {error.name}; pip install dask distributed")
    except tuckfold.CorruptDataError as error:
        return _fail(3, error)
    except NotImplementedError as error:
        return _fail(4, error)
    except ValueError as error:
        return _fail(2, error)
    except OSError as error:
        return _fail(5, error)
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # such as a task whose workers were killed again and again
        return _fail(5, f"[pack] {type(error).__name__}: {error}")
    return 0


def _say(message: Warning | str, *_: object) -> None:
    print(f"tuckfold: warning: {message}", file=sys.stderr)


def _fail(code: int, error: object) -> int:
    print(f"tuckfold: {error}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
