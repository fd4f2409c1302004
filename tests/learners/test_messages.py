"""Forward-backward and Viterbi against what enumerates or uses logarithms throughout."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from scipy.special import logsumexp

from klfusion.learners._messages import Blocks, Workspace, viterbi


def plain_forward_backward(log_emission, log_start, log_transition, lengths):
    evidence, posterior, start, steps, at = 0.0, [], 0.0, 0.0, 0
    for length in lengths:
        e = log_emission[at : at + length]
        at += length
        a, b = np.empty_like(e), np.zeros_like(e)
        a[0] = log_start + e[0]
        for t in range(1, length):
            a[t] = logsumexp(a[t - 1][:, None] + log_transition, axis=0) + e[t]
        for t in range(length - 2, -1, -1):
            b[t] = logsumexp(log_transition + e[t + 1] + b[t + 1], axis=1)
        total = logsumexp(a[-1])
        evidence += total
        posterior.append(np.exp(a + b - total))
        start = start + posterior[-1][0]
        for t in range(1, length):
            steps = steps + np.exp(a[t - 1][:, None] + log_transition + e[t] + b[t] - total)
    return evidence, np.concatenate(posterior), start, steps


def problem(rng, n_states, lengths, scale, stay=0.0):
    emission = scale * rng.normal(size=(sum(lengths), n_states))
    rows = rng.dirichlet(np.full(n_states, 0.2), size=n_states)
    rows = stay * np.eye(n_states) + (1.0 - stay) * rows + 1e-100
    return emission, np.log(rng.dirichlet(np.ones(n_states))), np.log(rows)


@pytest.mark.parametrize("n_states", [1, 2, 7])
@pytest.mark.parametrize("scale", [0.01, 1.0, 300.0])  # from hardly distinct states to certain ones
@pytest.mark.parametrize("stay", [0.0, 0.999])  # messages long remembered
def test_blocks_change_nothing(n_states, scale, stay):
    rng = np.random.default_rng([n_states, int(100 * scale)])
    lengths = [1, 70, 200, 1, 33]
    e, start, steps = problem(rng, n_states, lengths, scale, stay)
    blocks = Blocks.of(np.array(lengths), longest=20)
    found = Workspace(blocks, n_states).smooth(e[blocks.order], start, steps)
    evidence, posterior, starts, counts = plain_forward_backward(e, start, steps, lengths)
    assert found.log_evidence == pytest.approx(evidence, rel=1e-9)
    np.testing.assert_allclose(found.posterior[blocks.back], posterior, atol=1e-7)
    np.testing.assert_allclose(found.start, starts, atol=1e-7)
    np.testing.assert_allclose(found.transition, counts, atol=1e-6)


def test_memory_is_used_again():
    rng = np.random.default_rng(0)
    blocks = Blocks.of(np.array([90, 40]), longest=16)
    work = Workspace(blocks, 3)
    one, other = (problem(rng, 3, [90, 40], 2.0) for _ in range(2))
    first = work.smooth(*one)
    kept = first.posterior.copy()
    work.smooth(*other)
    np.testing.assert_array_equal(first.posterior, kept)
    assert work.smooth(*one).log_evidence == pytest.approx(first.log_evidence, rel=1e-9)


def test_viterbi_finds_the_best_of_all_paths():
    rng = np.random.default_rng(3)
    lengths = [1, 5, 4]
    e, start, steps = problem(rng, 3, lengths, 1.5)
    blocks = Blocks.of(np.array(lengths), longest=5)
    value, path = viterbi(blocks, e[blocks.order], start, steps)
    total, best, at = 0.0, [], 0
    for length in lengths:
        own = e[at : at + length]
        at += length
        scored = {
            p: start[p[0]]
            + own[np.arange(length), p].sum()
            + sum(steps[a, b] for a, b in pairwise(p))
            for p in product(range(3), repeat=length)
        }
        winner = max(scored, key=scored.get)
        best += winner
        total += scored[winner]
    assert value == pytest.approx(total)
    assert path[blocks.back].tolist() == best


def test_every_frame_once():
    blocks = Blocks.of(np.array([1, 130, 64, 65]), longest=32)
    assert sorted(blocks.order) == list(range(260))
    np.testing.assert_array_equal(blocks.order[blocks.back], np.arange(260))
    later = blocks.order[~blocks.is_first]
    np.testing.assert_array_equal(blocks.order[blocks.previous], later - 1)
    assert sorted(blocks.order[blocks.is_first]) == [0, 1, 131, 195]
