"""Benchmarks that prove claims of the documentation; each prints what it measured and fails when a bound is broken."""
