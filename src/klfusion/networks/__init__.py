"""Networks of independent Normal weights that predict: in PyTorch, and with numpy alone."""
