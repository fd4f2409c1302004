"""What all tests share: how Hypothesis draws its examples, and what is not collected."""

from hypothesis import settings

collect_ignore = ["federation/faulty_app"]  # an app of its own, for processes of its own

# The same examples in every run and without a time limit per example: whether a test passes
# depends on the code alone. No test overrides these.
settings.register_profile(
    "klfusion", derandomize=True, deadline=None, max_examples=30, print_blob=True
)
settings.load_profile("klfusion")
