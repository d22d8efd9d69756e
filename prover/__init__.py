"""Facts about sizes: canonical expressions, bounds, proofs. Knows neither MLIR nor torch."""
