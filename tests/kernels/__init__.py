"""Kernels to test the tester on: right ones with every legitimate difference, wrong ones with one fault each."""
