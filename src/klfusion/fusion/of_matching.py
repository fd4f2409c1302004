"""What a fusion says about its own matching: why this size, and how sure each match is."""

from klfusion._utils.arrays import FloatArray
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
        2 components are 9.2 nats less probable, odds of 9,700 to 1.
        4 components are 5.7 nats less probable, odds of 300 to 1.
        Of 5 matched local components, 0.13 are expected to be matched wrongly.
        """
        return "\n".join(provided("why")(self))

    def probability_same(self, first: tuple[str, int], second: tuple[str, int]) -> float:
        """Probability that two local components are the same, given the rest of the matching.

        For two that are matched, it is that of the match. For two apart, it is that one of them
        moves to the other's global component, or that both global components are one. Two of
        one silo differ; parts of a split count as one. NaN for a component that is unmatched.

        Parameters
        ----------
        first, second : tuple of silo and component
            As `Fusion.sources` gives them.

        Examples
        --------
        >>> import klfusion as kf
        >>> rates = kf.families.Gamma()
        >>> shapes = {"a": [30, 900], "b": [910, 32], "c": [31, 250]}
        >>> silos = {n: kf.Posterior(rates, rates.natural(s, [10, 10])) for n, s in shapes.items()}
        >>> fusion = kf.fuse(silos)
        >>> round(fusion.probability_same(("a", 0), ("b", 1)), 2)
        0.95
        >>> round(fusion.probability_same(("a", 1), ("c", 1)), 2)
        0.01
        """
        return float(provided("probability_same")(self, first, second))

    def probabilities_same(self) -> FloatArray:
        """`probability_same` of all local components, (n, n), in the rows of `Fusion.to_frame`."""
        result: FloatArray = provided("probabilities_same")(self)
        return result
