"""Normalisation of rows: softmax, layer and RMS norm."""
