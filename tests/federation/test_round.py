"""A round without a framework: messages, faults, restarts, the second round, signatures."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest

import klfusion as kf
from klfusion.errors import KLFusionError
from klfusion.federation import Reply, Round, Server, Site, signing
from klfusion.federation.round import HEADER
from klfusion.io.storage import dumps
from klfusion.posteriors.structure import Structure
from tests.helpers.silos import normal_wishart_silos, rate_silos

SILOS, _ = rate_silos(n_silos=4)


def reply_of(silo, definition=None, **changes):
    """The message of a site that sends this posterior."""
    definition = definition or ROUND
    return definition.message(Site(silo.name, changes.pop("config", {})), silo, **changes)


ROUND = Round(name="rates", n_silos=4, max_bytes=10_000)


def fused(*silos, definition=ROUND, store=None):
    server = Server(definition, store)
    for number, silo in enumerate(silos):
        server.receive(f"node {number}", reply_of(silo, definition))
    server.fuse()
    return server


def bits(fusion):
    """Bytes of the result, without the provenance and what the silos sent."""
    return dumps(replace(fusion, provenance={}, silos=None))


def with_header(silo, **changes):
    """The same message with another header."""
    sent = kf.federation.round.loads(reply_of(silo).data)
    header = {**sent.provenance[HEADER], **changes}
    return Reply(dumps(replace(sent, provenance={HEADER: header})))


def with_array(silo, key, array):
    """Bytes of a posterior with another array and a correct hash."""
    from klfusion.io import container, parts, storage, strict_json

    document, arrays = parts.take_apart(kf.federation.round.loads(reply_of(silo).data))
    arrays[key] = array
    document["sha256"] = storage._digest(document, arrays)
    text = strict_json.canonical_json(document).decode()
    return Reply(b"".join(container.encode({"klfusion": text}, arrays)))


def with_nan():
    natural = SILOS[2].natural.copy()
    natural[1, 0] = np.nan
    return with_array(SILOS[2], "natural", natural)


FAULTS = {
    "an error": (lambda: Reply(error="RuntimeError"), "RuntimeError"),
    "nothing": (Reply, "expected a posterior, got none"),
    "other parts": (
        lambda: Reply.of({"data": b"x", "arrays": b"y"}),
        "expected a message of data, signature or error, got ['arrays']",
    ),
    "NaN": (with_nan, "component 1: expected finite"),
    "another family": (
        lambda: reply_of(replace(normal_wishart_silos()[0][0], name="zz")),
        "expected Gamma(dim=3) as in silo 'silo-0', got NormalWishart(dim=3)",
    ),
    "too large": (lambda: Reply(b"x" * 10**6), "expected at most 10000 bytes, got 1000000"),
    "no safetensors": (lambda: Reply(b"\x80\x04."), "expected a safetensors file"),
    "truncated": (lambda: Reply(reply_of(SILOS[2]).data[:-8]), "cut short"),
    "damaged": (
        lambda: Reply(reply_of(SILOS[2]).data[:-8] + b"\0" * 8),
        "the file was damaged or edited",
    ),
    "a fusion": (
        lambda: Reply(dumps(kf.fuse(SILOS[:2]))),
        "expected the posterior of one silo, got a fusion",
    ),
    "no header": (lambda: Reply(dumps(SILOS[2])), "expected requests to answer, got None"),
    "another round": (lambda: with_header(SILOS[2], round="last year"), "'last year'"),
    "another version": (lambda: with_header(SILOS[2], version=2), "got (2, 'rates', 'fit')"),
    "another request": (lambda: with_header(SILOS[2], request="second"), "'second'"),
    "control characters": (
        lambda: with_header(SILOS[2], round="\x1b[31m\n"),
        r"\x1b[31m\n",
    ),
    "a stolen name": (
        lambda: reply_of(replace(SILOS[3], name="silo-0")),
        "the name 'silo-0' belongs to a message of node 0",
    ),
    "a copy": (lambda: reply_of(SILOS[0]), "a copy of the message of node 0"),
    "a claim to hold other silos": (
        lambda: reply_of(replace(SILOS[3], provenance={"silos": ["silo-0", "silo-1"]})),
        "silos counted twice",
    ),
    "values that cannot be compared": (
        lambda: reply_of(replace(SILOS[2], natural=SILOS[2].natural * 1e100)),
        "expected parameters that can be compared",
    ),
}


class TestFaults:
    """One sender of three fails: the round ends with the rest and names the sender, and why."""

    @pytest.mark.parametrize("fault", FAULTS)
    def test_round_ends_with_the_rest(self, fault, tmp_path, caplog):
        make, reason = FAULTS[fault]
        server = Server(ROUND, tmp_path)
        with caplog.at_level(logging.WARNING, "klfusion"):
            for number, silo in enumerate(SILOS[:2]):
                assert server.receive(f"node {number}", reply_of(silo)) is None
            server.receive("node 2", make())
            server.fuse()
        assert bits(server.fusion) == bits(kf.fuse(SILOS[:2]))
        note = next(own for own in server.left_out if "node 2" in own)
        assert {*server.left_out} - {note} == {"1 of 4 silos: no usable message"}
        assert reason in note
        assert "\n" not in note
        assert note in kf.load(tmp_path / "global.safetensors").provenance["left_out"]
        assert "left_out" in (tmp_path / "report.html").read_text(encoding="utf-8")
        again = Server(ROUND, tmp_path)  # a restart needs no site
        assert bits(again.fuse()) == bits(server.fusion)

    def test_too_few_are_a_clear_error(self, tmp_path):
        server = Server(Round(name="rates", min_silos=3, timeout=0.5), tmp_path)
        for number, silo in enumerate(SILOS[:2]):
            server.receive(f"node {number}", reply_of(silo))
        server.receive("node 2", Reply(error="no reply"))
        text = r"at least 3 silos within 0\.5 s, got 2; left out: node 2: no reply"
        with pytest.raises(KLFusionError, match=text):
            server.fuse()
        assert not (tmp_path / "global.safetensors").exists()

    def test_a_good_message_after_a_bad_one(self):
        server = Server(ROUND)
        server.receive("node 0", Reply(reply_of(SILOS[0]).data[:-1]))
        assert len(server.left_out) == 1
        server.receive("node 0", reply_of(SILOS[0]))
        assert server.left_out == []

    def test_named_senders_send_in_their_own_name(self):
        server = Server(ROUND, senders="named")
        assert server.receive("silo-0", reply_of(SILOS[0])) is None
        reason = server.receive("silo-1", reply_of(SILOS[2]))
        assert reason == "expected a message of 'silo-1', got one of 'silo-2'"

    def test_liars_with_the_names_of_all_remove_nobody(self):
        server = Server(ROUND)
        for number, silo in enumerate(SILOS):
            server.receive(f"node {number}", reply_of(silo))
        for number, silo in enumerate(SILOS):
            stolen = replace(SILOS[number - 1], name=silo.name)
            server.receive(f"liar {number}", reply_of(stolen))
        assert bits(server.fuse()) == bits(kf.fuse(SILOS))
        assert [note.partition(":")[0] for note in server.left_out] == [
            f"liar {number}" for number in range(len(SILOS))
        ]

    @pytest.mark.parametrize("digits", [8, 12, 14, 15, 16])
    def test_columns_that_are_nearly_one(self, digits):
        """A correlation of 1 - 1e-15 ended every round with it; it is used, or set aside."""
        family, count = kf.families.NormalWishart(2), np.array([90.0, 90.0])

        def natural(correlation):
            scatter = 90.0 * np.array([np.eye(2), [[1.0, correlation], [correlation, 1.0]]])
            return family.natural([[0.0, 0.0], [9.0, 9.0]], count, scatter, count)

        server, silos = Server(ROUND), [kf.Posterior(family, natural(0.5), name) for name in "abcz"]
        for number, silo in enumerate(silos[:3]):
            server.receive(f"node {number}", reply_of(silo))
        sent = with_array(silos[3], "natural", natural(1.0 - 10.0**-digits))
        server.receive("node 3", sent)
        assert {"a", "b", "c"} <= {*server.fuse().silo_names}
        assert ("z" in server.fusion.silo_names) != bool(server.left_out)

    def test_expected_silos(self):
        definition = Round(name="rates", silos=["silo-0", "silo-1", "silo-3"])
        assert definition.expected == 3
        server = fused(*SILOS[:3], definition=definition)
        assert server.fusion.silo_names == ("silo-0", "silo-1")
        unknown, absent = server.left_out
        assert unknown == "node 2: the silo 'silo-2' is not one of this round"
        assert absent == "silo 'silo-3': no usable message"

    def test_weights(self):
        weights = {silo.name: 1.0 for silo in SILOS[:3]} | {"absent": 1.0}
        definition = replace(ROUND, options={"weights": weights})
        server = fused(*SILOS, definition=definition)
        assert bits(server.fusion) == bits(kf.fuse(SILOS[:3]))
        assert server.left_out == ["silo 'silo-3' (node 3): no weight is given for 'silo-3'"]

    def test_columns_of_another_order_after_a_silo_without_names(self):
        def named(silo, features):
            arrays = {"counts": np.ones(silo.n_components), "weight_prior": 1.0}
            return replace(silo, structure=Structure("mixture", arrays, {"features": features}))

        columns = ["a", "b", "c"]
        silos = [named(SILOS[0], None), named(SILOS[1], columns), named(SILOS[2], columns[::-1])]
        silos.append(named(SILOS[3], columns))
        server = fused(*silos)
        assert bits(server.fusion) == bits(kf.fuse([silos[0], silos[1], silos[3]]))
        assert "silo 'silo-2' (node 2): cannot be fused with silo 'silo-1'" in server.left_out[0]

    @pytest.mark.parametrize("settings", [{"min_silos": 0}, {"n_silos": 1}, {"timeout": 0}])
    def test_settings(self, settings):
        with pytest.raises(KLFusionError, match="expected 1 <= min_silos <= n_silos and timeout"):
            Round(name="rates", **settings)

    @pytest.mark.parametrize("name", ["", "x" * 101])
    def test_names_of_sites(self, name):
        with pytest.raises(KLFusionError, match="expected a site's name of 1 to 100 bytes"):
            Site(name)


class TestSite:
    def test_what_is_sent_is_a_posterior_with_a_header(self):
        definition = Round(name="rates", fit=lambda site: SILOS[0], use=print)
        sent = kf.federation.round.loads(definition.reply(Site("ward")).data)
        assert sent.name == "ward"
        assert sent.natural.tobytes() == SILOS[0].natural.tobytes()
        assert sent.provenance[HEADER] == {
            "version": 1, "round": "rates", "request": "fit", "answers": ["use"],
        }  # fmt: skip

    def test_errors_keep_their_text_at_the_site(self, caplog):
        def fit(site):
            raise RuntimeError("patient 4711")

        reply = Round(name="rates", fit=fit).reply(Site("ward"))
        assert reply == Reply(error="site 'ward': RuntimeError (see the log of the site)")
        assert "patient 4711" in caplog.text

    def test_our_own_errors_are_sent(self):
        reply = Round(name="rates").reply(Site("ward"))
        assert "KLFusionError (expected a request that this round answers, got fit)" in reply.error

    def test_privatize(self):
        def privatize(posterior, site):
            return replace(posterior, natural=posterior.natural * site.config["factor"])

        definition = Round(name="rates", fit=lambda site: SILOS[0], privatize=privatize)
        sent = definition.posterior(Site("ward", {"factor": 0.5}))
        np.testing.assert_array_equal(sent.natural, SILOS[0].natural * 0.5)

    def test_too_large_to_send(self):
        with pytest.raises(KLFusionError, match="site 'silo-0': expected a message of at most 100"):
            reply_of(SILOS[0], replace(ROUND, max_bytes=100))

    @pytest.mark.parametrize(
        ("text", "error"),
        [("", "expected one Round, got none"), ("A = Round(name='a')\nB = Round(name='b')\n", "")],
    )
    def test_files_with_a_round(self, text, error, tmp_path):
        path = tmp_path / "rounds.py"
        path.write_text(f"from klfusion.federation import Round\n{text}", encoding="utf-8")
        with pytest.raises(KLFusionError, match=error or "expected one Round"):
            Round.load(str(path))
        if text:
            assert Round.load(f"{path}:B").name == "b"


class TestRestart:
    def test_what_a_folder_holds(self, tmp_path):
        server = fused(*SILOS[:3], store=tmp_path)
        names = sorted(path.name for path in tmp_path.iterdir())
        assert names == [
            "global.safetensors", "journal.jsonl", "report.html", "silo-silo-0.safetensors",
            "silo-silo-1.safetensors", "silo-silo-2.safetensors",
        ]  # fmt: skip
        assert [line["silo"] for line in server.journal()] == ["silo-0", "silo-1", "silo-2"]
        before = (tmp_path / "global.safetensors").read_bytes()
        again = Server(ROUND, tmp_path)
        assert again.known("node 1")
        assert not again.known("node 3")
        again.fuse()
        assert (tmp_path / "global.safetensors").read_bytes() == before
        assert again.senders == server.senders

    def test_a_damaged_file_and_a_cut_line_count_as_absent(self, tmp_path):
        fused(*SILOS[:3], store=tmp_path)
        (tmp_path / "silo-silo-1.safetensors").write_bytes(b"nonsense")
        with (tmp_path / "journal.jsonl").open("a", encoding="utf-8") as file:
            file.write('{"silo": "si')
        again = Server(ROUND, tmp_path)
        assert sorted(again.posteriors["fit"]) == ["silo-0", "silo-2"]
        again.receive("node 9", reply_of(SILOS[1]))
        assert bits(again.fuse()) == bits(kf.fuse(SILOS[:3]))
        assert Server(ROUND, tmp_path).known("node 9")  # the journal goes on after a cut line

    def test_a_site_may_connect_anew_with_another_identity(self, tmp_path):
        fused(*SILOS[:2], store=tmp_path)
        again = Server(ROUND, tmp_path)
        assert again.receive("node 77", reply_of(SILOS[0])) is None
        assert again.senders["silo-0"] == "node 77"

    def test_names_that_are_no_names_of_files(self, tmp_path):
        odd = [replace(SILOS[0], name="../a/b"), replace(SILOS[1], name="..")]
        fused(*odd, store=tmp_path / "store")
        assert [path.name for path in tmp_path.iterdir()] == ["store"]
        assert len(list((tmp_path / "store").glob("silo-*"))) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": ""}, "name"),
        ({"silos": "ab"}, "silos to be a list of names"),
        ({"silos": 3}, "silos to be a list of names"),
        ({"silos": ["a", "b", "a"]}, "different names, got 'a' twice"),
        ({"keys": ["a"]}, "keys to be a mapping"),
        ({"n_silos": "3"}, "n_silos to be an integer"),
        ({"n_silos": float("inf")}, "n_silos to be an integer"),
        ({"min_silos": 1.5}, "min_silos to be an integer"),
        ({"timeout": None}, "timeout to be a number"),
        ({"timeout": float("nan")}, "timeout"),
        ({"max_bytes": None}, "max_bytes to be a number of bytes"),
        ({"options": []}, "options to be a mapping"),
        ({"fit": "fit"}, "fit to be a function"),
    ],
)
def test_a_round_is_checked_before_sites_send(change, message):
    with pytest.raises(KLFusionError, match=message):
        Round(**{"name": "rates", **change})


class TestSecondRound:
    """Sites answer once more; by default their new posteriors replace the first ones."""

    def run(self, second, combine=None, store=None, min_silos=2, gone=(), n_silos=2):
        definition = Round(
            name="rates", fit=lambda site: SILOS[site.config["number"]], second=second,
            combine=combine, n_silos=n_silos, min_silos=min_silos,
        )  # fmt: skip
        sites = {f"node {j}": Site(SILOS[j].name, {"number": j}) for j in range(n_silos)}
        server = Server(definition, store)

        def ask(request, data, wanted, n):
            for sender, site in sites.items():
                if wanted(sender) and not (request == "second" and sender in gone):
                    yield sender, definition.reply(site, request, data)

        server.run(ask)
        return server

    def test_refinement(self):
        starts = []

        def second(start, site):
            starts.append(dumps(start))
            own = {"silos": start.provenance["silos"]}
            return replace(SILOS[2 + site.config["number"]], provenance=own)

        server = self.run(second)
        assert starts == [dumps(kf.fuse(SILOS[:2]).posterior)] * 2
        both = [replace(SILOS[2 + j], name=SILOS[j].name) for j in range(2)]
        np.testing.assert_array_equal(
            server.fusion.posterior.natural, kf.fuse(both).posterior.natural
        )
        assert server.left_out == []

    def test_statistics_that_the_server_combines(self):
        def second(start, site):  # any posterior, such as that of a last layer
            return replace(normal_wishart_silos()[0][site.config["number"]], name="anything")

        def combine(fusion, statistics):
            names = [own.name for own in statistics]
            return replace(fusion, provenance={**fusion.provenance, "heads": names})

        server = self.run(second, combine)
        assert server.fusion.provenance["heads"] == ["silo-0", "silo-1"]
        assert server.left_out == []

    def test_a_second_message_that_cannot_be_combined_is_left_out(self):
        def second(start, site):
            if site.config["number"] == 1:
                return normal_wishart_silos()[0][1]
            return SILOS[3]

        server = self.run(second, lambda fusion, sent: kf.fuse(sent), n_silos=3)
        assert server.fusion.silo_names == ("silo-0", "silo-2")
        (note,) = server.left_out
        assert note.startswith("silo 'silo-1' (node 1): cannot be fused with silo 'silo-0'")
        with pytest.raises(KLFusionError, match="and as many silos are like either"):
            self.run(second, lambda fusion, sent: kf.fuse(sent), min_silos=1)

    def test_too_few_to_combine_are_an_error(self):
        with pytest.raises(KLFusionError, match=r"at least 2 silos .* got 0; left out: .*round 2"):
            self.run(lambda start, site: 1 / 0, lambda fusion, sent: kf.fuse(sent))

    def test_a_site_that_is_gone_is_named(self):
        server = self.run(lambda start, site: SILOS[2], gone=("node 1",))
        reason = "silo 'silo-1' (node 1): not connected (round 2: first posterior used)"
        assert server.left_out == [reason]

    @pytest.mark.parametrize(
        ("second", "reason"),
        [
            (lambda start, site: 1 / 0, "ZeroDivisionError"),
            (lambda start, site: normal_wishart_silos()[0][0], "cannot be fused"),
        ],
    )
    def test_a_silo_that_fails_keeps_its_first_posterior(self, second, reason):
        server = self.run(second)
        assert bits(server.fusion) == bits(kf.fuse(SILOS[:2]))
        assert len(server.left_out) == 2
        assert reason in server.left_out[0]
        assert server.left_out[0].endswith("(round 2: first posterior used)")

    def test_restart_between_the_rounds(self, tmp_path):
        def crash(start, site):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            self.run(crash, store=tmp_path)
        server = self.run(lambda start, site: SILOS[2 + site.config["number"]], store=tmp_path)
        assert sorted(server.posteriors["second"]) == ["silo-0", "silo-1"]

    def test_the_second_message_comes_from_the_sender_of_the_first(self):
        server = fused(*SILOS[:2])
        reason = server.receive("node 1", reply_of(SILOS[0], request="second"), "second")
        assert reason == "expected the silo of the first message, got 'silo-0'"


class TestSignatures:
    @pytest.fixture
    def keys(self, tmp_path):
        pytest.importorskip("minisign")
        names = [silo.name for silo in SILOS[:3]]
        return {name: str(signing.make_keys(tmp_path / f"{name}.key")) for name in names}

    def test_only_signed_messages_count(self, keys, tmp_path):
        definition = replace(ROUND, keys=keys, n_silos=None)
        server = Server(definition, tmp_path / "store")
        for silo in SILOS[:2]:
            own = {"key": str(tmp_path / f"{silo.name}.key")}
            assert server.receive(silo.name, reply_of(silo, definition, config=own)) is None
        third = reply_of(SILOS[2], config={"key": str(tmp_path / "silo-0.key")})
        assert "expected a message of 'silo-0', who signed it" in server.receive("x", third)
        unsigned = reply_of(SILOS[2])
        assert server.receive("y", unsigned) == "expected a signed message, got none"
        other = Reply(unsigned.data, reply_of(SILOS[1], definition, config=own).signature)
        assert server.receive("z", other) == (
            "expected a signature by a silo of this round, got another"
        )
        assert server.receive("w", Reply(unsigned.data, b"nonsense")) == (
            "expected a signature by a silo of this round, got another"
        )
        assert bits(server.fuse()) == bits(kf.fuse(SILOS[:2]))
        assert server.left_out[-1] == "silo 'silo-2': no usable message"
        assert len(Server(definition, tmp_path / "store").posteriors["fit"]) == 2

    def test_minisign_can_check_them(self, keys, tmp_path):
        import minisign

        message = reply_of(SILOS[0], config={"key": str(tmp_path / "silo-0.key")})
        found = minisign.Signature.from_bytes(message.signature)
        assert found.trusted_comment == "klfusion round 'rates', silo 'silo-0', fit"
        assert found.is_prehashed()
        minisign.PublicKey.from_file(keys["silo-0"]).verify(message.data, found)
        assert (tmp_path / "silo-0.key").stat().st_mode & 0o777 == 0o600

    def test_keys_that_are_none(self, keys, tmp_path):
        with pytest.raises(KLFusionError, match="expected a secret key of minisign"):
            reply_of(SILOS[0], config={"key": str(tmp_path / "absent")})
        with pytest.raises(KLFusionError, match="expected a public key of minisign, got 'no'"):
            signing.public_key("no")
        with pytest.raises(KLFusionError, match="cannot be written"):
            signing.make_keys(tmp_path / "silo-0.key")

    def test_without_the_extra(self, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "minisign", None)
        with pytest.raises(KLFusionError, match=r"pip install 'klfusion\[sign\]'"):
            signing.sign(b"", "key", "")
