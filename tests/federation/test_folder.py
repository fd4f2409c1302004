"""A round over a folder: commands, faults of files, restarts, signatures."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import unicodedata
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from click.testing import CliRunner

import klfusion as kf
from klfusion.cli.commands import main
from klfusion.errors import KLFusionError
from klfusion.federation import Round, folder, signing
from klfusion.federation.compatible import compatible
from klfusion.federation.folder import Coordinator, send
from klfusion.io.storage import dumps, loads
from klfusion.posteriors.structure import Structure
from tests.federation.faulty import faults
from tests.helpers.silos import rate_silos

SILOS, _ = rate_silos(n_silos=4)
ROUND = Round(name="rates", n_silos=3, max_bytes=100_000)


def bits(fusion):
    return dumps(replace(fusion, provenance={}, silos=None))


def klfusion(*words, code=0):
    """Output of a command."""
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def shared(tmp_path):
    return tmp_path / "shared"


def status(shared):
    return (shared / "status.html").read_text(encoding="utf-8")


class TestOneRound:
    def test_equals_fuse(self, shared):
        coordinator = Coordinator(ROUND, shared)
        assert not coordinator.step()
        for silo in SILOS[:3]:
            send(shared, silo)
        assert coordinator.step()
        expected = kf.fuse(SILOS[:3])
        assert bits(coordinator.server.fusion) == bits(expected)
        assert folder.receive(shared) == dumps(expected.posterior)
        manifest = json.loads((shared / "manifest.json").read_bytes())
        assert [line["silo"] for line in manifest["messages"]] == [s.name for s in SILOS[:3]]
        assert "Ended: Fusion(3 silos" in status(shared)

    def test_status(self, shared):
        coordinator = Coordinator(replace(ROUND, silos=("silo-0", "silo-1", "<b>")), shared)
        send(shared, SILOS[0])
        coordinator.step()
        page = status(shared)
        assert "1 of 3 silos have sent" in page
        assert "silo &#x27;&lt;b&gt;&#x27;: nothing yet" in page
        assert "http-equiv" in page

    def test_control_characters_do_not_reach_the_page(self, shared):
        strange = "a\x07\x1b[31m\x85<b>"
        coordinator = Coordinator(replace(ROUND, name=f"r{strange}"), shared)
        for silo in (replace(SILOS[0], name=strange), *SILOS[1:3]):
            send(shared, silo)
        (shared / "inbox" / "\x1b.safetensors").write_bytes(b"")
        for _ in range(2):
            page = status(shared) if coordinator.step() else pytest.fail("not ended")
            assert {c for c in page if unicodedata.category(c) == "Cc"} == {"\n"}
            assert "<td>a\\x07\\x1b[31m\\x85&lt;b&gt;</td>" in page

    def test_second_round(self, shared):
        definition = Round(
            name="rates", fit=lambda site: SILOS[0], second=lambda fused, site: SILOS[3]
        )
        coordinator = Coordinator(definition, shared)
        sites = [folder.Site("silo-0"), folder.Site("silo-1")]
        for site in sites:
            send(shared, definition.posterior(site))
        assert not coordinator.step()
        assert folder.read_round(shared)["request"] == "second"
        fused = (shared / "request.safetensors").read_bytes()
        assert fused == dumps(coordinator.server.fusion.posterior)
        send(shared, definition.posterior(sites[0], "second", fused))
        again = Coordinator(definition, shared)  # started anew in the second round
        assert not again.step()
        assert again.waiting == 1
        send(shared, definition.posterior(sites[1], "second", fused))
        assert again.step()
        both = [replace(SILOS[3], name=site.name) for site in sites]
        assert again.server.fusion.posterior.natural == pytest.approx(
            kf.fuse(both).posterior.natural
        )

    def test_second_round_by_commands(self, shared, tmp_path):
        path = tmp_path / "again.py"
        path.write_text(AGAIN, encoding="utf-8")
        start = ("coordinator", shared, "--definition", path, "--once")
        klfusion(*start)
        for asked in ((), ("--after", shared)):
            for name in ("a", "b"):
                file = tmp_path / f"{name}.safetensors"
                klfusion("site", "fit", path, "--name", name, "--set", "rate=10", *asked,
                         "-o", file)  # fmt: skip
                klfusion("site", "send", file, "--to", shared)
            out = klfusion(*start)
        assert "released" in out
        result = loads(folder.receive(shared)).params()
        assert result["rate"] == pytest.approx(40.0)  # the second ones replaced the first


AGAIN = """
import klfusion as kf

GAMMA = kf.families.Gamma()


def fit(site, factor=1.0):
    rate = factor * float(site.config["rate"])
    return kf.Posterior(GAMMA, GAMMA.natural([30.0 * factor], [rate]), name=site.name)


ROUND = kf.federation.Round(
    name="again", fit=fit, second=lambda fused, site: fit(site, 4.0), n_silos=2,
    options={"pooling": "average"},
)
"""


class TestFaults:
    def truncated(self, path):
        path.write_bytes(path.read_bytes()[:-8])

    def linked(self, path):
        path.rename(path.with_suffix(".real"))
        path.symlink_to(path.with_suffix(".real"))

    def piped(self, path):
        path.unlink()
        os.mkfifo(path)

    def large(self, path):
        path.write_bytes(os.urandom(200_000))

    @pytest.mark.parametrize(
        ("fault", "reason"),
        [
            ("truncated", "cut short"),
            ("linked", "cannot be read"),
            ("piped", "expected a file of at most 100000 bytes"),
            ("large", "expected a file of at most 100000 bytes, got 200000"),
        ],
    )
    def test_files_that_cannot_be_used(self, fault, reason, shared):
        coordinator = Coordinator(ROUND, shared)
        for silo in SILOS[:2]:
            send(shared, silo)
        path = send(shared, SILOS[2])
        getattr(self, fault)(path)
        assert not coordinator.step()
        (note,) = coordinator.server.left_out
        assert note.startswith(f"file {path.name}: ")
        assert reason in note
        assert reason in status(shared)
        path.unlink()
        send(shared, SILOS[2])  # sent again, or the copy of a mounted folder became whole
        assert coordinator.step()
        assert coordinator.server.left_out == []

    @pytest.mark.parametrize("name", ["duplicates", "replays", "truncates", "lies", "steals"])
    def test_messages_of_faulty_sites(self, name, shared):
        definition = replace(faults.ROUND, n_silos=2)
        coordinator = Coordinator(definition, shared)
        for honest in ("a", "b"):
            send(shared, faults.posterior(honest))
        message = definition.message(folder.Site(name), faults.posterior(name))
        bad = faults.changed(definition, message, name)
        path = shared / "inbox" / f"{name}-fit-0.safetensors"
        path.write_bytes(bad.data)
        assert coordinator.step()
        expected = kf.fuse([faults.posterior("a"), faults.posterior("b")])
        assert dumps(coordinator.server.fusion.posterior) == dumps(expected.posterior)
        assert path.name in str(coordinator.server.left_out)

    def test_what_is_accepted_stays_when_the_inbox_changes(self, shared):
        coordinator = Coordinator(ROUND, shared)
        first = send(shared, SILOS[0])
        coordinator.step()
        first.unlink()
        for silo in SILOS[1:3]:
            send(shared, silo)
        again = Coordinator(ROUND, shared)
        assert again.step()
        assert bits(again.server.fusion) == bits(kf.fuse(SILOS[:3]))

    def test_too_late(self, shared):
        coordinator = Coordinator(replace(ROUND, timeout=1e-6), shared)
        with pytest.raises(KLFusionError, match="expected posteriors of at least 2 silos"):
            coordinator.step()
        for silo in SILOS[:2]:
            send(shared, silo)
        assert coordinator.step()
        with pytest.raises(KLFusionError, match=r"got 'rates', which has ended: nothing was sent"):
            send(shared, SILOS[2])
        assert send(shared, SILOS[0]).exists()  # the same once more is harmless
        before = (shared / "fused.safetensors").read_bytes()
        message = ROUND.message(folder.Site("silo-2"), SILOS[2])
        (shared / "inbox" / "silo-2-fit-0.safetensors").write_bytes(message.data)
        assert Coordinator(ROUND, shared).step()  # released: a late file changes nothing
        assert (shared / "fused.safetensors").read_bytes() == before

    def test_a_folder_of_another_round(self, shared):
        Coordinator(ROUND, shared)
        with pytest.raises(KLFusionError, match="expected a folder of round 'other', got one of"):
            Coordinator(replace(ROUND, name="other"), shared)

    @pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": "1"}'])
    def test_damaged_requests(self, text, shared):
        Coordinator(ROUND, shared)
        (shared / "round.json").write_text(text, encoding="utf-8")
        with pytest.raises(KLFusionError, match=r"expected (JSON|a JSON object|version)"):
            send(shared, SILOS[0])

    def test_released_files_that_were_changed_are_restored(self, shared, tmp_path, caplog):
        coordinator = Coordinator(ROUND, shared)
        for silo in SILOS[:3]:
            send(shared, silo)
        coordinator.step()
        expected = folder.receive(shared)
        (shared / "fused.safetensors").write_bytes(dumps(SILOS[0]))
        with pytest.raises(KLFusionError, match=r"expected (a file|fused\.safetensors)"):
            folder.receive(shared)
        (shared / "round.json").unlink()
        (shared / "manifest.json").unlink()
        (shared / "manifest.json").symlink_to(tmp_path / "own")  # the file of somebody else
        (tmp_path / "own").write_bytes(b"precious")
        with pytest.raises(KLFusionError, match="expected a folder that a coordinator opened"):
            folder.receive(shared)
        assert Coordinator(ROUND, shared).step()
        assert caplog.text.count("is restored: somebody changed it") == 3
        assert folder.receive(shared) == expected
        assert (tmp_path / "own").read_bytes() == b"precious"

    def test_a_request_that_was_deleted_is_restored(self, shared):
        coordinator = Coordinator(ROUND, shared)
        (shared / "round.json").unlink()
        with pytest.raises(KLFusionError, match="expected a folder that a coordinator opened"):
            send(shared, SILOS[0])
        coordinator.step()
        assert send(shared, SILOS[0]).exists()

    def test_a_store_that_was_lost(self, shared, tmp_path):
        coordinator = Coordinator(ROUND, shared, tmp_path / "store")
        for silo in SILOS[:3]:
            send(shared, silo)
        again = Coordinator(ROUND, shared, tmp_path / "new")
        assert again.step()
        assert again.asked["opened"] == coordinator.asked["opened"]
        assert folder.receive(shared) == dumps(kf.fuse(SILOS[:3]).posterior)

    def test_before_the_end_there_is_no_result(self, shared):
        Coordinator(ROUND, shared)
        with pytest.raises(KLFusionError, match=r"which is open: its status\.html shows who is"):
            folder.receive(shared)
        with pytest.raises(KLFusionError, match="which waits for answers to the first"):
            folder.second_request(shared)

    def test_names_that_differ_by_case_alone(self, shared):
        coordinator = Coordinator(ROUND, shared)
        send(shared, SILOS[0])
        send(shared, replace(SILOS[1], name="Silo-0"))
        coordinator.step()
        (note,) = coordinator.server.left_out
        assert note.endswith("the names 'Silo-0' and 'silo-0' differ by case alone")

    def test_one_coordinator_at_a_time(self, shared):
        with Coordinator(ROUND, shared).server.alone():
            out = klfusion("coordinator", shared, "--name", "rates", "--once", code=1)
        assert "expected a folder without another server" in out


class TestCommands:
    def test_signed_from_keys_to_the_result(self, tmp_path, monkeypatch):
        pytest.importorskip("minisign")
        monkeypatch.chdir(tmp_path)
        klfusion("site", "example", "data")
        Path("keys").mkdir()
        for name in ("cellar-1", "cellar-2", "cellar-3"):
            klfusion("site", "key", f"{name}.key")
            Path(f"{name}.key.pub").rename(f"keys/{name}.pub")
            klfusion("site", "fit", f"data/{name}.csv", "--name", name, "--n-components", 2,
                     "-o", f"{name}.safetensors")  # fmt: skip
        klfusion("site", "key", "coordinator.key")
        start = ("coordinator", "shared", "--keys", "keys", "--key", "coordinator.key", "--once")
        assert "waiting for 3 more" in klfusion(*start)
        first = ("site", "send", "cellar-1.safetensors", "--to", "shared")
        assert "(expected a signed message, got none): nothing was sent" in klfusion(*first, code=1)
        out = klfusion(*first, "--key", "cellar-2.key", code=1)
        assert "site 'cellar-1': expected the key whose public key the coordinator has" in out
        klfusion("site", "fit", "data/cellar-1.csv", "--name", "other", "--n-components", 2,
                 "-o", "other.safetensors")  # fmt: skip
        out = klfusion("site", "send", "other.safetensors", "--to", "shared", code=1)
        assert "site 'other': expected a name of this round, 'cellar-1', 'cellar-2'" in out
        unsigned = Round(name=folder.read_round("shared")["round"]).message(
            folder.Site("cellar-1"), kf.load("cellar-1.safetensors")
        )
        Path("shared/inbox/cellar-1-fit-0.safetensors").write_bytes(unsigned.data)
        assert "expected a signed message, got none" in klfusion(*start)
        without = [word for word in start if word not in ("--key", "coordinator.key")]
        assert len(without) == len(start) - 2
        assert "expected the secret key that signed the request" in klfusion(*without, code=1)
        for name in ("cellar-1", "cellar-2", "cellar-3"):
            klfusion("site", "send", f"{name}.safetensors", "--to", "shared", "--key",
                     f"{name}.key")  # fmt: skip
        assert "released: shared/fused.safetensors" in klfusion(*start)
        klfusion("site", "receive", "shared", "-o", "fused.safetensors", "--key",
                 "coordinator.key.pub")  # fmt: skip
        assert kf.load("fused.safetensors").n_components == 3
        unchecked = klfusion("site", "receive", "shared", "-o", "y.safetensors")
        assert "without --key the signature was not checked" in unchecked
        klfusion("site", "receive", "shared", "-o", "x.safetensors", "--key", "keys/cellar-1.pub",
                 code=1)  # fmt: skip

    def test_a_table_keeps_the_names_of_its_columns(self, tmp_path):
        klfusion("site", "example", tmp_path)
        out = tmp_path / "a.safetensors"
        klfusion("site", "fit", tmp_path / "cellar-1.csv", "--name", "a", "--n-components", 2,
                 "-o", out)  # fmt: skip
        assert kf.load(out).structure.info["features"][0] == "alcohol"

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", ": expected a line of names, and rows, got 0 lines"),
            ("a,b\n", ": expected a line of names, and rows, got 1 lines"),
            ("a,b\n1,x\n", ", line 2: expected a number in column 'b', got 'x'"),
            ("a,b\n\n1,2\n\n3\n", ", line 5: expected 2 cells, got 1"),
            ("a,b\n1,nan\n2,3\n", ", line 2: expected a number in column 'b', got 'nan'"),
            ("a,b\n1,2\n2,-inf\n", ", line 3: expected a number in column 'b', got '-inf'"),
            ("a,b\n1,2\n", ": expected at least 2 rows, one per component, got 1"),
            ("1,2\n3,4\n5,6\n", ": expected a first row with the names of columns, each once"),
            ("a,a\n1,2\n3,4\n", ": expected a first row with the names of columns, each once"),
            (",a\n0,2\n1,4\n", ": expected a name for every column, got none for column 1; pandas"),
            ("a;b\n1;2\n3;4\n", ": expected commas between columns, got ';'"),
            ("a,b\n1,1e200\n3,4\n", ": expected numbers whose squares floats can hold, got larger"),
            ("größe,b\n1,2\n3,4\n", ": expected a table, CSV in UTF-8"),
        ],
    )
    def test_tables_that_cannot_be_used(self, text, message, tmp_path):
        table = tmp_path / "a.csv"
        table.write_text(text, encoding="latin-1")
        out = klfusion("site", "fit", table, "--name", "a", "--n-components", 2,
                       "-o", tmp_path / "a.safetensors", code=1)  # fmt: skip
        assert f"a.csv{message}" in out

    def test_a_table_of_another_program(self, tmp_path):
        """With a byte order mark, blank lines, and cells that hold line ends."""
        table, out = tmp_path / "a.csv", tmp_path / "a.safetensors"
        table.write_text('"a\nb",c\n1,2\n\n3,5\n4,4\n\n', encoding="utf-8-sig")
        klfusion("site", "fit", table, "--name", "a", "--n-components", 1, "-o", out)
        assert kf.load(out).structure.info["features"] == ["a\nb", "c"]

    def test_keys_with_another_package_named_minisign(self, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "minisign", ModuleType("minisign"))
        out = klfusion("site", "key", tmp_path / "a.key", code=1)
        assert "pip install --force-reinstall py-minisign" in out

    def test_a_second_model_of_a_site(self, shared, tmp_path):
        Coordinator(ROUND, shared)
        for number, silo in enumerate(SILOS[:2]):
            kf.save(tmp_path / f"{number}.safetensors", replace(silo, name="a-fit"))
        kf.save(tmp_path / "2.safetensors", replace(SILOS[0], name="a"))
        words = [("site", "send", tmp_path / f"{k}.safetensors", "--to", shared) for k in range(3)]
        for _ in range(2):
            assert "note" not in klfusion(*words[0])
        assert "note: there is another model of 'a-fit', a-fit-fit-" in klfusion(*words[1])
        assert "note" not in klfusion(*words[2])

    def test_the_name_of_a_round_by_default(self, tmp_path):
        for _ in range(2):  # the second continues the first
            klfusion("coordinator", tmp_path / "shared", "--n-silos", 2, "--once")
        assert folder.read_round(tmp_path / "shared")["round"].startswith("shared 20")

    def test_wrong_usage(self, tmp_path):
        klfusion("coordinator", tmp_path, "--definition", "a.py", "--n-silos", 2, code=2)
        table = tmp_path / "a.csv"
        klfusion("site", "fit", table, "--name", "a", "-o", tmp_path / "a.safetensors", code=2)
        kf.save(tmp_path / "f.safetensors", kf.fuse(SILOS[:2]))
        out = klfusion("site", "send", tmp_path / "f.safetensors", "--to", tmp_path, code=1)
        assert "expected the posterior of one silo, got a fusion" in out


class TestMessagesThatCannotBeFused:
    """They neither count nor block the next message of their silo."""

    OTHER = kf.families.Normal(1)

    def wrong(self, name):
        natural = self.OTHER.natural([[0.0]], [[[1.0]]])
        return kf.Posterior(self.OTHER, natural, name=name)

    def test_the_next_one_counts(self, shared):
        coordinator = Coordinator(ROUND, shared)
        send(shared, self.wrong("silo-0"))
        for silo in SILOS[:3]:  # before the coordinator has looked
            send(shared, silo)
        assert coordinator.step()
        assert bits(coordinator.server.fusion) == bits(kf.fuse(SILOS[:3]))

    def test_the_round_waits_for_it(self, shared):
        coordinator = Coordinator(ROUND, shared)
        for silo in (self.wrong("silo-0"), *SILOS[1:3]):
            send(shared, silo)
        assert not coordinator.step()
        assert coordinator.waiting == 1
        assert "cannot be fused with silo &#x27;silo-1&#x27;" in status(shared)
        again = Coordinator(ROUND, shared)  # a restart
        assert again.waiting == 1
        send(shared, SILOS[0])
        assert again.step()
        assert bits(again.server.fusion) == bits(kf.fuse(SILOS[:3]))
        assert again.server.left_out == []

    def test_the_status_page_lists_what_counts(self, shared):
        """Neither what was set aside nor what a site replaced is accepted."""
        coordinator = Coordinator(ROUND, shared)
        for silo in (self.wrong("silo-0"), *SILOS[1:3]):
            send(shared, silo)
        coordinator.step()
        rows = status(shared).partition("<h2>Set aside")[0]
        assert "2 of 3 silos have sent a message that can be used" in rows
        assert [name for name in ("silo-0", "silo-1", "silo-2") if f"<td>{name}</td>" in rows] == [
            "silo-1", "silo-2",
        ]  # fmt: skip
        send(shared, SILOS[0])
        assert coordinator.step()
        assert status(shared).count("<td>silo-0</td>") == 1
        assert len(coordinator.server.journal()) == 4

    def test_two_unusable_ones_do_not_take_turns(self, shared):
        coordinator = Coordinator(ROUND, shared)
        first = self.wrong("silo-0")
        for silo in (first, replace(first, natural=2.0 * first.natural), *SILOS[1:3]):
            send(shared, silo)
        for _ in range(3):
            assert not coordinator.step()
        assert len(coordinator.server.journal()) == 4

    def test_a_usable_message_stays(self, shared):
        coordinator = Coordinator(ROUND, shared)
        for silo in (*SILOS[:2], self.wrong("silo-0")):
            send(shared, silo)
        coordinator.step()
        assert any("the name 'silo-0' belongs to" in own for own in coordinator.server.left_out)
        assert coordinator.waiting == 1

    @pytest.mark.parametrize("wrong", [0, 1])
    def test_of_two_sites_the_next_message_decides(self, shared, wrong):
        """Which of the two is wrong, nobody knows: both may send another."""
        coordinator = Coordinator(replace(ROUND, n_silos=2, min_silos=2), shared)
        sent = [*SILOS[:2]]
        sent[wrong] = self.wrong(sent[wrong].name)
        for silo in sent:
            send(shared, silo)
        assert not coordinator.step()
        assert coordinator.waiting == 2
        assert len(coordinator.server.left_out) == 2
        assert "and as many silos are like either" in status(shared)
        send(shared, SILOS[wrong])
        assert coordinator.step()
        assert bits(coordinator.server.fusion) == bits(kf.fuse(SILOS[:2]))
        assert coordinator.server.left_out == []

    def test_silos_without_names_of_columns_join_the_most(self):
        normal = kf.families.NormalWishart(2)
        natural = normal.natural(np.zeros((1, 2)), [9.0], np.eye(2)[None], [9.0])
        names = {"a": None, "b": ["x", "y"], "c": ["y", "x"], "d": ["y", "x"]}
        silos = [
            kf.Posterior(normal, natural, name, structure=Structure(
                "mixture", {"counts": [9.0], "weight_prior": 1.0}, {"features": own}))
            for name, own in names.items()
        ]  # fmt: skip
        for order in (silos, silos[::-1]):
            kept, refused = compatible(order)
            assert [p.name for p in kept] == ["a", "c", "d"]
            assert [*refused] == ["b"]

    def test_at_the_end_of_time_the_round_ends_without_it(self, shared):
        coordinator = Coordinator(replace(ROUND, timeout=1e-9), shared)
        for silo in (self.wrong("silo-0"), *SILOS[1:3]):
            send(shared, silo)
        assert coordinator.step()
        assert coordinator.server.fusion.silo_names == ("silo-1", "silo-2")

    def test_the_first_file_in_the_second_round(self, shared):
        definition = Round(
            name="rates", fit=lambda site: SILOS[0], second=lambda fused, site: SILOS[3],
            combine=lambda fusion, answers: kf.fuse(answers),
        )  # fmt: skip
        coordinator = Coordinator(definition, shared)
        mine = [definition.posterior(folder.Site(silo.name)) for silo in SILOS[:2]]
        for silo in mine:
            send(shared, silo)
        coordinator.step()
        assert folder.read_round(shared)["request"] == "second"
        send(shared, mine[0])
        assert not coordinator.step()
        assert any("got the first again" in own for own in coordinator.server.left_out)
        for silo in SILOS[:2]:
            send(shared, replace(SILOS[3], name=silo.name))
        assert coordinator.step()


def test_who_is_expected_is_kept(shared, tmp_path):
    """A restart without the options of the first start forgets nothing."""
    klfusion("coordinator", shared, "--once", "--silo", "a", "--silo", "b", "--silo", "c")
    for silo, name in zip(SILOS, ("a", "b"), strict=False):
        send(shared, replace(silo, name=name))
    assert "waiting for 1 more" in klfusion("coordinator", shared, "--once")
    assert "silo &#x27;c&#x27;: nothing yet" in status(shared)
    with pytest.raises(KLFusionError, match="expected a name of this round"):
        send(shared, replace(SILOS[3], name="d"))
    many = tmp_path / "many"
    klfusion("coordinator", many, "--once", "--n-silos", "3")
    for silo in SILOS[:2]:
        send(many, silo)
    assert "waiting for 1 more" in klfusion("coordinator", many, "--once")
    klfusion("coordinator", many, "--once", "--n-silos", "2")  # may be changed
    assert (many / "manifest.json").exists()


@pytest.mark.parametrize("every", [0.0, -1.0, float("nan"), float("inf"), "2"])
def test_seconds_between_looks(shared, every):
    with pytest.raises(KLFusionError, match="expected every to be a number > 0"):
        Coordinator(ROUND, shared).run(every)


def test_a_missing_site_is_in_the_result(shared):
    coordinator = Coordinator(replace(ROUND, timeout=1e-9), shared)
    for silo in SILOS[:2]:
        send(shared, silo)
    assert coordinator.step()
    expected = ["1 of 3 silos: no usable message"]
    assert coordinator.server.fusion.provenance["left_out"] == expected
    assert json.loads((shared / "manifest.json").read_bytes())["left_out"] == expected


def test_a_round_without_a_site_is_done_and_says_so(shared):
    """At its timeout; fewer silos than --min-silos are an error."""
    words = ("coordinator", shared, "--n-silos", 3, "--once", "--timeout", 1e-9)
    klfusion("coordinator", shared, "--n-silos", 3, "--once")
    send(shared, SILOS[0])
    assert "expected posteriors of at least 2 silos" in klfusion(*words, code=1)
    send(shared, SILOS[1])
    out = klfusion(*words)
    assert "set aside: 1 of 3 silos: no usable message" in out
    assert "released" in out


def test_keys_need_a_folder(shared, tmp_path):
    words = ("coordinator", shared, "--n-silos", 2, "--once", "--keys")
    assert "expected a folder of public keys, got no folder" in klfusion(
        *words, tmp_path / "none", code=1
    )
    assert "got an empty one" in klfusion(*words, tmp_path, code=1)


@pytest.mark.slow
def test_a_coordinator_that_is_killed_continues(shared, tmp_path):
    """A real process is killed after it accepted two of three messages."""
    command = [sys.executable, "-m", "klfusion", "coordinator", str(shared), "--name", "rates",
               "--n-silos", "3", "--every", "0.05"]  # fmt: skip
    log = (tmp_path / "log").open("wb")
    with log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        wait_for((shared / "round.json").exists, process)
        for silo in SILOS[:2]:
            send(shared, silo)
        wait_for(lambda: len(list(shared.glob("store/silo-*"))) == 2, process)
        process.send_signal(signal.SIGKILL)
    for path in (shared / "inbox").iterdir():  # accepted messages are the coordinator's own
        path.write_bytes(b"")
    send(shared, SILOS[2])
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    assert folder.receive(shared) == dumps(kf.fuse(SILOS[:3]).posterior)
    fusion = kf.load(shared / "store" / "global.safetensors")
    assert fusion.silo_names == ("silo-0", "silo-1", "silo-2")


def wait_for(condition, process, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.02)


def test_messages_are_what_was_saved(shared):
    Coordinator(ROUND, shared)
    sent = loads(send(shared, SILOS[0]).read_bytes())
    np.testing.assert_array_equal(sent.natural, SILOS[0].natural)


def test_a_round_that_somebody_replaced_is_refused(shared, tmp_path):
    """Another round's request, a result of another round, and a restart without keys."""
    Coordinator(ROUND, shared)
    other = tmp_path / "other"
    earlier = Coordinator(Round(name="last year", n_silos=2), other)
    for silo in SILOS[:2]:
        send(other, silo)
    assert earlier.step()
    (shared / "manifest.json").write_bytes((other / "manifest.json").read_bytes())
    (shared / "fused.safetensors").write_bytes((other / "fused.safetensors").read_bytes())
    with pytest.raises(KLFusionError, match="manifest of round 'rates', got one of round 'last"):
        folder.receive(shared)
    (shared / "manifest.json").unlink()
    (shared / "round.json").write_bytes((other / "round.json").read_bytes())
    with pytest.raises(KLFusionError, match="of round 'last year', got one of 'rates'"):
        Coordinator(Round(name="last year", n_silos=2), shared)
    Coordinator(ROUND, shared).step()
    assert folder.read_round(shared)["round"] == "rates"


def test_a_round_with_signatures_is_not_continued_without(shared, tmp_path):
    pytest.importorskip("minisign")
    keys = {"silo-0": str(signing.make_keys(tmp_path / "key"))}
    Coordinator(replace(ROUND, keys=keys), shared)
    again = Coordinator(replace(ROUND, keys={**keys, "silo-1": keys["silo-0"]}), shared)
    assert sorted(folder.read_round(shared)["keys"]) == again.asked["silos"] == ["silo-0", "silo-1"]
    with pytest.raises(KLFusionError, match="public keys of silos"):
        Coordinator(ROUND, shared)
