"""`audit`: reads the record and verifies its integrity."""
