"""`attack`: tests a running gateway with known attacks."""
