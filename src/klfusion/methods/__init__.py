"""Ways to match components; each is a frozen configuration that runs itself on a problem.

One file per method; the kind of model chooses the method in `matching` and nowhere else.
"""

from klfusion.methods.auto import Auto
from klfusion.methods.binary import Binary
from klfusion.methods.by_name import ByName
from klfusion.methods.homogeneous import Homogeneous
from klfusion.methods.matching import METHODS, method_for
from klfusion.methods.max_loss import MaxLoss
from klfusion.methods.method import Method, PathMethod, method_from_config
from klfusion.methods.networks import Networks
from klfusion.methods.penalised import Penalised
from klfusion.methods.relaxed import Relaxed

__all__ = ["Auto", "Binary", "ByName", "Homogeneous", "MaxLoss", "Method", "Networks"]
__all__ += ["METHODS", "PathMethod", "Penalised", "Relaxed", "method_for", "method_from_config"]
