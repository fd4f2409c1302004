"""Audits: exposed rows are found, noise hides them, budgets hold."""

import csv

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.mixture import BayesianGaussianMixture
from sklearn.naive_bayes import GaussianNB

import klfusion as kf
from klfusion.cli.commands import main
from klfusion.errors import KLFusionError
from klfusion.posteriors.budgets import described

BOUNDS = {"x0": (-9.0, 9.0), "x1": (-9.0, 9.0)}


def table(n=200, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    x[7] = [8.0, -8.0]  # no one else is like this
    return x, (x[:, 0] + rng.normal(size=n) > 0).astype(int)


def private(epsilon, data):
    return kf.privatize(
        LogisticRegression(), name="a", data=data, epsilon=epsilon, delta=1e-5, bounds=BOUNDS,
        prior_sd=3.0, classes=[0, 1],
    )  # fmt: skip


def test_the_exposed_row_is_found():
    data = table()
    found = kf.audit(kf.extract(LogisticRegression(), name="a", data=data), data)
    assert found.exposed[0] == 7 and found.informed == found.promised == 1.0
    assert found.advantages[7] > 3.0 * np.median(found.advantages)
    assert "No budget limits this" in str(found)


def test_classes_are_audited_too():
    x, y = table()
    found = kf.audit(kf.extract(GaussianNB().fit(x, y), name="a"), (x, y))
    assert found.exposed[0] == 7


def test_heads_are_audited_too():
    x, y = table()
    found = kf.audit(kf.extract(kf.learners.BayesianHead().fit(x, y), name="a"), (x, y))
    assert found.exposed[0] == 7


def test_noise_lowers_the_advantage_to_less_than_the_budget_allows():
    pytest.importorskip("opendp")
    data = table()
    advantages = []
    for epsilon in (0.1, 1.0, 10.0):
        found = kf.audit(private(epsilon, data), data)
        assert found.advantage <= found.informed + 1e-9 and found.informed <= found.promised
        advantages.append(found.informed)
    assert advantages == sorted(advantages)


def test_shadow_models_of_a_mixture():
    x = table()[0][:80]
    mixture = BayesianGaussianMixture(n_components=2, random_state=0)
    posterior = kf.extract(mixture.fit(x), name="a")
    with pytest.raises(KLFusionError, match="expected fit="):
        kf.audit(posterior, x)

    def fit(rows):
        return BayesianGaussianMixture(n_components=1, random_state=0).fit(rows)

    found = kf.audit(posterior, x, fit=fit)
    assert found.exposed[0] == 7 and 0.0 <= found.advantages.min() <= found.advantage <= 1.0


def test_fusions_are_refused():
    data = table()
    fusion = kf.fuse([kf.extract(LinearRegression(), name="a", data=data)])
    with pytest.raises(KLFusionError, match="one site would send, got Fusion"):
        kf.audit(fusion, data)


def test_note_has_no_number():
    data = table()
    posterior = kf.extract(LinearRegression(), name="a", data=data)
    noted = kf.audit(posterior, data).noted(posterior)
    assert noted.provenance == {**posterior.provenance, "audited": True}


def test_command_and_inspection(tmp_path):
    pytest.importorskip("opendp")
    x, y = data = table()
    site, rows, noted = (tmp_path / name for name in ("a.safetensors", "rows.csv", "b.safetensors"))
    kf.save(site, private(1.0, data))
    with rows.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["x0", "x1", "sick"])
        writer.writerows(np.column_stack([x, y]).tolist())
    run = CliRunner()
    shown = run.invoke(main, ["inspect", str(site)]).output
    for text in ("Noise was added", "epsilon 1 at delta 1e-05", "Sensitivity", "No audit was made"):
        assert text in shown
    found = run.invoke(main, ["audit", str(site), str(rows), "--outcome", "sick", "-o", str(noted)])
    assert found.exit_code == 0 and "counted from 0: 7" in found.output
    assert "audited this file" in run.invoke(main, ["inspect", str(noted)]).output
    wrong = run.invoke(main, ["audit", str(site), str(rows), "--outcome", "died"])
    assert wrong.exit_code != 0 and "expected a column 'died', the outcome" in wrong.output
    assert "see --outcome" in wrong.output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a line of names, and rows, got 0 lines"),
        ("x0,x1,y\n", "got 1 lines"),
        ("x0,age,y\n1,2,0\n", "got none named 'x1'"),
        ("x0,x1,y\n1,2,0\n1,2\n", "line 3: expected 3 cells, got 2"),
        ("x0,x1,y\n1,2,0\n1,old,0\n", "line 3: expected a number in column 'x1', got 'old'"),
        ("x0,x1,y\n1,2,0\n1,3,1\n", "expected 200 rows, got 2 rows"),
        ("x0,x1,x1,y\n1,2,2,0\n", "expected each column once, got 'x1' twice"),
        ("x0;x1;y\n1;2;0\n", "expected commas between columns, got ';'"),
    ],
)
def test_tables_that_are_none_are_refused(text, message, tmp_path):
    site, rows = tmp_path / "a.safetensors", tmp_path / "rows.csv"
    kf.save(site, kf.extract(LogisticRegression(), name="a", data=table()))
    rows.write_text(text)
    found = CliRunner().invoke(main, ["audit", str(site), str(rows)])
    assert found.exit_code == 1 and message in " ".join(found.output.split())


def test_what_cannot_be_audited_is_named(tmp_path):
    """A mixture, which is no sum over rows, and an outcome of words where it is a number."""
    x, _ = table()
    site, rows = tmp_path / "a.safetensors", tmp_path / "rows.csv"
    kf.save(site, kf.extract(BayesianGaussianMixture().fit(x), name="a"))
    rows.write_text("x0,x1\n1,2\n")
    found = CliRunner().invoke(main, ["audit", str(site), str(rows)])
    assert found.exit_code == 1 and "this posterior is no sum over rows" in found.output
    kf.save(site, linear := kf.extract(LinearRegression(), name="a", data=(x, x[:, 0])))
    rows.write_text("x0,x1,died\n1,2,0\n1,3,no\n")
    found = CliRunner().invoke(main, ["audit", str(site), str(rows), "--outcome", "died"])
    assert "line 3: expected a number in column 'died', got 'no'" in found.output
    with pytest.raises(KLFusionError, match="'a': expected numbers in y, got 'no'"):
        kf.audit(linear, (x, ["no"] * len(x)))


def test_other_columns_of_a_table_are_left_out_and_classes_may_be_words(tmp_path):
    pandas = pytest.importorskip("pandas")
    x, y = table()
    words = np.where(y == 1, "sick", "well")
    frame = pandas.DataFrame(x, columns=["age", "dose"])
    site, rows = tmp_path / "a.safetensors", tmp_path / "rows.csv"
    kf.save(site, kf.extract(GaussianNB().fit(frame, words), name="a"))
    frame.assign(name="someone", died=words)[["name", "dose", "died", "age"]].to_csv(
        rows, index=False
    )
    found = CliRunner().invoke(main, ["audit", str(site), str(rows), "--outcome", "died"])
    assert found.exit_code == 0 and "counted from 0: 7" in found.output


def test_rows_of_others_are_refused():
    pytest.importorskip("opendp")
    data, (x, y) = table(), table(seed=3)
    others = (np.abs(x), y)  # as many, and not the same
    with pytest.raises(KLFusionError, match=r"'a': expected the rows.*more than the noise"):
        kf.audit(private(50.0, data), others)
    assert kf.audit(private(50.0, data), data).informed > 0.5
    plain = kf.extract(GaussianNB().fit(*data), name="a")
    with pytest.raises(KLFusionError, match="rows by class, got"):
        kf.audit(plain, others)
    naive = kf.privatize(
        GaussianNB(), name="a", data=data, epsilon=50.0, delta=1e-5, bounds=BOUNDS, classes=[0, 1]
    )
    assert kf.audit(naive, data).exposed[0] == 7
    with pytest.raises(KLFusionError, match="rows by class, got"):
        kf.audit(naive, (x[:150], y[:150]))


@pytest.mark.filterwarnings("ignore::klfusion.pooling.noisy_sums.ShrunkWarning")
def test_a_second_round_is_audited_where_it_was_expanded():
    pytest.importorskip("opendp")
    data = table()
    first = kf.fuse([private(50.0, data)])
    again = kf.privatize(
        LogisticRegression(), name="a", data=data, epsilon=50.0, delta=1e-5, bounds=BOUNDS,
        prior_sd=3.0, classes=[0, 1], at=first,
    )  # fmt: skip
    assert kf.audit(again, data).informed > 0.5


def test_files_without_a_budget_say_so(tmp_path):
    kf.save(tmp_path / "a.safetensors", kf.extract(LinearRegression(), name="a", data=table()))
    shown = CliRunner().invoke(main, ["inspect", str(tmp_path / "a.safetensors")]).output
    assert "there is no privacy budget, and nothing is promised" in shown


def test_fusions_have_the_budgets_of_their_silos(tmp_path):
    pytest.importorskip("opendp")
    plain = kf.extract(LogisticRegression(), name="b", data=table(seed=1), prior_sd=3.0)
    fusion = kf.fuse([private(1.0, table()), plain])
    sentences = described(fusion.posterior.provenance, 2)
    assert sentences[0].startswith("Silo 'a': epsilon 1 at delta 1e-05, for one row added")
    assert "Other silos added no noise" in sentences[1]
    fusion.report(tmp_path / "a.html")
    assert "epsilon 1 at delta 1e-05" in (tmp_path / "a.html").read_text(encoding="utf-8")
    again = kf.fuse(
        [fusion, kf.extract(LogisticRegression(), name="c", data=table(seed=2), prior_sd=3.0)]
    )
    assert again.posterior.provenance["privacy"].keys() == {"a"}
