"""Read-only views of kernels, shared by passes and emitters.

Imports ``dialects``, ``prover`` and ``errors``, never torch.
"""
