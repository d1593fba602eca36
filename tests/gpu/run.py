#!/usr/bin/env python3
"""Runs the tests that need a GPU with nothing but Python, torch and numpy: no pytest, no compiler.

  python3 build/gpu/run.py --commit 0123abc --out results.json

Tests run in a child process. One that spoils the device, crashes or hangs costs its own result; the
others go on in a new child. `--device cpu` runs those that need no stream on the CPU.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUNDLED = (HERE / "tuckfold").is_dir()  # else this is the source tree
ROOT = HERE if BUNDLED else HERE.parents[1]
TESTS = HERE / "tests" if BUNDLED else ROOT / "tests/python/package"
PROGRAM = (
    HERE / "bin/tuckfold_cuda_tests" if BUNDLED else ROOT / "build/release/tuckfold_cuda_tests"
)
MARK = "\x1e"  # before each line that is a result, whatever else tests print


# ---- in the child


def collect() -> Iterator[tuple[str, object, tuple]]:
    """Every test function of every module, once for each of its cases."""
    for path in sorted(TESTS.glob("test_gpu_*.py")):
        module = importlib.import_module(path.stem)
        for name, function in vars(module).items():
            if name.startswith("test_") and callable(function):
                for case in getattr(function, "cases", [()]):
                    words = "-".join(str(word) for word in case)
                    yield f"{path.stem}.{name}" + (f"[{words}]" if case else ""), function, case


def run_one(name: str, function, case: tuple) -> dict:
    import gpu

    start, text = time.perf_counter(), ""
    try:
        function(*case)
        result = "ok"
    except gpu.Skipped as skipped:
        result, text = "skipped", str(skipped)
    except Exception:
        result, text = "FAILED", traceback.format_exc()
    return {"name": name, "result": result, "seconds": time.perf_counter() - start, "text": text}


def device_works() -> bool:
    import torch

    try:
        torch.cuda.synchronize()
        return True
    except Exception:
        return False


def child(start: int, only: str) -> None:
    """Prints what it will run, then the result of each from `start` on."""
    import gpu

    tests = [test for test in collect() if only in test[0]]
    print(MARK + json.dumps([name for name, _, _ in tests]), flush=True)
    for test in tests[start:]:
        report = run_one(*test)
        print(MARK + json.dumps(report), flush=True)
        if report["result"] == "FAILED" and gpu.ON_GPU and not device_works():
            return


# ---- in the parent


class Child:
    """A process that runs tests, and the lines that it prints."""

    def __init__(self, start: int, only: str) -> None:
        command = [sys.executable, __file__, "--child", str(start), "--only", only]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            if line.startswith(MARK):
                self.lines.put(line[1:])
        self.lines.put(None)

    def next(self, seconds: float) -> object | None:
        """The next result; None once the process has ended, or hangs and is ended."""
        try:
            line = self.lines.get(timeout=seconds)
        except queue.Empty:
            line = None
            self.process.kill()
        return None if line is None else json.loads(line)


def python_tests(only: str, limit: float) -> Iterator[dict]:
    done, names = 0, None
    while names is None or done < len(names):
        process = Child(done, only)
        names = process.next(limit)
        if names is None:
            yield {"name": "collecting", "result": "FAILED", "seconds": 0, "text": "see above"}
            return
        before = done
        while done < len(names) and (report := process.next(limit)) is not None:
            done += 1
            yield report
        code = process.process.wait()
        if done < len(names) and (code != 0 or done == before):
            text = f"the process ended with {code}, or took more than {limit:.0f} s"
            yield {"name": names[done], "result": "FAILED", "seconds": limit, "text": text}
            done += 1


def cpp_tests(only: str, limit: float) -> Iterator[dict]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.json"
        command = [PROGRAM, "--gtest_brief=1", f"--gtest_output=json:{path}"]
        if only:
            command.append(f"--gtest_filter=*{only}*")
        start = time.perf_counter()
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
            said = done.stdout + done.stderr
        except subprocess.TimeoutExpired:
            said = f"took more than {limit:.0f} s"
        if not path.exists():
            seconds = time.perf_counter() - start
            yield {"name": PROGRAM.name, "result": "FAILED", "seconds": seconds, "text": said}
            return
        for suite in json.loads(path.read_text())["testsuites"]:
            for test in suite["testsuite"]:
                failures = test.get("failures", [])
                skipped = test.get("result") == "SKIPPED" or test.get("skipped")
                yield {
                    "name": f"{suite['name']}.{test['name']}",
                    "result": "FAILED" if failures else "skipped" if skipped else "ok",
                    "seconds": float(test["time"].removesuffix("s")),
                    "text": "\n".join(f["failure"] for f in failures),
                }


def machine() -> dict:
    """What the results hold for."""
    import torch

    import tuckfold

    there = torch.cuda.is_available()
    return {
        "device": torch.cuda.get_device_name(0) if there else None,
        "devices": torch.cuda.device_count(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": sys.version.split()[0],
        "tuckfold": tuckfold.__version__,
        "on_cuda": [codec.name for codec in tuckfold.list_codecs() if codec.cuda],
    }


def show(report: dict) -> None:
    reason = f": {report['text']}" if report["result"] == "skipped" and report["text"] else ""
    print(f"{report['result']:7} {report['name']} {report['seconds']:.2f} s{reason}", flush=True)
    if report["result"] == "FAILED":
        print("        " + report["text"].strip().replace("\n", "\n        "), flush=True)


def commit_of(given: str) -> str:
    """As given, as the bundle says, or as git says."""
    if given:
        return given
    if BUNDLED:
        return (HERE / "COMMIT").read_text().strip()
    words = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    return subprocess.run(words, capture_output=True, text=True).stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commit", default="", help="what was built; else the bundle says it")
    parser.add_argument("--out", type=Path, help="a JSON file for the results")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--only", default="", help="tests whose names contain this")
    parser.add_argument("--part", choices=("cpp", "python"), help="one of the two alone")
    parser.add_argument("--limit", type=float, default=300, help="seconds that a test may take")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()

    sys.path[:0] = [str(HERE if BUNDLED else ROOT / "python"), str(TESTS)]
    if not BUNDLED:
        os.environ.setdefault("TUCKFOLD_LIBRARIES", str(ROOT / "build/release/python"))
    if arguments.child is not None:
        child(arguments.child, arguments.only)
        return 0

    os.environ["TUCKFOLD_TEST_DEVICE"] = arguments.device
    results = {"commit": commit_of(arguments.commit), "machine": machine()}
    print(json.dumps(results), flush=True)
    import gpu

    if gpu.why_not():
        print(f"nothing ran: {gpu.why_not()}")
        return 1
    tests = []
    if arguments.device == "cuda" and arguments.part != "python":
        tests += cpp_tests(arguments.only, 2 * arguments.limit)
        for report in tests:
            show(report)
    if arguments.part != "cpp":
        for report in python_tests(arguments.only, arguments.limit):
            show(report)
            tests.append(report)
    counts = {word: sum(t["result"] == word for t in tests) for word in ("ok", "FAILED", "skipped")}
    print(", ".join(f"{count} {word}" for word, count in counts.items()))
    if arguments.out:
        results |= {"counts": counts, "tests": tests}
        arguments.out.write_text(json.dumps(results, indent=1) + "\n")
    return int(counts["FAILED"] > 0 or counts["ok"] == 0)


if __name__ == "__main__":
    sys.exit(main())
