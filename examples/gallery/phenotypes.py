"""Phenotypes in mixed and incomplete columns.

Each of six hospitals sees two or three of four kinds of patients. A fifth of the cells is missing,
and hospital 3 never measured the pressure. They agree on a schema first, for equal priors.
The left panel shows each phenotype's patients, the right one what the fused model finds.
Use this for tables with columns of all kinds; `fusion.report` writes it for a clinician.
"""

import matplotlib.pyplot as plt
import numpy as np

import klfusion as kf
from klfusion.learners import Column, MixedMixture

rng = np.random.default_rng(0)
of_kinds = np.array([[35, 55, 70, 73], [115, 150, 120, 165], [1, 5, 14, 4]])
numbers = [Column("age", "continuous", (30, 80)), Column("pressure", "continuous", (90, 140))]
smoker = Column("smoker", "binary", categories=(False, True))
schema = kf.Schema([*numbers, smoker, Column("visits", "counts", reference=(0, 6))])


def patients(kinds, n=200):
    k = rng.choice(kinds, n)
    rows = [*rng.normal(of_kinds[:2, k], 6), rng.random(n) < k / 3.5, rng.poisson(of_kinds[2, k])]
    frame = {c: np.where(rng.random(n) < 0.8, x, np.nan) for c, x in zip(schema.names, rows)}
    return frame | {"age": rows[0]}


data = [patients(k) for k in ([0, 1], [1, 2], [0, 2, 3], [1, 3], [0, 3], [0, 1, 2])]
del data[3]["pressure"]
fusion = kf.fuse([MixedMixture(schema, random_state=0).fit(d) for d in data])
new, model = patients(range(4)), fusion.model()
print(fusion.n_components, "phenotypes; at 55:", model.impute({"age": [55.0]})["pressure"], "mmHg")
left, right = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")[1]
for j, (silo, labels) in enumerate(zip(fusion.silos, fusion.labels)):
    left.barh(j, silo.counts, left=200 * labels, color=[f"C{g}" for g in labels])
right.scatter(new["age"], new["pressure"], s=8, c=[f"C{g}" for g in model.predict(new)])
left.set(title="Patients of each phenotype", ylabel="hospital", xticks=[])
right.set(title="New patients", xlabel="age", ylabel="pressure")
plt.savefig("phenotypes.png")
