"""The real strategy on a grid in one process: the good case, and every fault."""

from __future__ import annotations

import logging
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_wine

import klfusion as kf
from klfusion.errors import KLFusionError
from klfusion.io.storage import dumps
from klfusion.posteriors.structure import Structure
from tests.helpers.silos import normal_wishart_silos, rate_silos

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from klfusion.federation._flower_messages import pack
from klfusion.federation.flower import OneShotFusion, fit_and_send
from tests.helpers.flower_grid import LocalGrid, Node, client_of, files

SILOS, _ = rate_silos(n_silos=4)
EXAMPLE = Path(__file__).parents[2] / "examples" / "flower"


def node(silo, **kwargs):
    """A node that sends this posterior, under its own name."""
    app = fit_and_send(lambda _: silo, name=lambda _: silo.name)
    return Node(app, **kwargs)


def replying(reply):
    """A node that answers what ``reply(message)`` makes."""
    app = ClientApp()
    app.train()(lambda message, _: reply(message))
    return Node(app)


def sending(record):
    return replying(lambda message: Message(RecordDict({"posterior": record}), reply_to=message))


def raw(data, key="posterior", stype="klfusion.safetensors"):
    return ArrayRecord({key: Array("uint8", (len(data),), stype, data)})


def raising(error):
    def fit(_):
        raise error

    return Node(fit_and_send(fit))


def same(fusion, other):
    """Equal bit for bit, apart from provenance: nodes left out, requests that silos handle."""
    return result(fusion) == result(other)


def result(fusion):
    return dumps(replace(fusion, provenance={}, silos=None))


@pytest.fixture
def store(tmp_path):
    return tmp_path / "federation"


class TestOneRound:
    def test_equals_fuse_in_the_order_of_names(self, store):
        grid = LocalGrid([node(silo) for silo in reversed(SILOS)])
        strategy = OneShotFusion(store, n_silos=4)
        result = strategy.start(grid)
        expected = kf.fuse(sorted(SILOS, key=lambda silo: silo.name))
        assert same(strategy.fusion, expected)
        sent = [silo.natural.tobytes() for silo in strategy.fusion.silos]
        assert sent == [silo.natural.tobytes() for silo in expected.silos]
        assert result.arrays["posterior"].data == dumps(expected.posterior)
        assert same(kf.load(store / "global.safetensors"), expected)
        assert dict(result.train_metrics_clientapp[1]) == {
            "n_silos": 4,
            "n_components": expected.n_components,
        }
        assert strategy.left_out == []

    def test_what_is_written(self, store):
        OneShotFusion(store).start(LocalGrid([node(silo) for silo in SILOS[:2]]))
        assert files(store) == [
            "global.safetensors", "report.html", "silo-11.safetensors", "silo-12.safetensors",
        ]  # fmt: skip
        assert kf.load(store / "silo-11.safetensors").name == SILOS[0].name

    def test_fitted_models(self, store):
        mixture = pytest.importorskip("sklearn.mixture").BayesianGaussianMixture
        x = np.random.default_rng(0).normal(size=(90, 2)) + np.repeat([[0], [9], [18]], 30, axis=0)

        def fit(context):
            mine = x[:60] if context.node_config["name"] == "a" else x[30:]
            return mixture(n_components=2, random_state=0).fit(mine)

        app = fit_and_send(fit)
        strategy = OneShotFusion(store)
        strategy.start(LocalGrid([Node(app, name="b"), Node(app, name="a")]))
        assert strategy.fusion.silo_names == ("a", "b")
        assert strategy.fusion.n_components == 3
        assert len(set(strategy.fusion.model().predict(x))) == 3

    def test_options_of_fuse(self, store):
        grid = LocalGrid([node(silo) for silo in SILOS])
        weights = {silo.name: 2.0 for silo in SILOS} | {"absent": 1.0}
        strategy = OneShotFusion(store, n_silos=4, n_components=7, weights=weights)
        strategy.start(grid)
        assert strategy.fusion.n_components == 7

    def test_result_goes_back_to_silos_that_use_it(self, store):
        received = {}

        def use(fused, context):
            received[context.node_id] = fused

        def user(silo):
            return Node(fit_and_send(lambda _: silo, use=use, name=lambda _: silo.name))

        grid = LocalGrid([user(SILOS[0]), node(SILOS[1]), user(SILOS[2])])
        strategy = OneShotFusion(store, n_silos=3)
        result = strategy.start(grid)
        assert sorted(received) == [11, 13]
        assert dumps(received[11]) == dumps(strategy.fusion.posterior)
        assert dict(result.evaluate_metrics_clientapp[1]) == {"n_received": 2}
        assert grid.nodes[12].asked == ["train"]

    def test_failing_to_use_it_changes_nothing(self, store, caplog):
        def use(fused, context):
            raise OSError("disk full")

        app = fit_and_send(lambda _: SILOS[0], use=use, name=lambda _: "a")
        with caplog.at_level(logging.WARNING, "flwr"):
            result = OneShotFusion(store).start(LocalGrid([Node(app), node(SILOS[1])]))
        assert dict(result.evaluate_metrics_clientapp[1]) == {"n_received": 0}
        assert "silo 'a' (node 11) did not use the fused posterior: " in caplog.text


def with_nan():
    """Bytes of a posterior with one NaN and a correct hash."""
    natural = SILOS[2].natural.copy()
    natural[1, 0] = np.nan
    return with_array(SILOS[2], "natural", natural)


def with_array(silo, key, array):
    """Bytes of a posterior with another array and a correct hash."""
    from klfusion.io import container, storage
    from klfusion.io import parts as _parts

    document, arrays = _parts.take_apart(silo)
    arrays[key] = array
    document["sha256"] = storage._digest(document, arrays)
    text = container.canonical_json(document).decode()
    return b"".join(container.encode({"klfusion": text}, arrays))


def other_family():
    return pack(replace(normal_wishart_silos()[0][0], name="zz"))


FAULTS = {
    "an error": (
        lambda: raising(RuntimeError("patient 4711")),
        "RuntimeError (see the log of the silo)",
    ),
    "our own error": (
        lambda: raising(KLFusionError("expected one, got two")),
        "silo 'silo-13': KLFusionError (expected one, got two)",
    ),
    "an error of Flower": (lambda: Node(ClientApp()), "No train function registered"),
    "past the timeout": (lambda: node(SILOS[2], answers=60), "no reply within 0.5 s"),
    "NaN": (lambda: sending(raw(with_nan())), "component 1: expected finite"),
    "another family": (
        lambda: sending(other_family()),
        "expected Gamma(dim=3) as in silo 'silo-0', got NormalWishart(dim=3)",
    ),
    "too large": (
        lambda: sending(raw(b"x" * 1_000_000)),
        "expected at most 10000 bytes, got 1000000",
    ),
    "no safetensors": (lambda: sending(raw(b"\x80\x04.")), "expected a safetensors file"),
    "a damaged one": (
        lambda: sending(raw(dumps(SILOS[2])[:-8] + b"\0" * 8)),
        "the file was damaged or edited",
    ),
    "a fusion": (
        lambda: sending(raw(dumps(kf.fuse(SILOS[:2])))),
        "expected the posterior of one silo, got a fusion",
    ),
    "arrays of Flower": (
        lambda: sending(ArrayRecord([np.ones(3)])),
        "expected a message with one record 'posterior' of one array 'posterior'",
    ),
    "numpy's bytes": (
        lambda: sending(ArrayRecord({"posterior": Array(np.ones(3))})),
        "expected an array written as 'klfusion.safetensors', got 'numpy.ndarray'",
    ),
    "nothing": (
        lambda: replying(lambda message: Message(RecordDict(), reply_to=message)),
        "expected a message with one record",
    ),
    "another record": (
        lambda: replying(
            lambda m: Message(RecordDict({"posterior": ConfigRecord({"a": 1})}), reply_to=m)
        ),
        "expected a message with one record",
    ),
    "control characters": (
        lambda: sending(raw(dumps(replace(SILOS[0], name="\x1b[31m\n")), stype="\x1b[31m\n")),
        r"\x1b[31m\n",
    ),
}


class TestFaults:
    """One silo of three fails: the round ends with the rest and names the silo and the reason."""

    @pytest.mark.parametrize("fault", FAULTS)
    def test_round_ends_with_the_rest(self, fault, store, caplog):
        make, reason = FAULTS[fault]
        grid = LocalGrid([node(SILOS[0]), node(SILOS[1]), make()])
        strategy = OneShotFusion(store, n_silos=3, timeout=0.5, max_bytes=10_000)
        with caplog.at_level(logging.WARNING, "flwr"):
            strategy.start(grid)
        assert same(strategy.fusion, kf.fuse(SILOS[:2]))
        (note,) = strategy.left_out
        assert "node 13" in note
        assert reason in note
        assert "patient" not in note
        assert "\n" not in note
        assert note in caplog.text
        assert kf.load(store / "global.safetensors").provenance["left_out"] == [note]
        assert "left_out" in (store / "report.html").read_text(encoding="utf-8")
        assert "node 13" in (store / "report.html").read_text(encoding="utf-8")

    @pytest.mark.parametrize("fault", FAULTS)
    def test_too_few_are_a_clear_error(self, fault, store):
        make, reason = FAULTS[fault]
        grid = LocalGrid([node(SILOS[0]), node(SILOS[1]), make()])
        strategy = OneShotFusion(store, min_silos=3, timeout=0.5, max_bytes=10_000)
        with pytest.raises(KLFusionError) as caught:
            strategy.start(grid)
        text = str(caught.value)
        assert "expected posteriors of at least 3 silos within 0.5 s, got 2; left out: " in text
        assert "node 13" in text
        assert reason in text
        assert not (store / "global.safetensors").exists()

    def test_a_name_belongs_to_the_node_that_first_used_it(self, store):
        twins = [replace(SILOS[3], name=silo.name) for silo in SILOS[:3]]
        late = [node(twin, answers=0.1) for twin in twins]
        strategy = OneShotFusion(store, n_silos=6)
        strategy.start(LocalGrid([*map(node, SILOS[:3]), *late]))
        assert same(strategy.fusion, kf.fuse(SILOS[:3]))
        assert strategy.left_out == [
            f"node {14 + j}: the name 'silo-{j}' belongs to node {11 + j}" for j in range(3)
        ]

    @pytest.mark.parametrize("claimed", [["silo-2"], ["x", "silo-0", "silo-1"]])
    def test_a_claim_to_hold_other_silos(self, claimed, store):
        liar = replace(SILOS[3], name="a liar", provenance={"silos": claimed})
        strategy = OneShotFusion(store, n_silos=4)
        strategy.start(LocalGrid([node(silo) for silo in [liar, *SILOS[:3]]]))
        assert same(strategy.fusion, kf.fuse(SILOS[:3]))
        (note,) = strategy.left_out
        assert "silo 'a liar' (node 11): silos counted twice" in note
        again = OneShotFusion(store, n_silos=4)  # a restart ends in the same way
        again.start(LocalGrid([]))
        assert same(again.fusion, strategy.fusion)

    def test_columns_of_another_order_after_a_silo_without_names(self, store):
        def named(silo, features):
            arrays = {"counts": np.ones(silo.n_components), "weight_prior": 1.0}
            return replace(silo, structure=Structure("mixture", arrays, {"features": features}))

        columns = ["a", "b", "c"]
        silos = [named(SILOS[0], None), named(SILOS[1], columns), named(SILOS[2], columns[::-1])]
        silos.append(named(SILOS[3], columns))
        strategy = OneShotFusion(store, n_silos=4)
        strategy.start(LocalGrid([node(silo) for silo in silos]))
        assert same(strategy.fusion, kf.fuse([silos[0], silos[1], silos[3]]))
        (note,) = strategy.left_out
        assert "silo 'silo-2' (node 13): cannot be fused with silo 'silo-1'" in note

    def test_values_that_cannot_be_compared(self, store):
        huge = replace(SILOS[1], natural=SILOS[1].natural * 1e100)
        strategy = OneShotFusion(store, n_silos=4)
        strategy.start(LocalGrid([node(silo) for silo in [SILOS[0], huge, *SILOS[2:]]]))
        assert same(strategy.fusion, kf.fuse([SILOS[0], *SILOS[2:]]))
        (note,) = strategy.left_out
        assert "silo 'silo-1' (node 12): " in note
        assert "expected parameters that can be compared" in note

    def test_a_silo_without_a_weight(self, store):
        weights = {silo.name: 1.0 for silo in SILOS[:3]}
        strategy = OneShotFusion(store, n_silos=4, weights=weights)
        strategy.start(LocalGrid([node(silo) for silo in SILOS]))
        assert same(strategy.fusion, kf.fuse(SILOS[:3]))
        assert strategy.left_out == ["silo 'silo-3' (node 14): no weight is given for 'silo-3'"]

    def test_a_damaged_file_in_the_store_is_asked_for_again(self, store, caplog):
        OneShotFusion(store, n_silos=3).start(LocalGrid([node(silo) for silo in SILOS[:3]]))
        (store / "silo-12.safetensors").write_bytes(b"nonsense")
        with caplog.at_level(logging.WARNING, "flwr"):
            strategy = OneShotFusion(store, n_silos=3)
        assert "silo-12.safetensors: expected" in caplog.text
        strategy.start(LocalGrid([node(silo) for silo in SILOS[:3]]))
        assert same(strategy.fusion, kf.fuse(SILOS[:3]))

    def test_malformed_structure(self, store):
        good = [
            replace(
                silo,
                structure=Structure(
                    "mixture",
                    {"counts": np.ones(silo.n_components), "weight_prior": np.array(1.0)},
                    {},
                ),
            )
            for silo in SILOS
        ]
        bad = sending(raw(with_array(good[0], "structure.counts", np.ones(5))))
        strategy = OneShotFusion(store, n_silos=4)
        strategy.start(LocalGrid([bad, *map(node, good[1:])]))
        assert same(strategy.fusion, kf.fuse(good[1:]))
        assert "node 11: " in strategy.left_out[0]
        assert "expected mixture.counts to be of shape" in strategy.left_out[0]

    def test_a_node_that_joins_late_is_waited_for(self, store):
        grid = LocalGrid([node(SILOS[0]), node(SILOS[1]), node(SILOS[2], joins=0.3)])
        strategy = OneShotFusion(store, n_silos=3, timeout=30)
        strategy.start(grid)
        assert same(strategy.fusion, kf.fuse(SILOS[:3]))

    def test_a_node_that_joins_too_late_gets_no_request(self, store):
        grid = LocalGrid([node(SILOS[0]), node(SILOS[1]), node(SILOS[2], joins=60)])
        strategy = OneShotFusion(store, n_silos=3, timeout=0.3)
        strategy.start(grid)
        assert same(strategy.fusion, kf.fuse(SILOS[:2]))
        assert grid.nodes[13].asked == []

    def test_no_node_joins(self, store):
        with pytest.raises(KLFusionError, match=r"at least 2 silos within 0\.1 s, got 0; left out"):
            OneShotFusion(store, timeout=0.1).start(LocalGrid([]))

    def test_registered_names_are_reported(self, store):
        grid = LocalGrid(
            [node(SILOS[0]), node(SILOS[1]), replace_name(raising(OSError()), "St. X")]
        )
        strategy = OneShotFusion(store, n_silos=3)
        strategy.start(grid)
        assert strategy.left_out[0].startswith("node 13 (St. X): ")

    def test_a_superlink_that_is_gone_is_no_silo_s_fault(self, store):
        import httpx

        class Gone(LocalGrid):
            def pull_messages(self, message_ids):
                raise httpx.ConnectError("refused")

        with pytest.raises(httpx.ConnectError):
            OneShotFusion(store).start(Gone([node(silo) for silo in SILOS]))

    def test_a_request_that_the_superlink_refuses(self, store):
        class Deaf(LocalGrid):
            def push_messages(self, messages):
                ids = super().push_messages(messages)
                return [None if m.metadata.dst_node_id == 13 else i
                        for m, i in zip(messages, ids, strict=True)]  # fmt: skip

        strategy = OneShotFusion(store, n_silos=3)
        strategy.start(Deaf([node(silo) for silo in SILOS[:3]]))
        assert strategy.left_out == ["node 13: the SuperLink did not forward the request"]

    @pytest.mark.parametrize("settings", [{"min_silos": 0}, {"n_silos": 1}, {"timeout": 0}])
    def test_settings(self, settings, store):
        with pytest.raises(KLFusionError, match="expected 1 <= min_silos <= n_silos and timeout"):
            OneShotFusion(store, **settings)

    def test_a_silo_without_a_name(self):
        app = fit_and_send(lambda _: SILOS[0], name=lambda _: "")
        grid = LocalGrid([Node(app)])
        (message_id,) = grid.push_messages([Message(RecordDict(), 11, "train")])
        (reply,) = grid.pull_messages([message_id])
        assert "--node-config 'name=" in reply.error.reason


def replace_name(node, name):
    node.name = name
    return node


class Crash(BaseException):
    """The server's process dies."""


class TestRestart:
    def test_after_all_have_sent_there_are_no_requests(self, store, monkeypatch):
        with monkeypatch.context() as patch:
            patch.setattr("klfusion.federation.flower.fuse", crash)
            with pytest.raises(Crash):
                OneShotFusion(store, n_silos=3).start(LocalGrid([node(s) for s in SILOS[:3]]))
        again = OneShotFusion(store, n_silos=3)
        again.start(LocalGrid([]))
        assert same(again.fusion, kf.fuse(SILOS[:3]))

    def test_in_the_middle_only_the_others_get_requests(self, store):
        grid = LocalGrid([node(SILOS[0]), node(SILOS[1]), Node(crash)])
        with pytest.raises(Crash):
            OneShotFusion(store, n_silos=3).start(grid)
        assert files(store) == ["silo-11.safetensors", "silo-12.safetensors"]
        grid = LocalGrid([node(silo) for silo in SILOS[:3]])
        again = OneShotFusion(store, n_silos=3)
        again.start(grid)
        assert same(again.fusion, kf.fuse(SILOS[:3]))
        assert [n.asked for n in grid.nodes.values()] == [[], [], ["train"]]

    def test_with_new_node_ids_the_stored_ones_count(self, store):
        with pytest.raises(Crash):
            OneShotFusion(store, n_silos=3).start(LocalGrid([node(SILOS[0]), Node(crash)]))
        other = replace(SILOS[3], name=SILOS[0].name)
        grid = LocalGrid([])
        grid.nodes = {n: node(s) for n, s in zip((91, 92, 93), [other, *SILOS[1:3]], strict=True)}
        again = OneShotFusion(store, n_silos=3)
        again.start(grid)
        assert same(again.fusion, kf.fuse(SILOS[:3]))


def crash(*_, **__):
    raise Crash


class TestSecondRound:
    def refitting(self, silo, refit):
        return Node(fit_and_send(lambda _: silo, refit=refit, name=lambda _: silo.name))

    def test_silos_fit_again_from_the_fused(self, store):
        starts = []

        def refit(start, context):
            starts.append(start)
            return SILOS[3]

        grid = LocalGrid([self.refitting(SILOS[0], refit), node(SILOS[1]), node(SILOS[2])])
        strategy = OneShotFusion(store, n_silos=3, refine=True)
        strategy.start(grid)
        assert [dumps(start) for start in starts] == [dumps(kf.fuse(SILOS[:3]).posterior)]
        second = replace(SILOS[3], name=SILOS[0].name)
        assert same(strategy.fusion, kf.fuse([second, *SILOS[1:3]]))
        assert grid.nodes[12].asked == ["train"]
        assert files(store)[1] == "refitted-11.safetensors"

    def test_a_posterior_derived_from_the_start_counts_once(self, store):
        def refit(start, context):
            return replace(start, natural=start.natural * 1.01)

        grid = LocalGrid([self.refitting(SILOS[0], refit), self.refitting(SILOS[1], refit)])
        strategy = OneShotFusion(store, refine=True)
        strategy.start(grid)
        assert not strategy.left_out
        assert strategy.fusion.silo_names == ("silo-0", "silo-1")

    @pytest.mark.parametrize(
        ("refit", "reason"),
        [
            (lambda start, context: 1 / 0, "ZeroDivisionError"),
            (lambda start, context: normal_wishart_silos()[0][0], "cannot be fused"),
        ],
    )
    def test_a_silo_that_fails_in_round_two_keeps_its_first_posterior(self, refit, reason, store):
        grid = LocalGrid([self.refitting(SILOS[0], refit), node(SILOS[1])])
        strategy = OneShotFusion(store, refine=True)
        strategy.start(grid)
        assert same(strategy.fusion, kf.fuse(SILOS[:2]))
        (note,) = strategy.left_out
        assert reason in note
        assert note.endswith("(round 2: first posterior used)")

    def test_restart_between_the_rounds(self, store):
        grid = LocalGrid([self.refitting(SILOS[0], crash), node(SILOS[1])])
        with pytest.raises(Crash):
            OneShotFusion(store, refine=True).start(grid)
        grid = LocalGrid([self.refitting(SILOS[0], lambda *_: SILOS[3]), node(SILOS[1])])
        strategy = OneShotFusion(store, refine=True)
        strategy.start(grid)
        assert grid.nodes[11].asked == ["train.refit"]
        assert same(strategy.fusion, kf.fuse([replace(SILOS[3], name="silo-0"), SILOS[1]]))
        plain = OneShotFusion(store)
        plain.start(LocalGrid([]))
        assert same(plain.fusion, kf.fuse(SILOS[:2]))


def test_without_flower_the_error_names_the_line_to_install():
    code = (
        "import sys; sys.modules['flwr'] = None\n"
        "try:\n    import klfusion.federation.flower\n"
        "except ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'klfusion[flower]'" in done.stdout


def test_second_round_of_the_example(store):
    """Prints the figures of the documentation: run with ``-s`` to see them."""
    client_app = client_of(EXAMPLE)
    test = client_app.columns(load_wine())[1::2]
    scores = []
    for refine in (False, True):
        grid = LocalGrid([Node(client_app.app, name=f"cellar-{i + 1}", cellar=i) for i in range(3)])
        strategy = OneShotFusion(store, n_silos=3, refine=refine)
        strategy.start(grid)
        assert strategy.left_out == []
        assert strategy.fusion.n_components == 3
        scores.append(strategy.fusion.model().score(test))
    print(f"\nheld-out log-likelihood of one round and of two: {scores}")  # noqa: T201
    assert scores[1] == pytest.approx(scores[0], abs=0.01)
