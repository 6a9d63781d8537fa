"""Published apps, unchanged: the same script natively and in a view of the console."""
