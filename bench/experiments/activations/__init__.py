"""What wrapping a model saves, and what it costs."""
