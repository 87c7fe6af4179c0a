"""Layers of ResNet-50, BERT and Llama 3 beside torch; `__main__.py` is the command."""
