"""Read-only views of kernels, shared by passes and emitters.

Imports ``dialects``, ``prover``, ``artifact`` and ``errors``, never torch.
"""
