"""bench/gpu.py without a GPU: all parts at tiny sizes; runs that go on, fail, or are merged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpu
import gpu_programs
import gpu_run
import pytest
import torch
from gpu_run import Job, Mismatch, Run, dealt, merge, perform
from gpu_summary import line, report, summary

ROOT = Path(__file__).resolve().parents[2]


def test_two_workers_measure_all_parts(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    given = ["--dry-run", "--workers", "2", "--kernels", "gelu,sum_last"]
    command = [sys.executable, str(ROOT / "bench" / "gpu.py"), *given]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "SYMSHAPE_CACHE": "0"}
    done = subprocess.run([*command, "--out", str(out)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    own = [tmp_path / f"gpu.{worker}.json" for worker in range(2)]
    assert all("all are measured" in file.with_suffix(".log").read_text() for file in own)
    record = json.loads(out.read_text())
    shares = [json.loads(file.read_text())["rows"] for file in own]
    assert all(shares) and len(record["rows"]) == sum(map(len, shares))
    parts = set(gpu.PARTS) if gpu_programs.can_pad() else set(gpu.PARTS) - {"padding"}
    assert {row["part"] for row in record["rows"]} == parts
    assert bool(record["summary"]["notes"]) != gpu_programs.can_pad()
    keys = [gpu_run.key_of(row) for row in record["rows"]]
    assert len(set(keys)) == len(keys)
    kernels = [row for row in record["rows"] if row["part"] == "kernels"]
    assert {row["name"] for row in kernels} == {"gelu", "sum_last"}
    assert all({"inductor_static", "inductor_dynamic", "eager"} == set(row["ratios"]) for row in kernels)
    found = summary(record["rows"])
    assert not any(found[what] for what in ("failed", "inaccurate", "not repeated", "waiting"))


def works(_: Run) -> dict[str, Any]:
    return {"ratios": {"eager": {"device": 0.5, "call": 2.0}}, "accurate": True}


def fails(_: Run) -> dict[str, Any]:
    raise ValueError("no such kernel")


def job(name: str, work: Callable[[Run], dict[str, Any]] = works, expected: float = 0.0) -> Job:
    return Job("masks", name, "float32", (3, 5), work, expected)


def a_run(out: Path, seconds: float = 100.0, retry: bool = False) -> Run:
    run = Run("cpu", True, 1, time.monotonic() + seconds, str(out))
    run.load(retry)
    return run


def names(path: Path) -> dict[str, bool]:
    """Of the rows in the file, with whether they are good."""
    return {row["name"]: "failed" not in row for row in json.loads(path.read_text())["rows"]}


def test_a_run_goes_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    out, jobs = tmp_path / "a.json", [job("a"), job("b", fails), job("c")]
    assert perform(a_run(out, seconds=0.0), [job("a", expected=9.0)], line) == 1  # no time for it
    assert perform(a_run(out), jobs[:2], line) == 0
    assert names(out) == {"a": True, "b": False}
    again = a_run(out)
    assert perform(again, [job("a", fails), job("b"), jobs[2]], line) == 0  # what is there is not measured again
    assert names(out) == {"a": True, "b": False, "c": True}
    assert "masks: b float32 3x5" in report(again.rows, again.notes)
    assert perform(a_run(out, retry=True), [job("b")], line) == 0
    assert names(out) == {"a": True, "b": True, "c": True}


def test_a_measurement_that_ended_the_process_has_failed(tmp_path: Path) -> None:
    out = tmp_path / "a.json"

    def end(_: Run) -> dict[str, Any]:
        raise SystemExit

    with pytest.raises(SystemExit):
        perform(a_run(out), [job("a"), job("b", end)], line)
    run = a_run(out)
    assert perform(run, [job("a"), job("b"), job("c")], line) == 0
    assert names(out) == {"a": True, "b": False, "c": True}
    assert "the process ended" in line(run.rows[1])


def test_the_time_of_a_part_is_remembered(tmp_path: Path) -> None:
    """A measurement for which there is no time is not begun."""
    out = tmp_path / "a.json"
    perform(a_run(out), [job("a", lambda run: time.sleep(0.05) or works(run))], line)
    assert perform(a_run(out, seconds=0.04), [job("b")], line) == 1
    assert names(out) == {"a": True}


def test_a_lost_device_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "a.json"

    def lost() -> None:
        raise RuntimeError("an illegal memory access was encountered")

    run = a_run(out)
    run.device = "cuda"
    monkeypatch.setattr(torch.cuda, "synchronize", lost)
    with pytest.raises(gpu_run.DeviceLost, match="illegal memory access"):
        perform(run, [job("a", fails), job("b")], line)
    assert names(out) == {"a": False}


@pytest.mark.parametrize("what", gpu_run.IDENTITY)
def test_rows_of_two_machines_do_not_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    perform(a_run(first), [job("a")], line)
    usual = gpu_run.identity
    monkeypatch.setattr(gpu_run, "identity", lambda dry: usual(dry) | {what: "another"})
    perform(a_run(second), [job("b")], line)
    with pytest.raises(Mismatch, match=f"{what} differs: .* in {first}, another in {second}"):
        merge([str(first), str(second)])
    with pytest.raises(Mismatch, match=f"{what} differs: .* in {first}, another in this run"):
        a_run(first)


def test_files_are_merged(tmp_path: Path) -> None:
    first, second, out = (tmp_path / name for name in ("a.json", "b.json", "merged.json"))
    perform(a_run(first), [job("a"), job("b", fails), job("c")], line)
    perform(a_run(second), [job("c", fails), job("b"), job("d")], line)
    assert gpu.merged([str(first), str(second)], str(out)) == 0
    assert names(out) == {"a": True, "b": True, "c": True, "d": True}
    (ratio,) = summary(json.loads(out.read_text())["rows"])["ratios"].values()
    assert (ratio["mean"], ratio["rows"]) == (0.5, 4)


def test_jobs_have_keys_of_their_own_and_the_telling_ones_come_first() -> None:
    """Of a run on a GPU: nothing is measured here."""
    run = Run("cuda", False, 1, 0.0)
    jobs = gpu.jobs(run, gpu.PARTS, tuple(gpu.PROGRAMS))
    assert len({one.key for one in jobs}) == len(jobs) > 200
    first = [one for one in jobs if one.part == "kernels"][: 3 * len(gpu.PROGRAMS)]
    assert jobs[: len(first)] == first and {one.dtype for one in first} == {"float32"}
    assert {one.part for one in jobs} >= set(gpu.PARTS) - {"padding"}
    some = ("kernels", "splits", "mixed")
    assert {one.part for one in gpu.jobs(run, some, ("gelu",))} == {*some}


def test_shares_are_all_jobs_once_and_keep_groups_together() -> None:
    jobs = [job(str(i % 5), expected=float(i)) for i in range(20)]
    shares = [dealt(jobs, share, 3) for share in range(3)]
    assert sorted(map(str, jobs)) == sorted(str(one) for share in shares for one in share)
    names = [{one.name for one in share} for share in shares]
    assert all(names) and sum(map(len, names)) == 5
    loads = [sum(one.expected for one in share) for share in shares]
    assert max(loads) <= 2 * min(loads)
