"""Read-only views of kernels that passes and emitters share.

Imports ``dialects``, ``prover`` and ``errors``, never torch.
"""
