"""The parts that the composition root puts together: each module builds one of them from the configuration."""
