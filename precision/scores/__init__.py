"""What stands between q.k and the softmax: scale rules and masks."""
