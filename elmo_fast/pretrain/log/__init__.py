"""What a run reports: lines for people, metrics.jsonl, TensorBoard; and how metrics.jsonl is read back."""
