"""What a fusion says about its own matching: why this size, and how sure each match is."""

from klfusion._utils.package import provided


class OfMatching:
    """Methods of `Fusion` about evidence and probabilities."""

    def explain(self) -> str:
        """Why the model has this size and not another, and which matches are least certain.

        One sentence per line, from the evidence of every size (`Fusion.path`) and the probability
        of every match. The report has the same with a chart and a table.

        Examples
        --------
        >>> import klfusion as kf
        >>> rates = kf.families.Gamma()
        >>> shapes = {"a": [30, 900], "b": [910, 32], "c": [31, 250]}
        >>> silos = {n: kf.Posterior(rates, rates.natural(s, [10, 10])) for n, s in shapes.items()}
        >>> print(kf.fuse(silos).explain())
        3 components have the highest evidence on the merge path.
        2 components are 9.3 nats less probable, odds of more than 10,000 to 1.
        4 components are 7.8 nats less probable, odds of 2,400 to 1.
        Of 5 matched local components, fewer than 0.01 are expected to be matched wrongly.
        """
        return "\n".join(provided("why")(self))
