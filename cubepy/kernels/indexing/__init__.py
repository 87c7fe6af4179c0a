"""Elements that are read and written at computed indices."""
