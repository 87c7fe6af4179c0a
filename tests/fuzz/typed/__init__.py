"""Programs whose types and values a second model predicts, which imports no CubePy."""
