"""Networks with independent Normal weights: predictions in PyTorch or with numpy alone."""
