"""Where the extremes of an array are."""
