"""What the C dialects share: one writer for structured IR, one namer, tables of spellings."""
