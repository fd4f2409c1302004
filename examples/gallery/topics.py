"""Topics with own vocabularies.

Four newsrooms write about fires, cricket, the Taliban and Israel, two subjects each, and fit two
topics to their own words (Australian news of 2001). So few show little of what different topics
look like: the number is asked for. Each panel is one global topic: its heaviest words, and the
newsrooms that have it. Use this when sites have texts but no common list of words.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from gensim.test.utils import datapath
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer

import klfusion as kf

news = Path(datapath("lee_background.cor")).read_text(encoding="utf-8").splitlines()
rooms = {"Sydney": ["fires", "cricket"], "London": ["cricket", "Taliban"]}
rooms |= {"New York": ["Taliban", "Israel"], "Perth": ["Israel", "fires"]}
sites = {}
for j, (room, subjects) in enumerate(rooms.items()):
    texts = [text for s in subjects for text in [text for text in news if s in text][j % 2 :: 2]]
    bag = CountVectorizer(min_df=2, stop_words=[*ENGLISH_STOP_WORDS, "mr", "said", "says"])
    lda = LatentDirichletAllocation(n_components=2, random_state=0).fit(bag.fit_transform(texts))
    sites[room] = kf.extract(lda, name=room, vocabulary=bag.get_feature_names_out())
fusion = kf.fuse(sites, n_components=4)

words = np.array(kf.vocabulary.words(fusion.posterior))
figure, panels = plt.subplots(1, fusion.n_components, figsize=(10, 3.2), layout="constrained")
for g, weights in enumerate(fusion.posterior.params()["concentration"]):
    top, names = weights.argsort()[-8:], [name for name, _ in fusion.sources(g)]
    known = [np.isin(words[top], kf.vocabulary.words(sites[name])) for name in names]
    panels[g].barh(words[top], weights[top], color=np.where(np.all(known, axis=0), "C0", "C1"))
    panels[g].set_title(" and ".join(names))
    print(panels[g].get_title(), *words[top[:-5:-1]], sep=", ")
figure.supxlabel("weight of a word; blue: in both vocabularies, orange: in one")
plt.savefig("topics.png")
