"""What a person at a terminal meets: output, streams, passphrases, failures, interrupts, timings."""
