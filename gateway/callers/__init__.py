"""Who calls: what is presented becomes a principal, or a refusal; pure, whoever asks does the I/O."""
