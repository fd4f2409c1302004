"""Loops shared between threads."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

import klfusion as kf
from klfusion._utils.running import available_threads, share
from tests.helpers.loops import for_each

MUCH = 10**9  # numbers: worth sharing


@for_each("n", [0, 1, 2, 7, 100])
@pytest.mark.parametrize("available", ["1", "2", "5"])
def test_every_number_is_worked_on_once(
    n: int, available: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", available)
    times = np.zeros(n, dtype=int)

    def work(some: slice) -> None:
        times[some] += 1

    share(work, n, MUCH)
    assert (times == 1).all()


def test_little_work_stays_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    seen = []
    share(lambda some: seen.append((some, threading.current_thread())), 10, 1000)
    assert seen == [(slice(0, 10), threading.current_thread())]


def test_no_more_threads_than_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3,1")
    assert available_threads() == 3
    for nonsense in ("", "many", "0"):
        monkeypatch.setenv("OMP_NUM_THREADS", nonsense)
        assert 1 <= available_threads() <= (os.cpu_count() or 1)


@pytest.mark.parametrize("fails", [0, 1])
def test_an_error_comes_out_when_all_have_ended(
    fails: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    ended = []

    def work(some: slice) -> None:
        if some.start == 5 * fails:
            raise ValueError("no")
        ended.append(some.start)

    with pytest.raises(ValueError, match="no"):
        share(work, 10, MUCH)
    assert ended == [5 * (1 - fails)]


def _units(n: int, total: int) -> list[kf.Posterior]:
    rng = np.random.default_rng(0)
    family, weights = kf.families.DiagonalNormal(400), rng.normal(size=(total, 400))
    made = []
    for j in range(3):
        chosen = rng.permutation(total)[:n]
        mean = weights[chosen] + 0.3 * rng.normal(size=(n, 400))
        made.append(kf.Posterior(family, family.natural(mean, np.full_like(mean, 0.05)), f"{j}"))
    return made


def _fused(_: int) -> bytes:
    """Of units so many that comparing and merging them is worth sharing."""
    return kf.fuse(_units(80, 100)).posterior.natural.tobytes()


def test_the_same_with_one_and_more(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for available in ("1", "4"):
        monkeypatch.setenv("OMP_NUM_THREADS", available)
        found.append(_fused(0))
    assert found[0] == found[1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_forked_child_has_threads_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    here = _fused(0)
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        assert pool.submit(_fused, 0).result(timeout=60) == here
