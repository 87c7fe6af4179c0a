"""Convolutions: `conv1d`, `conv2d`, `conv3d`, `prepack`."""
