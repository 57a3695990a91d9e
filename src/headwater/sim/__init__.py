"""WHAT IF? The simulated world, which is also the only fake in tests."""
