"""The Flower adapter on a grid in one process: the good case, faults, late nodes, restarts."""

from __future__ import annotations

import logging
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import klfusion as kf
from klfusion.errors import KLFusionError
from klfusion.federation import Round
from klfusion.io.storage import dumps
from tests.federation.faulty import faults
from tests.helpers.silos import rate_silos

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from klfusion.federation.flower import client_app, run, server_app
from tests.helpers.flower_grid import LocalGrid, Node

SILOS, _ = rate_silos(n_silos=4)
BY_NAME = {silo.name: silo for silo in SILOS}
ROUND = Round(name="rates", fit=lambda site: BY_NAME[site.name], n_silos=3, timeout=0.5)


def node(silo, definition=ROUND, **kwargs):
    """A node whose site sends this posterior."""
    return Node(client_app(definition), name=silo.name, **kwargs)


def replying(reply):
    """A node that answers what ``reply(message)`` makes."""
    app = ClientApp()
    app.train()(lambda message, _: reply(message))
    return Node(app)


def sending(records):
    return replying(lambda message: Message(RecordDict(records), reply_to=message))


def bits(fusion):
    return dumps(replace(fusion, provenance={}, silos=None))


class TestOneRound:
    def test_equals_fuse_in_the_order_of_names(self, tmp_path):
        server = run(ROUND, LocalGrid([node(silo) for silo in reversed(SILOS)]), tmp_path)
        assert bits(server.fusion) == bits(kf.fuse(SILOS))
        assert server.left_out == []
        assert server.senders["silo-3"] == "node 11 (silo-3)"

    def test_result_goes_back_to_sites_that_use_it(self, tmp_path, caplog):
        received = {}

        def use(fused, site):
            received[site.name] = dumps(fused)

        grid = LocalGrid([node(SILOS[0], replace(ROUND, use=use)), *map(node, SILOS[1:3])])
        server = run(ROUND, grid, tmp_path)
        assert received == {"silo-0": dumps(server.fusion.posterior)}
        assert "did not use" not in caplog.text
        assert [own.asked for own in grid.nodes.values()] == [["train"] * 2, ["train"], ["train"]]

    def test_failing_to_use_it_changes_nothing(self, tmp_path, caplog):
        broken = replace(ROUND, use=lambda fused, site: 1 / 0)
        grid = LocalGrid([node(SILOS[0], broken), *map(node, SILOS[1:3])])
        with caplog.at_level(logging.WARNING, "klfusion"):
            run(ROUND, grid, tmp_path)
        assert "silo 'silo-0' (node 11 (silo-0)) did not use the result: " in caplog.text

    def test_second_round(self, tmp_path):
        again = replace(ROUND, second=lambda fused, site: SILOS[3])
        grid = LocalGrid([node(SILOS[0], again), *map(node, SILOS[1:3])])
        server = run(again, grid, tmp_path)
        second = replace(SILOS[3], name="silo-0")
        assert bits(server.fusion) == bits(kf.fuse([second, *SILOS[1:3]]))

    def test_the_app_of_the_server_reads_its_folder_from_the_settings(self):
        assert server_app(ROUND) is not None


FAULTS = {
    "an error of Flower": (lambda: Node(ClientApp()), "No train function registered"),
    "past the timeout": (lambda: node(SILOS[2], answers=60), "no reply within 0.5 s"),
    "arrays of Flower": (
        lambda: sending({"klfusion": ArrayRecord([np.ones(3)])}),
        "expected a message of data, signature or error, got ['0']",
    ),
    "numpy's bytes": (
        lambda: sending({"klfusion": ArrayRecord({"data": Array(np.ones(3))})}),
        "expected a safetensors file",
    ),
    "nothing": (lambda: sending({}), "got nothing"),
    "another record": (lambda: sending({"klfusion": ConfigRecord({"a": 1})}), "got nothing"),
    "no name": (lambda: Node(client_app(ROUND), name="x" * 101), "--node-config 'name="),
}


class TestFaults:
    @pytest.mark.parametrize("fault", FAULTS)
    def test_round_ends_with_the_rest(self, fault, tmp_path):
        make, reason = FAULTS[fault]
        server = run(ROUND, LocalGrid([node(SILOS[0]), node(SILOS[1]), make()]), tmp_path)
        assert bits(server.fusion) == bits(kf.fuse(SILOS[:2]))
        (note,) = server.left_out
        assert note.startswith("node 13")
        assert reason in note

    def test_every_kind_of_fault_at_once(self, tmp_path):
        names = ["a", "b", "duplicates", "replays", "truncates", "lies", "large", "raises"]
        definition = replace(faults.ROUND, n_silos=len(names), timeout=5.0)
        grid = LocalGrid([Node(client_app(definition), name=name) for name in names])
        server = run(definition, grid, tmp_path)
        expected = kf.fuse([faults.posterior(name, "second") for name in ("a", "b")])
        assert dumps(server.fusion.posterior) == dumps(expected.posterior)
        for name in names[2:]:
            assert any(name in note for note in server.left_out), name
        assert "4711" not in str(server.left_out)

    def test_a_node_that_joins_late_is_waited_for(self, tmp_path):
        grid = LocalGrid([node(SILOS[0]), node(SILOS[1]), node(SILOS[2], joins=0.3)])
        server = run(replace(ROUND, timeout=30), grid, tmp_path)
        assert bits(server.fusion) == bits(kf.fuse(SILOS[:3]))

    def test_a_node_that_joins_too_late_gets_no_request(self, tmp_path):
        grid = LocalGrid([node(SILOS[0]), node(SILOS[1]), node(SILOS[2], joins=60)])
        server = run(ROUND, grid, tmp_path)
        assert bits(server.fusion) == bits(kf.fuse(SILOS[:2]))
        assert grid.nodes[13].asked == []

    def test_no_node_joins(self, tmp_path):
        with pytest.raises(KLFusionError, match=r"at least 2 silos within 0\.5 s, got 0; left out"):
            run(ROUND, LocalGrid([]), tmp_path)

    def test_a_superlink_that_is_gone_is_no_site_s_fault(self, tmp_path):
        class Gone(LocalGrid):
            gone = False

            def pull_messages(self, message_ids):
                self.gone = True
                raise ConnectionError("refused")

            def get_node_ids(self):
                if self.gone:
                    raise ConnectionError("refused")
                return super().get_node_ids()

        with pytest.raises(ConnectionError):
            run(ROUND, Gone([node(silo) for silo in SILOS]), tmp_path)

    def test_a_reply_that_flower_cannot_read(self, tmp_path):
        class Hostile(LocalGrid):
            def pull_messages(self, message_ids):
                if self._sent[message_ids[0]][0].metadata.dst_node_id == 13:
                    raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
                return super().pull_messages(message_ids)

        server = run(ROUND, Hostile([node(silo) for silo in SILOS[:3]]), tmp_path)
        assert server.left_out == [
            "node 13 (silo-2): a reply that Flower cannot read (UnicodeDecodeError)"
        ]

    def test_a_request_that_the_superlink_refuses(self, tmp_path):
        class Deaf(LocalGrid):
            def push_messages(self, messages):
                ids = super().push_messages(messages)
                return [None if m.metadata.dst_node_id == 13 else i
                        for m, i in zip(messages, ids, strict=True)]  # fmt: skip

        server = run(ROUND, Deaf([node(silo) for silo in SILOS[:3]]), tmp_path)
        assert server.left_out == ["node 13 (silo-2): the SuperLink did not forward the request"]


class Crash(BaseException):
    """The server's process dies."""


def crash(*_, **__):
    raise Crash


class TestRestart:
    def test_in_the_middle_only_the_others_get_requests(self, tmp_path):
        with pytest.raises(Crash):
            run(ROUND, LocalGrid([node(SILOS[0]), node(SILOS[1]), Node(crash)]), tmp_path)
        grid = LocalGrid([node(silo) for silo in SILOS[:3]])
        server = run(ROUND, grid, tmp_path)
        assert bits(server.fusion) == bits(kf.fuse(SILOS[:3]))
        assert [own.asked for own in grid.nodes.values()] == [[], [], ["train"]]

    def test_after_all_have_sent_there_are_no_requests(self, tmp_path):
        run(ROUND, LocalGrid([node(silo) for silo in SILOS[:3]]), tmp_path)
        (tmp_path / "global.safetensors").unlink()
        server = run(ROUND, LocalGrid([]), tmp_path)
        assert bits(server.fusion) == bits(kf.fuse(SILOS[:3]))


def test_without_flower_the_error_names_the_line_to_install():
    code = (
        "import sys; sys.modules['flwr'] = None\n"
        "try:\n    import klfusion.federation.flower\n"
        "except ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'klfusion[flower]'" in done.stdout
