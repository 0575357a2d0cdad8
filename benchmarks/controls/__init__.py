"""Controls with a known truth, on a real engine: nothing changed, or one cell's tokens delayed by a known amount."""
