"""What runs the work: threads, devices, processes, memory, progress."""
